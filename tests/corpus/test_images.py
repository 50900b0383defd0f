"""What the server is sent of the files for which MANIFEST.tsv speaks of the image."""

from __future__ import annotations

import functools
import io
import statistics
from collections.abc import Iterator

import numpy as np
import pypdfium2 as pdfium
import pytest
from PIL import Image, ImageChops

from jina_ocr_loaders import JinaOCR
from tests.corpus.manifest import CORPUS, PRESENT
from tests.servers import hosted
from tests.servers.hosted import HostedServer

pytestmark = [
    pytest.mark.corpus,
    pytest.mark.skipif(not PRESENT, reason="../shared/corpus is not here"),
]

OCR_TEST = "docling/tests/data/ocr/sources/ocr_test{}.pdf"
NEMOTRON = "docling/tests/data/ocr/sources/nemotron_multipage.pdf"
PILLOW = "pillow/Tests/images/"
A4, LETTER = (595.28, 841.89), (612, 792)

Box = tuple[float, float, float, float]  # left, bottom, right, top in points, as a PDF says it


class Sent:
    """The images that a server is sent."""

    def __init__(self, server: HostedServer) -> None:
        server.otherwise = hosted.ok("fixed text")
        self._server = server
        # One page and one request at a time: images arrive in order
        self._ocr = JinaOCR("hosted", base_url=server.base_url, api_key="key", concurrency=1)

    @functools.cache  # noqa: B019  # as long as the module's tests
    def strips(self, path: str, page: int = 1) -> list[Image.Image]:
        """All images of one page."""
        self._server.clear()
        self._ocr.read(CORPUS / path, pages=page)
        return [Image.open(io.BytesIO(request.image)).convert("RGB") for request in self._server.requests]

    def page(self, path: str, page: int = 1) -> Image.Image:
        """The only image of one page."""
        (image,) = self.strips(path, page)
        return image


@pytest.fixture(scope="module")
def sent() -> Iterator[Sent]:
    """One server for all: what it was sent is kept."""
    with HostedServer() as server:
        yield Sent(server)


def likeness(one: Image.Image, other: Image.Image) -> float:
    """1 for the same picture, about 0 for it and itself turned; proportions count, size in pixels does not."""
    if abs(one.width / one.height - other.width / other.height) > 0.02:
        return 0.0
    small = [list(image.convert("L").resize((48, 48), Image.Resampling.BOX).tobytes()) for image in (one, other)]
    return statistics.correlation(*small)


def part(image: Image.Image, box: Box, size: tuple[float, float]) -> Image.Image:
    """A box of a page of some size in points, cut out of its image."""
    scale = image.width / size[0]
    left, bottom, right, top = box
    edges = (left, size[1] - top, right, size[1] - bottom)
    return image.crop(tuple(int(edge * scale) for edge in edges))


def dark(image: Image.Image) -> float:
    """Part of the pixels that are darker than half."""
    return sum(image.convert("L").histogram()[:128]) / (image.width * image.height)


@pytest.mark.parametrize(
    ("path", "page", "original", "turn"),
    [
        (OCR_TEST.format("_rotated_90"), 1, OCR_TEST.format(""), 90),
        (OCR_TEST.format("_rotated_180"), 1, OCR_TEST.format(""), 180),
        (OCR_TEST.format("_rotated_270"), 1, OCR_TEST.format(""), 270),
        (NEMOTRON, 2, NEMOTRON, 180),
        (NEMOTRON, 3, NEMOTRON, 270),
        (NEMOTRON, 4, NEMOTRON, 90),
    ],
)
def test_scans_are_turned_as_the_pdf_says(sent, path, page, original, turn):
    """A scan has no text that tells which way is up: /Rotate is obeyed, as in every viewer; nothing is squeezed."""
    assert likeness(sent.page(path, page), sent.page(original).rotate(turn, expand=True)) > 0.99


@pytest.mark.parametrize(
    ("path", "pages"),
    [("pdfjs/test/pdfs/hello_world_rotated.pdf", 5), ("sample-files/015-arabic/habibi-rotated.pdf", 4)],
)
def test_pages_with_text_are_upright_whatever_their_rotation(sent, path, pages):
    """The same line of text under different /Rotate: the same image, with the line along the width."""
    first = sent.page(path)
    left, top, right, bottom = ImageChops.invert(first.convert("L")).point(lambda v: 255 * (v > 128)).getbbox()
    assert right - left > 3 * (bottom - top)
    for page in range(2, pages + 1):
        assert likeness(first, sent.page(path, page)) > 0.99


@pytest.mark.parametrize(
    "path", ["olmocr/tests/gnarly_pdfs/edgar-rotated90.pdf", "unstructured/example-docs/rotated-page-90.pdf"]
)
def test_upright_text_that_rotate_lays_down_is_set_up_again(sent, path):
    """The page without its /Rotate is what can be read, and what is sent."""
    with pdfium.PdfDocument(CORPUS / path) as document:
        page = document[0]
        page.set_rotation(0)
        upright = page.render(scale=1).to_pil()
    assert likeness(sent.page(path), upright) > 0.97


@pytest.mark.parametrize(
    "name",
    [
        "hopper_bigtiff.tif",
        "hopper_float_dpi_2.tif",
        "hopper_orientation_6.webp",
        *(f"hopper_orientation_{orientation}.jpg" for orientation in range(2, 9)),
    ],
)
def test_photographs_are_upright(sent, name):
    """One photograph in all orientations: as the one without."""
    assert likeness(sent.page(PILLOW + name), sent.page(PILLOW + "avif/hopper.avif")) > 0.99


def test_bilevel_scans_are_upright(sent):
    """One line of text in TIFF orientations 2 to 8: seven times the same, black on white, along the width."""
    scans = [sent.page(f"{PILLOW}g4_orientation_{orientation}.tif") for orientation in range(2, 9)]
    assert scans[0].width > 5 * scans[0].height
    assert dark(scans[0]) < 0.3
    assert all(likeness(scans[0], scan) > 0.99 for scan in scans[1:])


@pytest.mark.parametrize(
    ("path", "size", "boxes"),
    [
        ("sample-files/012-libreoffice-form/libreoffice-form.pdf", A4, [(120, 710, 204, 718), (77, 491, 231, 499)]),
        ("sample-files/010-pdflatex-forms/pdflatex-forms.pdf", LETTER, [(180, 649, 271, 670), (182, 621, 198, 643)]),
        (
            "pypdfium2/tests/resources/forms.pdf",
            (300, 600),
            [(100, bottom, 200, bottom + 30) for bottom in (100, 150, 200, 250, 350, 400, 500)],
        ),
    ],
)
def test_form_fields_are_drawn(sent, path, size, boxes):
    """Values, borders and choices: there is ink within the rectangle of each field that has any of them."""
    image = sent.page(path)
    for box in boxes:
        field = part(image, box, size).convert("L")
        assert sum(field.histogram()[:200]) / (field.width * field.height) > 0.01, box


@pytest.mark.parametrize(
    ("page", "box"),
    [
        (4, (50, 675, 70, 695)),
        (6, (70, 708, 90, 728)),
        (7, (253, 748, 272, 768)),
        (8, (61, 599, 81, 619)),
        (9, (47, 688, 67, 708)),
        (10, (534, 667, 554, 688)),
    ],
)
def test_form_fields_on_later_pages_are_drawn(sent, page, box):
    """The check boxes of pages 4 and 6 to 10 (3 and 5 to 9, counted from 0) are widgets; no value is filled in."""
    image = sent.page("olmocr/tests/gnarly_pdfs/form_on_later_pages.pdf", page)
    assert dark(part(image, box, A4)) > 0.05


def test_annotations_are_drawn(sent):
    """The yellow note that an annotation without an appearance stands for."""
    note = part(sent.page("sample-files/024-annotations/annotated_pdf.pdf"), (171, 788, 188, 804), A4)
    assert np.all(np.asarray(note) * (1, 1, -1) > (150, 150, -120), axis=2).mean() > 0.2


@pytest.mark.parametrize(
    ("path", "sky"),
    [("sample-files/023-cmyk-image/cmyk-image.pdf", (0.7, 0.2)), ("pdfjs/test/pdfs/cmykjpeg.pdf", (0.3, 0.08))],
)
def test_cmyk_is_not_inverted(sent, path, sky):
    """The paper is white, and the sky blue."""
    image = sent.page(path)
    assert min(image.getpixel((5, 5))) > 250
    red, _, blue = image.getpixel((int(sky[0] * image.width), int(sky[1] * image.height)))
    assert blue > red + 20


def test_sixteen_bits_are_not_clipped(sent):
    """Values of 291 to 694 of 65,535, in either byte order: all between black and white, with their contrast."""
    little, big = (sent.page(f"{PILLOW}16bit{order}.cropped.tif") for order in ("", ".MM"))
    low, high = little.convert("L").getextrema()
    assert 20 < low < high < 235
    assert high - low > 60
    assert likeness(little, big) > 0.99


def test_twelve_bits_are_not_black(sent):
    """Values of 0 to 30 of 4,095 can be told apart."""
    low, high = sent.page(PILLOW + "12bit.cropped.tif").convert("L").getextrema()
    assert low < 20
    assert high > 200


def test_transparency_is_white(sent):
    """The hole in the middle shows the paper."""
    image = sent.page(PILLOW + "avif/transparency.avif")
    assert min(image.getpixel((640, 640))) > 250
    assert max(image.getpixel((128, 128))) - min(image.getpixel((128, 128))) > 200


def test_a_very_long_page_comes_in_strips(sent):
    """234 x 14,295 points: two dozen strips 640 pixels wide, in order, none beginning after the last one ends."""
    path = "olmocr/tests/gnarly_pdfs/skinnypage.pdf"
    assert sent.page(path, 1).width == 1920
    with pdfium.PdfDocument(CORPUS / path) as document:  # at half the size: pdfium errs beyond 32,767 pixels
        whole = columns(document[1].render(scale=320 / document[1].get_width()).to_pil())
    end = 0  # of what has been seen of the page
    for strip in sent.strips(path, 2):
        assert strip.width == 640
        assert strip.height <= 1920
        rows = columns(strip.reduce(2))
        starts = range(max(0, end - 300), min(end, len(whole) - len(rows)) + 1)
        difference = {start: float(np.abs(whole[start : start + len(rows)] - rows).mean()) for start in starts}
        start = min(difference, key=difference.__getitem__)
        assert difference[start] < 1.5
        end = start + len(rows)
    assert end >= len(whole) - 1


def columns(image: Image.Image) -> np.ndarray:
    """The grey values of an image, made 32 columns wide."""
    return np.asarray(image.convert("L").resize((32, image.height), Image.Resampling.BOX), dtype=np.float32)


@pytest.mark.parametrize("page", range(1, 7))
def test_tiny_pages_are_legible(sent, page):
    """3.8 points wide, in six kinds of image: the same face each time, at 1,920 pixels."""
    path = "sample-files/007-imagemagick-images/imagemagick-images.pdf"
    image = sent.page(path, page)
    assert max(image.size) == 1920
    assert likeness(image, sent.page(path)) > 0.98


def test_a_page_of_three_points(sent):
    """3 x 3 points with a red square in the middle, on white."""
    image = sent.page("pdfjs/test/pdfs/issue11878_reduced.pdf")
    assert image.getpixel((960, 960)) > (200, 0, 0)
    assert max(image.getpixel((960, 960))[1:]) < 50
    assert min(image.getpixel((50, 50))) > 250


@pytest.mark.parametrize("page", [1, 2, 3])
def test_pages_without_a_size_are_drawn(sent, page):
    """0 x 0 points: the text is there, on a page of ordinary size."""
    image = sent.page("pdfjs/test/pdfs/boundingBox_invalid.pdf", page)
    assert max(image.size) == 1920
    assert 0.0005 < dark(image) < 0.1


@pytest.mark.parametrize(
    ("path", "pages"),
    [
        ("docling/tests/data/tiff/sources/2206.01062.tif", 2),
        ("docling/tests/data/webp/sources/webp-test.webp", 1),
        ("tesseract/testing/phototest.tif", 1),
        ("tesseract/testing/8071_093.3B.tif", 1),
        ("olmocr/tests/gnarly_pdfs/some_ocr1.pdf", 1),
        ("unstructured/example-docs/pdf/loremipsum-flat.pdf", 1),
        ("unstructured/example-docs/img/DA-1p.heic", 1),
        ("unstructured/example-docs/img/english-and-korean.png", 1),
        ("unstructured/example-docs/img/layout-parser-paper-fast.jpg", 1),
        ("olmocr/tests/gnarly_pdfs/large_prompt_hint3.pdf", 4),
        ("unstructured/example-docs/pdf/copy-protected.pdf", 2),
    ],
)
def test_scans_and_encrypted_pages_are_dark_on_light(sent, path, pages):
    """Neither white nor black nor inverted: some ink on paper."""
    for page in range(1, pages + 1):
        assert 0.005 < dark(sent.page(path, page)) < 0.4


@pytest.mark.parametrize(
    ("path", "long_side"),
    [
        (PILLOW + "avif/hopper.avif", 1280),  # 128 pixels
        (PILLOW + "g4_orientation_5.tif", 1280),  # 88 x 590
        ("tesseract/testing/phototest.tif", 1280),  # 640 x 480, the last size that would cost the tiles
        ("unstructured/example-docs/img/english-and-korean.png", 814),
        ("unstructured/example-docs/img/layout-parser-paper-fast.jpg", 792),
        ("tesseract/testing/8071_093.3B.tif", 1920),
    ],
)
def test_images_have_the_right_size(sent, path, long_side):
    """Small ones enlarged above 640 pixels, large ones made smaller, the others as they are."""
    assert max(sent.page(path).size) == long_side
