"""Mending of the model's Markdown."""

import re

import pytest

from jina_ocr_loaders.markdown import is_null, mend

ALL_TH = "<table><tr><th>A</th><th>B</th></tr><tr><th>1</th><th>2</th></tr><tr><th>3</th><th>4</th></tr></table>"


def test_body_cells_written_as_header_cells_become_data_cells():
    """The first row keeps its <th>; every body cell of the model's tables becomes <td>."""
    assert mend(ALL_TH) == (
        "<table><tr><th>A</th><th>B</th></tr><tr><td>1</td><td>2</td></tr><tr><td>3</td><td>4</td></tr></table>"
    )


def test_a_head_of_two_rows_stays_a_head():
    """With <thead> and <tbody> only the body is changed."""
    table = (
        "<table><thead><tr><th>A</th></tr><tr><th>B</th></tr></thead>"
        "<tbody><tr><th>1</th></tr><tr><th>2</th></tr></tbody></table>"
    )
    assert mend(table) == table.replace("<th>1</th>", "<td>1</td>").replace("<th>2</th>", "<td>2</td>")


def test_row_headings_are_left_alone():
    """A table whose rows mix <th> and <td> is right already."""
    table = "<table><tr><th>A</th><th>B</th></tr><tr><th>x</th><td>2</td></tr></table>"
    assert mend(table) == table


@pytest.mark.parametrize("cut", range(len("<table>"), len(ALL_TH)))
def test_a_table_cut_anywhere_is_closed(cut):
    """Whatever the token limit leaves open is closed, and half a tag at the end goes."""
    mended = mend(ALL_TH[:cut])
    for tag in ("table", "tr", "t[hd]"):
        assert len(re.findall(f"<{tag}>", mended)) == len(re.findall(f"</{tag}>", mended))
    assert not re.search(r"<[^>]*$", mended)


def test_unquoted_attributes_are_quoted():
    """colspan=2 becomes colspan="2"; quoted ones stay; text is never touched."""
    assert mend('<table><tr><td colspan=2 rowspan="3">a=b c=d</td></tr></table>') == (
        '<table><tr><td colspan="2" rowspan="3">a=b c=d</td></tr></table>'
    )


@pytest.mark.parametrize(
    "text", [ALL_TH, ALL_TH[:60], "# Title\n\n| a | b |\n|---|---|\n| 1 | 2 |", "x < y <table", "plain"]
)
def test_mending_twice_changes_nothing_more(text):
    """Mending is idempotent."""
    assert mend(mend(text)) == mend(text)


@pytest.mark.parametrize(
    ("text", "null"),
    [("null", True), (" `null` \n", True), ("", True), ("NULL.", True), ("null and void", False), ("0", False)],
)
def test_the_literal_null_is_an_empty_page(text, null):
    """The benchmark prompt lets the model say null for a page without text."""
    assert is_null(text) is null
