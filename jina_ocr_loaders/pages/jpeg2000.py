"""JPEG 2000: decoded small where that is enough, and what Pillow reads wrongly without a word set right.

Pillow gives white as 128 where a channel has one bit, and mixes up palettes whose index has fewer bits than eight, that
hold a colour twice, or greys (ISO/IEC 15444-1, A.5.1 and I.5.3.4).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from contextlib import suppress
from typing import IO, Any

from PIL import Image, ImagePalette

from jina_ocr_loaders.errors import PageRenderError

HEAD_BYTES = 1 << 20  # in which the header lies, unless there is something of that size before it
SIZE = b"\xff\x4f\xff\x51"  # the markers with which the code stream begins
CHANNELS, DEPTHS = 36, 38  # behind these: their number (2 bytes), and the depth of each (3 bytes apart)


def decoded(image: Any, scale: float) -> Any:
    """The image with its pixels, at a half, a quarter, … where it can be.

    Raises:
        PageRenderError: its palette is of a kind that is not read.
    """
    header, bits = _head(image.fp)
    if image.mode in ("P", "PA"):  # no mean of two numbers of colours is a colour
        image.palette = _palette(header, bits[0] if bits else 8)
    elif scale < 1:
        image = _small(image, scale)
    image.load()
    if image.mode not in ("P", "PA", "I;16") and len(bits) == len(image.getbands()) and min(bits) < 8:
        image = image.point([level for depth in bits for level in _levels(depth)])
    return image


def _head(file: IO[bytes]) -> tuple[bytes, list[int]]:
    """What lies before the code stream, and the bits of each channel."""
    file.seek(0)
    header, _, stream = file.read(HEAD_BYTES).partition(SIZE)
    channels = int.from_bytes(stream[CHANNELS : CHANNELS + 2], "big")
    return header, [(depth & 0x7F) + 1 for depth in stream[DEPTHS : DEPTHS + 3 * channels : 3]]


def _small(image: Any, scale: float) -> Any:
    """An image decoded small, if possible: whole it takes up to 16 bytes a pixel."""
    for halvings in range(int(math.log2(1 / scale)), 0, -1):
        smaller: Any = Image.open(image.fp, formats=["JPEG2000"])
        smaller.reduce = halvings
        with suppress(OSError):  # the file has fewer levels, or a size that Pillow halves otherwise than OpenJPEG
            smaller.load()
            return smaller
    return image


def _levels(bits: int) -> Iterable[int]:
    """What each of Pillow's 256 values stands for, which has these bits in front and zeros behind them."""
    top = 256 - (1 << max(0, 8 - bits))
    return (min(255, value * 255 // top) for value in range(256))


def _palette(header: bytes, bits: int) -> ImagePalette.ImagePalette:
    """The palette, each colour where Pillow has its index: these bits in front and zeros behind them."""
    box = header[header.index(b"pclr") + 4 :]
    size, channels = int.from_bytes(box[:2], "big"), box[2]
    depths, values = box[3 : 3 + channels], box[3 + channels : 3 + channels * (size + 1)]
    mode = {1: "RGB", 3: "RGB", 4: "RGBA"}.get(channels)
    if mode is None or max(depths) > 7:  # they are bits less one
        raise PageRenderError("its palette is of a kind that is not read: convert it to PNG first", code="render_error")
    seen = [value * 255 // ((2 << depths[at % channels]) - 1) for at, value in enumerate(values)]
    width = len(mode)
    colours = bytearray(256 * width)
    for index in range(size):
        colour = seen[index * channels : (index + 1) * channels]
        start = (index << max(0, 8 - bits)) * width
        colours[start : start + width] = bytes(colour * 3 if channels == 1 else colour)
    palette = ImagePalette.ImagePalette(mode, colours)
    palette.dirty = 1
    return palette
