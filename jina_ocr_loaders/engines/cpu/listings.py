"""Listings: source code and the like, lines in a fixed-width face that keep their ends and their indentation."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from jina_ocr_loaders.engines.cpu.geometry import Box, Line, Region
from jina_ocr_loaders.engines.cpu.rows import Row, rows_of
from jina_ocr_loaders.engines.cpu.tables import SCORE

# What hardly occurs in prose, verse, addresses and lists: brackets around code, calls, assignments, operators, tags,
# comments, names with underscores, prompts, options
CODE = re.compile(
    r"[{}]|\w\(|\w\[|\(\)|\s[-+*/%|&:<>]?=\s|[=!<>]=|[-=]>|::|(?<!:)//|/\*|\*/|</?\w|\b\w+_\w+\b(?!@)|[├└]─|\+\+|&&|\|\|"
    r"|[\])\"'\d];$|\)[:,]$|\\$|\"\s?[:,]|^\s*[$#>%]\s?\w|\s--?\w"
)
SENTENCE = re.compile(r"[A-Z].*\s.*[.:!?]$")
LEAST = 2  # rows with such signs in a listing
SHARE = 0.3, 0.5  # of the rows between two blank lines, from which they are code: where some are set in, and elsewhere
SET_IN = 1.5  # cells
BETWEEN = 3  # rows without such signs between rows of code at most
APART = 0.04  # share by which pitches of one face differ at most
BLANK = 1.5  # usual distances of two rows, from which there is a blank line between
FAR = 4.0  # letter heights; a listing ends where the gap is wider
INDENT, BESIDE, NUMBERED = 12.0, 4.0, 40.0  # cells to the rows above, between parts of a row, and behind its number
NUMBER = re.compile(r"\d{1,4}")  # of a line of code


@dataclass(frozen=True, slots=True)
class Listing:
    """Rows of code."""

    rows: tuple[Row, ...]

    @property
    def lines(self) -> list[Line]:
        """All that it consists of."""
        return [line for row in self.rows for line in row.lines]

    @property
    def box(self) -> Box:
        """Its place on the page."""
        return Box.around(line.box for line in self.lines)

    @property
    def markdown(self) -> str:
        """A fenced block; the columns that rows begin in, and blank lines, are as on the page."""
        pitch = median(line.pitch for line in self.lines if line.pitch)
        left, leading = self.box.left, _leading(self.rows)
        out: list[str] = []
        for above, row in zip([None, *self.rows], self.rows, strict=False):
            if above:
                out += [""] * (round(_distance(above, row) / leading) - 1)
            text = ""
            for line in row.lines:
                column = round((line.box.left - left) / pitch)
                text += " " * max(bool(text), column - len(text)) + line.text
            out.append(text)
        fence = "`" * max([3, *(len(ticks) + 1 for ticks in re.findall("`+", "\n".join(out)))])
        return "\n".join([fence, *out, fence])


def find_listings(lines: Sequence[Line], regions: Sequence[Region]) -> tuple[list[Listing], list[Line]]:
    """Find the listings of a page; return them and the lines that are in none.

    Parameters:
        lines: of the page, in any order.
        regions: what the layout model found, or nothing; code in the cells of a table stays there.
    """
    prose = [line for line in lines if not line.pitch]
    columns = _with_parts_set_out(_columns([line for line in lines if line.pitch], prose), prose)
    found = [_listing(rows, prose) for column in columns for rows in _code(rows_of(column))]
    found = [listing for listing in found if not _is_in_table(listing, lines, regions)]
    used = [line for listing in found for line in listing.lines]
    return found, [line for line in lines if line not in used] if used else list(lines)


def _listing(rows: Sequence[Row], prose: Sequence[Line]) -> Listing:
    """A listing of some rows, with the pieces between them in which no fixed width was seen."""
    lines = [line for row in rows for line in row.lines]
    box = Box.around(line.box for line in lines)
    return Listing(tuple(rows_of([*lines, *(line for line in prose if line.box.inside(box) > 0.7)])))


def _columns(lines: Sequence[Line], prose: Sequence[Line]) -> list[list[Line]]:
    """Lines in one fixed-width face that stand below or closely beside each other, with no prose between."""
    columns: list[list[Line]] = []
    for line in (line for row in rows_of(lines) for line in row.lines):
        near = [column for column in columns if _continues(line, column, prose)]
        if near:
            max(near, key=lambda column: _fit(line, Box.around(other.box for other in column))).append(line)
        else:
            columns.append([line])
    return columns


def _fit(line: Line, column: Box) -> tuple[float, float]:
    """Which of several columns a line belongs to: the last that begins where it does or before, or that it overlaps."""
    begins = column.left < line.box.left + SET_IN * line.pitch
    return (column.left if begins else -1.0), line.box.overlap_x(column)


def _continues(line: Line, column: Sequence[Line], prose: Sequence[Line]) -> bool:
    last, box = column[-1], Box.around(other.box for other in column)
    if abs(line.pitch - last.pitch) > APART * last.pitch or -line.box.overlap_y(last.box) > FAR * last.size:
        return False
    if line.box.same_row(last.box):
        first, second = sorted((line, last), key=lambda line: line.box.left)
        gap, limit = second.box.left - first.box.right, NUMBERED if NUMBER.fullmatch(first.text) else BESIDE
    else:
        gap, limit = -line.box.overlap_x(box), INDENT
    between = [other.box for other in prose if last.box.center_y < other.box.center_y < line.box.center_y]
    return gap < limit * line.pitch and all(other.overlap_x(box) <= 0 or other.same_row(last.box) for other in between)


def _with_parts_set_out(columns: list[list[Line]], prose: Sequence[Line]) -> list[list[Line]]:
    """Put what stands far behind the rows of a column to them, such as comments, unless it is the page's next column:
    then no line of prose reaches over both."""
    for part in list(columns):
        column = next((other for other in columns if other is not part and _stands_behind(part, other, prose)), None)
        if column:
            column += part
            columns = [other for other in columns if other is not part]
    return columns


def _stands_behind(part: Sequence[Line], column: Sequence[Line], prose: Sequence[Line]) -> bool:
    for piece in part:
        row = [line.box.right for line in column if line.box.same_row(piece.box)]
        if not row or max(row) > piece.box.left:
            return False
    start, whole = min(line.box.left for line in part), Box.around(line.box for line in column)
    around = [line.box for line in prose if line.box.overlap_x(whole) > 0.5 * whole.width]
    return 2 * sum(box.right > start for box in around) >= len(around)


def _code(rows: Sequence[Row]) -> list[list[Row]]:
    """Stretches of rows that are code, with what stands between."""
    out: list[list[Row]] = []
    between: list[Row] | None = None  # since the last code; None where no code may go on
    for stanza in _stanzas(rows):
        if _is_code(stanza):
            if between is None:
                out.append([])
            out[-1] += [*(between or []), *stanza]
            between = []
        elif between is not None and not SENTENCE.match(" ".join(row.text for row in stanza)):
            between += stanza
            between = between if len(between) <= BETWEEN else None
        else:
            between = None
    return [some for some in out if _signs(some) >= LEAST]


def _is_code(rows: Sequence[Row]) -> bool:
    lefts = [row.box.left for row in rows]
    set_in = max(lefts) - min(lefts) > SET_IN * rows[0].lines[0].pitch
    return _signs(rows) >= SHARE[0 if set_in else 1] * len(rows)


def _signs(rows: Sequence[Row]) -> int:
    """How many rows have signs of code."""
    return sum(bool(CODE.search(row.text)) for row in rows)


def _stanzas(rows: Sequence[Row]) -> list[list[Row]]:
    """Rows between blank lines."""
    leading = _leading(rows)
    out: list[list[Row]] = []
    for row in rows:
        if out and _distance(out[-1][-1], row) < BLANK * leading:
            out[-1].append(row)
        else:
            out.append([row])
    return out


def _distance(above: Row, below: Row) -> float:
    return below.box.center_y - above.box.center_y


def _leading(rows: Sequence[Row]) -> float:
    """The usual distance of two rows, blank lines aside."""
    distances = sorted(_distance(above, below) for above, below in pairwise(rows))
    least = rows[0].size / 2  # what was found twice stands at one height
    return max(least, distances[len(distances) // 3]) if distances else least


def _is_in_table(listing: Listing, lines: Sequence[Line], regions: Sequence[Region]) -> bool:
    """Whether its rows are cells: most have something beside them in the same table, or two things."""
    tables = [region.box for region in regions if region.label == "table" and region.score >= SCORE]
    own = listing.lines
    others = [line for line in lines if line not in own]
    cells = 0
    for row in listing.rows:
        beside = [line.box for line in others if line.box.same_row(row.box)]
        within = [box for box in beside for table in tables if min(box.inside(table), row.box.inside(table)) > 0.5]
        cells += len(beside) > 1 or bool(within)
    return cells > len(listing.rows) / 2
