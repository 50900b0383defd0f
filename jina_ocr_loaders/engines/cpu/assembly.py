"""Assembly: lines and regions of a page into Markdown."""

from __future__ import annotations

import re
from collections.abc import Sequence

from jina_ocr_loaders.engines.cpu.blocks import LARGER, WORD, Block, gather_strays, group
from jina_ocr_loaders.engines.cpu.geometry import Line, Region, letter_size
from jina_ocr_loaders.engines.cpu.items import BULLET, CHECK, is_item
from jina_ocr_loaders.engines.cpu.listings import Listing, find_listings
from jina_ocr_loaders.engines.cpu.margins import without_margins
from jina_ocr_loaders.engines.cpu.order import reading_order
from jina_ocr_loaders.engines.cpu.paragraphs import join, join_texts, paragraphs
from jina_ocr_loaders.engines.cpu.tables import Table, find_tables

NO_HEADING = {"equation", "figure", "figure_caption", "table_caption", "reference"}
SECTION = re.compile(r"\d{1,2}(?:\.\d{1,2})+\.?(?=\s*[^\W\d_]{2})")
LEVELS = ((1.6, 1), (1.25, 2))  # letter height in body heights, and the level of headings from there up; others are 3


def to_markdown(lines: Sequence[Line], regions: Sequence[Region], width: int, height: int) -> str:
    """The Markdown of a page.

    Parameters:
        lines: all text of the page, in any order.
        regions: what the layout model found, or nothing.
        width, height: of the page image in pixels.
    """
    lines = without_margins(lines, regions, width, height)
    listings, rest = find_listings(lines, regions)
    tables, rest = find_tables(rest, regions)
    blocks = gather_strays(group(rest, regions), regions, width * height)
    body = letter_size(line for block in blocks if block.label in ("text", "") for line in block.lines) or letter_size(
        lines
    )
    items: list[Block | _Apart] = [*map(_Apart, tables), *map(_Apart, listings), *blocks]
    ordered = reading_order(items, body)
    levels = _levels(blocks, body)
    notes = [item for item in ordered if isinstance(item, Block) and _is_footnote(item, body, lines)]
    parts: list[str] = []
    before: Block | None = None  # the block of prose that the last part came from
    for item in ordered:
        if isinstance(item, _Apart):
            parts.append(item.markdown)
            before = None
        elif item in levels:
            parts.append(f"{'#' * levels[item]} {join(item.rows)}")
            before = None
        elif item not in notes:
            texts = _texts(item, _column_end(item, blocks))
            if before and _goes_on(parts[-1], texts[0]) and _alike(before, item):
                parts[-1] = join_texts(parts[-1], texts.pop(0))
            parts += texts
            before = item
    return "\n\n".join([*parts, *(join(note.rows) for note in notes)])


class _Apart:
    """A table or a listing among the blocks to be ordered."""

    lead = ""

    def __init__(self, what: Table | Listing) -> None:
        self.markdown = what.markdown
        self.box = what.box


def _levels(blocks: Sequence[Block], body: float) -> dict[Block, int]:
    """The blocks that are headings, and their levels. Headings of about one size are of one level."""
    levels: dict[Block, int] = {}
    by_size = sorted((block for block in blocks if _is_heading(block, body)), key=lambda block: -block.size)
    largest = 0.0
    for block in by_size:
        if block.size < largest / 1.15:
            largest = 0.0
        largest = largest or block.size
        levels[block] = next((level for ratio, level in LEVELS if largest >= ratio * body), 3)
        if block.label != "title" and (number := SECTION.match(join(block.rows))):
            levels[block] = min(6, number[0].count(".") + 1)
    return levels


def _is_heading(block: Block, body: float) -> bool:
    text = join(block.rows)
    if len(block.rows) > 4 or len(text) > 200 or not WORD.search(text) or block.label in NO_HEADING:
        return False
    if len(text) > 60 and text.endswith((".", "!", ",", ";")):
        return False  # whole sentences, taken for a title because little else is on the page
    if text.endswith((",", ";")):
        return False
    if (block.label == "title" and block.size >= 0.8 * body) or block.size >= LEVELS[-1][0] * body:
        return True
    if len(block.rows) > 1 or len(text) > 80:
        return False
    if block.size >= LARGER * body and not text.endswith((".", ":")):
        return True
    return bool(SECTION.match(text)) or text.isupper()


def _column_end(block: Block, blocks: Sequence[Block]) -> float:
    """Where the column ends that a block stands in."""
    return max(other.box.right for other in blocks if abs(other.box.left - block.box.left) < block.size)


def _texts(block: Block, right: float) -> list[str]:
    """Paragraphs and lists."""
    if block.label == "figure":
        return [join(block.rows)]
    out: list[str] = []
    base = 0.0
    for rows in paragraphs(block, right):
        text = join(rows)
        if is_item(text):
            goes_on = bool(out) and is_item(out[-1].rsplit("\n", 1)[-1].lstrip())
            base = base if goes_on else rows[0].box.left
            indent = "  " * max(0, min(2, int((rows[0].box.left - base) / (2 * rows[0].size))))
            mark = BULLET.match(text)
            text = indent + (f"- {text[mark.end() :]}" if mark else f"- {text}" if CHECK.match(text) else text)
            if goes_on:
                out[-1] += "\n" + text
                continue
        out.append(text)
    return out


def _goes_on(before: str, after: str) -> bool:
    """Whether a paragraph is continued in the next block, as at the end of a column."""
    if is_item(after.lstrip()) or "\n" in before:
        return False
    return after[:1].islower() and not before.endswith((".", "!", "?", ":"))


def _alike(one: Block, other: Block) -> bool:
    """Whether two blocks may be parts of one text: set in like letters, and in columns of like width."""
    widths, sizes = (one.box.width, other.box.width), (one.size, other.size)
    return min(sizes) > 0.85 * max(sizes) and (len(other.rows) == 1 or min(widths) > 0.75 * max(widths))


def _is_footnote(block: Block, body: float, lines: Sequence[Line]) -> bool:
    """Whether a block is a note below the text: small, at the foot of the page, and beginning with a mark."""
    if block.size > 0.92 * body or not re.match(r"[*†‡§¶¹²³⁴⁵⁶⁷⁸⁹]|\d{1,2}\s?[A-Z]", block.lead):
        return False
    top, bottom = min(line.box.top for line in lines), max(line.box.bottom for line in lines)
    return block.box.top > top + 0.6 * (bottom - top)
