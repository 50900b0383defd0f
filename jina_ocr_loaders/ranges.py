"""Page selections: 1-based, as people write them."""

from __future__ import annotations

import re
from collections.abc import Iterable

from jina_ocr_loaders.errors import PageRangeError

PageSelection = str | int | Iterable[int] | None
_PART = re.compile(r"(-?\d{1,9})\s*(?:(-)\s*(-?\d{1,9})?)?")


def parse_pages(selection: PageSelection, count: int) -> list[int]:
    """The page numbers that a selection names, in document order, each once.

    Parameters:
        selection: ``"1-5,8,-1"`` (``-1`` is the last page, ``"6-"`` goes to the end), a number, a list of numbers, or
            None for all.
        count: pages in the document.

    Raises:
        PageRangeError: it is malformed, or names a page that does not exist. Pages count from 1.
    """
    if selection is None:
        return list(range(1, count + 1))
    if isinstance(selection, bool):
        raise PageRangeError(_say(selection))
    if isinstance(selection, int):
        ranges = [(selection, selection)]
    elif isinstance(selection, str):
        ranges = [_parse_part(part.strip(), selection) for part in selection.split(",")]
    else:
        numbers = list(selection) if isinstance(selection, Iterable) else [selection]
        if any(not isinstance(n, int) or isinstance(n, bool) for n in numbers):
            raise PageRangeError(_say(numbers))
        ranges = [(n, n) for n in numbers]
    chosen: set[int] = set()
    for first, last in ranges:
        a, b = _resolve(first, count, selection), _resolve(last, count, selection)
        if a > b:
            raise PageRangeError(f"pages {selection!r}: {first}-{last} runs backwards.")
        chosen.update(range(a, b + 1))
    if not chosen:
        raise PageRangeError(f"pages {selection!r} selects nothing.")
    return sorted(chosen)


def check_pages(selection: PageSelection) -> None:
    """Find a malformed selection before anything is opened.

    Raises:
        PageRangeError: as ``parse_pages``, but whether the pages exist is not known yet.
    """
    if isinstance(selection, str):
        for part in selection.split(","):
            _parse_part(part.strip(), selection)


def _parse_part(part: str, whole: str) -> tuple[int, int]:
    match = _PART.fullmatch(part)
    if not match:
        raise PageRangeError(_say(whole))
    first = int(match[1])
    return first, int(match[3]) if match[3] else (-1 if match[2] else first)


def _resolve(number: int, count: int, selection: object) -> int:
    page = number + count + 1 if number < 0 else number
    if not 1 <= page <= count:
        noun = "page" if count == 1 else "pages"
        raise PageRangeError(
            f"pages {selection!r}: there is no page {number}; the document has {count} {noun}, from 1."
        )
    return page


def _say(selection: object) -> str:
    return f"pages {selection!r} is not a selection. Write 1-based numbers and ranges ('1-5,8,-1'), an int or a list."
