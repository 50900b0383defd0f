"""Pages put together: what a page break cuts is made whole, and nothing else is touched."""

from __future__ import annotations

import pytest

from jina_ocr_loaders.joining import join_pages


@pytest.mark.parametrize(
    ("pages", "whole"),
    [
        (["A good trans-", "lation of it."], "A good translation of it."),
        (["A good trans\u00ad", "lation of it."], "A good translation of it."),
        (["He is well-", "known. She is well-known too."], "He is well-known. She is well-known too."),
        (["In Austria-", "Hungary it rained."], "In Austria-Hungary it rained."),
        (["First.\n\nThe long inter-", "national road.\n\nLast."], "First.\n\nThe long international road.\n\nLast."),
    ],
)
def test_a_cut_word_is_joined(pages, whole):
    """A hyphen made for the line break goes, one that belongs to the word stays."""
    assert join_pages(pages) == whole


@pytest.mark.parametrize(
    ("pages", "whole"),
    [
        (["# Title\n\nThe cat sat", "on the mat.\n\nIt slept."], "# Title\n\nThe cat sat on the mat.\n\nIt slept."),
        (["We met Anna,", "Bob and Eve."], "We met Anna, Bob and Eve."),
        (["- one\n- two which is", "rather long"], "- one\n- two which is rather long"),
        (["会议在北京", "举行。"], "会议在北京举行。"),
        (["One", "two", "three."], "One two three."),
        (["The cat sat", "", "on the mat."], "The cat sat on the mat."),
    ],
)
def test_a_cut_sentence_goes_on_in_its_paragraph(pages, whole):
    """A page that starts in the middle of a sentence continues the paragraph before it, blank pages between or not."""
    assert join_pages(pages) == whole


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("The end.", "and then"),
        ("He asked: \u201cWhy?\u201d", "nobody knew"),
        ("The cat sat", "The dog ran."),
        ("## Heading", "text in lower case"),
        ("The cat sat", "# heading"),
        ("The cat sat", "- item"),
        ("The cat sat", "| a | b |\n|---|---|\n| 1 | 2 |"),
        ("| a | b |\n|---|---|\n| 1 | 2 |", "and so on"),
        ("The cat sat\n\n17", "on the mat"),
        ("The cat sat\n\nPage 17", "on the mat"),
        ("The cat sat", "![a figure](x.png)"),
        ("$$\nx = y\n$$", "where y is"),
        ("| a | b |\n|---|---|\n| 1 | 2 |", "| c | d | e |\n|---|---|---|\n| 1 | 2 | 3 |"),
        ("| Name | Sum |\n|---|---|\n| Ann | 2 |", "| City | Area |\n|---|---|\n| Rome | 3 |"),
        ("| Name | Sum |\n|---|---|\n| Ann | 2 |", "| City | 2025 |\n|---|---|\n| Rome | 3 |"),
        ("| Name | 2024 |\n|---|---|\n| Ann | 2 |", "| City | 2025 |\n|---|---|\n| Rome | 3 |"),
        ("<table><tr><th>a</th></tr></table>", "<table><tr><th>b</th></tr><tr><td>x</td></tr></table>"),
    ],
)
def test_what_does_not_go_on_stays_apart(left, right):
    """Headings, lists, figures, page numbers, other tables and new sentences keep a blank line between."""
    assert join_pages([left, right]) == f"{left}\n\n{right}"


def test_a_table_that_repeats_its_header_goes_on():
    """The header is there once, all rows under it, in order; the text around stays where it was."""
    left = "Before.\n\n| Name | Sum |\n|------|----:|\n| Ann | 1 |"
    right = "| Name | SUM |\n|---|---|\n| Bob | 2 |\n\nAfter."
    assert join_pages([left, right]) == (
        "Before.\n\n| Name | Sum |\n|------|----:|\n| Ann | 1 |\n| Bob | 2 |\n\nAfter."
    )


@pytest.mark.parametrize("first_row", ["|  |  |\n|---|---|\n| Bob | 2 |", "| Bob | 2 |\n|---|---|"])
def test_a_table_without_a_header_of_its_own_goes_on(first_row):
    """The model writes an empty header, or the first row as one: either way the row is a row of the same table."""
    assert join_pages(["| Name | Sum |\n|---|---|\n| Ann | 1 |", first_row]) == (
        "| Name | Sum |\n|---|---|\n| Ann | 1 |\n| Bob | 2 |"
    )


def test_years_in_a_column_of_years_are_data():
    """A row that begins with a year continues a table whose first column holds years."""
    assert join_pages(["| Year | Who |\n|---|---|\n| 2023 | Ann |", "| 2024 | Bob |\n|---|---|"]) == (
        "| Year | Who |\n|---|---|\n| 2023 | Ann |\n| 2024 | Bob |"
    )


def test_a_table_over_three_pages_is_one():
    """A table that covers a page wholly goes on to the third."""
    page = "| Name | Sum |\n|---|---|\n| {} | 1 |"
    assert join_pages([page.format("Ann"), page.format("Bob"), page.format("Eve")]) == (
        "| Name | Sum |\n|---|---|\n| Ann | 1 |\n| Bob | 1 |\n| Eve | 1 |"
    )


def test_an_html_table_goes_on():
    """Rows of HTML move as they are; a body row that was taken for a header gets body cells."""
    head = '<tr><th colspan="2">Name</th><th>Sum</th></tr>'
    left = f"Text.\n<table>\n{head}\n<tr><td>A</td><td>nn</td><td>1</td></tr>\n</table>"
    row = "<tr><td>B</td><td>ob</td><td>2</td></tr>"
    repeated = f"<table border=1>{head}{row}</table>\n\nAfter."
    whole = left.removesuffix("\n</table>") + f"\n{row}\n</table>\n\nAfter."
    assert join_pages([left, repeated]) == whole
    sections = "<table><caption>C</caption><thead>{}</thead><tbody><tr><td>A</td><td>1</td></tr>{}</tbody></table>"
    thead = "<tr><th>Name</th><th>Sum</th></tr>"
    rows = "<tr><td>B</td><td>2</td></tr>"
    assert join_pages([sections.format(thead, ""), f"<table>{thead}{rows}</table>"]) == (
        sections.format(thead, f"\n{rows}")
    )
    assert join_pages([left, f"<table>{row.replace('td>', 'th>')}</table>\n\nAfter."]) == whole


def test_code_cut_by_a_page_break_stays_one_block():
    """Inside a fence nothing is read as prose, and no blank line is put in."""
    assert join_pages(["```\na = 1-", "b = 2\n```"]) == "```\na = 1-\nb = 2\n```"


@pytest.mark.parametrize("pages", [[], [""], ["", " \n"]])
def test_nothing_gives_nothing(pages):
    """Blank pages leave no trace."""
    assert join_pages(pages) == ""
