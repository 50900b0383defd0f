"""Opening documents in tests: the file on disk, all its pages, and what is to be seen on them."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from PIL import Image

from jina_ocr_loaders.engines.base import Render
from jina_ocr_loaders.errors import JinaOCRError
from jina_ocr_loaders.pages import Document, Limits, Page, PageImage, open_document

_T = TypeVar("_T")


@dataclass(frozen=True)
class File:
    """What open_document needs of sources.Content."""

    path: Path
    kind: str = "pdf"


@dataclass(frozen=True)
class Outcome:
    """A document and each of its pages, or the error that came in its place."""

    document: Document
    pages: list[Page | BaseException]

    @property
    def page(self) -> Page:
        """The only page."""
        (page,) = self.pages
        assert isinstance(page, Page), page
        return page

    @property
    def image(self) -> PageImage:
        """The only image of the only page."""
        (image,) = self.page.strips
        return image

    @property
    def error(self) -> JinaOCRError:
        """The error of the only page."""
        (error,) = self.pages
        assert isinstance(error, JinaOCRError), error
        return error


async def open_bytes(folder: Path, data: bytes, kind: str = "pdf", **options: Any) -> Document:
    """Write a file and open it; the document is called "sample"."""
    path = folder / f"sample-{abs(hash(data))}"
    path.write_bytes(data)
    return await open_document(File(path, kind), name="sample", **options)


def read(
    folder: Path,
    data: bytes,
    kind: str = "pdf",
    *,
    password: str | None = None,
    render: Render | None = None,
    limits: Limits | None = None,
) -> Outcome:
    """Open a document, draw all its pages, close it."""

    async def work() -> Outcome:
        document = await open_bytes(folder, data, kind, password=password, render=render, limits=limits)
        async with document:
            numbers = range(1, document.page_count + 1)
            pages = await asyncio.gather(*map(document.page, numbers), return_exceptions=True)
        return Outcome(document, pages)

    return run(work())


def run(work: Coroutine[Any, Any, _T]) -> _T:
    """Run on a fresh event loop."""
    return asyncio.run(work)


def grey(image: PageImage) -> Image.Image:
    """The pixels, decoded and in grey; their size is as announced."""
    pixels = image.rgb()
    assert pixels.size == (image.width, image.height)
    return pixels.convert("L")


def is_black(image: PageImage, x: float, y: float) -> bool:
    """Whether the pixel at these parts (0 to 1) of width and height is black rather than white, and no grey."""
    pixels = grey(image)
    value = pixels.getpixel((int(x * (image.width - 1)), int(y * (image.height - 1))))
    assert isinstance(value, int)
    assert value < 40 or value > 215, value
    return value < 40


def quarters(image: PageImage) -> str:
    """The quarters of an image from top left to bottom right, X for a black one and - for a white one."""
    return "".join("X" if is_black(image, x, y) else "-" for y in (0.25, 0.75) for x in (0.25, 0.75))


def ink(image: PageImage) -> float:
    """Part of the pixels that are darker than half."""
    return sum(grey(image).histogram()[:128]) / (image.width * image.height)
