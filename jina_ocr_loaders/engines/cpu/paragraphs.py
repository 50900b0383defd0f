"""Paragraphs: the rows of a block, joined where the line only ended for want of room."""

from __future__ import annotations

import re
from collections.abc import Sequence

from jina_ocr_loaders.engines.cpu.blocks import Block
from jina_ocr_loaders.engines.cpu.rows import Row

# "•", "–", "1.", "12)", "(a)", "b.", "iv)" at the beginning of a row, with text after it
BULLET = re.compile(r"(?:[•◦▪■●○‣∙·]\s*|[–*-]\s+)(?=\S)")
ORDINAL = re.compile(r"(\(?(?:\d{1,3}|[a-z]|[ivx]{1,4})[.)])\s*(?=[^\s\d.,])")


def paragraphs(block: Block) -> list[list[Row]]:
    """Split a block into paragraphs.

    A row begins a new one when it begins with the mark of a list, when the gap above it is wider than usual, when it is
    indented (or, in lists of references, when it is not), or when the row above had room for its first word.
    """
    hanging = _hangs(block)
    out: list[list[Row]] = []
    for row in block.rows:
        if out and not _begins(row, out[-1], block, hanging):
            out[-1].append(row)
        else:
            out.append([row])
    return out


def _begins(row: Row, before: list[Row], block: Block, hanging: bool) -> bool:
    above = before[-1]
    if is_item(row.text) and (row.box.left <= before[0].box.left + 2 * row.size or is_item(before[0].text)):
        return True
    if row.box.top - above.box.bottom > 0.8 * row.size:
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


def is_item(text: str) -> bool:
    """Whether a row begins like an item of a list."""
    return bool(BULLET.match(text) or ORDINAL.match(text))


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
