"""Running heads, page numbers and margin notes: what stands around the text of a page and is not part of it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from jina_ocr_loaders.engines.cpu.geometry import Box, Line, Region, letter_size
from jina_ocr_loaders.engines.cpu.rows import Row, rows_of

EDGE = 0.06  # share of the page's height; book and office margins (20 mm and more on A4) keep text out of it
FOOT = 0.08  # the same at the bottom, where margins are larger
REACH = 0.15  # share of the page's height within which the layout model is believed about headers and footers
SCORE = 0.5  # confidence from which it is believed
LARGE = 1.3  # letter height in body heights from which a row is a title and no running head
FEW, LONG = 6, 40  # rows, letters; on a page of fewer and shorter rows nothing is left out but page numbers
APART = 5.0  # letter heights; a gap as wide as this sets the parts of a running head apart, not two columns

PAGE_NUMBER = re.compile(
    r"[\W_]*(?:(?:page|p\.|seite|página|第)\s*)?(?:\d{1,4}|[ivxlc]{1,7})(?:\s*(?:/|of|von|de|-)\s*\d{1,4})?[\W_]*(?:页)?",
    re.IGNORECASE,
)


def without_margins(lines: Sequence[Line], regions: Sequence[Region], width: int, height: int) -> list[Line]:
    """The lines of a page without headers, footers, page numbers and text that runs along its sides.

    Parameters:
        lines: of the page, in any order.
        regions: what the layout model found; its headers and footers are believed near the page's edges.
        width, height: of the page image in pixels.
    """
    lines = _without_side_notes(lines, width)
    marks = [region.box for region in regions if region.label in ("header", "footer") and region.score >= SCORE]
    rows = [_Outer(row, row.box.top, row.box.bottom) for row in rows_of(lines)]
    if len(rows) < FEW and all(len(outer.row.text) < LONG for outer in rows):
        return [line for outer in rows if not PAGE_NUMBER.fullmatch(outer.row.text) for line in outer.row.lines]
    rows = _strip(rows, _Page(letter_size(lines), _text_width(lines), marks, height, EDGE * height))
    rows = [_Outer(outer.row, height - outer.far, height - outer.near) for outer in reversed(rows)]
    rows = _strip(rows, _Page(letter_size(lines), _text_width(lines), marks, height, FOOT * height))
    return [line for outer in rows for line in outer.row.lines]


@dataclass(frozen=True, slots=True)
class _Outer:
    """A row, with how far its nearer and its farther side are from the edge that is being looked at."""

    row: Row
    near: float
    far: float


@dataclass(frozen=True, slots=True)
class _Page:
    """What rows are judged by: usual letter height, width of the text, header and footer regions, height of the page,
    and depth of the margin in which no text is expected."""

    body: float
    text_width: float
    marks: list[Box]
    height: int
    edge: float


def _text_width(lines: Sequence[Line]) -> float:
    return Box.around(line.box for line in lines).width if lines else 0.0


def _without_side_notes(lines: Sequence[Line], width: int) -> list[Line]:
    """Leave out what runs up or down beside the text."""
    level = [line for line in lines if abs(line.angle) < 60]
    if len(level) < len(lines) / 2:
        return list(lines)
    left = min((line.box.left for line in level), default=0.0)
    right = max((line.box.right for line in level), default=float(width))
    return [line for line in lines if abs(line.angle) < 60 or (left < line.box.center_x < right and len(line.text) > 2)]


def _strip(rows: list[_Outer], page: _Page) -> list[_Outer]:
    """Take the running heads off, from the page's edge inwards."""
    while rows:
        count = _margin_rows(rows, page)
        if not count:
            break
        rows = rows[count:]
    return rows


def _margin_rows(rows: list[_Outer], page: _Page) -> int:
    """How many of the outermost rows are a running head."""
    first, inner = rows[0], rows[1:]
    gap = inner[0].near - first.far if inner else float(page.height)
    if len(first.row.lines) > 8:  # a table or an axis
        return 0
    if first.row.size > 1.5 * LARGE * page.body and not PAGE_NUMBER.fullmatch(first.row.text):
        return 0  # whatever the layout model says of it
    if PAGE_NUMBER.fullmatch(first.row.text) and gap > 0:
        return 0 if inner and PAGE_NUMBER.fullmatch(inner[0].row.text) else 1  # numbers along an axis are none
    in_reach = first.far < REACH * page.height
    if in_reach and any(_covers(mark, first.row.box) for mark in page.marks):
        return 1
    if in_reach and _is_running_head(first.row, page) and not (inner and _is_spread(inner[0].row)):
        return 1
    return _edge_rows(rows, page)


def _edge_rows(rows: list[_Outer], page: _Page) -> int:
    """How many rows lie in the margin, apart from the text, and are shorter than its lines."""
    count = sum((outer.near + outer.far) / 2 < page.edge for outer in rows)
    outer, inner = rows[:count], rows[count:]
    if not outer or not inner:
        return 0
    if inner[0].near - max(row.far for row in outer) < 0.3 * min(page.body, inner[0].row.size):
        return 0
    pieces = [line for row in outer for line in row.row.lines]
    if any(piece.box.width > 0.6 * page.text_width and piece.size > 0.9 * page.body for piece in pieces):
        return 0
    # A title that begins at the very top is larger than the text.
    titles = [i for i, row in enumerate(outer) if len(row.row.lines) == 1 and row.row.size > LARGE * page.body]
    return titles[0] if titles else count


def _covers(mark: Box, row: Box) -> bool:
    return row.inside(mark) > 0.3 or (mark.inside(row) > 0.7 and mark.overlap_x(row) > 0.3 * row.width)


def _is_running_head(row: Row, page: _Page) -> bool:
    """Parts far apart with a page number at one end, or at least three of them."""
    if not _is_spread(row) or max(line.size for line in row.lines) > 1.3 * page.body:
        return False
    ends = (row.lines[0].text, row.lines[-1].text)
    return len(row.lines) >= 3 or any(PAGE_NUMBER.fullmatch(text) for text in ends)


def _is_spread(row: Row) -> bool:
    """Whether the row's parts are set far apart."""
    return len(row.lines) > 1 and all(
        b.box.left - a.box.right > APART * row.size for a, b in zip(row.lines, row.lines[1:], strict=False)
    )
