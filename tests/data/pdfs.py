"""Small PDFs, one function for each kind of fault or feature. All are written byte by byte, so that nothing mends them.

``Builder`` numbers and writes the objects; the functions return the bytes of a file.
"""

from __future__ import annotations

import io
import zlib
from collections.abc import Sequence

from fpdf import FPDF
from fpdf.enums import EncryptionMethod

A4 = (595, 842)


class Builder:
    """Collects objects and writes them with a cross-reference table."""

    def __init__(self) -> None:
        self.objects: list[bytes] = []

    def add(self, body: str | bytes) -> int:
        """Take an object; returns its number."""
        self.objects.append(body.encode("latin-1") if isinstance(body, str) else body)
        return len(self.objects)

    def stream(self, data: bytes, entries: str = "") -> int:
        """Take a stream object; returns its number."""
        head = f"<< {entries} /Length {len(data)} >>\nstream\n".encode("latin-1")
        return self.add(head + data + b"\nendstream")

    def build(self, root: int, trailer: str = "") -> bytes:
        """The file."""
        out = io.BytesIO()
        out.write(b"%PDF-1.7\n")
        offsets = []
        for number, body in enumerate(self.objects, 1):
            offsets.append(out.tell())
            out.write(f"{number} 0 obj\n".encode() + body + b"\nendobj\n")
        start = out.tell()
        out.write(f"xref\n0 {len(offsets) + 1}\n0000000000 65535 f \n".encode())
        for offset in offsets:
            out.write(f"{offset:010} 00000 n \n".encode())
        out.write(f"trailer << /Size {len(offsets) + 1} /Root {root} 0 R {trailer} >>\n".encode("latin-1"))
        out.write(f"startxref\n{start}\n%%EOF\n".encode())
        return out.getvalue()


def document(
    contents: Sequence[bytes],
    *,
    size: tuple[float, float] = A4,
    page: str = "",
    resources: str = "",
    catalog: str = "",
    trailer: str = "",
    builder: Builder | None = None,
) -> bytes:
    """Pages with the given content streams; the other parameters are entries of the dictionaries that they name."""
    builder = builder or Builder()
    font = builder.add("<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>")
    pages = len(builder.objects) + 2 * len(contents) + 1
    kids = []
    for content in contents:
        stream = builder.stream(content)
        kids.append(
            builder.add(
                f"<< /Type /Page /Parent {pages} 0 R /MediaBox [0 0 {size[0]} {size[1]}] /Contents {stream} 0 R "
                f"/Resources << /Font << /F1 {font} 0 R >> {resources} >> {page} >>"
            )
        )
    builder.add(f"<< /Type /Pages /Count {len(kids)} /Kids [{' '.join(f'{kid} 0 R' for kid in kids)}] >>")
    return builder.build(builder.add(f"<< /Type /Catalog /Pages {pages} 0 R {catalog} >>"), trailer)


def text(line: str, x: float = 72, y: float = 720, size: float = 24, matrix: str = "1 0 0 1") -> bytes:
    """A content stream that writes one line."""
    escaped = line.replace("\\", r"\\").replace("(", r"\(").replace(")", r"\)")
    return f"BT /F1 {size} Tf {matrix} {x} {y} Tm ({escaped}) Tj ET\n".encode("cp1252")


def block(x: float, y: float, width: float, height: float) -> bytes:
    """A content stream that paints a black rectangle."""
    return f"0 g {x} {y} {width} {height} re f\n".encode()


def plain(count: int = 3) -> bytes:
    """Ordinary pages that say their number."""
    return document([text(f"This is page {number}") for number in range(1, count + 1)])


def described() -> bytes:
    """A document with metadata and with page labels i, ii, A-1."""
    builder = Builder()
    info = builder.add(
        "<< /Title (A small title) /Author (Nobody) /Producer (tests) /Creator (pdfs.py) "
        "/CreationDate (D:20260101120000Z) >>"
    )
    labels = "/PageLabels << /Nums [0 << /S /r >> 2 << /S /D /P (A-) >>] >>"
    contents = [text(f"page {number}") for number in range(3)]
    return document(contents, catalog=labels, trailer=f"/Info {info} 0 R", builder=builder)


def dated(date: str) -> bytes:
    """A page and a CreationDate."""
    builder = Builder()
    info = builder.add(f"<< /CreationDate ({date}) >>")
    return document([text("page")], trailer=f"/Info {info} 0 R", builder=builder)


def bad_texts() -> bytes:
    """A title and a page label that are no valid UTF-16, beside a good author."""
    builder = Builder()
    info = builder.add("<< /Title <FEFF0041D800> /Author (Nobody) >>")
    labels = "/PageLabels << /Nums [0 << /P <FEFF0041D800> >>] >>"
    return document([text("page")], catalog=labels, trailer=f"/Info {info} 0 R", builder=builder)


def rotated(angle: int) -> bytes:
    """A page without text and with a black block in the top left corner, which /Rotate turns clockwise."""
    return document([block(0, 742, 100, 100)], page=f"/Rotate {angle}")


def sideways(angle: int) -> bytes:
    """Text that runs in another direction, in degrees counter-clockwise, on a page that is not turned."""
    matrix, x, y = {90: ("0 1 -1 0", 300, 72), 180: ("-1 0 0 -1", 500, 400), 270: ("0 -1 1 0", 300, 720)}[angle]
    return document([text("Read me the right way up", x=x, y=y, matrix=matrix)])


def turned_text(angle: int) -> bytes:
    """Upright text on a page that /Rotate turns."""
    return document([text("Read me the right way up")], page=f"/Rotate {angle}")


def cropped() -> bytes:
    """The CropBox shows the lower left quarter; its middle is black, and so is all that it hides."""
    return document(
        [block(100, 150, 100, 121) + block(298, 0, 297, 842) + block(0, 421, 595, 421)],
        page="/CropBox [0 0 297.5 421]",
    )


def large_unit() -> bytes:
    """A page of 200 x 300 units of 10 points each."""
    return document([text("Large", x=20, y=150)], size=(200, 300), page="/UserUnit 10")


def sized(width: float, height: float) -> bytes:
    """A page of any size with a black block in its middle."""
    return document([block(width / 4, height / 4, width / 2, height / 2)], size=(width, height))


def without_size() -> bytes:
    """MediaBox and CropBox do not meet."""
    return document([text("Nowhere")], size=(300, 400), page="/CropBox [500 500 600 600]")


def long_list(lines: int = 400, width: float = 234) -> bytes:
    """A very long page with one numbered line every 20 points."""
    height = 20 * lines + 20
    content = b"".join(text(f"Line {n} of the list", x=10, y=height - 20 * n, size=10) for n in range(1, lines + 1))
    return document([content], size=(width, height))


def form() -> bytes:
    """A text field with a value and no appearance: only a form filler draws it. The page itself is empty."""
    builder = Builder()
    font = builder.add("<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>")
    field = builder.add(
        "<< /Type /Annot /Subtype /Widget /FT /Tx /T (name) /V (Ada Lovelace) /Rect [72 700 400 740] /F 4 "
        "/DA (/Helv 24 Tf 0 g) >>"
    )
    fields = (
        f"/AcroForm << /Fields [{field} 0 R] /NeedAppearances true /DA (/Helv 24 Tf 0 g) "
        f"/DR << /Font << /Helv {font} 0 R >> >> >>"
    )
    return document([b""], page=f"/Annots [{field} 0 R]", catalog=fields, builder=builder)


def stamped() -> bytes:
    """A stamp annotation with a black appearance on an empty page."""
    builder = Builder()
    look = builder.stream(block(0, 0, 200, 50), "/Type /XObject /Subtype /Form /BBox [0 0 200 50]")
    stamp = builder.add(f"<< /Type /Annot /Subtype /Stamp /Rect [100 600 300 650] /F 4 /AP << /N {look} 0 R >> >>")
    return document([b""], page=f"/Annots [{stamp} 0 R]", builder=builder)


def xfa(needs_rendering: bool = True) -> bytes:
    """A page and an XFA form; with NeedsRendering the page stands in for the form, which is dynamic."""
    builder = Builder()
    template = builder.stream(b"<xdp:xdp xmlns:xdp='http://ns.adobe.com/xdp/'></xdp:xdp>")
    return document(
        [text("Please wait... your PDF viewer may not be able to display this type of document.", size=10)],
        catalog=f"/AcroForm << /Fields [] /XFA {template} 0 R >> /NeedsRendering {str(needs_rendering).lower()}",
        builder=builder,
    )


def with_image(data: bytes, entries: str, *, width: int = 200, height: int = 100) -> bytes:
    """A page that shows one image and nothing else."""
    builder = Builder()
    image = builder.stream(data, f"/Type /XObject /Subtype /Image /Width {width} /Height {height} {entries}")
    content = b"q 400 0 0 200 72 500 cm /Im0 Do Q"
    return document([content], resources=f"/XObject << /Im0 {image} 0 R >>", builder=builder)


def undecodable_image() -> bytes:
    """The only image is JBIG2 data that no decoder takes."""
    return with_image(bytes(range(256)) * 8, "/ColorSpace /DeviceGray /BitsPerComponent 1 /Filter /JBIG2Decode")


def image_that_turns_white() -> bytes:
    """JBIG2 data with the header of a file, which does not belong there: pdfium makes white pixels of them."""
    data = b"\x97JB2\r\n\x1a\n\x01\x00\x00\x00\x01" + bytes(range(250))
    return with_image(data, "/ColorSpace /DeviceGray /BitsPerComponent 1 /Filter /JBIG2Decode")


def broken_jpeg() -> bytes:
    """The only image is a JPEG that is none."""
    return with_image(
        b"\xff\xd8\xff\xe0 nothing of the kind", "/ColorSpace /DeviceRGB /BitsPerComponent 8 /Filter /DCTDecode"
    )


def blank_sheet(bits: int = 1) -> bytes:
    """The scan of an empty sheet: an image that is all white."""
    width, height = 1600, 2200
    data = zlib.compress(b"\xff" * (width * bits // 8) * height)
    entries = f"/ColorSpace /DeviceGray /BitsPerComponent {bits} /Filter /FlateDecode"
    return with_image(data, entries, width=width, height=height)


def blank() -> bytes:
    """Empty in three ways: no content, spaces, white paint."""
    return document([b"", text("     "), b"1 g 10 10 300 300 re f"])


def invisible_text() -> bytes:
    """A text layer (render mode 3) on white paper: nothing is to be seen, rightly."""
    return document([b"BT 3 Tr /F1 24 Tf 72 720 Td (a ghost) Tj ET"])


def lost_text() -> bytes:
    """Black text that a clip hides: it should be seen, and is not."""
    return document([b"q 0 0 0 0 re W n " + text("I should be seen") + b"Q"])


def missing_page() -> bytes:
    """Two pages, the second of which is not there."""
    return plain(2).replace(b"/Kids [3 0 R 5 0 R]", b"/Kids [3 0 R 9 0 R]")


def encrypted(user: str, owner: str = "", method: str = "AES_256") -> bytes:
    """Encrypted by fpdf2; ``user`` is the password that opens it.

    Parameters:
        method: "RC4", "AES_128" or "AES_256".
    """
    pdf = FPDF()
    pdf.set_encryption(
        owner_password=owner or user + "-owner",
        user_password=user,
        encryption_method=EncryptionMethod[method],
    )
    pdf.add_page()
    pdf.set_font("Helvetica", size=24)
    pdf.cell(text="A secret")
    return bytes(pdf.output())


def unknown_encryption() -> bytes:
    """Encrypted for certificates: a security handler that pdfium does not have."""
    builder = Builder()
    handler = builder.add("<< /Filter /Adobe.PubSec /SubFilter /adbe.pkcs7.s5 /V 4 /Length 128 /Recipients [<3000>] >>")
    return document(
        [text("A secret")],
        trailer=f"/Encrypt {handler} 0 R /ID [<00112233445566778899aabbccddeeff> <00112233445566778899aabbccddeeff>]",
        builder=builder,
    )


def newer_encryption(password: str) -> bytes:
    """Encrypted with AES-GCM, as ISO/TS 32003 says it."""
    older = encrypted(password, method="AES_256")
    return older.replace(b"/V 5", b"/V 6").replace(b"/R 6", b"/R 7").replace(b"/AESV3", b"/AESV4")


def truncated() -> bytes:
    """The first 300 bytes of a good file."""
    return plain(1)[:300]


def garbage() -> bytes:
    """A PDF header and then noise."""
    return b"%PDF-1.4\n" + bytes((i * 7919) % 251 for i in range(4000))


def without_pages() -> bytes:
    """A well-formed document that has no page."""
    builder = Builder()
    pages = builder.add("<< /Type /Pages /Count 0 /Kids [] >>")
    return builder.build(builder.add(f"<< /Type /Catalog /Pages {pages} 0 R >>"))


def endless(depth: int = 9, fan: int = 12) -> bytes:
    """Forms within forms: a few kilobytes that paint ``fan ** depth`` times, until time or memory runs out."""
    builder = Builder()
    inner = builder.stream(block(0, 0, 10, 10), "/Type /XObject /Subtype /Form /BBox [0 0 600 900]")
    for _ in range(depth):
        inner = builder.stream(
            b"/Fm Do " * fan,
            f"/Type /XObject /Subtype /Form /BBox [0 0 600 900] /Resources << /XObject << /Fm {inner} 0 R >> >>",
        )
    return document([b"/Fm Do"], resources=f"/XObject << /Fm {inner} 0 R >>", builder=builder)


def slow(times: int = 1000) -> bytes:
    """A shading whose colour is a long program, run for each pixel of the page, and painted a thousand times."""
    builder = Builder()
    program = b"{ add " + b"dup mul sqrt " * 300 + b"dup dup }"
    function = builder.stream(program, "/FunctionType 4 /Domain [0 1 0 1] /Range [0 1 0 1 0 1]")
    shading = f"<< /ShadingType 1 /ColorSpace /DeviceRGB /Matrix [595 0 0 842 0 0] /Function {function} 0 R >>"
    return document([b"/Sh0 sh " * times], resources=f"/Shading << /Sh0 {shading} >>", builder=builder)


def bloating(megabytes: int = 500) -> bytes:
    """A content stream of a few kilobytes that unpacks, twice over, to megabytes of spaces."""
    squeeze = zlib.compressobj(9)
    once = b"".join(squeeze.compress(b" " * (1 << 20)) for _ in range(megabytes)) + squeeze.flush()
    builder = Builder()
    content = builder.stream(zlib.compress(once, 9), "/Filter [/FlateDecode /FlateDecode]")
    page = builder.add(f"<< /Type /Page /Parent 3 0 R /MediaBox [0 0 595 842] /Contents {content} 0 R >>")
    pages = builder.add(f"<< /Type /Pages /Count 1 /Kids [{page} 0 R] >>")
    return builder.build(builder.add(f"<< /Type /Catalog /Pages {pages} 0 R >>"))
