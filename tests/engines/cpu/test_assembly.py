"""Lines into Markdown, without any model."""

from __future__ import annotations

from jina_ocr_loaders.engines.cpu.assembly import to_markdown
from jina_ocr_loaders.engines.cpu.geometry import Box, Line, Region
from tests.engines.cpu.drawing import HEIGHT, WIDTH, line, paragraph

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


def test_no_lines_make_no_text():
    """An empty page is an empty string."""
    assert markdown([]) == ""
