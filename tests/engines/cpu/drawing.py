"""Draws pages for the tests of the CPU engine, with the font that comes with Pillow."""

from __future__ import annotations

import io
from collections.abc import Sequence
from functools import cache

from PIL import Image, ImageDraw, ImageFont

from jina_ocr_loaders.engines.cpu.geometry import Box, Line, Word
from jina_ocr_loaders.pages import PageImage

WIDTH, HEIGHT = 1131, 1600  # pixels; A4 in the engine's render size


@cache
def font(size: int) -> ImageFont.FreeTypeFont:
    """Pillow's own font, at a size in pixels."""
    loaded = ImageFont.load_default(size)
    assert isinstance(loaded, ImageFont.FreeTypeFont)
    return loaded


def line(text: str, left: float, top: float, size: int = 20) -> Line:
    """A line as the recogniser gives it, with its upper left corner at a place."""

    def x(count: int) -> float:
        return left + font(size).getlength(text[:count])

    words, at = [], 0
    for word in text.split():
        words.append(Word(word, Box(x(at), top, x(at + len(word)), top + size)))
        at += len(word) + 1
    return Line(text, Box(left, top, x(len(text)), top + size), 1.0, tuple(words), 0.0, float(size))


def wrap(text: str, width: float, size: int = 20) -> list[str]:
    """Lines of a paragraph that is broken at a width in pixels."""
    lines = [""]
    for word in text.split():
        longer = f"{lines[-1]} {word}".strip()
        if font(size).getlength(longer) <= width or not lines[-1]:
            lines[-1] = longer
        else:
            lines.append(word)
    return lines


def paragraph(
    text: str, left: float, top: float, width: float, size: int = 20, *, indent: float = 0.0, pitch: float = 1.1
) -> list[Line]:
    """Lines of a paragraph set in a column; the first is indented."""
    texts = wrap(text, width - indent, size)
    return [line(one, left + (indent if i == 0 else 0.0), top + i * pitch * size, size) for i, one in enumerate(texts)]


def draw(lines: Sequence[Line], width: int = WIDTH, height: int = HEIGHT) -> Image.Image:
    """A white page with lines on it."""
    image = Image.new("RGB", (width, height), "white")
    pen = ImageDraw.Draw(image)
    for one in lines:
        pen.text((one.box.left, one.box.top), one.text, font=font(round(one.size)), fill="black")
    return image


def page_image(image: Image.Image, **fields: object) -> PageImage:
    """What an engine gets."""
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=92)
    return PageImage(1, "1", image.width, image.height, buffer.getvalue(), **fields)  # type: ignore[arg-type]
