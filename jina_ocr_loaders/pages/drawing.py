"""What the worker makes of a page: JPEG images of the right size, in strips where the page is very long."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from PIL import Image, ImageChops

LONG = 4.0  # a page longer than this many times its width is read in strips
OVERLAP = 0.15  # part of a strip in which the cut to the next one is looked for
MAX_STRIPS = 40  # of one page; beyond that it is drawn smaller
SMALL = 640  # pixels; an image with neither side above it costs the model its local tiles (processor_config.json)
ENLARGED = 1280  # pixels of the longer side of a small image once enlarged: two tiles

Box = tuple[int, int, int, int]  # left, top, right, bottom


@dataclass(slots=True)
class Strip:
    """One JPEG image; ``text`` holds the fields of TextRun in order, as lists."""

    width: int
    height: int
    jpeg: bytes
    text: list[list[object]] | None = None


@dataclass(slots=True)
class Drawing:
    """A drawn page of some pixels; nothing but the label when it is blank."""

    label: str
    size: tuple[int, int] = (0, 0)
    strips: list[Strip] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def encode(image: Image.Image, quality: int) -> bytes:
    """The image as JPEG."""
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=quality)
    return buffer.getvalue()


def uniform(image: Image.Image) -> bool:
    """Whether all pixels are the same: nothing is drawn."""
    extrema = image.getextrema()
    bands = extrema if isinstance(extrema[0], tuple) else (extrema,)
    return all(low == high for low, high in bands[:3])  # the X of RGBX is no colour


def strip_scale(width: float, height: float, long_side: int, natural: float, narrowest: float = 0) -> float | None:
    """The scale of a page that is read in strips, or None when one image does for it.

    Strips are for pages longer than 4 : 1 that would become too small in one image. A strip is ``long_side`` pixels
    long and at most three quarters of that wide, the shape of an upright page.

    Parameters:
        width, height: of the page, in any unit.
        long_side: of an image, in pixels.
        natural: the scale at which an ordinary page is drawn, in pixels per unit.
        narrowest: width of a strip at least, in pixels.
    """
    short, long = sorted((width, height))
    if long <= LONG * short or long * natural <= long_side:
        return None
    wanted = min(max(natural, narrowest / short), 0.75 * long_side / short)
    return min(wanted, MAX_STRIPS * (1 - OVERLAP) * long_side / long)


def draw_strips(
    size: tuple[int, int], span: int, quality: int, draw: Callable[[Box], Image.Image]
) -> list[tuple[Box, Strip]]:
    """The strips of a page, one if it is no longer than ``span``, with the boxes that they show of it.

    Blank ones are left out, and so is the whole of a blank page: they make the model invent text.
    """
    return [
        (box, Strip(*image.size, encode(image, quality))) for box, image in cut(size, span, draw) if not uniform(image)
    ]


def cut(size: tuple[int, int], span: int, draw: Callable[[Box], Image.Image]) -> Iterator[tuple[Box, Image.Image]]:
    """Cut a long page into strips, between lines where there are gaps, with an overlap at which the text is joined.

    Parameters:
        size: of the page, in pixels.
        span: length of a strip at most, in pixels.
        draw: gives the pixels of a box of the page.

    Yields:
        The box and the image of each strip.
    """
    width, height = size
    upright = height >= width

    def box(start: int, stop: int) -> Box:
        return (0, start, width, stop) if upright else (start, 0, stop, height)

    start = 0
    while (rest := max(size) - start) > span:
        length, zone = _step(rest, span)
        image = draw(box(start, start + length))
        gaps = _gaps(image.crop(box(zone, length)), upright)
        stop = zone + gaps[-1] + 1
        yield box(start, start + stop), image.crop(box(0, stop))
        start += zone + gaps[0]
    yield box(start, max(size)), draw(box(start, max(size)))


def strip_sizes(size: tuple[int, int], span: int) -> list[tuple[int, int]]:
    """The sizes of the strips of a page that is nowhere blank and has no gaps to cut at: at least as many as come."""
    width, height = size
    lengths = []
    rest = max(size)
    while rest > span:
        length, zone = _step(rest, span)
        lengths.append(length)
        rest -= zone
    return [(width, length) if height >= width else (length, height) for length in (*lengths, rest)]


def _step(rest: int, span: int) -> tuple[int, int]:
    """The length of the next strip, and where in it the zone begins in which it may be cut."""
    length = span if rest > 1.5 * span else math.ceil(rest * 0.6)  # so that the last strip is no sliver
    return length, length - int(length * OVERLAP)


def _gaps(zone: Image.Image, upright: bool) -> list[int]:
    """Rows (columns) with the least going on along them: between two lines, not through one.

    What counts is change from pixel to pixel, so that the rules of a table that runs on do not hide a gap.
    """
    zone = zone.convert("L")
    change = ImageChops.difference(zone, ImageChops.offset(zone, *((1, 0) if upright else (0, 1))))
    profile = change.resize((1, zone.height) if upright else (zone.width, 1), Image.Resampling.BOX).tobytes()
    return [i for i, value in enumerate(profile) if value == min(profile)]
