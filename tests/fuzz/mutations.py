"""The small files of tests/data, and ways to damage them."""

from __future__ import annotations

import random
import re
import zlib

from tests.data import images, pdfs

# Where readers go wrong: at the edges of their integers, and beyond
NUMBERS = [0, 1, 2, 7, 8, 127, 128, 255, 256, 32_767, 32_768, 65_535, 65_536, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**63]
TOKENS = [*(str(number) for number in NUMBERS), "-1", "-2147483648", "1e38", "0.0000001", "nan", "null", "true", "()"]
NUMBER = re.compile(rb"-?\d+(?:\.\d+)?")
NAME = re.compile(rb"/[A-Za-z0-9]+")
STREAM = re.compile(rb"stream\n(.*?)\nendstream", re.DOTALL)
LONGEST = 200_000  # bytes; what mutations may make of a file


def samples() -> dict[str, bytes]:
    """Small files, one for each kind of feature or fault; those that cost seconds or megabytes whole are left out."""
    made = {
        "plain": pdfs.plain(3),
        "described": pdfs.described(),
        "rotated": pdfs.rotated(90),
        "turned text": pdfs.turned_text(270),
        "sideways": pdfs.sideways(90),
        "cropped": pdfs.cropped(),
        "large unit": pdfs.large_unit(),
        "without size": pdfs.without_size(),
        "long list": pdfs.long_list(60),
        "form": pdfs.form(),
        "stamped": pdfs.stamped(),
        "xfa": pdfs.xfa(),
        "undecodable image": pdfs.undecodable_image(),
        "broken jpeg": pdfs.broken_jpeg(),
        "blank": pdfs.blank(),
        "invisible text": pdfs.invisible_text(),
        "lost text": pdfs.lost_text(),
        "missing page": pdfs.missing_page(),
        "rc4": pdfs.encrypted("", "owner", "RC4"),
        "aes": pdfs.encrypted("", "owner", "AES_256"),
        "unknown encryption": pdfs.unknown_encryption(),
        "nested forms": pdfs.endless(depth=3, fan=3),
        "image in a pdf": pdfs.with_image(
            images.of_kind("JPEG"),
            "/ColorSpace /DeviceRGB /BitsPerComponent 8 /Filter /DCTDecode",
            width=320,
            height=200,
        ),
        "jpeg 2000 in a pdf": pdfs.with_image(images.of_kind("JPEG2000"), "/Filter /JPXDecode", width=320, height=200),
        "tall": images.tall(100, 1500),
        "multi-picture": images.camera_pair(),
        "thumbnail": images.with_thumbnail(),
        "bad exif": images.bad_exif(),
        "hostile tiff": images.hostile_tiff(),
        "png bomb": images.png_bomb(),
        "gif bomb": images.gif_bomb_behind(),
        "false frame count": images.false_frame_count(10**6),
        "heic": images.heic(),
    }
    for kind in ("PNG", "JPEG", "WEBP", "TIFF", "GIF", "BMP", "JPEG2000", "AVIF"):
        made[kind] = images.of_kind(kind)
    for kind in ("TIFF", "GIF", "WEBP", "PNG"):
        made[f"frames {kind}"] = images.frames(kind)
    for mode in ("1", "LA", "P with transparency", "CMYK", "LAB", "I;16B", "F"):
        made[f"mode {mode}"] = images.of_mode(mode)
    for kind in ("JPEG", "TIFF", "WEBP", "PNG"):
        made[f"turned {kind}"] = images.turned(6, kind)
    made["turned in place"] = images.turned(6, "TIFF", "L")
    return made


def mutate(random: random.Random, data: bytes, other: bytes) -> bytes:
    """One to six mutations of a file; ``other`` is one to take pieces from."""
    for _ in range(random.choice([1, 1, 1, 2, 3, 6])):
        data = random.choice(MUTATIONS)(random, data, other)[:LONGEST]
    return data


def _place(random: random.Random, data: bytes) -> int:
    """An offset; the first hundreds of bytes, where headers are, twice as often."""
    return random.randrange(min(len(data), 400) or 1) if random.random() < 0.5 else random.randrange(len(data) or 1)


def _flip_bits(random: random.Random, data: bytes, other: bytes) -> bytes:
    mutable = bytearray(data)
    for _ in range(random.choice([1, 1, 4, 16, 64])):
        if mutable:
            mutable[_place(random, data)] ^= 1 << random.randrange(8)
    return bytes(mutable)


def _overwrite_integer(random: random.Random, data: bytes, other: bytes) -> bytes:
    at, size = _place(random, data), random.choice([1, 2, 4, 8])
    value = random.choice(NUMBERS) % (1 << 8 * size)
    return data[:at] + value.to_bytes(size, random.choice(["little", "big"])) + data[at + size :]


def _overwrite_noise(random: random.Random, data: bytes, other: bytes) -> bytes:
    at, size = _place(random, data), random.choice([1, 8, 100, 1000])
    return data[:at] + random.randbytes(size) + data[at + size :]


def _cut_out(random: random.Random, data: bytes, other: bytes) -> bytes:
    at = _place(random, data)
    return data[:at] + data[at + random.choice([1, 4, 30, 300, 3000]) :]


def _repeat(random: random.Random, data: bytes, other: bytes) -> bytes:
    at = _place(random, data)
    piece = data[at : at + random.choice([1, 4, 30, 300])]
    return data[:at] + piece * random.choice([2, 3, 100]) + data[at + len(piece) :]


def _truncate(random: random.Random, data: bytes, other: bytes) -> bytes:
    return data[: _place(random, data)]


def _splice(random: random.Random, data: bytes, other: bytes) -> bytes:
    at, start = _place(random, data), _place(random, other)
    return data[:at] + other[start : start + random.choice([30, 300, 3000])] + data[at:]


def _change_token(pattern: re.Pattern[bytes], random: random.Random, data: bytes, new: bytes) -> bytes:
    found = list(pattern.finditer(data))
    if not found:
        return data
    start, stop = random.choice(found).span()
    return data[:start] + new + data[stop:]


def _change_number(random: random.Random, data: bytes, other: bytes) -> bytes:
    return _change_token(NUMBER, random, data, random.choice(TOKENS).encode())


def _change_name(random: random.Random, data: bytes, other: bytes) -> bytes:
    names = NAME.findall(data) + NAME.findall(other)
    return _change_token(NAME, random, data, random.choice(names)) if names else data


def _deflate_stream(random: random.Random, data: bytes, other: bytes) -> bytes:
    """Put noise, or another file, into a stream of a PDF, well compressed: what is behind the filter gets it."""
    what = random.choice([random.randbytes(300), other, b" q" * 5000, b"[" * 5000])
    return _change_token(STREAM, random, data, b"stream\n" + zlib.compress(what) + b"\nendstream")


MUTATIONS = [
    _flip_bits,
    _overwrite_integer,
    _overwrite_noise,
    _cut_out,
    _repeat,
    _truncate,
    _splice,
    _change_number,
    _change_number,
    _change_name,
    _deflate_stream,
]
