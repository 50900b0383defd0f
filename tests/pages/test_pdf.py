"""PDFs: opening them, their geometry, what is drawn, what is blank, what is refused."""

from __future__ import annotations

import pytest

from jina_ocr_loaders.engines.base import Render
from jina_ocr_loaders.errors import (
    CorruptDocumentError,
    PageRangeError,
    PageRenderError,
    PasswordRequiredError,
    UnsupportedEncryptionError,
    WrongPasswordError,
)
from jina_ocr_loaders.pages import Page, TextRun
from tests.data import pdfs
from tests.pages.opening import ink, is_black, open_bytes, quarters, read, run


def test_ordinary_pages_come_as_jpeg_of_1920_pixels(tmp_path):
    """Three A4 pages: three upright JPEG images of 1,357 x 1,920 with ink on them, and no warning."""
    outcome = read(tmp_path, pdfs.plain(3))
    assert [page.number for page in outcome.pages] == [1, 2, 3]
    for page in outcome.pages:
        (image,) = page.strips
        assert (image.width, image.height) == (1357, 1920)
        assert image.jpeg().startswith(b"\xff\xd8")
        assert 0.0005 < ink(image) < 0.1
        assert page.warnings == ()


def test_the_engine_chooses_size_and_quality(tmp_path):
    """The longer side is what Render says, and a lower quality takes fewer bytes."""
    fine = read(tmp_path, pdfs.plain(1), render=Render(long_side=1000, quality=95)).image
    coarse = read(tmp_path, pdfs.plain(1), render=Render(long_side=1000, quality=30)).image
    assert fine.height == coarse.height == 1000
    assert len(coarse.data) < len(fine.data)


def test_metadata_and_labels(tmp_path):
    """Metadata keys are in lower case, absent ones stay away, and pages carry their printed labels."""
    outcome = read(tmp_path, pdfs.described())
    assert outcome.document.metadata == {
        "title": "A small title",
        "author": "Nobody",
        "producer": "tests",
        "creator": "pdfs.py",
        "creationdate": "2026-01-01T12:00:00+00:00",
    }
    assert [page.label for page in outcome.pages] == ["i", "ii", "A-1"]
    assert [page.label for page in read(tmp_path, pdfs.plain(2)).pages] == ["1", "2"]


@pytest.mark.parametrize(("angle", "corner"), [(0, (0, 0)), (90, (1, 0)), (180, (1, 1)), (270, (0, 1))])
def test_rotate_turns_the_page(tmp_path, angle, corner):
    """/Rotate turns a page without text clockwise, as every viewer shows it."""
    image = read(tmp_path, pdfs.rotated(angle)).image
    assert (image.width > image.height) == (angle in (90, 270))
    black = [(x, y) for x in (0, 1) for y in (0, 1) if is_black(image, 0.03 + 0.94 * x, 0.03 + 0.94 * y)]
    assert black == [corner]


@pytest.mark.parametrize(
    "data",
    [*(pdfs.turned_text(angle) for angle in (90, 180, 270)), *(pdfs.sideways(angle) for angle in (90, 180, 270))],
    ids=["rotate-90", "rotate-180", "rotate-270", "text-90", "text-180", "text-270"],
)
def test_sideways_text_is_turned_upright(tmp_path, data):
    """A page whose text runs sideways, through /Rotate or by its content, comes so that it reads from left to right."""
    image = read(tmp_path, data, render=Render(text_layer=True)).image
    (run_of_text,) = image.text
    assert run_of_text.angle == 0
    assert run_of_text.right - run_of_text.left > 5 * (run_of_text.bottom - run_of_text.top)
    middle_x = (run_of_text.left + run_of_text.right) / 2 / image.width
    middle_y = (run_of_text.top + run_of_text.bottom) / 2 / image.height
    around = image.rgb().crop((run_of_text.left, run_of_text.top, run_of_text.right, run_of_text.bottom)).convert("L")
    assert 0 < middle_x < 1
    assert 0 < middle_y < 1
    assert around.getextrema()[0] < 60


def test_the_crop_box_is_what_is_seen(tmp_path):
    """The page is as large as its CropBox and shows nothing from outside of it."""
    image = read(tmp_path, pdfs.cropped()).image
    assert image.height / image.width == pytest.approx(421 / 297.5, abs=0.01)
    assert is_black(image, 0.5, 0.5)
    assert not any(is_black(image, x, y) for x in (0.01, 0.99) for y in (0.01, 0.99))


def test_user_unit_changes_nothing_in_pixels(tmp_path):
    """A page of 200 x 300 large units is drawn as large as any other."""
    image = read(tmp_path, pdfs.large_unit()).image
    assert (image.width, image.height) == (1280, 1920)


@pytest.mark.parametrize("side", [3, 14_400])
def test_tiny_and_huge_pages_get_the_same_pixels(tmp_path, side):
    """Pages of 3 x 3 and of 14,400 x 14,400 points both come as 1,920 pixels; the huge one says so."""
    outcome = read(tmp_path, pdfs.sized(side, side))
    assert (outcome.image.width, outcome.image.height) == (1920, 1920)
    assert is_black(outcome.image, 0.5, 0.5)
    assert outcome.page.warnings == (("downscaled",) if side == 14_400 else ())


def test_a_page_without_size_is_drawn_on_letter(tmp_path):
    """MediaBox and CropBox that do not meet: the text is there, on a page of 612 x 792."""
    image = read(tmp_path, pdfs.without_size()).image
    assert image.width / image.height == pytest.approx(612 / 792, abs=0.01)
    assert ink(image) > 0


def test_a_page_of_no_points_is_drawn_on_letter(tmp_path):
    """A MediaBox of 0 x 0: no division by zero."""
    data = pdfs.document([pdfs.text("Nowhere")], size=(0, 0))
    assert ink(read(tmp_path, data).image) > 0


def test_form_values_are_drawn(tmp_path):
    """The value of a field without an appearance is ink on the page."""
    assert ink(read(tmp_path, pdfs.form()).image) > 0.001


def test_annotations_are_drawn(tmp_path):
    """A stamp is ink on the page, where it was put."""
    image = read(tmp_path, pdfs.stamped()).image
    assert is_black(image, 200 / 595, 1 - 625 / 842)


def test_a_dynamic_xfa_form_is_a_failed_page(tmp_path):
    """Its stand-in page is neither text nor empty: the page fails with the code xfa_placeholder."""
    error = read(tmp_path, pdfs.xfa()).error
    assert isinstance(error, PageRenderError)
    assert (error.code, error.page) == ("xfa_placeholder", 1)


def test_a_real_page_of_an_xfa_document_is_read(tmp_path):
    """A form whose pages are drawn already, with an XFA copy beside them, is an ordinary document."""
    assert ink(read(tmp_path, pdfs.xfa(needs_rendering=False)).image) > 0


@pytest.mark.parametrize(
    "make", [pdfs.undecodable_image, pdfs.image_that_turns_white, pdfs.broken_jpeg, pdfs.lost_text]
)
def test_a_page_that_hides_what_it_holds_is_a_failed_page(tmp_path, make):
    """An image that cannot be decoded, or text that is clipped away, must not pass for an empty page."""
    error = read(tmp_path, make()).error
    assert isinstance(error, PageRenderError)
    assert error.code == "blank_render"


@pytest.mark.parametrize(
    "data",
    [pdfs.blank(), pdfs.blank_sheet(1), pdfs.blank_sheet(8), pdfs.invisible_text()],
    ids=["nothing", "bilevel scan", "grey scan", "ghost text"],
)
def test_blank_pages_are_blank(tmp_path, data):
    """Nothing, spaces, white paint, the scan of an empty sheet, an invisible text layer: no image, no error."""
    for page in read(tmp_path, data).pages:
        assert isinstance(page, Page), page
        assert page.blank


def test_one_bad_page_does_not_take_the_others_along(tmp_path):
    """Page 2 of 2 is not there: page 1 is drawn, page 2 is an error that says where."""
    good, bad = read(tmp_path, pdfs.missing_page()).pages
    assert good.strips
    assert isinstance(bad, PageRenderError)
    assert (bad.page, bad.source, bad.code) == (2, "sample", "render_error")


@pytest.mark.parametrize("make", [pdfs.truncated, pdfs.garbage, pdfs.without_pages])
def test_damaged_documents_are_refused(tmp_path, make):
    """A cut file, noise, and a document without pages: one clear error that names the document."""
    with pytest.raises(CorruptDocumentError, match=r"sample: .*damaged"):
        read(tmp_path, make())


def test_a_wrong_password_before_does_not_colour_the_next_error(tmp_path):
    """pdfium keeps its last error code: a damaged file opened after an encrypted one is still called damaged."""
    for _ in range(2):
        with pytest.raises(PasswordRequiredError):
            read(tmp_path, pdfs.encrypted("secret"))
        with pytest.raises(CorruptDocumentError):
            read(tmp_path, pdfs.without_pages())


@pytest.mark.parametrize("method", ["RC4", "AES_128", "AES_256"])
@pytest.mark.parametrize("password", ["secret", "grüße"])
def test_encrypted_documents_open_with_their_password(tmp_path, method, password):
    """Without one, with a wrong one and with the right one, ASCII or not, in every common cipher."""
    data = pdfs.encrypted(password, method=method)
    with pytest.raises(PasswordRequiredError, match="password=") as without:
        read(tmp_path, data)
    assert not isinstance(without.value, WrongPasswordError)
    with pytest.raises(WrongPasswordError):
        read(tmp_path, data, password="wrong")
    assert ink(read(tmp_path, data, password=password).image) > 0


def test_passwords_beyond_latin_1(tmp_path):
    """AES-256 takes any Unicode password."""
    assert ink(read(tmp_path, pdfs.encrypted("пароль"), password="пароль").image) > 0


def test_an_empty_password_is_tried_first(tmp_path):
    """An owner's password alone asks for nothing, and one that is given all the same does no harm."""
    data = pdfs.encrypted("", owner="boss")
    assert ink(read(tmp_path, data).image) > 0
    assert ink(read(tmp_path, data, password="anything").image) > 0


def test_encryption_that_pdfium_does_not_know(tmp_path):
    """For certificates, or by a newer standard with this or no password: said so, and no password is blamed."""
    for data in (pdfs.unknown_encryption(), pdfs.newer_encryption("secret"), pdfs.newer_encryption("")):
        for password in (None, "secret"):
            with pytest.raises(UnsupportedEncryptionError):
                read(tmp_path, data, password=password)


@pytest.mark.parametrize(
    ("written", "given"),
    [
        ("D:20260301120000+02'30'", "2026-03-01T12:00:00+02:30"),
        ("D:20260301120000-0800", "2026-03-01T12:00:00-08:00"),
        ("D:20210303175002Z00'00'", "2021-03-03T17:50:02+00:00"),
        ("D:20260301", "2026-03-01T00:00:00"),
        ("2026", "2026-01-01T00:00:00"),
        ("D:20261301", "D:20261301"),
        ("first of March", "first of March"),
    ],
)
def test_dates_are_in_iso_8601(tmp_path, written, given):
    """As LangChain's loaders give them; what is no date stays as it is."""
    assert read(tmp_path, pdfs.dated(written)).document.metadata["creationdate"] == given


@pytest.mark.parametrize("claimed", [65_536, 2_147_483_647])
def test_a_page_count_that_the_file_cannot_hold(tmp_path, claimed):
    """Two kilobytes that claim thousands of pages: the pages that are there, and no others."""
    data = pdfs.plain(3).replace(b"/Count 3 ", b"/Count %d " % claimed)
    assert [page.number for page in read(tmp_path, data).pages] == [1, 2, 3]


def test_sizes_are_known_without_drawing(tmp_path):
    """What is announced for estimates is what comes: exactly for one image, and at least as many strips."""

    async def work(data):
        async with await open_bytes(tmp_path, data) as document:
            numbers = range(1, document.page_count + 1)
            sizes = await document.sizes(numbers)
            pages = [await document.page(number) for number in numbers]
        return sizes, [tuple((strip.width, strip.height) for strip in page.strips) for page in pages]

    for data in (pdfs.plain(3), pdfs.rotated(90), pdfs.sized(3, 3), pdfs.sized(590, 88)):
        announced, drawn = run(work(data))
        assert announced == drawn
    ((announced,), (drawn,)) = run(work(pdfs.long_list(400)))
    assert len(drawn) <= len(announced) <= len(drawn) * 1.2
    assert {width for width, _ in announced} == {640}


def test_sizes_of_a_page_that_is_not_there(tmp_path):
    """It has none, and the other has its own."""

    async def work():
        async with await open_bytes(tmp_path, pdfs.missing_page()) as document:
            return await document.sizes([2, 1])

    assert run(work()) == [(), ((1357, 1920),)]


def test_texts_that_are_no_utf_16_are_left_out(tmp_path):
    """A title and a label that end in half a surrogate pair cost themselves, not the document."""
    outcome = read(tmp_path, pdfs.bad_texts())
    assert outcome.document.metadata == {"author": "Nobody"}
    assert outcome.page.label == "1"


def test_page_numbers_are_checked(tmp_path):
    """Pages 0 and 4 of 3 do not exist."""

    async def work():
        async with await open_bytes(tmp_path, pdfs.plain(3)) as document:
            for number in (0, 4, -1):
                with pytest.raises(PageRangeError):
                    await document.page(number)

    run(work())


def test_odd_file_names(tmp_path):
    """Spaces, percent signs, other scripts and bytes that are no UTF-8: the worker finds the file."""
    from jina_ocr_loaders.pages import open_document
    from tests.pages.opening import File

    async def work(name):
        path = tmp_path / name
        path.write_bytes(pdfs.plain(1))
        async with await open_document(File(path), name="odd") as document:
            return await document.page(1)

    for name in ("a b%20c#.pdf", "文書 и ещё.pdf", b"caf\xe9.pdf".decode("utf-8", "surrogateescape")):
        assert run(work(name)).strips


def test_long_pages_come_in_overlapping_strips(tmp_path):
    """A list of 234 x 8,020 points: strips that each fit an engine, and every line whole in at least one of them."""
    page = read(tmp_path, pdfs.long_list(400), render=Render(text_layer=True)).page
    assert page.warnings == ("strips",)
    assert len(page.strips) > 5
    assert {strip.width for strip in page.strips} == {page.width} == {640}
    assert 0.85 < page.height / sum(strip.height for strip in page.strips) < 1  # they overlap
    assert all(strip.height <= 1920 for strip in page.strips)
    seen = [run_.text for strip in page.strips for run_ in strip.text if run_.top >= 0 and run_.bottom <= strip.height]
    assert list(dict.fromkeys(seen)) == [f"Line {n} of the list" for n in range(1, 401)]


def test_strips_are_cut_between_lines(tmp_path):
    """The first and the last row of every strip hold no ink."""
    for strip in read(tmp_path, pdfs.long_list(400)).page.strips:
        pixels = strip.rgb().convert("L")
        for row in (0, strip.height - 1):
            assert pixels.crop((0, row, strip.width, row + 1)).getextrema()[0] > 200


def test_the_number_of_strips_is_bounded(tmp_path):
    """3 x 14,400 points at the width of other strips would make hundreds of them: at most 40 come."""
    page = read(tmp_path, pdfs.sized(3, 14_400)).page
    assert page.warnings == ("strips",)
    assert 20 < len(page.strips) <= 40


def test_a_wide_label_needs_no_strips(tmp_path):
    """590 x 88 points fit in one image at full resolution."""
    image = read(tmp_path, pdfs.sized(590, 88)).image
    assert image.width == 1920


def test_the_text_layer_comes_when_asked_for(tmp_path):
    """Runs with boxes around their ink, in pixels; None without the request, nothing for a page without text."""
    data = pdfs.document([pdfs.text("Left half") + pdfs.text("Right half", x=320) + pdfs.text("Below", y=600, size=12)])
    assert read(tmp_path, data).image.text is None
    assert read(tmp_path, pdfs.rotated(0), render=Render(text_layer=True)).image.text == ()
    image = read(tmp_path, data, render=Render(text_layer=True)).image
    assert [item.text for item in image.text] == ["Left half", "Right half", "Below"]
    scale = 1920 / 842
    assert [item.size for item in image.text] == pytest.approx([24 * scale, 24 * scale, 12 * scale], rel=0.02)
    pixels = image.rgb().convert("L")
    for item in image.text:
        assert isinstance(item, TextRun)
        inside = pixels.crop((int(item.left), int(item.top), int(item.right) + 1, int(item.bottom) + 1))
        assert inside.getextrema()[0] < 100
        pixels.paste(255, (int(item.left) - 3, int(item.top) - 3, int(item.right) + 4, int(item.bottom) + 4))
    assert pixels.getextrema()[0] > 200  # no ink outside of the boxes


@pytest.mark.parametrize(("matrix", "angle"), [("0 1 -1 0", 270), ("0 -1 1 0", 90), ("-1 0 0 -1", 180)])
def test_the_text_layer_tells_directions(tmp_path, matrix, angle):
    """A note at the margin of an upright page says where it runs, in degrees clockwise; its box is about its ink."""
    lines = b"".join(pdfs.text(f"An upright line of text, number {n}", y=700 - 30 * n) for n in range(6))
    data = pdfs.document([lines + pdfs.text("note", x=300, y=300, matrix=matrix)])
    image = read(tmp_path, data, render=Render(text_layer=True)).image
    note = image.text[-1]
    assert (note.text, note.angle) == ("note", angle)
    assert (note.bottom - note.top > note.right - note.left) == (angle in (90, 270))
    assert image.rgb().convert("L").crop((note.left, note.top, note.right, note.bottom)).getextrema()[0] < 60
    assert {item.angle for item in image.text[:-1]} == {0}


def test_quarters_reads_what_is_drawn(tmp_path):
    """The helper that the image tests rely on tells black from white."""
    image = read(tmp_path, pdfs.document([pdfs.block(0, 421, 297, 421)])).image
    assert quarters(image) == "X---"
