"""Documents of our own for measuring: pages of text, as light to draw as ordinary ones, and scans of them."""

from __future__ import annotations

import io
from collections.abc import Sequence

TEXT = """the page is read in one piece and its words keep their order while numbers such as 1,085 or 3.4 stay what
    they are because a reader who looks for a figure must find it where the author has put it"""
WORDS = TEXT.split()
LINES, WORDS_A_LINE = 46, 12  # an A4 page of 11 pt text
SCAN_DPI = 150


def make_pdf(pages: int) -> bytes:
    """A PDF of so many A4 pages of text, each with its number."""
    contents = []
    for number in range(1, pages + 1):
        lines = [f"Page {number}", *(_line(number, n) for n in range(LINES))]
        text = " T* ".join(f"({line}) Tj" for line in lines)
        contents.append(f"BT /F 11 Tf 15 TL 60 780 Td {text} ET".encode())
    font = b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>"
    return _pdf([(content, b"/Font<</F %d 0 R>>", font) for content in contents])


def make_scan(pages: int) -> bytes:
    """The same pages as a scanner gives them: one grey JPEG each, and no text."""
    import pypdfium2

    scans = []
    with pypdfium2.PdfDocument(make_pdf(pages)) as document:
        for page in document:
            image = page.render(scale=SCAN_DPI / 72).to_pil().convert("L")
            out = io.BytesIO()
            image.save(out, "JPEG", quality=80)
            kind = b"<</Subtype/Image/ColorSpace/DeviceGray/BitsPerComponent 8/Filter/DCTDecode/Width %d/Height %d" % (
                image.size
            )
            data = out.getvalue()
            picture = kind + b"/Length %d>>stream\n%s\nendstream" % (len(data), data)
            scans.append((b"595 0 0 842 0 0 cm /I Do", b"/XObject<</I %d 0 R>>", picture))
    return _pdf(scans)


def _pdf(pages: Sequence[tuple[bytes, bytes, bytes]]) -> bytes:
    """A PDF of A4 pages, each of its content, its resources, and the object that those refer to (the same one once)."""
    objects = [b"<</Type/Catalog/Pages 2 0 R>>", b""]
    kids, numbers = [], dict[bytes, int]()
    for content, resources, resource in pages:
        if resource not in numbers:
            objects.append(resource)
            numbers[resource] = len(objects)
        objects.append(b"<</Length %d>>stream\n%s\nendstream" % (len(content), content))
        page = b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 595 842]/Contents %d 0 R/Resources<<%s>>>>"
        objects.append(page % (len(objects), resources % numbers[resource]))
        kids.append(b"%d 0 R" % len(objects))
    objects[1] = b"<</Type/Pages/Kids[%s]/Count %d>>" % (b" ".join(kids), len(kids))
    out, offsets = bytearray(b"%PDF-1.4\n"), []
    for number, body in enumerate(objects, 1):
        offsets.append(len(out))
        out += b"%d 0 obj%s\nendobj\n" % (number, body)
    start = len(out)
    out += b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    out += b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    out += b"trailer<</Size %d/Root 1 0 R>>\nstartxref\n%d\n%%%%EOF\n" % (len(objects) + 1, start)
    return bytes(out)


def _line(page: int, line: int) -> str:
    first = (page * 7 + line * 5) % len(WORDS)
    return " ".join(WORDS[(first + n) % len(WORDS)] for n in range(WORDS_A_LINE))
