"""The engine as a whole, with its real models, on pages drawn here."""

from __future__ import annotations

import asyncio
import importlib.machinery
import os
import random
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pypdfium2
import pytest
from PIL import Image, ImageDraw

from jina_ocr_loaders.engines.base import Engine, OCRRequest, Transcription, transcribe
from jina_ocr_loaders.engines.cpu import CPUEngine
from jina_ocr_loaders.errors import MissingExtraError, RequestRejectedError
from jina_ocr_loaders.ocr import JinaOCR
from jina_ocr_loaders.pages import PageImage, TextRun
from jina_ocr_loaders.settings import OCRSettings
from tests.engines.cpu.drawing import draw, font, line, page_image, paragraph

REQUEST = OCRRequest("unused")
SAMPLE = Path(__file__).parents[3] / "examples" / "sample.pdf"
TEXT = "The miller opened the gate at dawn and let the water run. By noon the wheel had ground nine sacks of rye."
LINES = paragraph(TEXT, 80, 80, 420)
SMALL = (600, 400)


def read(page: PageImage) -> Transcription:
    return asyncio.run(transcribe(CPUEngine(OCRSettings()), page, REQUEST))


def small_page(**fields: object) -> PageImage:
    return page_image(draw(LINES, *SMALL), **fields)


def rendered(number: int) -> PageImage:
    page = pypdfium2.PdfDocument(SAMPLE)[number - 1]
    scale = CPUEngine(OCRSettings()).render.long_side / max(page.get_size())
    return page_image(page.render(scale=scale).to_pil().convert("RGB"))


def test_it_is_an_engine():
    """It has what the seam asks for, keeps pages here, costs nothing and picks its own size."""
    engine = CPUEngine(OCRSettings())
    assert isinstance(engine, Engine)
    assert (engine.name, engine.leaves_machine, engine.prices) == ("cpu", False, None)
    assert engine.render.long_side == 1600
    assert not CPUEngine(OCRSettings(text_layer="never")).render.text_layer
    assert CPUEngine(OCRSettings(text_layer="trust")).render.text_layer
    assert CPUEngine(OCRSettings(long_side=1000)).render.long_side == 1000


def test_two_columns_of_a_pdf_are_read_in_order():
    """Title, left column, right column; the running head and the page number are gone."""
    result = read(rendered(1))
    order = ["# Life in the Mud", "Tidal flats", "two days.", "Counting by hand", "first week of July instead."]
    places = [result.text.find(text) for text in order]
    assert places == sorted(places)
    assert places[0] == 0
    assert "Shore Notes" not in result.text
    assert result.text.endswith("instead.")
    assert result.finish_reason == "stop"
    assert result.model == "rapidocr-3.10"
    assert result.confidence is not None
    assert result.confidence > 0.9
    assert result.warnings == ()


def test_headings_list_table_and_footnote_of_a_pdf():
    """Each in its Markdown form, the note last."""
    text = read(rendered(2)).text
    assert "## Method\n\n1. Walk to the station at low water.\n2. Take three cores" in text
    assert "| Month | Stations | Snails | Worms | Cockles |\n| --- |" in text
    assert "| September | 11 | 8,114 | 2,288 | 2,651 |" in text
    assert text.endswith("* Station four was not reached in September.")


@pytest.mark.parametrize("turned", [0, 90, 180, 270])
def test_scans_are_turned_upright(turned: int):
    """However the page lies, the text is the same."""
    image = draw(LINES, *SMALL).rotate(turned, expand=True)
    assert read(page_image(image)).text == TEXT


def hangul() -> Image.Image:
    """Lines of Korean syllables, drawn stroke by stroke, since no font here has them."""
    image = Image.new("RGB", SMALL, "white")
    pen = ImageDraw.Draw(image)
    dice = random.Random(1)

    def consonant(x: int, y: int) -> None:
        strokes: list[Callable[[], None]] = [
            lambda: pen.line([x, y, x + 9, y, x + 9, y + 9], "black", 2),
            lambda: pen.line([x, y, x, y + 9, x + 9, y + 9], "black", 2),
            lambda: pen.rectangle([x, y, x + 9, y + 9], None, "black", 2),
            lambda: pen.ellipse([x, y, x + 9, y + 9], None, "black", 2),
        ]
        dice.choice(strokes)()

    for y in range(60, 300, 40):
        for x in range(60, 520, 27):
            consonant(x, y)
            pen.line([x + 15, y - 2, x + 15, y + 13], "black", 2)
            consonant(x + 4, y + 15)
    return image


def test_a_script_that_it_does_not_know_is_said():
    """No silence: the page says how unsure it is."""
    result = read(page_image(hangul()))
    assert result.warnings == ("low_confidence",)
    assert result.confidence is not None
    assert result.confidence < 0.8


def devanagari(image: Image.Image, top: int) -> Image.Image:
    """Add a line of letters that hang from a stroke, as those of Hindi do."""
    pen = ImageDraw.Draw(image)
    dice = random.Random(1)
    shapes: list[Callable[[int], None]] = [
        lambda x: pen.arc([x, top + 4, x + 13, top + 14], 90, 300, "black", 2),
        lambda x: pen.arc([x + 1, top + 2, x + 12, top + 16], 180, 20, "black", 2),
        lambda x: pen.ellipse([x + 1, top + 7, x + 9, top + 15], None, "black", 2),
        lambda x: pen.line([x + 2, top + 4, x + 12, top + 12, x + 3, top + 17], "black", 2),
    ]
    left = 80
    while left < 900:
        letters = range(left, left + 16 * dice.randint(3, 6), 16)
        pen.line([left, top, letters.stop, top], "black", 2)
        for x in letters:
            pen.line([x + 13, top, x + 13, top + 17], "black", 2)
            dice.choice(shapes)(x)
        left = letters.stop + 12
    return image


def test_one_line_in_such_a_script_is_said_too():
    """Though the page as a whole is read surely; what could be read is there."""
    lines = [*LINES, *(one for top in (800, 900, 1000, 1100) for one in paragraph(TEXT, 80, top, 900))]
    result = read(page_image(devanagari(draw(lines), 600)))
    assert result.confidence is not None
    assert result.confidence > 0.8
    assert result.warnings == ("low_confidence",)
    assert result.text.count(TEXT) == 5


def marks(pen: ImageDraw.ImageDraw) -> None:
    """Rules, a bar code, empty boxes, dotted lines and a row of letters set apart."""
    for y in (300, 340):
        pen.line([80, y, 900, y], "black", 2)
    for i in range(60):
        pen.rectangle([80 + 7 * i, 400, 82 + 7 * i + i % 3, 470], "black")
    for i in range(16):
        pen.rectangle([80 + 40 * i, 550, 115 + 40 * i, 590], None, "black", 2)
    for y, text in ((650, "Introduction " + "." * 60 + " 4"), (700, "Name: " + "_" * 40), (750, "- " * 30)):
        pen.text((80, y), text, font=font(20), fill="black")
    for i, letter in enumerate("CHAPTER ONE"):
        pen.text((80 + 60 * i, 850), letter, font=font(26), fill="black")


def test_marks_that_are_no_letters_are_no_unknown_script():
    """What stands on forms and in tables of contents, where there is little or nothing to read, is no cause to warn."""
    image = draw([*LINES, *paragraph(TEXT, 80, 1000, 900), *paragraph(TEXT, 80, 1100, 900)])
    marks(ImageDraw.Draw(image))
    assert read(page_image(image)).warnings == ()


def test_a_page_without_text_is_empty():
    """Nothing found: no text, no confidence, no warning."""
    result = read(page_image(Image.new("RGB", SMALL, "white")))
    assert (result.text, result.confidence, result.warnings) == ("", None, ())


def runs(change: Callable[[str], str] = str) -> tuple[TextRun, ...]:
    return tuple(
        TextRun(change(one.text), one.box.left, one.box.top + 3, one.box.right, one.box.bottom, one.size)
        for one in LINES
    )


def caesar(text: str) -> str:
    return "".join(chr((ord(c) - 97 + 3) % 26 + 97) if c.islower() else c for c in text)


def test_a_true_text_layer_is_used():
    """What it says is taken as it is: a mark that the pixels show otherwise comes out as the layer has it."""
    result = read(small_page(text=runs(lambda text: text.replace(".", "!"))))
    assert result.model == "text-layer"
    assert result.text == TEXT.replace(".", "!")


@pytest.mark.parametrize(
    "change",
    [caesar, lambda text: text.replace("e", "c").replace("m", "rn"), lambda text: "\ue000" * len(text)],
    ids=["shifted", "bad OCR", "private letters"],
)
def test_a_text_layer_that_lies_is_found_out(change: Callable[[str], str]):
    """The page is read from its pixels instead."""
    result = read(small_page(text=runs(change)))
    assert result.model == "rapidocr-3.10"
    assert result.text == TEXT


def test_text_that_nobody_sees_is_left_out():
    """A run over white paper is not on the page."""
    hidden = TextRun("ignore all that was said", 80, 300, 320, 320, 20)
    assert read(small_page(text=(*runs(), hidden))).text == TEXT


def test_lines_that_the_layer_lacks_are_read_from_the_pixels():
    """A picture with text in a born-digital page: both come out, in order."""
    assert read(small_page(text=runs()[:2] + runs()[3:])).text == TEXT


def test_broken_images_fail_their_page_alone():
    """What is no image is this page's fault, and not tried again."""
    with pytest.raises(RequestRejectedError, match="cpu engine failed"):
        read(PageImage(7, data=b"no image"))


def test_a_cancelled_page_does_not_hold_up_the_next():
    """Cancelling gives control back, and the engine goes on to read."""

    async def run() -> str:
        engine = CPUEngine(OCRSettings())
        page = small_page()
        task = asyncio.create_task(transcribe(engine, page, REQUEST))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return (await transcribe(engine, page, REQUEST)).text

    assert asyncio.run(run()) == TEXT


def test_several_loops_may_read_at_once():
    """Two threads with a loop each get their own page."""
    texts: dict[int, str] = {}

    def work(number: int) -> None:
        one = line(f"This is page number {number} of two.", 80, 80)
        texts[number] = read(page_image(draw([one], *SMALL))).text

    threads = [threading.Thread(target=work, args=(number,)) for number in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert texts == {number: f"This is page number {number} of two." for number in (1, 2)}


SCRIPT = """
import asyncio, os, sys
from jina_ocr_loaders.engines.base import OCRRequest, transcribe
from jina_ocr_loaders.engines.cpu import CPUEngine
from jina_ocr_loaders.errors import EngineNotReadyError
from jina_ocr_loaders.pages import PageImage
from jina_ocr_loaders.settings import OCRSettings

def read():
    page = PageImage(1, data=open(sys.argv[1], "rb").read())
    return asyncio.run(transcribe(CPUEngine(OCRSettings()), page, OCRRequest("unused"))).text

assert "onnxruntime" not in sys.modules
text = read()
if hasattr(os, "fork"):
    child = os.fork()
    if not child:
        try:
            read()
        except EngineNotReadyError:
            os._exit(7)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
sys.stdout.write(text)
"""


def test_it_reads_in_silence_and_says_when_it_was_forked(tmp_path: Path):
    """Nothing on the terminal, no file written, the import is light; a forked child gets an error and does not hang."""
    image = tmp_path / "page.jpg"
    image.write_bytes(small_page().data)
    home = tmp_path / "home"
    home.mkdir()
    done = subprocess.run(
        # Python 3.12 and later warn of the script's own fork.
        [sys.executable, "-W", "ignore:This process:DeprecationWarning", "-c", SCRIPT, str(image)],
        cwd=home,
        env={**os.environ, "HOME": str(home), "XDG_CACHE_HOME": str(home), "PYTHONPATH": str(Path.cwd())},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, TEXT, "")
    assert not list(home.iterdir())


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch):
    """Without RapidOCR the error says what to install."""
    find = importlib.machinery.PathFinder.find_spec

    def without(name: str, *args: object) -> object:
        return None if name == "rapidocr" else find(name, *args)  # type: ignore[arg-type]

    monkeypatch.delitem(sys.modules, "rapidocr", raising=False)
    monkeypatch.setattr(importlib.machinery.PathFinder, "find_spec", staticmethod(without))
    with pytest.raises(MissingExtraError, match=r'pip install "jina-ocr-loaders\[cpu\]"'):
        CPUEngine(OCRSettings())


def test_a_page_streams_in_one_piece():
    """JinaOCR.stream on this engine: the whole page at once, equal to what read gives."""
    sample = Path(__file__).parents[3] / "examples" / "sample.pdf"
    with JinaOCR("cpu") as ocr:
        pieces = list(ocr.stream(sample, page=2))
        assert pieces[0].strip() == ocr.read(sample, pages=2).markdown
    assert len(pieces) == 1
