"""Reading order."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from jina_ocr_loaders.engines.cpu.geometry import Box
from jina_ocr_loaders.engines.cpu.order import reading_order


@dataclass(frozen=True)
class Item:
    lead: str
    box: Box


def order(*places: tuple[str, float, float, float, float]) -> str:
    items = [Item(name, Box(*box)) for name, *box in places]
    return " ".join(item.lead for item in reading_order(items, 20))


def test_columns_are_read_one_after_the_other_below_what_crosses_them():
    """Title over both columns, then the left one down to its end, then the right one."""
    assert (
        order(
            ("right", 520, 150, 900, 900),
            ("left-b", 100, 500, 480, 900),
            ("title", 100, 50, 900, 100),
            ("left-a", 100, 150, 480, 450),
        )
        == "title left-a left-b right"
    )


def test_columns_with_paragraphs_at_the_same_height_stay_columns():
    """A white gap that happens to go through both columns does not make rows of them."""
    assert (
        order(
            ("left-a", 100, 100, 480, 300),
            ("right-a", 520, 100, 900, 300),
            ("left-b", 100, 320, 480, 600),
            ("right-b", 520, 320, 900, 600),
        )
        == "left-a left-b right-a right-b"
    )


def test_blocks_of_which_none_stands_beside_another_are_read_from_top_to_bottom():
    """As in a letter: the sender at the right, below it the address at the left."""
    assert order(("address", 100, 200, 400, 280), ("sender", 700, 100, 900, 180), ("date", 700, 300, 900, 330)) == (
        "sender address date"
    )


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (("1. a", "2. b", "3. c", "4. d"), "1. a 2. b 3. c 4. d"),
        (("1. a", "3. b", "2. c", "4. d"), "1. a 2. c 3. b 4. d"),
    ],
)
def test_numbers_decide_how_a_grid_of_boxes_is_read(names: tuple[str, ...], expected: str):
    """The same four boxes are read by rows or by columns, whichever lets their numbers go up."""
    boxes = [(100, 100, 480, 300), (520, 100, 900, 300), (100, 320, 480, 600), (520, 320, 900, 600)]
    assert order(*((name, *box) for name, box in zip(names, boxes, strict=True))) == expected


def test_a_heading_between_two_articles_belongs_to_the_second():
    """It stands in the left column's place, but nearer to the title below it."""
    assert (
        order(
            ("left", 100, 100, 480, 400),
            ("right", 520, 100, 900, 400),
            ("kicker", 100, 500, 300, 530),
            ("title", 100, 540, 900, 600),
            ("left-2", 100, 650, 480, 900),
            ("right-2", 520, 650, 900, 900),
        )
        == "left right kicker title left-2 right-2"
    )


def test_a_sidebar_is_read_apart_from_the_text_beside_it():
    """A narrow column of notes is read as a whole, not line by line with the text."""
    assert (
        order(
            ("note-b", 100, 500, 220, 600),
            ("text-a", 260, 100, 900, 480),
            ("note-a", 100, 100, 220, 200),
            ("text-b", 260, 500, 900, 900),
        )
        == "note-a note-b text-a text-b"
    )


def test_a_caption_follows_its_figure_inside_its_column():
    """Figure and caption of the left column come before the right column."""
    assert (
        order(
            ("text", 100, 100, 480, 400),
            ("figure", 120, 430, 460, 700),
            ("caption", 150, 710, 430, 740),
            ("right", 520, 100, 900, 740),
        )
        == "text figure caption right"
    )


def test_blocks_that_overlap_are_each_read_once():
    """Where no white gap goes through, the highest comes first and none is lost."""
    assert order(("b", 150, 140, 500, 300), ("a", 100, 100, 450, 250), ("c", 120, 280, 480, 400)) == "a b c"
