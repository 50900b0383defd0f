"""What a file is, by its first bytes; its name and its declared type are never asked."""

from __future__ import annotations

import re
from typing import Literal

from jina_ocr_loaders.errors import CorruptDocumentError, UnsupportedSourceError

Kind = Literal["pdf", "image", "heif"]
"""``image`` is what Pillow reads by itself; ``heif`` needs the ``heif`` extra."""

HEAD_BYTES = 4096  # how much of a file `kind_of` wants to see

PDF_HEADER_WITHIN = (
    1024  # bytes; readers accept junk before the header up to here (PDF 1.7 reference, appendix H.3.4.1)
)

IMAGE_STARTS = (
    b"\x89PNG\r\n\x1a\n",
    b"\xff\xd8\xff",  # JPEG
    b"GIF87a",
    b"GIF89a",
    b"II*\0",  # TIFF, both byte orders
    b"MM\0*",
    b"II+\0",  # BigTIFF, both byte orders
    b"MM\0+",
    b"\0\0\0\x0cjP  \r\n\x87\n",  # JPEG 2000 file
    b"\xff\x4f\xff\x51",  # JPEG 2000 code stream
)
AVIF_BRANDS = {b"avif", b"avis"}
HEIF_BRANDS = {b"heic", b"heix", b"hevc", b"hevx", b"heim", b"heis", b"hevm", b"hevs", b"mif1", b"msf1"}

TO_PDF = "convert it to PDF first, for example with LibreOffice: soffice --headless --convert-to pdf FILE"
TO_PNG = "convert it to PNG or PDF first"
UNPACK = "unpack it first"

# What people pass by mistake: start of the file, what it is, what to do.
OTHER_STARTS = (
    (
        b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1",
        "an Office file (doc, xls, ppt, msg, or an encrypted docx, xlsx, pptx)",
        TO_PDF,
    ),
    (b"{\\rtf", "an RTF file", TO_PDF),
    (b"%!PS", "a PostScript file", "convert it to PDF first, for example with ps2pdf"),
    (b"AT&TFORM", "a DjVu file", "convert it to PDF first, for example with: ddjvu -format=pdf"),
    (b"8BPS", "a Photoshop file", TO_PNG),
    (b"\xff\x0a", "a JPEG XL image", TO_PNG),
    (b"\0\0\0\x0cJXL \r\n\x87\n", "a JPEG XL image", TO_PNG),
    (b"\0\0\1\0", "an icon", TO_PNG),
    (b"\x1f\x8b", "a gzip archive", UNPACK),
    (b"BZh", "a bzip2 archive", UNPACK),
    (b"\xfd7zXZ\0", "an xz archive", UNPACK),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive", UNPACK),
    (b"Rar!\x1a\x07", "a RAR archive", UNPACK),
    (b"\x28\xb5\x2f\xfd", "a zstd archive", UNPACK),
)
OFFICE_MEMBERS = (b"[Content_Types].xml", b"_rels/.rels", b"word/", b"xl/", b"ppt/", b"docProps/")
OPEN_DOCUMENT = b"mimetypeapplication/vnd.oasis.opendocument"
EPUB = b"mimetypeapplication/epub+zip"


def kind_of(head: bytes, *, name: str) -> Kind:
    """Tell what a document is.

    Parameters:
        head: its first `HEAD_BYTES` bytes, or all of it if it is shorter.
        name: the document, as errors show it.

    Raises:
        CorruptDocumentError: it is empty.
        UnsupportedSourceError: neither a PDF nor an image that is read here; the message says what it is instead, and
            what to do with it.
    """
    if not head:
        raise CorruptDocumentError("the file is empty", source=name)
    if head.startswith(IMAGE_STARTS) or _is_webp(head) or _is_bmp(head):
        return "image"
    if head[4:8] == b"ftyp":
        brands = _brands(head)
        if brands & AVIF_BRANDS:
            return "image"
        if brands & HEIF_BRANDS:
            return "heif"
    # A ZIP file may hold a PDF near its start, uncompressed: it stays a ZIP file.
    if not head.startswith(b"PK\3\4") and b"%PDF-" in head[:PDF_HEADER_WITHIN]:
        return "pdf"
    what, advice = _other(head)
    raise UnsupportedSourceError(f"this is {what}, neither a PDF nor an image: {advice}", source=name)


def _is_webp(head: bytes) -> bool:
    return head.startswith(b"RIFF") and head[8:12] == b"WEBP"


def _is_bmp(head: bytes) -> bool:
    # "BM" alone also begins ordinary words; bytes 14 to 17 hold the size of the second header, a small number.
    return head.startswith(b"BM") and 12 <= int.from_bytes(head[14:18], "little") <= 256


def _brands(head: bytes) -> set[bytes]:
    """The brands of an ISO media file (ISO/IEC 14496-12, box ``ftyp``): the major one, then the compatible ones."""
    size = min(int.from_bytes(head[:4], "big"), len(head))
    return {head[at : at + 4] for at in range(8, size - 3, 4) if at != 12}  # 12: the minor version


def _other(head: bytes) -> tuple[str, str]:
    for start, what, advice in OTHER_STARTS:
        if head.startswith(start):
            return what, advice
    if head.startswith(b"PK\3\4"):
        return _zip(head)
    text = _text(head)
    if text is None:
        return (
            "a file of a kind that is not known here",
            "PDF, PNG, JPEG, WebP, TIFF, GIF, BMP, JPEG 2000, AVIF and HEIC are",
        )
    if re.search(r"<svg\b", text, re.IGNORECASE):
        return "an SVG drawing", TO_PNG
    if re.match(r"\s*(<!--.*?-->\s*)*<(!doctype html|html|head|body)\b", text, re.IGNORECASE | re.DOTALL):
        return "a web page (HTML)", "save it as PDF first, or read it with a loader for web pages"
    return "plain text", "there is nothing to recognise; read it with a loader for text"


def _zip(head: bytes) -> tuple[str, str]:
    if OPEN_DOCUMENT in head[:128]:
        return "an Office file (OpenDocument)", TO_PDF
    if EPUB in head[:128]:
        return "an e-book (EPUB)", "convert it to PDF first, for example with calibre: ebook-convert FILE FILE.pdf"
    if any(member in head for member in OFFICE_MEMBERS):
        return "an Office file (docx, xlsx, pptx)", TO_PDF
    return "a ZIP archive", UNPACK


def _text(head: bytes) -> str | None:
    """The bytes as text, or None if they are none."""
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        return head.decode("utf-16", "replace")
    if re.search(rb"[\0-\x08\x0e-\x1a\x1c-\x1f]", head):
        return None
    return head.decode("utf-8-sig", "replace")
