"""The size of a WebP image, known before Pillow opens it and takes the memory for two canvases."""

from __future__ import annotations

HEAD_BYTES = 30


def size(head: bytes) -> tuple[int, int] | None:
    """Width and height in pixels, if the head is that of a WebP file (RFC 9649, sections 2.5 to 2.7).

    Parameters:
        head: its first HEAD_BYTES bytes.
    """
    if head[:4] != b"RIFF" or head[8:12] != b"WEBP":
        return None
    match head[12:16]:
        case b"VP8X":
            return _number(head[24:27]) + 1, _number(head[27:30]) + 1
        case b"VP8L":
            both = _number(head[21:25])
            return (both & 0x3FFF) + 1, (both >> 14 & 0x3FFF) + 1
        case b"VP8 ":
            return _number(head[26:28]) & 0x3FFF, _number(head[28:30]) & 0x3FFF
    return None


def _number(data: bytes) -> int:
    return int.from_bytes(data, "little")
