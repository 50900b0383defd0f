"""TIFFs of every kind of sample, written by hand (TIFF 6.0): Pillow itself writes few of them.

The picture is the same in all: stripes from left to right, opaque above, half transparent below where it has alpha.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence

STRIPES, STRIPE = 32, 22  # how many, and their width in pixels: together more than 640, so that nothing is enlarged
HEIGHT = 48
KINDS = ["u1", "u2", "u4", "u8", "u12", "u16", "u32", "s8", "s16", "s32", "f16", "f32", "f64"]
COLOURS = {
    # name: PhotometricInterpretation, channels, ExtraSamples
    "grey": (1, 1, ()),
    "inverted": (0, 1, ()),
    "grey, unspecified": (1, 2, (0,)),
    "grey, premultiplied": (1, 2, (1,)),
    "grey, alpha": (1, 2, (2,)),
    "palette": (3, 1, ()),
    "palette of 8 bits": (3, 1, ()),
    "RGB": (2, 3, ()),
    "RGB, unspecified": (2, 4, (0,)),
    "RGB, premultiplied": (2, 4, (1,)),
    "RGB, alpha": (2, 4, (2,)),
    "CMYK": (5, 4, ()),
    "CMYK, unspecified": (5, 5, (0,)),
    "YCbCr": (6, 3, ()),
    "YCbCr, halved": (6, 3, ()),
    "CIELab": (8, 3, ()),
}
_FORMATS = {"u": 1, "s": 2, "f": 3}

Colour = tuple[float, float, float]


def tiff(
    kind: str, colours: str, *, order: str = "<", separate: bool = False, deflate: bool = False, special: str = ""
) -> bytes:
    """A TIFF of one image.

    Parameters:
        kind: of its samples: u (unsigned), s (signed) or f (float), and bits.
        colours: a key of COLOURS.
        order: of its bytes, as in struct.
        separate: whether the channels come one after the other.
        deflate: whether it is compressed.
        special: "nan", "inf" or "-inf", for one of its values.
    """
    photometric, channels, extra = COLOURS[colours]
    bits = int(kind[1:])
    rows = [[_samples(kind, colours, stripe, below) for stripe in range(STRIPES)] for below in (False, True)]
    if special:
        rows[1][STRIPES // 2] = [float(special)]
    if colours == "YCbCr, halved":
        pairs = [
            _packed(kind, order, [v for y, u, w in row for v in [y, y, y, y, u, w] * (STRIPE // 2)]) for row in rows
        ]
        strips = [b"".join(pair * (HEIGHT // 4) for pair in pairs)]
    else:
        planes = [range(channel, channel + 1) for channel in range(channels)] if separate else [range(channels)]
        strips = [
            b"".join(
                _packed(kind, order, [v for pixel in row for v in pixel[plane.start : plane.stop] * STRIPE])
                * (HEIGHT // 2)
                for row in rows
            )
            for plane in planes
        ]
    if deflate:
        strips = [zlib.compress(strip) for strip in strips]
    tags: dict[int, tuple[str, Sequence[int]]] = {
        256: ("H", [STRIPES * STRIPE]),
        257: ("H", [HEIGHT]),
        258: ("H", [bits] * channels),
        259: ("H", [8 if deflate else 1]),
        262: ("H", [photometric]),
        273: ("I", [0] * len(strips)),
        277: ("H", [channels]),
        278: ("H", [HEIGHT]),
        279: ("I", [len(strip) for strip in strips]),
        284: ("H", [2 if separate else 1]),
        339: ("H", [_FORMATS[kind[0]]] * channels),
    }
    if extra:
        tags[338] = ("H", extra)
    if photometric == 3:
        size, top = 1 << bits, 255 if colours == "palette of 8 bits" else 65535
        palette = [_ramp(index / (size - 1)) for index in range(size)]
        tags[320] = ("H", [round(colour[channel] * top) for channel in range(3) for colour in palette])
    if photometric == 6:
        tags[530] = ("H", [2, 2] if colours == "YCbCr, halved" else [1, 1])
    return _file(order, tags, strips)


def colour(kind: str, colours: str, stripe: int, *, below: bool) -> Colour:
    """What is to be seen of a stripe on white paper, from 0 to 1, in the upper or the lower half."""
    value = _steps(kind, stripe / (STRIPES - 1))
    if colours == "CIELab":
        luminance = ((value * 100 + 16) / 116) ** 3 if value > 0.08 else value * 100 / 903.3
        value = 1.055 * luminance ** (1 / 2.4) - 0.055 if luminance > 0.0031308 else luminance * 12.92
    seen = (value, value, value) if colours.startswith(("grey", "inverted", "CIELab")) else _ramp(value)
    if below and colours.endswith(("alpha", "premultiplied")):
        alpha = _steps(kind, 0.5)
        seen = (1 + (seen[0] - 1) * alpha, 1 + (seen[1] - 1) * alpha, 1 + (seen[2] - 1) * alpha)
    return seen


def _ramp(value: float) -> Colour:
    """Three channels that differ."""
    return value, 1 - value, abs(1 - 2 * value)


def _steps(kind: str, value: float) -> float:
    """The value that so few bits can hold."""
    most = (1 << min(int(kind[1:]), 16)) - 1
    return round(value * most) / most


def _samples(kind: str, colours: str, stripe: int, below: bool) -> list[float]:
    """The channels of a stripe from 0 to 1, as they are stored."""
    value = _steps(kind, stripe / (STRIPES - 1))
    red, green, blue = _ramp(value)
    alpha = _steps(kind, 0.5) if below else 1.0
    match colours.split(",")[0]:
        case "RGB":
            samples = [red, green, blue]
        case "CMYK":
            samples = [1 - red, 1 - green, 1 - blue, 0.0]
        case "YCbCr":  # ITU-R BT.601
            luma = 0.299 * red + 0.587 * green + 0.114 * blue
            half = 128 / 255
            samples = [luma, half + (blue - luma) / 1.772, half + (red - luma) / 1.402]
        case "CIELab":  # signed chroma of nothing
            samples = [value, 0.0, 0.0]
        case "inverted":
            samples = [1 - value]
        case _:
            samples = [value]
    if colours.endswith("premultiplied"):
        samples = [sample * alpha for sample in samples]
    if "," in colours and "halved" not in colours:
        samples.append(value if "unspecified" in colours else alpha)
    return samples


def _packed(kind: str, order: str, values: list[float]) -> bytes:
    """The bytes of a row."""
    bits = int(kind[1:])
    if kind[0] == "f":
        return struct.pack(f"{order}{len(values)}{ {16: 'e', 32: 'f', 64: 'd'}[bits] }", *values)
    low = -(1 << bits - 1) if kind[0] == "s" else 0
    numbers = [low + round(value * ((1 << bits) - 1)) for value in values]
    if bits in (8, 16, 32):
        code = {8: "B", 16: "H", 32: "I"}[bits]
        return struct.pack(f"{order}{len(values)}{code.lower() if low else code}", *numbers)
    row = "".join(f"{number:0{bits}b}" for number in numbers)
    return int(row.ljust(-(-len(row) // 8) * 8, "0"), 2).to_bytes(-(-len(row) // 8), "big")


def _file(order: str, tags: dict[int, tuple[str, Sequence[int]]], strips: list[bytes]) -> bytes:
    """Header, strips, values that are longer than four bytes, and the directory."""
    body = bytearray((b"II" if order == "<" else b"MM") + struct.pack(f"{order}HI", 42, 0))
    tags[273] = ("I", [])
    for strip in strips:
        tags[273] = ("I", [*tags[273][1], len(body)])
        body += strip + bytes(len(strip) % 2)
    entries = b""
    for tag, (code, values) in sorted(tags.items()):
        data = struct.pack(f"{order}{len(values)}{code}", *values)
        if len(data) > 4:
            data, where = struct.pack(f"{order}I", len(body)), data
            body += where
        entries += struct.pack(f"{order}HHI", tag, {"H": 3, "I": 4}[code], len(values)) + data.ljust(4, b"\0")
    body[4:8] = struct.pack(f"{order}I", len(body))
    return bytes(body + struct.pack(f"{order}H", len(tags)) + entries + bytes(4))
