"""Small files of the rarer kinds that break readers; each function returns the bytes of a file.

Where there is a picture it is that of ``images``: a black block in the top left quarter of a white field.
"""

from __future__ import annotations

import io
import zlib

from PIL import Image, TiffImagePlugin

from tests.data import images, pdfs


def self_drawing() -> bytes:
    """A form that draws itself: the one within has no resources of its own, so "/Fm" is the page's, without end."""
    builder = pdfs.Builder()
    form = builder.stream(b"/Fm Do /Fm Do ", "/Type /XObject /Subtype /Form /BBox [0 0 600 900]")
    return pdfs.document([b"/Fm Do"], resources=f"/XObject << /Fm {form} 0 R >>", builder=builder)


def circular_pages() -> bytes:
    """A page tree whose second child is the tree itself."""
    return pdfs.plain(2).replace(b"/Kids [3 0 R 5 0 R]", b"/Kids [3 0 R 6 0 R]")


def false_count(count: int) -> bytes:
    """One page in a document that says it has many more."""
    return pdfs.plain(1).replace(b"/Count 1 ", b"/Count %d " % count)


def without_area() -> bytes:
    """A page of 0 x 0 points with a line of text."""
    return pdfs.document([pdfs.text("Nowhere to be")], size=(0, 0))


def form_on_page_two() -> bytes:
    """The field of ``pdfs.form``, on the second page; the first one is empty."""
    builder = pdfs.Builder()
    font = builder.add("<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>")
    field = builder.add(
        "<< /Type /Annot /Subtype /Widget /FT /Tx /T (name) /V (Ada Lovelace) /Rect [72 700 400 740] /F 4 "
        "/DA (/Helv 24 Tf 0 g) >>"
    )
    first = builder.add("<< /Type /Page /Parent 5 0 R /MediaBox [0 0 595 842] >>")
    second = builder.add(f"<< /Type /Page /Parent 5 0 R /MediaBox [0 0 595 842] /Annots [{field} 0 R] >>")
    pages = builder.add(f"<< /Type /Pages /Count 2 /Kids [{first} 0 R {second} 0 R] >>")
    form = (
        f"/AcroForm << /Fields [{field} 0 R] /NeedAppearances true /DA (/Helv 24 Tf 0 g) "
        f"/DR << /Font << /Helv {font} 0 R >> >> >>"
    )
    return builder.build(builder.add(f"<< /Type /Catalog /Pages {pages} 0 R {form} >>"))


def scan(entries: str, data: bytes, *, size: tuple[int, int] = images.SIZE, rotate: int = 0) -> bytes:
    """A page that one image fills.

    Parameters:
        entries: of the image's dictionary: colour space, bits, filter.
        data: its pixels, coded as ``entries`` say.
        size: of the image in pixels and of the page in points.
        rotate: the page's /Rotate.
    """
    builder = pdfs.Builder()
    image = builder.stream(data, f"/Type /XObject /Subtype /Image /Width {size[0]} /Height {size[1]} {entries}")
    return pdfs.document(
        [b"q %d 0 0 %d 0 0 cm /Im0 Do Q" % size],
        size=size,
        page=f"/Rotate {rotate}",
        resources=f"/XObject << /Im0 {image} 0 R >>",
        builder=builder,
    )


def rotated_scan(angle: int) -> bytes:
    """A scan without text that lies on its side and that /Rotate sets upright."""
    turned = images.picture(mode="L").rotate(angle, expand=True)
    entries = "/ColorSpace /DeviceGray /BitsPerComponent 8 /Filter /FlateDecode"
    return scan(entries, zlib.compress(turned.tobytes()), size=turned.size, rotate=angle)


def cmyk_scan() -> bytes:
    """Raw CMYK, in which 0 is white."""
    pixels = images.picture(mode="CMYK").tobytes()
    return scan("/ColorSpace /DeviceCMYK /BitsPerComponent 8 /Filter /FlateDecode", zlib.compress(pixels))


def cmyk_jpeg() -> bytes:
    """A CMYK JPEG as Adobe's programs write it, in which 255 is white; a PDF says so with /Decode."""
    data = images.saved(images.picture(mode="CMYK"), "JPEG", quality=95)
    decode = "/Decode [1 0 1 0 1 0 1 0]"
    return scan(f"/ColorSpace /DeviceCMYK /BitsPerComponent 8 /Filter /DCTDecode {decode}", data)


def jpeg_2000() -> bytes:
    """A JPEG 2000 image in a page."""
    return scan("/Filter /JPXDecode", images.of_kind("JPEG2000"))


def fax() -> bytes:
    """A CCITT group 4 scan, as fax machines and scanners make them."""
    tiff = io.BytesIO(images.saved(images.picture(mode="1"), "TIFF", compression="group4"))
    with TiffImagePlugin.TiffImageFile(tiff) as image:
        (offset,), (length,) = image.tag_v2[273], image.tag_v2[279]  # StripOffsets, StripByteCounts
    width, height = images.SIZE
    parameters = f"/DecodeParms << /K -1 /Columns {width} /Rows {height} /BlackIs1 true >>"
    entries = f"/ColorSpace /DeviceGray /BitsPerComponent 1 /Filter /CCITTFaxDecode {parameters}"
    return scan(entries, tiff.getvalue()[offset : offset + length])


def big_tiff() -> bytes:
    """A TIFF with 64-bit offsets."""
    return images.saved(images.picture(), "TIFF", big_tiff=True)


def deep_png() -> bytes:
    """16-bit grey in a PNG, half of it brighter than 8 bits can say."""
    return images.saved(images.picture(mode="I").point(lambda value: value * 257).convert("I;16"), "PNG")


def compressed_frames() -> bytes:
    """Two RGBA frames of a TIFF with LZW, white where they are transparent."""
    frame = Image.open(io.BytesIO(images.transparent()))
    return images.saved(frame, "TIFF", save_all=True, append_images=[frame], compression="tiff_lzw")
