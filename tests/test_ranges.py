"""Page selections."""

import pytest

from jina_ocr_loaders import PageRangeError
from jina_ocr_loaders.ranges import check_pages, parse_pages


@pytest.mark.parametrize(
    ("selection", "pages"),
    [
        (None, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]),
        ("1-5,8,-1", [1, 2, 3, 4, 5, 8, 10]),
        ("6-", [6, 7, 8, 9, 10]),
        ("-3--1", [8, 9, 10]),
        (" 2 , 2,1-2", [1, 2]),
        ("1 - 3, 9 -", [1, 2, 3, 9, 10]),
        (3, [3]),
        (-1, [10]),
        ([4, 2, -1], [2, 4, 10]),
        (range(1, 4), [1, 2, 3]),
    ],
)
def test_a_selection_names_pages_from_one_in_document_order(selection, pages):
    """Strings, numbers and lists of 1-based pages, negative ones from the end, each page once."""
    assert parse_pages(selection, 10) == pages


@pytest.mark.parametrize(
    "selection",
    [
        *("0", "11", "5-11", "-11", "4-2", "", "a", "1,,2", "1-2-3", "1 2", "1.5", "9" * 5000),
        *(0, 11, 1.5, [0], [], [1.5], True, ["1"]),
    ],
)
def test_a_wrong_selection_says_what_is_wrong(selection):
    """Malformed, backwards or missing pages are a PageRangeError, which is a ValueError too."""
    with pytest.raises(PageRangeError, match="pages") as caught:
        parse_pages(selection, 10)
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize("selection", ["a", "1,,2", ""])
def test_a_malformed_selection_is_found_before_the_document_is_opened(selection):
    """The syntax is checked without knowing the page count."""
    with pytest.raises(PageRangeError):
        check_pages(selection)
