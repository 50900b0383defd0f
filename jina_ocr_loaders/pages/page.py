"""A page on its way to an engine."""

from __future__ import annotations

import base64
import io
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from PIL.Image import Image


@dataclass(frozen=True, slots=True)
class TextRun:
    """A run of text from a page's own text layer; the box is in pixels of the page image, origin top left.

    ``size`` is the font size in pixels, ``angle`` the writing direction in degrees
    clockwise (0 is left to right, 90 downwards).
    """

    text: str
    left: float
    top: float
    right: float
    bottom: float
    size: float = 0.0
    angle: int = 0


@dataclass(frozen=True, slots=True)
class PageImage:
    """What an engine reads: one upright page, or one strip of a very long one.

    Attributes:
        number: 1-based page number.
        label: printed page label.
        width, height: in pixels; 0 when only ``url`` is known.
        data: the JPEG bytes.
        url: the address of an image that is handed on unread (``pass_urls=True``).
        text: the page's own text layer, where the engine asked for it and the page has one.
    """

    number: int
    label: str = ""
    width: int = 0
    height: int = 0
    data: bytes = b""
    url: str | None = None
    text: tuple[TextRun, ...] | None = None

    def jpeg(self) -> bytes:
        """The image as JPEG bytes."""
        return self.data

    def rgb(self) -> Image:
        """The image as an RGB Pillow image, decoded anew at each call (some 10 ms for a page)."""
        from PIL import Image

        return Image.open(io.BytesIO(self.data)).convert("RGB")

    def data_url(self) -> str:
        """What goes into an ``image_url`` part: the address handed on, or the image itself as a data URL."""
        return self.url or "data:image/jpeg;base64," + base64.b64encode(self.data).decode("ascii")


@dataclass(frozen=True, slots=True)
class Page:
    """One rendered page of a document.

    Attributes:
        number, label: as in ``PageImage``.
        strips: its images: one for an ordinary page, several that overlap, from top to bottom, for a very long one
            (blank ones are left out), none when the page is blank.
        warnings: codes of what was done to it: "strips", "downscaled", "enlarged".
        width, height: of the whole page in pixels, as its strips show it; 0 when it is blank, or not drawn here.
    """

    number: int
    label: str
    strips: tuple[PageImage, ...]
    warnings: tuple[str, ...] = ()
    width: int = 0
    height: int = 0

    @property
    def blank(self) -> bool:
        """Whether there is nothing to read on it."""
        return not self.strips
