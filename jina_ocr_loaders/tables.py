"""Tables in Markdown, as pipes or as HTML, as far as is needed to tell that one goes on in another."""

from __future__ import annotations

import html
import re
from dataclasses import dataclass

_DELIMITER_ROW = re.compile(r"\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?")
_CELL_BORDER = re.compile(r"(?<!\\)\|")
_HTML_TABLE = re.compile(r"<table\b[^>]*>(.*)</table>", re.DOTALL | re.IGNORECASE)
_HTML_ROW = re.compile(r"<tr\b[^>]*>.*?</tr>", re.DOTALL | re.IGNORECASE)
_HTML_CELL = re.compile(r"<t[hd]\b([^>]*)>(.*?)</t[hd]>", re.DOTALL | re.IGNORECASE)
_COLSPAN = re.compile(r"""colspan=["']?(\d+)""", re.IGNORECASE)
_HEADER_TAG = re.compile(r"<(/?)th\b", re.IGNORECASE)
_TAG = re.compile(r"<[^>]+>")


@dataclass(frozen=True, slots=True)
class Table:
    """A table's rows.

    Attributes:
        kind: "pipe" or "html".
        source: the whole table as it was written.
        lines: the source of each row; a pipe table's delimiter row is not among them.
        rows: the cells' text of each row; a cell that spans columns counts as often, the rest of it empty.
    """

    kind: str
    source: str
    lines: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    @classmethod
    def parse(cls, text: str) -> Table | None:
        """The table that the whole text is, or None."""
        text = text.strip()
        if match := _HTML_TABLE.fullmatch(text):
            if "table>" in match[1].lower():  # one table inside another, or two
                return None
            lines = _HTML_ROW.findall(match[1])
            return cls("html", text, tuple(lines), tuple(_html_cells(line) for line in lines)) if lines else None
        lines = text.splitlines()
        if len(lines) < 2 or "|" not in lines[0] or not _DELIMITER_ROW.fullmatch(lines[1].strip()):
            return None
        del lines[1]
        return cls("pipe", text, tuple(lines), tuple(_pipe_cells(line) for line in lines))

    @property
    def columns(self) -> int:
        """Cells in the widest row."""
        return max(map(len, self.rows))

    def goes_on_in(self, other: Table) -> bool:
        """Whether the other table is the rest of this one: as many columns, and no header of its own."""
        same_shape = self.kind == other.kind and self.columns == other.columns
        return same_shape and (self._repeats_header(other) or self._starts_with_data(other))

    def with_rows_of(self, other: Table) -> str:
        """This table's source with the other's rows added, less a header that is empty or repeated."""
        drop = self._repeats_header(other) or not any(other.rows[0])
        if self.kind == "pipe":
            return "\n".join((self.source, *other.lines[drop:]))
        first = () if drop else (_HEADER_TAG.sub(r"<\1td", other.lines[0]),)
        end = self.source.rindex(self.lines[-1]) + len(self.lines[-1])
        return "\n".join((self.source[:end], *first, *other.lines[1:])) + self.source[end:]

    def _repeats_header(self, other: Table) -> bool:
        return _folded(self.rows[0]) == _folded(other.rows[0])

    def _starts_with_data(self, other: Table) -> bool:
        """An empty header, or figures where this table has figures under words.

        Years do not count unless there are years in the column: they head columns of their own.
        """
        first = other.rows[0]
        if not any(first):
            return True
        for at, (head, cell) in enumerate(zip(self.rows[0], first, strict=False)):
            column = [row[at] for row in self.rows[1:] if at < len(row)]
            like = _is_year if _is_year(cell) else _is_figure
            if like(cell) and not _is_figure(head) and any(map(like, column)):
                return True
        return False


def _pipe_cells(line: str) -> tuple[str, ...]:
    return tuple(cell.strip() for cell in _CELL_BORDER.split(line.strip().removeprefix("|").removesuffix("|")))


def _html_cells(row: str) -> tuple[str, ...]:
    cells: list[str] = []
    for attributes, content in _HTML_CELL.findall(row):
        span = _COLSPAN.search(attributes)
        cells += [html.unescape(_TAG.sub("", content)).strip(), *[""] * (int(span[1]) - 1 if span else 0)]
    return tuple(cells)


def _folded(row: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(" ".join(cell.casefold().split()) for cell in row)


def _is_figure(cell: str) -> bool:
    """Whether a cell holds a figure: digits with signs, separators, units of money or per cent, and no words."""
    return any(char.isdigit() for char in cell) and not any(len(word) > 2 for word in re.findall(r"[^\W\d_]+", cell))


def _is_year(cell: str) -> bool:
    return re.fullmatch(r"(?:19|20)\d\d", cell) is not None
