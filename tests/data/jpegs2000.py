"""JPEG 2000 files of few bits and with palettes: what Pillow does not write is patched into what it writes.

The picture is 16 stripes from left to right.
"""

from __future__ import annotations

import struct

from PIL import Image

from tests.data.images import saved

STRIPES, STRIPE = 16, 50  # how many, and their width in pixels: together more than 640, so that nothing is enlarged
SIZE = b"\xff\x4f\xff\x51"


def stripes(bits: int) -> list[int]:
    """The values of the stripes, from 0 to the most that so many bits can hold."""
    return [round(stripe / (STRIPES - 1) * ((1 << bits) - 1)) for stripe in range(STRIPES)]


def jpeg_2000(bits: int, mode: str = "L", palette: list[tuple[int, ...]] | None = None, *, factor: int = 1) -> bytes:
    """The stripes, without loss.

    Parameters:
        bits: of each channel, 8 at most.
        mode: L, RGB or LA; all channels are the same, but for alpha, which is opaque.
        palette: colours of 1, 3 or 4 channels of 8 bits, for L.
        factor: how many times larger than 800 x 200.
    """
    image = Image.new("L", (STRIPES * STRIPE * factor, 200 * factor))
    offset = 128 - (1 << bits - 1)  # from the middle of 8 bits, which the file counts from, to that of these
    for number, value in enumerate(stripes(bits)):
        image.paste(value + offset, (number * STRIPE * factor, 0, (number + 1) * STRIPE * factor, image.height))
    if mode == "LA":
        image.putalpha(Image.new("L", image.size, (1 << bits) - 1 + offset))
    data = bytearray(saved(image.convert(mode), "JPEG2000", irreversible=False, mct=0, num_resolutions=4))
    data[data.index(b"ihdr") + 14] = bits - 1
    sizes = data.index(SIZE) + len(SIZE) + 38
    for channel in range(len(mode)):
        data[sizes + 3 * channel] = bits - 1
    if palette:
        channels = len(palette[0])
        entries = struct.pack(">HB", len(palette), channels) + bytes([7] * channels + [v for c in palette for v in c])
        mapping = b"".join(struct.pack(">HBB", 0, 1, channel) for channel in range(channels))
        data = _with_boxes(data, _box(b"pclr", entries) + _box(b"cmap", mapping))
    return bytes(data)


def _with_boxes(data: bytearray, boxes: bytes) -> bytearray:
    """The file with more boxes at the end of its header, and sRGB for its colours (enumerated colour space 16)."""
    start = data.index(b"jp2h") - 4
    length = int.from_bytes(data[start : start + 4], "big")
    colours = data.index(b"colr") + 4
    data[colours + 3 : colours + 7] = (16).to_bytes(4, "big")
    data[start + length : start + length] = boxes
    data[start : start + 4] = (length + len(boxes)).to_bytes(4, "big")
    return data


def _box(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", 8 + len(data)) + name + data
