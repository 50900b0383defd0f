"""Listings: fixed-width faces are seen in the picture, and code keeps its lines and its indentation."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from fpdf import FPDF
from PIL import Image, ImageDraw

from jina_ocr_loaders import JinaOCR
from jina_ocr_loaders.engines.cpu.assembly import to_markdown
from jina_ocr_loaders.engines.cpu.geometry import Box, Line, Region
from jina_ocr_loaders.engines.cpu.pitch import pitched
from tests.engines.cpu.drawing import HEIGHT, WIDTH, draw, font, line, paragraph

CELL = 12  # pixels
FOX = "The quick brown fox jumps over the lazy dog and runs on through the dark wood until the night falls at last."
CODE = """\
def count(path):
    words = 0
    with open(path) as file:
        for line in file:
            if line.startswith("#"):
                continue
            words += len(line.split())
    return words

print(count("river.txt"))"""


def typed(text: str, left: float = 100, top: float = 300, pitch: float = CELL) -> list[Line]:
    """The lines of a text in a fixed-width face, as they are after the pitch was seen."""
    lines = []
    for i, row in enumerate(text.split("\n")):
        if bare := row.strip():
            start = left + pitch * (len(row) - len(row.lstrip()))
            box = Box(start, top + 24 * i, start + pitch * len(bare), top + 20 + 24 * i)
            lines.append(Line(bare, box, size=20.0, pitch=pitch))
    return lines


def markdown(lines: list[Line], regions: tuple[Region, ...] = ()) -> str:
    return to_markdown(lines, regions, WIDTH, HEIGHT)


def test_code_keeps_its_lines_its_indentation_and_its_blank_lines():
    """Between two paragraphs, which stay paragraphs."""
    lines = [*paragraph(FOX, 100, 200, 900), *typed(CODE), *paragraph(FOX, 100, 600, 900)]
    assert markdown(lines) == f"{FOX}\n\n```\n{CODE}\n```\n\n{FOX}"


@pytest.mark.parametrize(
    "text",
    [
        "14 Elm Street\nOxford OX1 2AB\n12 May 2024\n\nDear Mr Porter,",
        "The water stood so low that year\n   we wrote our names in mud;\n"
        "And nobody had cause to fear\n   (in autumn) any flood.",
        "     Letters from that year survive in the town; they\nspeak of timber that arrived wet, of masons (few) who\n"
        "left for better wages, and of a ferry: it carried mail.",
        "1. Open the gate.\n2. Let the water run.\n3. Close the gate; wait.",
        "- bread (rye)\n- milk, 2 l\n- coffee: 250 g",
        "           HAMLET\n    To be, or not to be.\n\n           OPHELIA\n       (enters; softly)\n    Good my lord!",
        "NAME: ADAEZE OKONKWO\nSTREET: ROSENWEG 14\nPHONE: (030) 555-0134\nE-MAIL: a_okonkwo@example.org\n[X] BUSINESS",
        "Milk 1 l             1.15\nBread, rye           2.80\n-------------------------\nTOTAL         GBP    3.95",
    ],
    ids=["letter", "poem", "prose", "numbers", "list", "play", "form", "receipt"],
)
def test_what_is_typed_and_no_code_is_no_listing(text: str):
    """A typewriter's letters alone make no code."""
    assert "```" not in markdown(typed(text))


def test_code_in_another_face_is_left_alone():
    """Only a fixed width shows how far lines are set in."""
    lines = [line(row.text, row.box.left, row.box.top) for row in typed(CODE)]
    assert "```" not in markdown(lines)


def test_numbers_of_lines_stand_before_their_lines():
    """Though they were found apart, and far from code that is set in."""
    numbers = typed("\n".join(f"{i:2}" for i in range(1, 11)))
    assert markdown([*numbers, *typed(CODE, 100 + 4 * CELL)]) == "\n".join(
        ["```", *(f"{i:2}  {row}".rstrip() for i, row in enumerate(CODE.split("\n"), 1)), "```"]
    )


def test_comments_far_behind_the_code_stay_in_their_rows():
    """As long as the page's prose shows that they stand in no column of their own."""
    code, comments = (
        typed("int count;\nchar *word;\nint depth;"),
        typed("/* how often */\n/* the word */", 100 + 24 * CELL),
    )
    lines = [*paragraph(FOX, 100, 200, 900), *code, *comments]
    rows = ["int count;              /* how often */", "char *word;             /* the word */", "int depth;"]
    assert markdown(lines) == f"{FOX}\n\n" + "\n".join(["```", *rows, "```"])


def test_listings_in_two_columns_are_two():
    """Rows at one height do not run together where the prose stands in columns."""
    left, right = typed(CODE, 100), typed(CODE, 600)
    lines = [*paragraph(FOX, 100, 150, 400), *paragraph(FOX, 600, 150, 400), *left, *right]
    assert markdown(lines) == "\n\n".join([f"{FOX}\n\n```\n{CODE}\n```"] * 2)


def test_code_in_the_cells_of_a_table_stays_there():
    """A column of calls beside what each of them does."""
    names = ["open(path)", "read_line(f)", "read_all(f)", "close(f)"]
    does = ["Opens a file.", "Reads one line.", "Reads all of it.", "Closes the file."]
    cells = [line(text, 500, 300 + 24 * i) for i, text in enumerate(does)]
    table = Region("table", Box(90, 290, 800, 400), 0.9)
    text = markdown([*typed("\n".join(names)), *cells], (table,))
    assert "```" not in text
    assert "| read_line(f) | Reads one line. |" in text


def test_names_with_prose_between_them_are_no_listing():
    """As in a list of functions, each with its description below."""
    lines = typed("open(path)\n\nread_line(f)\n\nclose(f)")
    lines += [
        line(text, 130, 324 + 48 * i) for i, text in enumerate(["Opens a file.", "Reads one line.", "Closes it."])
    ]
    assert "```" not in markdown(lines)


def test_backticks_in_code_do_not_end_it():
    """The fence is longer than any in the code."""
    code = 'text = """\n```sh\nls -l | wc\n```\n"""\nprint(text)'
    assert markdown(typed(code)) == f"````\n{code}\n````"


def test_lines_that_were_found_twice_do_no_harm():
    """The text detection may find one place twice."""
    text = markdown(typed(CODE) * 2)
    assert all(row.strip() in text for row in CODE.split("\n"))


def cells(lines: list[Line]) -> Image.Image:
    """A page on which each letter of the lines stands in the middle of a cell."""
    image = Image.new("RGB", (WIDTH, HEIGHT), "white")
    pen = ImageDraw.Draw(image)
    for one in lines:
        for i, letter in enumerate(one.text):
            place = one.box.left + (i + 0.5) * CELL, one.box.bottom - 4
            pen.text(place, letter, font=font(18), fill="black", anchor="ms")
    return image


def seen(image: Image.Image, lines: list[Line]) -> list[Line]:
    return pitched(np.asarray(image), [replace(one, pitch=0.0) for one in lines])


def test_a_fixed_width_is_seen_in_the_picture():
    """Also of lines with few letters, and of lines in which letters were missed; and the ink says where they begin."""
    lines = [one for one in typed(CODE.replace("words", "count") + "\n}") if "continue" not in one.text]
    wide = [replace(one, box=replace(one.box, left=one.box.left - 5, right=one.box.right + 7)) for one in lines]
    wide[1] = replace(wide[1], text=wide[1].text[2:])
    found = seen(cells(lines), wide)
    assert [one.pitch for one in found] == [pytest.approx(CELL, rel=0.02)] * len(lines)
    assert all(abs(one.box.left - true.box.left) < 0.5 * CELL for one, true in zip(found, lines, strict=True))


@pytest.mark.parametrize("size", [8, 12, 20, 33])
def test_other_faces_have_no_pitch(size: int):
    """Prose, code and headings in a proportional face, in any size."""
    texts = [
        *(one.text for one in paragraph(FOX, 0, 0, 400)),
        *(row.strip() for row in CODE.split("\n") if len(row) > 12),
    ]
    lines = [line(text, 60, 40 + 2 * size * i, size) for i, text in enumerate(texts)]
    assert [one for one in seen(draw(lines), lines) if one.pitch] == []


def pdf(face: str) -> bytes:
    """A page with a heading, a paragraph, code in a face, and a paragraph."""
    page = FPDF(format="A4")
    page.add_page()
    page.set_font("Times", size=11)
    page.multi_cell(0, 5, FOX, align="L")
    page.ln(5)
    page.set_font(face, size=10)
    for row in CODE.split("\n"):
        page.set_x(page.l_margin + page.get_string_width(" " * (len(row) - len(row.lstrip()))))
        page.cell(0, 5, row.strip(), new_x="LMARGIN", new_y="NEXT")
    page.ln(5)
    page.set_font("Times", size=11)
    page.multi_cell(0, 5, FOX, align="L")
    return bytes(page.output())


@pytest.mark.parametrize("layer", ["never", "trust"])
def test_a_listing_of_a_pdf(layer: str):
    """From its pixels as from its text: the whole listing, fenced; the same page without a fixed width has none."""
    with JinaOCR("cpu", text_layer=layer, cache=False) as ocr:  # type: ignore[arg-type]
        text = ocr.read(pdf("Courier")).markdown
        assert text == f"{FOX}\n\n```\n{CODE}\n```\n\n{FOX}"
        assert "```" not in ocr.read(pdf("Helvetica")).markdown
