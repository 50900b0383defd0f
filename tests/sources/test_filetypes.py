"""What a file is, by its first bytes."""

from __future__ import annotations

import io
import zipfile

import pytest
from PIL import Image

from jina_ocr_loaders.errors import CorruptDocumentError, UnsupportedSourceError
from jina_ocr_loaders.sources.filetypes import HEAD_BYTES, kind_of


def saved(image_format: str, **options: object) -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (8, 8), "white").save(out, image_format, **options)
    return out.getvalue()


def zipped(*names: str, content: bytes = b"x") -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name in names:
            archive.writestr(name, content)
    return out.getvalue()


@pytest.mark.parametrize("image_format", ["PNG", "JPEG", "WEBP", "TIFF", "GIF", "BMP", "JPEG2000", "AVIF", "MPO"])
def test_images_that_pillow_writes_are_images(image_format):
    """Every format that is read is known by what Pillow writes of it."""
    assert kind_of(saved(image_format)[:HEAD_BYTES], name="x") == "image"


@pytest.mark.parametrize("start", [b"II*\0", b"MM\0*", b"II+\0\x08\0\0\0", b"MM\0+\0\x08\0\0", b"\xff\x4f\xff\x51"])
def test_other_beginnings_of_images(start):
    """TIFF and BigTIFF in both byte orders, and bare JPEG 2000 code streams."""
    assert kind_of(start + bytes(100), name="x") == "image"


@pytest.mark.parametrize(
    ("brands", "kind"),
    [
        (b"heic\0\0\0\0mif1heic", "heif"),
        (b"mif1\0\0\0\0mif1heicmiaf", "heif"),
        (b"msf1\0\0\0\0msf1hevc", "heif"),
        (b"heicavifmif1heic", "heif"),  # the minor version is a number, not a brand
        (b"avif\0\0\0\0mif1miaf", "image"),
        (b"mif1\0\0\0\0miafavif", "image"),
        (b"avis\0\0\0\0avis", "image"),
    ],
)
def test_heif_and_avif_are_told_apart_by_their_brands(brands, kind):
    """Both are the same container: the major and the compatible brands say which."""
    head = (8 + len(brands)).to_bytes(4, "big") + b"ftyp" + brands + b"\0\0\0\x10meta" + bytes(50)
    assert kind_of(head, name="x") == kind


@pytest.mark.parametrize("junk", [b"", b"\n\n", b"\xef\xbb\xbf", b"HTTP/1.1 200 OK\r\n\r\n", b"x" * 1019])
def test_a_pdf_may_begin_with_junk(junk):
    """The header counts when it lies within the first 1,024 bytes, as in other readers."""
    assert kind_of(junk + b"%PDF-1.4\n", name="x") == "pdf"


def test_a_pdf_header_further_on_does_not_count():
    """A text that mentions the header late is a text."""
    with pytest.raises(UnsupportedSourceError, match="plain text"):
        kind_of(b"x" * 1020 + b"%PDF-1.4\n", name="x")


def test_an_empty_file_is_corrupt():
    """It has no kind, and the error says why."""
    with pytest.raises(CorruptDocumentError, match=r"^a\.pdf: the file is empty$"):
        kind_of(b"", name="a.pdf")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (zipped("[Content_Types].xml", "word/document.xml"), "Office file .docx.*soffice --headless --convert-to pdf"),
        (zipped("_rels/.rels", "xl/workbook.xml"), "Office file .*soffice"),
        (zipped("mimetype", content=b"application/vnd.oasis.opendocument.text"), "OpenDocument.*soffice"),
        (zipped("mimetype", content=b"application/epub+zip"), "EPUB.*ebook-convert"),
        (zipped("a.pdf", content=b"%PDF-1.7"), "ZIP archive.*unpack"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(500), "Office file .doc.*soffice"),
        (b"{\\rtf1\\ansi", "RTF.*soffice"),
        (b"%!PS-Adobe-3.0", "PostScript.*ps2pdf"),
        (b"AT&TFORM\0\0\0\0DJVU", "DjVu.*ddjvu"),
        (b"<!DOCTYPE html><html>", "web page"),
        (b"\xef\xbb\xbf \n<!-- x --><HTML lang=de>", "web page"),
        ("<html>".encode("utf-16"), "web page"),
        (b'<?xml version="1.0"?><svg xmlns="http://www.w3.org/2000/svg">', "SVG"),
        (b"# Title\n\nSome *text*.", "plain text.*loader for text"),
        ("Grüße aus Köln".encode(), "plain text"),
        (b'{"a": 1}', "plain text"),
        (b"BMW is a company", "plain text"),
        (b"8BPS\0\1", "Photoshop.*PNG"),
        (b"\xff\x0a\0\0", "JPEG XL"),
        (b"\x1f\x8b\x08\0\0", "gzip"),
        (b"\0\0\0\x20ftypisom\0\0\2\0isomiso2avc1mp41" + bytes(50), "not known here"),
        (b"\x7fELF\2\1\1\0", "not known here, neither a PDF nor an image: PDF, PNG"),
        (bytes(1000), "not known here"),
    ],
)
def test_what_people_pass_by_mistake_is_named(content, says):
    """The error says what the file is and what to do with it."""
    with pytest.raises(UnsupportedSourceError, match=says) as caught:
        kind_of(content[:HEAD_BYTES], name="report.pdf")
    assert caught.value.source == "report.pdf"
