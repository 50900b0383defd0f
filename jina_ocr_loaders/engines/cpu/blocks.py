"""Blocks: lines that belong together, a paragraph, a heading, a caption, by nearness and by the layout model."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from jina_ocr_loaders.engines.cpu.geometry import Box, Line, Region, letter_size
from jina_ocr_loaders.engines.cpu.rows import Row, rows_of

TEXT_LABELS = {"text", "title", "figure_caption", "table_caption", "reference", "equation"}
SCORE = 0.45  # confidence from which a region of text holds its lines together
MARK = re.compile(r"[•◦▪■●○‣∙·*–—-]|\(?(?:\d{1,3}|[a-z]|[ivx]{1,4})[.)]?")  # a list's mark that was found apart
FIGURE_SCORE = 0.6  # confidence from which a region is a figure
STRAY = 20  # letters; longer texts in a figure are sentences
KEY = 40  # letters of a key that stands before its value
ALIKE = 1.35  # ratio of letter heights up to which two lines may belong to one block


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
    lines = _with_keys(_drop_caps(lines))
    owners = [_owner(line, regions) for line in lines]
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
    return [_block([lines[i] for i in some.lines], [owners[i] for i in some.lines]) for some in unique]


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
    """The region of text that a line lies in."""
    # A region may also cover only part of a heading's line.
    inside = [
        (max(line.box.inside(region.box), 0.8 * region.box.inside(line.box)), region)
        for region in regions
        if region.label in TEXT_LABELS and region.score >= SCORE
    ]
    best = max(inside, key=lambda pair: pair[0], default=(0.0, None))
    return best[1] if best[0] > 0.5 else None


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
    return a.box.overlap_y(b.box) > -0.5 * size and a.box.overlap_x(b.box) > 0.3 * min(a.box.width, b.box.width)


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
            both = (*key.words, *value.words) if key.words and value.words else ()
            joined = replace(key, text=f"{key.text} {value.text}", box=Box.around([key.box, value.box]), words=both)
            out[out.index(key)] = joined
            out.remove(value)
    return out


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
