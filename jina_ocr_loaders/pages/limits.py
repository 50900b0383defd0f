"""What a document may cost before it is given up."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of the worker process that opens and draws one document.

    Attributes:
        seconds: for opening the document, and for drawing one page.
        memory: bytes that the worker may allocate (RLIMIT_DATA). Held by the kernel on Linux only: on macOS and
            Windows the pixel limits below bound what an image can take, and nothing bounds what a PDF can take.
        pixels: of one image frame, checked before it is decoded. Pillow's own limit against decompression bombs (twice
            PIL.Image.MAX_IMAGE_PIXELS) is the default, so neither says yes where the other says no. On Linux WebP and
            AVIF may have fewer: as many as ``memory`` can hold.
    """

    seconds: float = 60.0
    memory: int = 1 << 30
    pixels: int = 178_956_970
