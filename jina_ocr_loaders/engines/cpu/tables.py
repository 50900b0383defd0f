"""Tables: lines set out in columns, into a grid of cells, into Markdown or HTML."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from jina_ocr_loaders.engines.cpu.geometry import Box, Line, Region, letter_size
from jina_ocr_loaders.engines.cpu.rows import Row, rows_of

SCORE = 0.5  # confidence from which the layout model is believed about tables
WIDE = 1.2  # letter heights; a gap between two words of one line that is wider ends a cell
CELL_TEXT = 24  # letters; without the layout model, columns with longer usual text are columns of prose
FILLED = 0.5  # share of a grid's cells that must hold something, for it to be a table
NUMBER = re.compile(r"(?!(?:19|20)\d\d$)[\W\d]*\d[\W\d]*[%A-Za-z]{0,2}")  # years are heads more often
CURRENCY = re.compile(r"[$€£¥₹]")


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell of a grid, which may reach over several columns or rows."""

    text: str
    row: int
    column: int
    columns: int = 1
    rows: int = 1


@dataclass(frozen=True, slots=True)
class Table:
    """A table and its place on the page."""

    box: Box
    cells: tuple[Cell, ...]
    header_rows: int

    @property
    def markdown(self) -> str:
        """A pipe table where one can say it, HTML where cells reach over others."""
        if any(cell.columns > 1 or cell.rows > 1 for cell in self.cells) or self.header_rows > 1:
            return self._html()
        return self._pipes()

    def _size(self) -> tuple[int, int]:
        return (
            max(cell.row + cell.rows for cell in self.cells),
            max(cell.column + cell.columns for cell in self.cells),
        )

    def _pipes(self) -> str:
        rows, columns = self._size()
        grid = [[""] * columns for _ in range(rows)]
        for cell in self.cells:
            grid[cell.row][cell.column] = cell.text.replace("|", "\\|")
        lines = ["| " + " | ".join(row) + " |" for row in grid]
        return "\n".join([lines[0], "|" + " --- |" * columns, *lines[1:]])

    def _html(self) -> str:
        rows, columns = self._size()
        cells = {(cell.row, cell.column): cell for cell in self.cells}
        covered = {
            (row, column)
            for cell in self.cells
            for row in range(cell.row, cell.row + cell.rows)
            for column in range(cell.column, cell.column + cell.columns)
        } - set(cells)
        out = ["<table>"]
        for row in range(rows):
            tag = "th" if row < self.header_rows else "td"
            parts = [
                _html_cell(cells.get((row, column)), tag) for column in range(columns) if (row, column) not in covered
            ]
            out.append(f"<tr>{''.join(parts)}</tr>")
        return "\n".join([*out, "</table>"])


def _html_cell(cell: Cell | None, tag: str) -> str:
    if cell is None:
        return f"<{tag}></{tag}>"
    spans = f' colspan="{cell.columns}"' if cell.columns > 1 else ""
    spans += f' rowspan="{cell.rows}"' if cell.rows > 1 else ""
    return f"<{tag}{spans}>{html.escape(cell.text, quote=False)}</{tag}>"


def find_tables(lines: Sequence[Line], regions: Sequence[Region]) -> tuple[list[Table], list[Line]]:
    """The tables among some lines, and the lines that are in none.

    Tables are where the layout model sees one, and wherever at least three rows share three columns of short texts.
    """
    tables: list[Table] = []
    rest = list(lines)
    for region in sorted(regions, key=lambda region: region.box.top):
        if region.label != "table" or region.score < SCORE:
            continue
        inside = [line for line in rest if _anchor(line).inside(region.box) > 0.5]
        inside = _without_notes(inside)
        table, used = _table(inside, _with_last_rows(_with_header(inside, rest), rest))
        if table:
            tables.append(table)
            rest = [line for line in rest if line not in used]
    for run in _runs(rest):
        table, used = _table(run, _with_header(run, rest))
        if table and _is_dense(table) and not _has_prose(table):
            tables.append(table)
            rest = [line for line in rest if line not in used]
    return tables, rest


def _table(core: list[Line], lines: list[Line]) -> tuple[Table | None, list[Line]]:
    """Build a table from lines; ``core`` are those that surely belong to it."""
    if len(core) < 4:
        return None, []
    grid = _Grid(lines)
    if len(grid.columns) < 2 or len(grid.rows) < 2:
        return None, []
    return Table(Box.around(line.box for line in lines), tuple(grid.cells()), grid.header_rows), lines


def _is_dense(table: Table) -> bool:
    rows, columns = table._size()
    filled = sum(cell.columns * cell.rows for cell in table.cells)
    return rows >= 3 and columns >= 3 and filled >= FILLED * rows * columns


def _has_prose(table: Table) -> bool:
    """Whether a column is running text beside something else: long lines, many of which begin within a sentence."""
    columns: dict[int, list[str]] = {}
    for cell in table.cells:
        columns.setdefault(cell.column, []).append(cell.text)
    for texts in columns.values():
        long = [text for text in texts if len(text) > 1.5 * CELL_TEXT]
        if len(long) >= 3 and sum(text[0].islower() for text in long) >= 0.4 * len(long):
            return True
    return False


def _anchor(line: Line) -> Box:
    """Where a line stands in a grid: slanted column heads stand where they begin, at their lower end."""
    if 20 < line.angle < 70:
        return Box(line.box.left, line.box.bottom - line.size, line.box.left + line.size, line.box.bottom)
    return line.box


def _rows(pieces: Sequence[Line]) -> list[list[Line]]:
    """Rows by where the pieces stand: each is represented by a line that is named by its number."""
    stand_ins = [Line(str(i), _anchor(piece), size=piece.size) for i, piece in enumerate(pieces)]
    return [[pieces[int(line.text)] for line in row.lines] for row in rows_of(stand_ins)]


def _runs(lines: Sequence[Line]) -> list[list[Line]]:
    """Stretches of rows that stand in at least three columns of short texts."""
    rows = rows_of(line for line in lines if abs(line.angle) < 20)
    runs: list[list[Row]] = []
    current: list[Row] = []
    for row in rows:
        if current and row.box.top - current[-1].box.bottom > 2 * row.size:
            runs.append(current)
            current = []
        if len(row.lines) >= 3 and median(len(line.text) for line in row.lines) <= CELL_TEXT:
            current.append(row)
        elif current and len(row.lines) < 3 and len(row.text) <= CELL_TEXT * 3:
            current.append(row)  # a heading between rows, or a cell's second line
        elif current:
            runs.append(current)
            current = []
    runs.append(current)
    trimmed = [_trim(run) for run in runs]
    return [
        [line for row in run for line in row.lines] for run in trimmed if sum(len(row.lines) >= 3 for row in run) >= 3
    ]


def _trim(run: list[Row]) -> list[Row]:
    """Without the rows at the end that are no rows of the table, nor further lines of its last one."""
    middles = [row.box.center_y for row in run if len(row.lines) >= 3]
    pitch = min((b - a for a, b in pairwise(middles)), default=0.0)
    while run and len(run[-1].lines) < 3 and run[-1].box.center_y - middles[-1] > 0.75 * pitch:
        run = run[:-1]
    return run


def _with_header(core: list[Line], lines: Sequence[Line]) -> list[Line]:
    """Add the heads that stand right above: slanted ones, and those centred over the columns after the first."""
    if len(core) < 4:
        return core
    box = Box.around(line.box for line in core)
    size = letter_size(core)
    first = min(core, key=lambda line: (line.box.left, line.box.top))
    added = list(core)
    for row in reversed(_rows([line for line in lines if line not in core and line.box.top < box.top])):
        near = [
            line
            for line in row
            if line.box.bottom > box.top - 1.5 * size
            and line.box.left >= box.left - size + (first.box.width + size if len(row) == 1 else 0.0)
            and line.box.right <= box.right + 3 * line.size
            and len(line.text) <= 2 * CELL_TEXT
        ]
        if not near or len(near) < len(row):
            break
        added += near
        box = Box.around([box, *(line.box for line in near)])
    return added


def _without_notes(core: list[Line]) -> list[Line]:
    """Leave out what the layout model took for rows: a sentence that stands alone below the others."""
    rows = _rows(core)
    if len(rows) < 4 or len(rows[-1]) > 1 or len(rows[-1][0].text) <= CELL_TEXT:
        return core
    last, above = rows[-1][0], [line for row in rows[:-1] for line in row]
    reached = sum(line.box.overlap_x(last.box) > 0 for line in max(rows[:-1], key=len))
    return above if reached > 1 and last.box.left < Box.around(line.box for line in above).left + last.size else core


def _with_last_rows(core: list[Line], lines: Sequence[Line]) -> list[Line]:
    """Add the rows that follow at a row's distance with each piece in line with a column, such as sums."""
    rows = _rows(core)
    if len(rows) < 3:
        return core
    added = list(core)
    columns = _columns([_anchor(piece) for line in core for piece in line.runs(WIDE)])
    for row in _rows([line for line in lines if line not in core and line.box.top > rows[-1][0].box.center_y]):
        last = max(line.box.center_y for line in added)
        pitch = max(b[0].box.center_y - a[0].box.center_y for a, b in pairwise(rows))
        pieces = [piece.box for line in row for piece in line.runs(WIDE)]
        places = [_aligned(piece, columns, row[0].size) for piece in pieces]
        near = min(line.box.center_y for line in row) - last < 1.2 * pitch
        if not near or len(row) < 2 or None in places or len(set(places)) < len(places):
            break
        if not all(len(line.text) <= CELL_TEXT for line in row):
            break
        added += row
    return added


def _aligned(box: Box, columns: Sequence[tuple[float, float]], size: float) -> int | None:
    """The column that a piece ends or begins with, if it reaches into no other."""
    met = [i for i, (left, right) in enumerate(columns) if min(box.right, right) - max(box.left, left) > 0.3 * size]
    if len(met) != 1:
        return None
    left, right = columns[met[0]]
    return met[0] if min(abs(box.left - left), abs(box.right - right)) < 0.6 * size else None


class _Grid:
    """Rows and columns of a table's lines."""

    def __init__(self, lines: Sequence[Line]) -> None:
        self.size = letter_size(lines)
        pieces = [piece for line in lines for piece in line.runs(WIDE)]
        self._places = {id(piece): _anchor(piece) for piece in pieces}
        signs = self._place_currency(pieces)
        self.columns = _columns([self._box(piece) for piece in pieces if piece not in signs])
        self.rows = self._join_rows(self._join_lines(_rows(pieces)))
        self.header_rows = self._count_header_rows()

    def _box(self, piece: Line) -> Box:
        """Where a piece stands between the columns."""
        return self._places[id(piece)]

    def _place_currency(self, pieces: list[Line]) -> list[Line]:
        """Put each currency sign that stands apart into the column of the number that follows it."""
        signs = [piece for piece in pieces if CURRENCY.fullmatch(piece.text)]
        for sign in signs:
            numbers = [
                piece
                for piece in pieces
                if piece not in signs and piece.box.same_row(sign.box) and piece.box.left > sign.box.center_x
            ]
            if numbers:
                self._places[id(sign)] = min(numbers, key=lambda piece: piece.box.left).box
        return signs

    def _middle(self, row: list[Line]) -> float:
        return median(self._box(piece).center_y for piece in row)

    def _span(self, piece: Line) -> tuple[int, int]:
        """First and last column that a piece stands in."""
        box = self._box(piece)
        met = [
            i
            for i, (left, right) in enumerate(self.columns)
            if min(box.right, right) - max(box.left, left) > 0.15 * min(box.width, right - left)
        ]
        if not met:
            nearest = min(range(len(self.columns)), key=lambda i: abs(sum(self.columns[i]) / 2 - box.center_x))
            return nearest, nearest
        return met[0], met[-1]

    def _join_lines(self, rows: list[list[Line]]) -> list[list[Line]]:
        """Put the second and further lines of cells to the first: their row begins in no first column and stands closer
        to the one above it than rows do."""
        first = [any(self._span(piece)[0] == 0 for piece in row) for row in rows]
        gaps = [
            min(piece.box.top for piece in row) - max(piece.box.bottom for piece in above)
            for above, row in pairwise(rows)
        ]
        between = [gap for gap, begins in zip(gaps, first[1:], strict=True) if begins]
        within = [gap for gap, begins in zip(gaps, first[1:], strict=True) if not begins]
        if len(between) < 2 or not within or max(within) + 0.25 * self.size > min(between):
            return rows
        out = [rows[0]]
        for row, begins in zip(rows[1:], first[1:], strict=True):
            if begins:
                out.append(row)
            else:
                out[-1] = [*out[-1], *row]
        return out

    def _join_rows(self, rows: list[list[Line]]) -> list[list[Line]]:
        """Put further lines of a cell, which stand closer than rows do, to the row that they belong to."""
        full = [row for row in rows if self._filled(row) >= 0.5 * len(self.columns)]
        if len(full) < 2:
            return rows
        middles = [self._middle(row) for row in full]
        pitches = sorted(b - a for a, b in pairwise(middles))
        pitch = pitches[len(pitches) // 10]
        joined = {id(row): list(row) for row in full}
        out = list(full)
        for row in rows:
            if id(row) in joined:
                continue
            nearest = min(full, key=lambda other: abs(self._middle(other) - self._middle(row)))
            if len(row) <= 2 and abs(self._middle(nearest) - self._middle(row)) < 0.75 * pitch:
                joined[id(nearest)] += row
            else:
                joined[id(row)] = list(row)
                out.append(row)
        return [joined[id(row)] for row in sorted(out, key=self._middle)]

    def _filled(self, row: list[Line]) -> int:
        return len({column for piece in row for column in range(self._span(piece)[0], self._span(piece)[1] + 1)})

    def _count_header_rows(self) -> int:
        """Rows down to the first that fills most columns: heads over several columns stand above it."""
        for i, row in enumerate(self.rows):
            if self._filled(row) >= min(len(self.columns), max(2, len(self.columns) - 1)):
                return i + 1 if i < 3 and not _is_numeric(row) else max(1, i if i < 4 else 1)
        return 1

    def cells(self) -> Iterable[Cell]:
        for number, row in enumerate(self.rows):
            spans: dict[tuple[int, int], list[Line]] = {}
            for piece in row:
                spans.setdefault(self._span(piece), []).append(piece)
            merged = _merge_spans(spans)
            if number < self.header_rows - 1:
                merged = self._reach_right(merged)
            taken = {column for first, last in merged for column in range(first, last + 1)}
            heads = number < self.header_rows - 1 or (
                number < self.header_rows and self._filled(row) < len(self.columns) / 2
            )
            for (first, last), some in merged.items():
                if heads and len(some) == 1:
                    first, last = self._widen(some[0], first, last, taken)
                yield Cell(_cell_text(some), number, first, last - first + 1)

    def _reach_right(self, heads: dict[tuple[int, int], list[Line]]) -> dict[tuple[int, int], list[Line]]:
        """Heads that stand at the left of equally many columns each belong to all of those."""
        starts = sorted(first for first, _ in heads if first > 0)
        widths = {b - a for a, b in pairwise([*starts, len(self.columns)])}
        set_left = all(
            last == first and abs(self._box(some[0]).left - self.columns[first][0]) < 0.4 * self.size
            for (first, last), some in heads.items()
        )
        if len(starts) < 2 or len(widths) > 1 or widths == {1} or not set_left:
            return heads
        width = widths.pop()
        return {(first, first + width - 1 if first else last): some for (first, last), some in heads.items()}

    def _widen(self, piece: Line, first: int, last: int, taken: set[int]) -> tuple[int, int]:
        """A head that stands alone and in the middle over some columns belongs to all of them."""
        box = self._box(piece)
        if 20 < piece.angle < 70:
            return first, last
        best = first, last
        for start in range(first, 0, -1):
            for end in range(last, len(self.columns)):
                outside = [i for i in range(start, end + 1) if not first <= i <= last]
                if any(i in taken for i in outside):
                    continue
                middle = (self.columns[start][0] + self.columns[end][1]) / 2
                if abs(middle - box.center_x) < 0.75 * self.size and end - start > best[1] - best[0]:
                    best = start, end
        return best


def _columns(boxes: list[Box]) -> list[tuple[float, float]]:
    """The columns' left and right ends. Narrow cells say where columns are; those that reach over two say nothing."""
    columns: list[list[float]] = []
    for box in sorted(boxes, key=lambda box: box.width):
        met = [c for c in columns if min(box.right, c[1]) - max(box.left, c[0]) > 0.15 * min(box.width, c[1] - c[0])]
        if not met:
            columns.append([box.left, box.right])
        elif len(met) == 1:
            others = [c for c in columns if c is not met[0]]
            left_limit = max((c[1] for c in others if c[1] <= met[0][0]), default=box.left)
            right_limit = min((c[0] for c in others if c[0] >= met[0][1]), default=box.right)
            met[0][0] = min(met[0][0], max(box.left, left_limit))
            met[0][1] = max(met[0][1], min(box.right, right_limit))
    return sorted((left, right) for left, right in columns)


def _merge_spans(spans: dict[tuple[int, int], list[Line]]) -> dict[tuple[int, int], list[Line]]:
    """Spans that share a column become one cell."""
    merged: list[tuple[int, int, list[Line]]] = []
    for (first, last), some in sorted(spans.items()):
        if merged and first <= merged[-1][1]:
            start, end, others = merged.pop()
            merged.append((start, max(end, last), others + some))
        else:
            merged.append((first, last, list(some)))
    return {(first, last): some for first, last, some in merged}


def _cell_text(pieces: list[Line]) -> str:
    # A rule beside a cell is read as a bar.
    return " ".join(row.text for row in rows_of(pieces)).strip("| ")


def _is_numeric(row: list[Line]) -> bool:
    """Whether most cells after the first are numbers."""
    rest = sorted(row, key=lambda piece: piece.box.left)[1:]
    return sum(bool(NUMBER.fullmatch(piece.text)) for piece in rest) > len(rest) / 2
