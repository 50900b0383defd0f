"""Reading order: a page is cut along its white gaps, into columns from left to right and rows from top to bottom."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Protocol, TypeVar

from jina_ocr_loaders.engines.cpu.geometry import Box

NUMBER = re.compile(r"\W*(\d{1,3})[.):\s]")


class Placed(Protocol):
    """Something with a place and a text."""

    @property
    def box(self) -> Box: ...

    @property
    def lead(self) -> str: ...


T = TypeVar("T", bound=Placed)


def reading_order(items: Sequence[T], size: float) -> list[T]:
    """Blocks in the order in which a person reads them.

    Parameters:
        items: blocks of the page.
        size: usual letter height in pixels; boxes from text detection reach about a fifth of it beyond the letters.
    """
    return _order(list(items), 0.2 * size, 0.6 * size)


def _order(items: list[T], slack: float, gutter: float) -> list[T]:
    if len(items) < 2:
        return items
    columns = _cut(items, lambda box: (box.left + slack, box.right - slack), gutter)
    rows = _cut(items, lambda box: (box.top + slack, box.bottom - slack), 0.0)
    if len(columns) > 1 and not (len(rows) > 1 and all(_is_in_one(row, columns) for row in rows)):
        by_columns = [item for column in columns for item in _order(column, slack, gutter)]
        bands = _bands(rows)
        if len(bands) > 1:
            # Both cuts are possible, as in a grid of boxes: numbers in the text decide.
            by_rows = [item for band in bands for item in _order(band, slack, gutter)]
            if _descents(by_rows) < _descents(by_columns):
                return by_rows
        return by_columns
    if len(rows) > 1:
        sections = _sections(rows, slack, gutter)
        if len(sections) > 1:
            return [item for section in sections for item in _order(section, slack, gutter)]
    return _peel(items, slack, gutter)


def _is_in_one(row: list[T], columns: list[list[T]]) -> bool:
    """Whether a row stands in one of the columns alone, so that they are none: nothing stands beside another thing."""
    return any(all(item in column for item in row) for column in columns)


def _cut(items: list[T], ends: Callable[[Box], tuple[float, float]], gap: float) -> list[list[T]]:
    """Groups between which there is nothing but a white gap across all of the items' area."""
    groups: list[list[T]] = []
    reach = float("-inf")
    for item in sorted(items, key=lambda item: ends(item.box)[0]):
        start, end = ends(item.box)
        if groups and start - reach < gap:
            groups[-1].append(item)
        else:
            groups.append([item])
        reach = max(reach, end)
    return groups


def _sections(rows: list[list[T]], slack: float, gutter: float) -> list[list[T]]:
    """Neighbouring rows that stand in the same columns belong together; what crosses the columns ends a section."""
    sections: list[list[T]] = []
    for row in rows:
        both = [*sections[-1], *row] if sections else row
        if sections and len(_cut(both, lambda box: (box.left + slack, box.right - slack), gutter)) > 1:
            sections[-1] = both
        else:
            moved = _take_last(sections[-1], row) if sections else []
            sections.append([*moved, *row])
    return [section for section in sections if section]


def _take_last(section: list[T], row: list[T]) -> list[T]:
    """Take from a section's end what stands nearer to the row that follows, such as a heading over both columns."""
    ordered = sorted(section, key=lambda item: item.box.top)
    top = min(item.box.top for item in row)
    taken: list[T] = []
    while len(ordered) > 1:
        last, above = ordered[-1], ordered[:-1]
        gap = last.box.top - max(item.box.bottom for item in above)
        if gap <= max(0.0, top - last.box.bottom):
            break
        taken.insert(0, ordered.pop())
        top = last.box.top
    section[:] = ordered
    return taken


def _bands(rows: list[list[T]]) -> list[list[T]]:
    """Rows put together so that each band begins with numbered items."""
    bands: list[list[T]] = []
    for row in rows:
        if bands and not any(NUMBER.match(item.lead) for item in row):
            bands[-1] = [*bands[-1], *row]
        else:
            bands.append(list(row))
    return bands


def _peel(items: list[T], slack: float, gutter: float) -> list[T]:
    """Where no gap goes through: take the highest block out and go on with what is left."""
    first = min(items, key=lambda item: (item.box.top, item.box.left))
    rest = [item for item in items if item is not first]
    return [first, *_order(rest, slack, gutter)]


def _descents(items: Sequence[Placed]) -> int:
    """How often the numbers with which blocks begin go down."""
    numbers = [int(match[1]) for item in items if (match := NUMBER.match(item.lead))]
    return sum(b < a for a, b in pairwise(numbers))
