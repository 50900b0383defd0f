"""A document of our own for measuring: text pages in a base font, as light to draw as an ordinary page is."""

from __future__ import annotations

TEXT = """the page is read in one piece and its words keep their order while numbers such as 1,085 or 3.4 stay what
    they are because a reader who looks for a figure must find it where the author has put it"""
WORDS = TEXT.split()
LINES, WORDS_A_LINE = 46, 12  # an A4 page of 11 pt text


def make_pdf(pages: int) -> bytes:
    """A PDF of so many A4 pages of text, each with its number."""
    objects = [b"<</Type/Catalog/Pages 2 0 R>>", b"", b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>"]
    kids = []
    for number in range(1, pages + 1):
        lines = [f"Page {number}", *(_line(number, n) for n in range(LINES))]
        text = " T* ".join(f"({line}) Tj" for line in lines)
        content = f"BT /F 11 Tf 15 TL 60 780 Td {text} ET".encode()
        objects.append(b"<</Length %d>>stream\n%s\nendstream" % (len(content), content))
        page = b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 595 842]/Contents %d 0 R/Resources<</Font<</F 3 0 R>>>>>>"
        objects.append(page % len(objects))
        kids.append(b"%d 0 R" % len(objects))
    objects[1] = b"<</Type/Pages/Kids[%s]/Count %d>>" % (b" ".join(kids), pages)
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
