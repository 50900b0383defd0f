"""PNGs of every depth with a transparent value, written by hand (PNG, third edition): Pillow writes 8 bits only."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence

GREY, RGB = 0, 2  # colour types
STRIPES, STRIPE = 16, 50  # how many, and their width in pixels: together more than 640, so that nothing is enlarged
HEIGHT = 48


def stripes(bits: int, colour_type: int) -> list[tuple[int, ...]]:
    """The values of the picture's stripes from left to right: grey, or three channels that differ."""
    top = (1 << bits) - 1
    values = [round(stripe / (STRIPES - 1) * top) for stripe in range(STRIPES)]
    return [(value,) if colour_type == GREY else (value, (top - value) // 2, top // 7) for value in values]


def png(bits: int, colour_type: int, transparent: Sequence[int], frames: int = 1) -> bytes:
    """The picture in so many bits a channel; with several frames, each is as the first."""
    row = "".join(f"{value:0{bits}b}" for pixel in stripes(bits, colour_type) for value in pixel * STRIPE)
    pixels = zlib.compress((b"\0" + int(row, 2).to_bytes(len(row) // 8, "big")) * HEIGHT)
    size = struct.pack(">II", STRIPES * STRIPE, HEIGHT)
    chunks = [(b"IHDR", size + bytes([bits, colour_type, 0, 0, 0]))]
    if frames > 1:
        chunks.append((b"acTL", struct.pack(">II", frames, 0)))
    chunks.append((b"tRNS", struct.pack(f">{len(transparent)}H", *transparent)))
    for number in range(frames):
        sequence = 2 * number - 1
        if frames > 1:
            chunks.append(
                (b"fcTL", struct.pack(">I", max(sequence, 0)) + size + struct.pack(">IIHHBB", 0, 0, 1, 1, 0, 0))
            )
        chunks.append((b"fdAT", struct.pack(">I", sequence + 1) + pixels) if number else (b"IDAT", pixels))
    chunks.append((b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data)) for name, data in chunks
    )
