"""Blocks: lines that belong together, a paragraph, a heading, a caption, by nearness and by the layout model."""

from __future__ import annotations

import re
from bisect import bisect
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf
from statistics import median

from jina_ocr_loaders.engines.cpu.geometry import Box, Line, Region, letter_size
from jina_ocr_loaders.engines.cpu.gutters import find_gutters
from jina_ocr_loaders.engines.cpu.items import is_item
from jina_ocr_loaders.engines.cpu.rows import Row, rows_of

TEXT_LABELS = {"text", "title", "figure_caption", "table_caption", "reference", "equation"}
SCORE = 0.45  # confidence from which a region of text holds its lines together
MARK = re.compile(r"[•◦▪■●○‣∙·*–—-]|\(?(?:\d{1,3}|[a-z]|[ivx]{1,4})[.)]?")  # a list's mark that was found apart
FIGURE_SCORE = 0.6  # confidence from which a region is a figure
STRAY = 20  # letters; longer texts in a figure are sentences
WORD = re.compile(r"[^\W\d_]{3}|[\u2e80-\u9fff]{2}")
KEY = 40  # letters of a key that stands before its value
# A page number, a price, a year or a span of years at the end of a row
FIGURE = re.compile(r"[$€£¥]?\s?\d[\d.,]*\s?(?:[-–—]\s?\d{1,4})?\s?[$€£¥%]?")
NESTED = 4.0  # letter heights; a list inside a list is set in by less
ALIKE = 1.35  # ratio of letter heights up to which two lines may belong to one block
LARGER = (
    1.18  # ratio of letter heights from which a row in a block of text is a heading; measured heights are 5 % exact
)
EVEN = 1.15  # ratio up to which they are one size
HEADING = 100  # letters of a heading at most
TITLE_GAP = 0.5  # letter heights between two rows of one title at most
PROSE = 8.0  # letter heights; usual lines of a column of prose are wider
FILLED = 0.75  # share of a column's width that they fill at least
WORDS = 4  # in a usual line of prose at least


@dataclass(frozen=True)
class Block:
    """Lines of one block of text. ``label`` is the layout model's, or empty."""

    lines: tuple[Line, ...]
    label: str = ""

    @cached_property
    def box(self) -> Box:
        return Box.around(line.box for line in self.lines)

    @cached_property
    def rows(self) -> list[Row]:
        return rows_of(self.lines)

    @cached_property
    def size(self) -> float:
        return letter_size(self.lines)

    @property
    def lead(self) -> str:
        """How its text begins."""
        return self.rows[0].text


def group(lines: Sequence[Line], regions: Sequence[Region]) -> list[Block]:
    """Blocks of text, in no particular order."""
    lines = _with_keys(_with_ends(_drop_caps(lines)))
    owners = _part_columns(lines, [_owner(line, regions) for line in lines])
    groups = [_Group([i], owner) for i, owner in enumerate(owners)]
    pairs = [(i, j) for i in range(len(lines)) for j in range(i)]
    for i, j in pairs:
        if owners[i] is not None and owners[i] is owners[j]:
            _unite(groups, i, j)
    # Lines outside of all regions join the nearest first, and never tie two regions together.
    loose = [(i, j) for i, j in pairs if (owners[i] is None or owners[j] is None) and _joined(lines[i], lines[j])]
    for i, j in sorted(loose, key=lambda pair: _distance(lines[pair[0]].box, lines[pair[1]].box)):
        _unite(groups, i, j)
    unique = {id(group): group for group in groups}.values()
    blocks = [_block([lines[i] for i in some.lines], [owners[i] for i in some.lines]) for some in unique]
    return [part for block in blocks for part in _part_headings(block)]


@dataclass(eq=False)
class _Group:
    """Numbers of lines that belong together, and the region that they lie in."""

    lines: list[int]
    owner: Region | None


def _unite(groups: list[_Group], i: int, j: int) -> None:
    one, other = groups[i], groups[j]
    if one is other or (one.owner is not None and other.owner is not None and one.owner is not other.owner):
        return
    one.lines += other.lines
    one.owner = one.owner or other.owner
    for number in other.lines:
        groups[number] = one


def _distance(a: Box, b: Box) -> float:
    return max(0.0, -a.overlap_x(b)) + max(0.0, -a.overlap_y(b))


def _block(lines: list[Line], owners: list[Region | None]) -> Block:
    labels = [owner.label for owner in owners if owner is not None]
    label = max(set(labels), key=labels.count) if len(labels) > len(owners) / 2 else ""
    return Block(tuple(lines), label)


def _owner(line: Line, regions: Sequence[Region]) -> Region | None:
    """The region of text that a line lies in, by its part before a wide gap."""
    box = next(line.runs()).box
    # A region may also cover only part of a heading's line.
    inside = [
        (max(box.inside(region.box), 0.8 * region.box.inside(box)), region)
        for region in regions
        if region.label in TEXT_LABELS and region.score >= SCORE
    ]
    best = max(inside, key=lambda pair: pair[0], default=(0.0, None))
    return best[1] if best[0] > 0.5 else None


def _part_columns(lines: Sequence[Line], owners: Sequence[Region | None]) -> list[Region | None]:
    """Give each column of a region that covers several a region of its own."""
    out = list(owners)
    for region in {id(owner): owner for owner in owners if owner}.values():
        numbers = [i for i, owner in enumerate(owners) if owner is region]
        boxes = [lines[i].box for i in numbers]
        edges = sorted(gutter.left for gutter in find_gutters(boxes, widest=inf))
        columns = [[i for i in numbers if bisect(edges, lines[i].box.center_x) == n] for n in range(len(edges) + 1)]
        if edges and all(_is_prose([lines[i] for i in column]) for column in columns):
            for column in columns:
                part = replace(region, box=Box.around(lines[i].box for i in column))
                for i in column:
                    out[i] = part
    return out


def _is_prose(lines: Sequence[Line]) -> bool:
    """Whether some lines are running text that fills a column, as the keys and values of a form do not."""
    if not lines:
        return False
    widths = sorted(line.box.width for line in lines)
    long = widths[3 * (len(widths) - 1) // 4]  # in a dictionary, every second line is short
    filled = long > FILLED * Box.around(line.box for line in lines).width
    return filled and long > PROSE * letter_size(lines) and median(len(line.text.split()) for line in lines) >= WORDS


def _part_headings(block: Block) -> list[Block]:
    """Part headings from the text that the layout model took with them, and titles that it took for one."""
    usual = [row.size for row in block.rows if row.size <= LARGER * block.size]
    uneven = bool(usual) and max(usual) > EVEN * min(usual)  # as in handwriting
    parts: list[tuple[bool, list[Row]]] = []
    for row in block.rows:
        headed = block.label == "title" or (
            not uneven and _is_like_heading(row.text) and not _goes_on(parts, row, block)
        )
        larger = row.size > LARGER * block.size and headed
        gap = row.box.top - parts[-1][1][-1].box.bottom if parts else 0.0
        if parts and parts[-1][0] == larger and not (block.label == "title" and gap > TITLE_GAP * row.size):
            parts[-1][1].append(row)
        else:
            parts.append((larger, [row]))
    if len(parts) == 1:
        return [block]
    mixed = len({larger for larger, _ in parts}) > 1
    return [
        Block(
            tuple(line for row in rows for line in row.lines), "" if mixed and block.label == "title" else block.label
        )
        for _, rows in parts
    ]


def _goes_on(parts: list[tuple[bool, list[Row]]], row: Row, block: Block) -> bool:
    """Whether a row is in the middle of a sentence: the row above is full, close, and ends with no full stop."""
    if not parts or parts[-1][0]:
        return False
    above = parts[-1][1][-1]
    full = block.box.right - above.box.right < 2 * row.size
    return full and row.box.top - above.box.bottom < 0.5 * row.size and above.text[-1:] not in ".!?:"


def _is_like_heading(text: str) -> bool:
    ends = text.endswith((".", "!", ",", ";", ":")) or text[:1].islower()
    return len(text) <= HEADING and not ends and bool(WORD.search(text))


def _joined(a: Line, b: Line) -> bool:
    """Whether two lines touch as lines of one block do."""
    size = min(a.size, b.size)
    if max(a.size, b.size) > ALIKE * size or abs(a.angle - b.angle) > 20:
        return False
    if a.box.same_row(b.box):
        gap = -a.box.overlap_x(b.box)
        left = a if a.box.left < b.box.left else b
        if MARK.fullmatch(left.text):
            return gap < 3.0 * size
        # Long lines with a gap between them stand in two columns.
        return gap < (0.8 if min(a.box.width, b.box.width) < 5 * size else 0.25) * size
    if a.box.overlap_y(b.box) <= -0.5 * size:
        return False
    nested = is_item(a.text) and is_item(b.text) and abs(a.box.left - b.box.left) < NESTED * size
    return nested or a.box.overlap_x(b.box) > 0.3 * min(a.box.width, b.box.width)


def gather_strays(blocks: Sequence[Block], regions: Sequence[Region], page_area: float) -> list[Block]:
    """Put the scattered short texts of a figure, such as the numbers along its axes, into one block.

    Parameters:
        page_area: in square pixels; what covers half of it is no figure but a page of handwriting, or a poster.
    """
    out = list(blocks)
    for figure in regions:
        if figure.label != "figure" or figure.score < FIGURE_SCORE or figure.box.area > 0.5 * page_area:
            continue
        strays = [block for block in out if _is_stray(block) and block.box.inside(figure.box) > 0.7]
        if len(strays) > 2:
            out = [block for block in out if block not in strays]
            out.append(Block(tuple(line for block in strays for line in block.lines), "figure"))
    return out


def _is_stray(block: Block) -> bool:
    return (
        block.label in ("", "equation")
        and len(block.rows) <= 2
        and len(block.lead) <= STRAY
        and not re.match(r"\(?[a-z][.)]", block.lead)
    )


def _with_keys(lines: Sequence[Line]) -> list[Line]:
    """Put a value behind its key: "Author:" in one column, the name beside it in the next."""
    out = list(lines)
    for key in [line for line in lines if line.text.endswith(":") and len(line.text) <= KEY]:
        near = [line for line in lines if line is not key and line.angle == 0.0]
        stacked = [
            line
            for line in near
            if line.box.overlap_x(key.box) > 0 and -key.size < line.box.overlap_y(key.box) < 0.3 * key.size
        ]
        beside = [line for line in near if line.box.same_row(key.box) and line.box.left > key.box.right]
        value = min(beside, key=lambda line: line.box.left, default=None)
        # In a column of prose, a line that ends with a colon has ordinary lines above it.
        if value is None or not all(line.text.endswith(":") for line in stacked):
            continue
        if value in out and key in out:
            out[out.index(key)] = _put_behind(key, value)
            out.remove(value)
    return out


def _with_ends(lines: Sequence[Line]) -> list[Line]:
    """Put the figures of a column in which there is nothing else, such as page numbers or prices, behind the lines that
    they stand beside."""
    out = list(lines)
    for end in [line for line in lines if _is_figure(line)]:
        column = [
            line for line in lines if line.box.overlap_x(end.box) > 0 and line.box.left > end.box.left - 3 * end.size
        ]
        pairs = [(_line_before(line, lines), line) for line in column]
        if len(column) < 2 or not all(before and _is_figure(line) for before, line in pairs):
            continue
        for before, line in pairs:
            if before in out and line in out:
                out[out.index(before)] = _put_behind(before, line)
                out.remove(line)
    return out


def _is_figure(line: Line) -> bool:
    return bool(FIGURE.fullmatch(line.text)) and line.angle == 0.0


def _line_before(line: Line, lines: Sequence[Line]) -> Line | None:
    """The line that a figure at the right end of its row belongs to: far to the left of it, and it is no figure."""
    row = [other for other in lines if other is not line and other.angle == 0.0 and other.box.same_row(line.box)]
    before = max(
        (other for other in row if other.box.right < line.box.left), key=lambda other: other.box.right, default=None
    )
    if before is None or len(row) > 1 or line.box.left - before.box.right < line.size or _is_figure(before):
        return None
    return before


def _put_behind(before: Line, after: Line) -> Line:
    """Two lines of one row as one."""
    words = (*before.words, *after.words) if before.words and after.words else ()
    return replace(before, text=f"{before.text} {after.text}", box=Box.around([before.box, after.box]), words=words)


def _drop_caps(lines: Sequence[Line]) -> list[Line]:
    """Put an initial that is several lines high before the first line beside it."""
    out = list(lines)
    for cap in lines:
        if len(cap.text) != 1 or not cap.text.isupper():
            continue
        beside = [
            line
            for line in out
            if cap.size > 1.8 * line.size
            and -0.5 * cap.size < line.box.left - cap.box.right < cap.size
            and line.box.overlap_y(cap.box) > 0.3 * line.size
        ]
        if len(beside) >= 2:
            first = min(beside, key=lambda line: line.box.top)
            for line in beside:  # all begin where the paragraph does, so that none looks indented
                box = Box(cap.box.left, line.box.top, line.box.right, line.box.bottom)
                out[out.index(line)] = replace(line, text=(cap.text if line is first else "") + line.text, box=box)
            out.remove(cap)
    return out
