"""Rows: lines that stand side by side at one height."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median

from jina_ocr_loaders.engines.cpu.geometry import Box, Line


@dataclass(frozen=True, slots=True)
class Row:
    """Lines at one height, from left to right."""

    lines: tuple[Line, ...]

    @property
    def box(self) -> Box:
        return Box.around(line.box for line in self.lines)

    @property
    def text(self) -> str:
        return " ".join(line.text for line in self.lines)

    @property
    def size(self) -> float:
        """The usual letter height."""
        return median(line.size for line in self.lines)


def rows_of(lines: Iterable[Line]) -> list[Row]:
    """Group lines into rows, from top to bottom."""
    rows: list[list[Line]] = []
    for line in sorted(lines, key=lambda line: line.box.center_y):
        # Only the last rows can be near enough, since lines come in the order of their height.
        row = next((row for row in reversed(rows[-3:]) if _belongs(line, row)), None)
        if row is None:
            rows.append([line])
        else:
            row.append(line)
    return [Row(tuple(sorted(row, key=lambda line: line.box.left))) for row in rows]


def _belongs(line: Line, row: list[Line]) -> bool:
    """Whether a line stands at a row's height, with no line of the row above or below it."""
    middle = median(other.box.center_y for other in row)
    nearest = min(row, key=lambda other: abs(other.box.overlap_x(line.box)))
    return (
        line.box.same_row(nearest.box)
        and abs(line.box.center_y - middle) < 0.5 * max(line.box.height, nearest.box.height)
        and all(line.box.overlap_x(other.box) < 0.5 * min(line.box.width, other.box.width) for other in row)
    )
