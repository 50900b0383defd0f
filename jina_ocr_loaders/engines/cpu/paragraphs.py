"""Paragraphs: the rows of a block, joined where the line only ended for want of room."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

from jina_ocr_loaders.engines.cpu.blocks import Block
from jina_ocr_loaders.engines.cpu.geometry import FAR
from jina_ocr_loaders.engines.cpu.items import is_item
from jina_ocr_loaders.engines.cpu.rows import Row

DOTS = re.compile(r"(?:[.·]\s?){4}|…")
APART = 0.45  # letter heights; a gap between rows that is so much wider than usual parts paragraphs
SHORT = 6, 35  # rows, and letters in each, of an address or the like


def paragraphs(block: Block, right: float) -> list[list[Row]]:
    """Split a block into paragraphs.

    Parameters:
        right: where the column ends that the block stands in, in pixels.

    A row begins a new one when it begins with the mark of a list, when the gap above it is wider than usual, when its
    parts are set far apart, when all rows are short, when it is indented (or, in lists of references, when it is not),
    or when the row above had room for its first word.
    """
    hanging = _hangs(block)
    leading = _leading(block)
    if _is_address(block, right):
        return [[row] for row in block.rows]
    out: list[list[Row]] = []
    for row in block.rows:
        if out and not _begins(row, out[-1], block, hanging, leading):
            out[-1].append(row)
        else:
            out.append([row])
    return out


def _begins(row: Row, before: list[Row], block: Block, hanging: bool, leading: float) -> bool:
    above = before[-1]
    gap = row.box.top - above.box.bottom
    if is_item(row.text) and (row.box.left <= before[0].box.left + 2 * row.size or is_item(before[0].text)):
        return True
    if gap > 0.8 * row.size or (gap > leading + APART * row.size and not row.text[:1].islower()):
        return True
    if _is_set_out(row) or _is_set_out(above):
        return True
    if is_item(before[0].text) and row.box.left < before[0].box.left - 0.5 * row.size:
        return True
    if max(row.size, above.size) > 1.35 * min(row.size, above.size):
        return True
    if re.search(r"[^\W\d_]-$", above.text) and row.text[:1].islower():
        return False
    if hanging:
        return not _is_indented(row, block)
    if _is_indented(row, block) and not _is_indented(above, block) and len(block.rows) > 2:
        return not is_item(before[0].text)
    return _had_room(above, row, block) and not row.text[:1].islower()


def _is_address(block: Block, right: float) -> bool:
    """Whether lines end where their author wanted: a few short ones that fill no half of their column, or stand flush
    right."""
    rows = block.rows
    if len(rows) < 2 or any(len(row.text) > SHORT[1] or row.text[:1].islower() for row in rows) or len(rows) > SHORT[0]:
        return False
    ragged = max(row.box.left for row in rows) - block.box.left > block.size
    flush = max(block.box.right - row.box.right for row in rows) < 0.5 * block.size
    return (ragged and flush) or block.box.width < 0.5 * (right - block.box.left)


def _leading(block: Block) -> float:
    """The usual gap between the rows of a block."""
    gaps = sorted(below.box.top - above.box.bottom for above, below in pairwise(block.rows))
    return gaps[(len(gaps) - 1) // 2] if gaps else 0.0


def _is_set_out(row: Row) -> bool:
    """Whether the parts of a row stand far apart, as an item and its price, or are joined by a row of dots."""
    pieces = [piece.box for line in row.lines for piece in line.runs()]
    return any(b.left - a.right > FAR * row.size for a, b in pairwise(pieces)) or bool(DOTS.search(row.text))


def _is_indented(row: Row, block: Block) -> bool:
    return row.box.left - block.box.left > 0.5 * row.size


def _hangs(block: Block) -> bool:
    """Whether the first row of each paragraph stands out to the left, as in lists of references."""
    indented = [_is_indented(row, block) for row in block.rows]
    out = [row for row, inner in zip(block.rows, indented, strict=True) if not inner]
    return (
        len(indented) > 2
        and not indented[0]
        and sum(indented) >= 0.4 * len(indented)
        and all(not row.text[:1].islower() for row in out)
    )


def _had_room(above: Row, row: Row, block: Block) -> bool:
    """Whether the first word of a row would have fitted at the end of the row above."""
    first = row.lines[0]
    word = first.words[0].box.width if first.words else row.size
    return block.box.right - above.box.right > word + row.size


def join(rows: Sequence[Row]) -> str:
    """The text of rows as one running text, with words joined that were broken at a line's end."""
    text = ""
    for row in rows:
        text = join_texts(text, row.text)
    return text


def join_texts(before: str, after: str) -> str:
    """Two texts as one, mending a word that is broken between them."""
    if not before:
        return after
    if before.endswith("\u00ad"):
        return before[:-1] + after
    if re.search(r"[^\W\d_]-$", before) and after[:1].islower():
        return before[:-1] + after
    if _wide(before[-1]) and _wide(after[:1]):
        return before + after  # Chinese and Japanese run on without spaces
    return f"{before} {after}"


def _wide(letter: str) -> bool:
    return "\u2e80" <= letter <= "\u9fff" or "\uff00" <= letter <= "\uffef"
