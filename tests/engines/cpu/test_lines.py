"""What is done to lines between finding and reading them: gutters, initials, missed spaces, orientation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from jina_ocr_loaders.engines.cpu.geometry import Box, Line
from jina_ocr_loaders.engines.cpu.gutters import split_at_gutters
from jina_ocr_loaders.engines.cpu.initials import notches
from jina_ocr_loaders.engines.cpu.letters import measured
from jina_ocr_loaders.engines.cpu.orientation import quarter_turns
from jina_ocr_loaders.engines.cpu.spacing import respace
from tests.engines.cpu.drawing import draw, font, line


def quads(boxes: Sequence[Box]) -> NDArray[np.float32]:
    return np.array([box.corners for box in boxes], np.float32)


def pixels(image: Image.Image) -> NDArray[np.uint8]:
    return np.asarray(image)


LEFT = [line("The left column of a page is", 100, 100 + 24 * i) for i in range(6)]
EDGE = LEFT[0].box.right + 14
RIGHT = [line("and the right one beside it.", EDGE, 100 + 24 * i) for i in range(6)]


def test_lines_that_run_through_a_narrow_gutter_are_parted():
    """The detection took the last two rows for one line each; the others show where the gutter is."""
    whole = [Box.around([a.box, b.box]) for a, b in zip(LEFT[4:], RIGHT[4:], strict=True)]
    found = [one.box for one in (*LEFT[:4], *RIGHT[:4])] + whole
    parts = split_at_gutters(pixels(draw([*LEFT, *RIGHT])), quads(found))
    assert len(parts) == 12
    assert {round(float(part[:, 0].min())) for part in parts} == {100, round(EDGE)}


def test_a_line_that_runs_through_two_gutters_is_parted_twice():
    """Three columns of which the first row was taken for one line."""
    third_edge = RIGHT[0].box.right + 14
    third = [line("and here is a third column.", third_edge, one.box.top) for one in LEFT]
    rows = list(zip(LEFT, RIGHT, third, strict=True))
    found = [Box.around(one.box for one in rows[0]), *(one.box for row in rows[1:] for one in row)]
    parts = split_at_gutters(pixels(draw([one for row in rows for one in row])), quads(found))
    assert len(parts) == 18


def test_a_gutter_beside_a_ragged_edge_is_found():
    """Lines of the left column end anywhere, those of the right one begin at one place."""
    left = [
        line(text, 100, 100 + 24 * i) for i, text in enumerate(["a frame with beads", "for counting, used", "long"] * 3)
    ]
    edge = max(one.box.right for one in left) + 14
    right = [line("and the right one beside it.", edge, one.box.top) for one in left]
    whole = Box.around([left[0].box, right[0].box])
    found = [one.box for one in (*left[1:], *right[1:])] + [whole]
    assert len(split_at_gutters(pixels(draw([*left, *right])), quads(found))) == len(found) + 1


def ragged(edge: float) -> tuple[list[Line], list[Line]]:
    """Two columns, the left one ragged; its rows 1 and 4 are longer than the others."""
    texts = ["a frame with beads", "for counting and for play", "used before machines"] * 2
    left = [line(text, 100, 100 + 24 * i) for i, text in enumerate(texts)]
    right = [
        line("and the right one beside it." if i != 4 else "It ends", edge, one.box.top) for i, one in enumerate(left)
    ]
    return left, right


def test_the_longest_lines_of_a_ragged_column_are_parted_from_the_next_column():
    """They reach into the gutter as the others show it, and their neighbour may be short: the widest gap parts them."""
    end = ragged(0)[0][1].box.right
    left, right = ragged(end + 9)
    merged = [Box.around([left[i].box, right[i].box]) for i in (1, 4)]
    found = [one.box for i in (0, 2, 3, 5) for one in (left[i], right[i])] + merged
    parts = split_at_gutters(pixels(draw([*left, *right])), quads(found))
    assert len(parts) == 12
    assert all(part[:, 0].max() <= end + 1 or part[:, 0].min() >= end + 5 for part in parts)


@pytest.mark.parametrize("top", [100 + 24 * 6, 400], ids=["below", "far below"])
def test_a_line_whose_space_is_at_the_gutter_by_chance_stays_whole(top: float):
    """A space between words is no wider there than elsewhere; far from the columns even a wide one says nothing."""
    left, right = ragged(ragged(0)[0][1].box.right + 9)
    begin, end = line("all of them (some)", 100, top), line("and so on to the right end of it", right[0].box.left, top)
    begin = line(begin.text, end.box.left - (begin.box.width + (9 if top == 400 else font(20).getlength(" "))), top)
    found = [one.box for one in (*left, *right)] + [Box.around([begin.box, end.box])]
    assert len(split_at_gutters(pixels(draw([*left, *right, begin, end])), quads(found))) == len(found)


def test_a_line_over_both_columns_stays_whole():
    """A title has ink where the gutter would be."""
    title = line("A title that is set over both columns of this page here", 100, 60)
    found = [one.box for one in (title, *LEFT, *RIGHT)]
    parts = split_at_gutters(pixels(draw([title, *LEFT, *RIGHT])), quads(found))
    assert len(parts) == len(found)


def test_no_lines_have_no_gutters():
    """An empty page stays empty."""
    empty = np.zeros((0, 4, 2), np.float32)
    assert len(split_at_gutters(np.full((50, 50, 3), 255, np.uint8), empty)) == 0


def test_the_place_of_a_missed_initial_is_known_by_its_notch():
    """Two lines are set in, the third is not, and all end at one place; a plain indent makes no notch."""
    right = 600.0
    texts = ["ver the hills and far", "away there is a house", "Of stone, and a garden"]
    lines = [
        Line(text, Box(left, top, right, top + 20), size=20)
        for text, left, top in zip(texts, (150, 150, 100), (100, 122, 144), strict=True)
    ]
    assert notches(lines) == [Box(100, 100, 150, 142)]
    assert notches([lines[0], Line("x", Box(100, 122, right, 142), size=20), lines[2]]) == []


def boxed(text: str, font_size: int) -> Line:
    """A line in a box that is too high, as detected boxes are."""
    one = line(text, 60, 60, font_size)
    return replace(one, box=Box(60, 60 - 0.1 * font_size, one.box.right, 60 + 1.3 * font_size), size=1.4 * font_size)


@pytest.mark.parametrize(
    "text", ["none", "Text", "going", "Great things", "1,085", "So ends it.\u00b9"], ids=lambda text: text.split()[0]
)
def test_letter_heights_are_measured(text: str):
    """Whatever letters a line has, and however wrong its box is, one font gives one height, twice the size twice."""

    def size(font_size: int) -> float:
        return measured(pixels(draw([line(text, 60, 60, font_size)])), [boxed(text, font_size)])[0].size

    top, bottom = (font(40).getbbox("Qgjl")[i] for i in (1, 3))
    whole = 1.25 * (bottom - top)
    assert size(40) == pytest.approx(whole, rel=0.15)
    assert size(80) == pytest.approx(2 * whole, rel=0.15)


def test_heights_that_cannot_be_are_not_believed():
    """A rule under the letters is no part of them; white paper and slanted lines keep their boxes' height."""
    plain = boxed("Great things", 40)
    image = np.array(draw([line("Great things", 60, 60, 40)]))
    before = measured(image, [plain])[0].size
    assert before < plain.size
    image[108:110, 40:600] = 0
    assert measured(image, [plain])[0].size == pytest.approx(before, rel=0.05)
    nowhere = replace(plain, box=Box(60, 600, 300, 656))
    slanted = replace(plain, angle=45.0)
    assert measured(image, [nowhere, slanted]) == [nowhere, slanted]


def crop(text: str, size: int = 40) -> tuple[NDArray[np.uint8], list[float]]:
    """A picture of a line, and the middles of its letters without the spaces, as shares of its width."""
    width = font(size).getlength(text)
    places = [
        (font(size).getlength(text[:i]) + font(size).getlength(text[: i + 1])) / 2 / width
        for i, letter in enumerate(text)
        if letter != " "
    ]
    return pixels(draw([line(text, 0, 0, size)], round(width), size)), places


@pytest.mark.parametrize("text", ["THE VISION", "Table 1 shows it"])
def test_missed_spaces_are_put_back(text: str):
    """Where the gap is as wide as between words, there is a space, whatever the recogniser said."""
    image, places = crop(text)
    assert respace(text.replace(" ", ""), places, image) == text


@pytest.mark.parametrize("text", ["misunderstanding", "1 234 567", "a house of stone"])
def test_no_spaces_are_invented(text: str):
    """Gaps between letters are no spaces."""
    image, places = crop(text)
    assert respace(text, places, image) == text


@pytest.mark.parametrize(
    ("sideways", "first", "second", "turns"),
    [
        (False, 0.97, 0.5, 0),
        (False, 0.6, 0.97, 2),
        (True, 0.97, 0.5, 1),
        (True, 0.6, 0.97, 3),
        (False, 0.4, 0.42, 0),
    ],
)
def test_the_surer_reading_says_which_way_up(sideways: bool, first: float, second: float, turns: int):
    """Lines that stand mean a page on its side; of two directions the one that reads better is right, and a page that
    reads neither way stays as it is."""
    boxes = [
        Box(100 + 30 * i, 100, 120 + 30 * i, 500) if sideways else Box(100, 100 + 30 * i, 500, 120 + 30 * i)
        for i in range(5)
    ]
    scores = {1 if sideways else 0: first, 3 if sideways else 2: second}
    assert quarter_turns(quads(boxes), lambda numbers, turned: [scores[turned]] * len(numbers)) == turns


def test_a_page_without_lines_is_not_turned():
    """Nothing to go by."""
    assert quarter_turns(np.zeros((0, 4, 2), np.float32), lambda numbers, turned: []) == 0
