"""Lines into Markdown, without any model."""

from __future__ import annotations

import html
import random
import re
from collections import Counter
from dataclasses import replace

import pytest

from jina_ocr_loaders.engines.cpu.assembly import to_markdown
from jina_ocr_loaders.engines.cpu.geometry import Box, Line, Region
from jina_ocr_loaders.engines.cpu.margins import without_margins
from tests.engines.cpu.drawing import HEIGHT, WIDTH, font, line, paragraph

FOX = "The quick brown fox jumps over the lazy dog and runs on through the dark wood until the night falls at last."


def markdown(lines: list[Line], regions: tuple[Region, ...] = ()) -> str:
    return to_markdown(lines, regions, WIDTH, HEIGHT)


def test_a_paragraph_is_one_line_and_broken_words_are_mended():
    """Lines end for want of room, so their ends are not kept, and a hyphen before a small letter goes."""
    lines = [line("It was a most extraordi-", 100, 300), line("nary day for all of us.", 100, 322)]
    assert markdown(lines) == "It was a most extraordinary day for all of us."


def test_indents_and_gaps_part_paragraphs():
    """Both ways of setting paragraphs apart are seen."""
    first = paragraph(FOX, 100, 300, 400)
    second = paragraph(FOX, 100, 300 + 22 * len(first), 400, indent=30)
    third = paragraph(FOX, 100, second[-1].box.bottom + 30, 400)
    assert markdown([*first, *second, *third]) == "\n\n".join([FOX] * 3)


def test_headings_have_levels_by_size():
    """Larger than the text: a heading; the largest is the first level, and equal sizes are equal levels."""
    lines = [
        line("Great title", 100, 200, 44),
        *paragraph(FOX, 100, 300, 800),
        line("First section", 100, 420, 28),
        *paragraph(FOX, 100, 480, 800),
        line("Second section", 100, 600, 28),
        *paragraph(FOX, 100, 660, 800),
    ]
    assert markdown(lines) == f"# Great title\n\n{FOX}\n\n## First section\n\n{FOX}\n\n## Second section\n\n{FOX}"


def test_headings_inside_a_block_of_text_are_parted_from_it():
    """The layout model often takes a short heading and its text for one region; its letters are larger all the same."""
    lines = [
        line("Budget", 100, 300, 28),
        line("The budget was approved with one vote against.", 100, 340),
        line("Any other business", 100, 380, 28),
        line("None.", 100, 420),
        *paragraph(FOX, 100, 600, 800),
    ]
    region = Region("text", Box(95, 295, 900, 445), 0.9)
    assert markdown(lines, (region,)) == (
        f"## Budget\n\nThe budget was approved with one vote against.\n\n## Any other business\n\nNone.\n\n{FOX}"
    )


def test_lines_of_uneven_height_have_no_headings():
    """In handwriting some lines are a third larger than others."""
    heights = (40, 36, 33, 54, 42, 50, 38)
    texts = [
        "Dear Ann, the bridge is",
        "closed, and nobody came",
        "to see it. We took the",
        "Ferry and the mail, and",
    ] * 2
    tops = [300 + 60 * i for i in range(len(heights))]
    lines = [line(text, 100, top, size) for text, top, size in zip(texts, tops, heights, strict=False)]
    assert "#" not in markdown(lines, (Region("text", Box(90, 290, 1100, 730), 0.9),))


def test_a_row_in_the_middle_of_a_sentence_is_no_heading():
    """Whatever makes its letters look larger, such as a rule below an address."""
    rows = ["If you have any questions on it, then please contact the team that is there on", "136773 or at home"]
    lines = [line(rows[0], 100, 300), line(rows[1], 100, 322, 26), line("It is open.", 100, 352)]
    assert "#" not in markdown(lines, (Region("text", Box(90, 290, 900, 380), 0.9),))


def test_what_the_layout_model_takes_for_one_title_is_looked_at():
    """Smaller lines below a title are text, two lines far apart are two, and a salutation is none."""
    lines = [
        line("Northwind Tools", 100, 100, 32),
        line("12 Harbour Road", 100, 136),
        line("Dear Mr Porter,", 100, 400),
        line("Your quotation of May", 100, 436),
        *paragraph(FOX, 100, 500, 800),
    ]
    regions = (Region("title", Box(95, 95, 500, 160), 0.9), Region("title", Box(95, 395, 500, 460), 0.9))
    assert markdown(lines, regions) == (
        f"# Northwind Tools\n\n12 Harbour Road\n\nDear Mr Porter,\n\n### Your quotation of May\n\n{FOX}"
    )


def test_numbered_headings_take_their_level_from_the_number():
    """A heading as small as the text is known by its number."""
    lines = [line("2.1.1 On foxes", 100, 300), *paragraph(FOX, 100, 360, 800)]
    assert markdown(lines) == f"### 2.1.1 On foxes\n\n{FOX}"


def test_lists_keep_their_items():
    """Bullets of any shape become dashes, numbers stay, second lines stay with their item."""
    lines = [
        line("• one apple", 100, 300),
        line("• two pears, which are", 100, 324),
        line("not yet ripe", 116, 346),
        line("• three plums", 100, 370),
        line("1. wash them", 100, 440),
        line("2. eat them", 100, 464),
    ]
    assert markdown(lines) == (
        "- one apple\n- two pears, which are not yet ripe\n- three plums\n\n1. wash them\n2. eat them"
    )


def test_lists_inside_lists_are_indented_and_end_where_text_stands_out():
    """Depth is counted from the list's own margin; what stands left of the marks is no item's second line."""
    lines = [
        line("1. Chile", 140, 300),
        line("a. mainland only", 190, 324),
        line("b. no batteries", 190, 348),
        line("2. Denmark", 140, 372),
        line("Harbour Board", 100, 396),
    ]
    assert markdown(lines) == "1. Chile\n  a. mainland only\n  b. no batteries\n2. Denmark\n\nHarbour Board"


def test_boxes_to_be_ticked_are_items():
    """Their marks say something, so they stay."""
    assert (
        markdown([line("□ One month", 100, 300), line("☒ Twelve months", 100, 324)])
        == "- □ One month\n- ☒ Twelve months"
    )


def test_lines_that_their_author_ended_stay_lines():
    """Addresses, at the left as well as flush right, beside text that is much wider."""
    ends = ["14 Elm Street", "Oxford OX1 2AB", "12 May"]
    right = [line(text, 900 - font(20).getlength(text), 200 + 24 * i) for i, text in enumerate(ends)]
    left = [line(text, 100, 300 + 24 * i) for i, text in enumerate(["Mr J. Porter", "Porter & Daughters", "Witney"])]
    text = markdown([*left, *right, *paragraph(FOX, 100, 500, 800)])
    assert text == "\n\n".join([*ends, "Mr J. Porter", "Porter & Daughters", "Witney", FOX])


def test_figures_at_the_right_end_go_with_their_rows():
    """Prices, years and page numbers that are all of a column are no column of their own, and rows stay rows."""
    rows = {"Coffee with milk": "2.50", "Tea": "1.80", "Engineer, Harbour Board": "2012-2018"}
    lines = [
        one
        for i, (name, figure) in enumerate(rows.items())
        for one in (line(name, 100, 300 + 24 * i), line(figure, 900 - font(20).getlength(figure), 300 + 24 * i))
    ]
    assert markdown(lines) == "\n\n".join(f"{name} {figure}" for name, figure in rows.items())


def test_columns_that_the_layout_model_takes_for_one_region_are_parted():
    """A region over two columns of prose with a gutter between them: they are read one after the other."""
    left, right = paragraph(FOX * 2, 100, 300, 300), paragraph(FOX[::-1] * 2, 420, 300, 300)
    region = Region("text", Box(95, 290, 730, 700), 0.9)
    assert markdown([*left, *right], (region,)) == f"{FOX * 2}\n\n{FOX[::-1] * 2}"


def test_keys_and_values_in_one_region_are_no_columns():
    """They are read row by row, although each stands in a column of its own."""
    keys = ["Name of the owner", "Place of birth now", "Street of the house"]
    rows = [(line(key, 100, 300 + 24 * i), line(f"value number {i}", 420, 300 + 24 * i)) for i, key in enumerate(keys)]
    region = Region("text", Box(95, 290, 730, 400), 0.9)
    text = markdown([one for row in rows for one in row], (region,))
    assert text == "\n\n".join(f"{key} value number {i}" for i, key in enumerate(keys))


def test_a_text_goes_on_in_the_next_column():
    """The last paragraph of a column is joined with the first of the next, and so is a word broken between them."""
    left = [*paragraph(FOX, 100, 300, 400), line("Then it came to a won-", 100, 440)]
    right = [line("derful place.", 560, 300), *paragraph(FOX, 560, 340, 400)]
    assert "Then it came to a wonderful place." in markdown([*right, *left])


def test_running_heads_and_page_numbers_are_left_out():
    """Heads in the margin, a page number below the text, one inside a spread row: all gone, the text stays."""
    body = paragraph(FOX, 100, 200, 800)
    lines = [
        line("Shore Notes", 100, 60, 16),
        line("12", 100, 150),
        line("ON FOXES", 450, 150),
        line("[Ch. IV.", 850, 150),
        *body,
        line("- 12 -", 500, 1200),
    ]
    assert markdown(lines) == FOX


def test_a_large_title_at_the_very_top_is_kept():
    """What is larger than the text is no running head, however high it stands."""
    assert markdown([line("Great title", 100, 40, 48), *paragraph(FOX, 100, 300, 800)]) == f"# Great title\n\n{FOX}"


def test_a_masthead_is_no_running_head():
    """The name of a newspaper stands in the margin, with the date below it, and the layout model calls it a header."""
    lines = [
        line("The River Courier", 300, 30, 60),
        line("Saturday, 14 June 1902", 400, 94, 16),
        *paragraph(FOX, 100, 300, 800),
    ]
    region = Region("header", Box(290, 25, 900, 92), 0.9)
    assert markdown(lines, (region,)) == f"# The River Courier\n\nSaturday, 14 June 1902\n\n{FOX}"


def test_a_page_with_few_lines_keeps_them():
    """What the layout model calls a header is all that such a page says; a page number goes."""
    region = Region("header", Box(90, 130, 200, 160), 0.9)
    assert markdown([line("Hello", 100, 135), line("Greek yogurt", 400, 300), line("12", 550, 1500)], (region,)) == (
        "Hello\n\nGreek yogurt"
    )


def test_an_invoice_keeps_its_first_row():
    """Two texts far apart at the top are no running head unless one is a page number."""
    lines = [line("Fruit & Sons", 100, 180), line("Invoice 2025-17", 800, 180), *paragraph(FOX, 100, 300, 800)]
    assert "Fruit & Sons" in markdown(lines)
    assert "Invoice 2025-17" in markdown(lines)


def test_notes_along_the_side_are_left_out():
    """Text that runs up beside the text is a stamp of the archive."""
    stamp = Line("Downloaded on Monday", Box(20, 300, 44, 900), 1.0, (), 90.0, 24.0)
    assert markdown([stamp, *paragraph(FOX, 100, 300, 800)]) == FOX


def test_footnotes_come_after_the_text():
    """A note at the foot of the left column comes after the right column."""
    left = paragraph(FOX, 100, 300, 400)
    note = line("* The fox was red.", 100, 1100, 16)
    right = paragraph(FOX, 560, 300, 400)
    assert markdown([*left, note, *right]).endswith(f"{FOX}\n\n* The fox was red.")


def test_an_initial_over_several_lines_begins_its_word():
    """A drop cap is put before the rest of its word."""
    cap = Line("O", Box(100, 300, 145, 345), 0.9, (), 0.0, 45.0)
    lines = [cap, line("ver the hills and", 150, 300), line("far away there is", 150, 322), line("a house.", 100, 344)]
    assert markdown(lines) == "Over the hills and far away there is a house."


def test_values_go_behind_their_keys():
    """Two columns of keys and values are read row by row, but a colon at the end of a column of prose ties nothing."""
    form = [line("Author:", 100, 300), line("Ann Lee", 400, 300), line("Place:", 100, 340), line("Rome", 400, 340)]
    text = markdown(form)
    assert "Author: Ann Lee" in text
    assert "Place: Rome" in text
    left = [*paragraph(FOX, 100, 300, 400), line("it is as follows:", 100, 388)]
    right = paragraph(FOX, 560, 300, 400)
    assert "follows: " not in markdown([*left, *right])


def test_numbers_along_the_axes_of_a_figure_are_one_paragraph():
    """They tell little, so they should not tear the text into pieces."""
    ticks = [line(str(n), 200, 700 - 60 * n) for n in range(6)]
    figure = Region("figure", Box(150, 350, 600, 750), 0.9)
    text = markdown([*paragraph(FOX, 100, 200, 800), *ticks], (figure,))
    assert text == f"{FOX}\n\n5 4 3 2 1 0"


def letters(text: str) -> Counter[str]:
    return Counter(c for c in html.unescape(re.sub(r"</?t[a-z]+[^>]*>", "", text)) if c.isalnum())


@pytest.mark.parametrize("seed", range(40))
def test_no_text_is_lost_or_doubled(seed: int):
    """Whatever lies where, and whatever the layout model says of it: all letters but those of the margins come out."""
    dice = random.Random(seed)
    words = [*FOX.split(), "•", "1.", "(a)", "12", "$", "4.50", "2.1", "Name:", "TOTAL", "<b>", "a|b", "□"]
    lines = []
    for _ in range(dice.randrange(1, 60)):
        text = " ".join(dice.choices(words, k=dice.randrange(1, 9)))
        left, top = (
            (dice.choice([100, 400, 600]), 40 * dice.randrange(40))
            if dice.random() < 0.7
            else (dice.randrange(900), dice.randrange(1500))
        )
        one = line(text, left, top, dice.choice([14, 20, 20, 28, 50]))
        lines.append(replace(one, angle=dice.choice([0.0] * 9 + [45.0])))
    labels = ("text", "title", "figure", "figure_caption", "table", "table_caption", "header", "reference", "equation")
    regions = [
        Region(dice.choice(labels), Box(x, y, x + dice.randrange(100, 900), y + dice.randrange(30, 700)), dice.random())
        for x, y in ((dice.randrange(600), dice.randrange(1300)) for _ in range(dice.randrange(8)))
    ]
    kept = without_margins(lines, regions, WIDTH, HEIGHT)
    assert letters(markdown(lines, tuple(regions))) == letters(" ".join(one.text for one in kept))


def test_no_lines_make_no_text():
    """An empty page is an empty string."""
    assert markdown([]) == ""
