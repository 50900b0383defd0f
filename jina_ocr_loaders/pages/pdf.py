"""Drawing the pages of a PDF with pdfium."""

from __future__ import annotations

import contextlib
import math
import mmap
import os
import re
import sys
from collections.abc import Iterator
from typing import Any

import pypdfium2 as pdfium
import pypdfium2.raw as raw
from PIL import Image

from jina_ocr_loaders.errors import (
    CorruptDocumentError,
    PageRenderError,
    PasswordRequiredError,
    UnsupportedEncryptionError,
    WrongPasswordError,
)
from jina_ocr_loaders.pages.drawing import Box, Drawing, draw_strips, strip_scale, strip_sizes, uniform
from jina_ocr_loaders.pages.metadata import label, metadata
from jina_ocr_loaders.pages.text import has_visible_text, text_runs, turn_upright

LETTER = (612, 792)  # points; stands in for a page without a size, and is what an ordinary page is drawn as large as
FLAGS = raw.FPDF_ANNOT | raw.FPDF_REVERSE_BYTE_ORDER
BYTES_PER_PAGE = 4  # of a file at least, however well its objects are packed
PLACEHOLDER = 2000  # characters on the stand-in page of an XFA form at most: it may speak two languages
UNKNOWN_ENCRYPTION = "it is encrypted in a way that cannot be read here; save a copy without encryption"
CIPHER = re.compile(rb"/CFM\s*/(\w+)")  # PDF 32000-2, table 25: the method of a crypt filter
CIPHERS = {b"None", b"V2", b"AESV2", b"AESV3"}  # not AESV4 of ISO/TS 32003
BLANK_BITS_PER_PIXEL = 1 / 128  # of a bilevel image that is blank; one with print on it takes ten times as much


class PDF:
    """An open PDF.

    Parameters:
        path: of the file.
        password: tried when the empty one does not open it.
        render: the fields of engines.base.Render.

    Raises:
        CorruptDocumentError, PasswordRequiredError, WrongPasswordError, UnsupportedEncryptionError
    """

    def __init__(self, path: str, password: str | None, render: dict[str, Any]) -> None:
        self._pdf = _open(path, password)
        self._pdf.init_forms()  # before the first page, or form values stay invisible
        self._render = render
        self.page_count = _count(self._pdf, os.path.getsize(path))
        self.metadata = metadata(self._pdf)

    def page(self, number: int) -> Drawing:
        """Draw one page, 1-based.

        Raises:
            PageRenderError: it cannot be drawn, or shows nothing of what it holds.
        """
        page = self._load(number - 1)
        try:
            textpage = page.get_textpage()
            if self._is_placeholder(textpage):
                message = "the page is the placeholder of an XFA form; save it as an ordinary PDF with Adobe Reader"
                raise PageRenderError(message, code="xfa_placeholder")
            drawing = self._draw(page, textpage, label(self._pdf, number - 1))
            if not drawing.strips and (what := _hidden_content(page, textpage)):
                raise PageRenderError(f"the page holds {what} and yet is drawn blank", code="blank_render")
        finally:
            page.close()  # and its textpage
        return drawing

    def size(self, number: int) -> list[tuple[int, int]]:
        """The pixels that one page's strips would have."""
        size, _ = self._pixels(*self._pdf.get_page_size(number - 1))
        return strip_sizes(size, self._render["long_side"])

    def close(self) -> None:
        """Let go of the file."""
        self._pdf.close()

    def _is_placeholder(self, textpage: Any) -> bool:
        """Whether the page stands in for an XFA form that only Adobe's programs build.

        The catalogue says so (NeedsRendering, which pdfium calls a full XFA form), or the page sends its reader to
        adobe.com/go; as long as there is no more on it than that.
        """
        kind = self._pdf.get_formtype()
        if kind not in (raw.FORMTYPE_XFA_FULL, raw.FORMTYPE_XFA_FOREGROUND) or textpage.count_chars() > PLACEHOLDER:
            return False
        return kind == raw.FORMTYPE_XFA_FULL or "adobe.com/go/" in textpage.get_text_range()

    def _load(self, index: int) -> Any:
        page = self._pdf[index]
        if not _has_size(page):  # its boxes are empty, or do not meet
            page.set_mediabox(0, 0, *LETTER)
            page.set_cropbox(0, 0, *LETTER)
            page.close()
            page = self._pdf[index]
            if not _has_size(page):
                page.close()
                raise PageRenderError("the page has no size", code="render_error")
        return page

    def _pixels(self, width: float, height: float) -> tuple[tuple[int, int], list[str]]:
        """How large a page of some points is drawn, all strips together, and the warnings."""
        long_side = self._render["long_side"]
        natural = long_side / LETTER[1]
        scale = strip_scale(width, height, long_side, natural, narrowest=long_side / 3)
        warnings = ["strips"] if scale else []
        scale = scale or long_side / max(width, height)
        if scale < 1:  # fewer than 72 pixels an inch: small print is lost
            warnings.append("downscaled")
        return (max(1, round(width * scale)), max(1, round(height * scale))), warnings

    def _draw(self, page: Any, textpage: Any, label: str) -> Drawing:
        turn = turn_upright(page, textpage)
        width, height = page.get_size() if turn % 2 == 0 else reversed(page.get_size())
        size, warnings = self._pixels(width, height)
        runs = text_runs(page, textpage, size, turn) if self._render["text_layer"] else None

        drawn = draw_strips(
            size, self._render["long_side"], self._render["quality"], lambda box: _image(page, size, turn, box)
        )
        if runs is not None:
            for box, strip in drawn:
                strip.text = [run.inside(box) for run in runs if run.is_in(box)]
        if not drawn:
            return Drawing(label)
        return Drawing(label, size, [strip for _, strip in drawn], warnings)


def _image(page: Any, size: tuple[int, int], turn: int, box: Box) -> Image.Image:
    """The pixels of a box of the page, turned and drawn at a size."""
    width, height = box[2] - box[0], box[3] - box[1]
    bitmap = pdfium.PdfBitmap.new_native(width, height, raw.FPDFBitmap_BGRx, rev_byteorder=True)
    bitmap.fill_rect((255, 255, 255, 255), 0, 0, width, height)
    where = (-box[0], -box[1], *size, turn)
    raw.FPDF_RenderPageBitmap(bitmap, page, *where, FLAGS)
    if page.formenv:
        raw.FPDF_FFLDraw(page.formenv, bitmap, page, *where, FLAGS)
    image: Image.Image = bitmap.to_pil()  # RGBX, which shares the bitmap's memory and which the JPEG writer takes
    return image


def _open(path: str, password: str | None) -> Any:
    """Open with the empty password, then with the given one.

    pdfium is called directly: its error code means something only right after a failed call.
    """
    name = path.encode("utf-8", "strict" if sys.platform == "win32" else "surrogateescape")
    code = raw.FPDF_ERR_PASSWORD
    for attempt in _passwords(password):
        if handle := raw.FPDF_LoadDocument(name, attempt):
            return _checked(pdfium.PdfDocument(handle))
        if (code := raw.FPDF_GetLastError()) != raw.FPDF_ERR_PASSWORD:
            break
    if code == raw.FPDF_ERR_SECURITY or (code == raw.FPDF_ERR_PASSWORD and _has_unknown_cipher(path)):
        raise UnsupportedEncryptionError(UNKNOWN_ENCRYPTION)
    if code != raw.FPDF_ERR_PASSWORD:
        raise CorruptDocumentError("it is not a PDF that can be opened; it is damaged or incomplete")
    if password:
        raise WrongPasswordError("the password does not open it")
    raise PasswordRequiredError("it is encrypted; pass its password as password=")


def _passwords(password: str | None) -> Iterator[bytes | None]:
    """The empty one, then the given one as newer files encode it, then as older ones do."""
    yield None
    if password:
        yield password.encode("utf-8")
        if not password.isascii():
            with contextlib.suppress(UnicodeEncodeError):
                yield password.encode("latin-1")


def _has_unknown_cipher(path: str) -> bool:
    """Whether the file names a way of encryption that pdfium does not know, and for which it blames the password."""
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        return any(match[1] not in CIPHERS for match in CIPHER.finditer(data))


def _checked(pdf: Any) -> Any:
    if len(pdf):
        return pdf
    encrypted = raw.FPDF_GetSecurityHandlerRevision(pdf) >= 0
    pdf.close()
    if encrypted:  # opened, but what was decrypted makes no sense
        raise UnsupportedEncryptionError(UNKNOWN_ENCRYPTION)
    raise CorruptDocumentError("it is a PDF without pages that can be found; it is damaged or incomplete")


def _count(pdf: Any, size: int) -> int:
    """The number of pages; what the file says, unless that many cannot be in it: then those that are there."""
    count = len(pdf)
    most = size // BYTES_PER_PAGE
    if count <= most:
        return count
    found = [index for index in range(most) if raw.FPDF_GetPageSizeByIndexF(pdf, index, raw.FS_SIZEF())]
    return found[-1] + 1 if found else 1


def _has_size(page: Any) -> bool:
    return all(math.isfinite(side) and side > 0 for side in page.get_size())


def _hidden_content(page: Any, textpage: Any) -> str | None:
    """What a page that is drawn blank ought to show, if anything."""
    if any(_is_lost(image) for image in page.get_objects(filter=[raw.FPDF_PAGEOBJ_IMAGE])):
        return "an image"
    return "text" if has_visible_text(page, textpage) else None


def _is_lost(image: Any) -> bool:
    """Whether an image on a blank page should have been seen; the scan of a blank sheet should not."""
    try:
        pixels = image.get_bitmap().to_pil()
        meta = image.get_metadata()
        if not uniform(pixels):
            return True
        # JBIG2 and CCITT data that cannot be decoded come out white: the size tells them from a blank sheet
        return bool(
            meta.bits_per_pixel == 1 and len(image.get_data()) * 8 > meta.width * meta.height * BLANK_BITS_PER_PIXEL
        )
    except pdfium.PdfiumError:
        return True
