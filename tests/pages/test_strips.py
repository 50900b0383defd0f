"""Joining the texts of overlapping strips."""

from __future__ import annotations

import pytest

from jina_ocr_loaders.pages import join_strips


@pytest.mark.parametrize(
    ("texts", "joined"),
    [
        ([], ""),
        (["", "  "], ""),
        (["alone"], "alone"),
        (["nothing in common", "", "whatever comes next"], "nothing in common\n\nwhatever comes next"),
        (["10\n20\n30\n40", "40\n50\n60", "60\n70"], "10\n20\n30\n40\n50\n60\n70"),
        (
            ["# Title\n\nOne line.\n\nAnother line.", "Another line.\n\nThe last."],
            "# Title\n\nOne line.\n\nAnother line.\n\nThe last.",
        ),
        (
            ["A paragraph that goes on over the cut between", "goes on over the cut between two strips."],
            "A paragraph that goes on over the cut between two strips.",
        ),
        (
            ["| a | b |\n|---|---|\n| 1 | one |\n| 2 | two |", "| 2 | two |\n| 3 | three |"],
            "| a | b |\n|---|---|\n| 1 | one |\n| 2 | two |\n| 3 | three |",
        ),
        (
            [
                "<table><tr><td>1</td><td>one</td></tr><tr><td>2</td><td>two</td></tr></table>",
                "<table><tr><td>2</td><td>two</td></tr><tr><td>3</td><td>three</td></tr></table>",
            ],
            "<table><tr><td>1</td><td>one</td></tr><tr><td>2</td><td>two</td></tr>"
            "<tr><td>3</td><td>three</td></tr></table>",
        ),
        (["日本語の文章はここで切れる", "はここで切れるから続きます"], "日本語の文章はここで切れるから続きます"),
    ],
    ids=["none", "empty", "one", "apart", "numbers", "lines", "paragraph", "pipe table", "html table", "japanese"],
)
def test_texts_are_joined_where_they_overlap(texts, joined):
    """What both strips hold comes once, and what only one holds is never lost."""
    assert join_strips(texts) == joined


def test_a_line_cut_through_is_taken_from_the_strip_that_has_it_whole():
    """Half a line is read as nonsense: the overlap is found all the same, and the nonsense is gone."""
    before = "Clause one of the contract.\n\nClause two of the contract is binding.\n\nClaus thr3e 0f"
    after = "Ciause tw0 of the contract is binding.\n\nClause three of the contract is void.\n\nClause four."
    assert join_strips([before, after]) == (
        "Clause one of the contract.\n\nClause two of the contract is binding.\n\n"
        "Clause three of the contract is void.\n\nClause four."
    )


def test_repeated_lines_far_from_the_cut_stay():
    """A refrain at the start of the first strip and in the middle of the second is no overlap."""
    verse = [" ".join(f"word{n}x{i}" for i in range(60)) for n in range(4)]
    texts = [
        "The refrain of the song\n\n" + verse[0] + "\n\n" + verse[1],
        verse[2] + "\n\nThe refrain of the song\n\n" + verse[3],
    ]
    assert join_strips(texts) == "\n\n".join(texts)


def test_many_strips_make_one_list():
    """Twenty strips of a list with five shared lines each: every line once, in order."""
    lines = [f"Item {n}: value {n * 37 % 101}" for n in range(1, 401)]
    strips = ["\n".join(lines[start : start + 25]) for start in range(0, 400, 20)]
    assert join_strips(strips).splitlines() == lines
