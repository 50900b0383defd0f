"""Finds a text that has started to repeat itself: the one loop finder of both packages.

    find_loop(token_ids)                                       # any sequence
    find_loop([m.group() for m in PIECE.finditer(text)])       # text
    guard = LoopGuard(tokenizer.decode); guard.push(new_ids)   # a stream

A sequence loops when it ends in a pattern of 1 to `MAX_PERIOD` elements that is repeated. Honest pages repeat too:
leaders, rulings, rows of empty cells, columns of zeros. What tells them apart is that a page is finite: a loop must be
longer than what one line of a page holds and, where the pattern is a whole table row, longer than what one page holds.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

MAX_PERIOD = 100  # elements; a long table row or a sentence of 70 words. The card's 35/35/10 sees only divisors of 35
MIN_REPEATS = 10  # the card's min_count
MIN_SPAN = 300  # elements; more than a line holds (200 dots, 50 empty cells), a little under the card's 35 x 10
ROW_REPEATS = 80  # rows; more than a page holds at 10 pt
ROW_SPAN = 1500  # elements; an empty form of 12 columns and 50 rows: 12 x 2 + 6 elements a row
CHECK_EVERY = 16  # elements; the guard is at most this much late, and costs 2 microseconds an element

PIECE = re.compile(r"<[^<>]*>|\w+|[^\w \t]")  # words, tags, punctuation, line ends: text pieces about as long as tokens

_TAG = re.compile(r"<[^<>]*>")
_ROW_END = re.compile(r"</tr|\n|\\\\")
_CELL = re.compile(r"<t[dh]|\||&")


@dataclass(frozen=True)
class Loop:
    """A repeated end of a sequence: everything from `start` on.

    Attributes:
        start: index of the first element of the first copy; `seq[: start + period]` is the sequence with one copy kept.
        period: elements of the pattern.
        repeats: whole copies seen.
    """

    start: int
    period: int
    repeats: int


def find_loop(
    seq: Sequence[Any],
    max_period: int = MAX_PERIOD,
    min_repeats: int = MIN_REPEATS,
    *,
    min_span: int = MIN_SPAN,
    text: Callable[[Sequence[Any]], str] | None = None,
) -> Loop | None:
    """Tell whether `seq` ends in a repeated pattern. The end may fall anywhere inside the pattern.

    Args:
        seq: token ids or text pieces; a str is taken letter by letter, so split it by `PIECE` unless it is short.
        max_period: longest pattern looked for, in elements.
        min_repeats: whole copies there must be at least.
        min_span: elements all copies together must have at least, so that leaders, rulings and empty cells pass.
        text: text of some elements, by which a pattern is known to be a table row, and those may fill a page
            (`ROW_REPEATS`, `ROW_SPAN`). Not needed when the elements are text; without it, ids are judged by count and
            span alone.

    Returns:
        The loop with the shortest period, or None.
    """
    size = len(seq)
    for period in range(1, min(max_period, size // max(min_repeats, 2)) + 1):
        need = max(min_repeats * period, min_span)
        if need > size or seq[-1] != seq[-1 - period] or seq[-period:] != seq[-2 * period : -period]:
            continue
        if seq[size - need : size - period] != seq[size - need + period :]:
            continue
        start = size - need
        while start and seq[start - 1] == seq[start - 1 + period]:
            start -= 1
        loop = Loop(start, period, (size - start) // period)
        # A longer period of the same end would be a multiple of this one, so the verdict on this one is final.
        return None if _fits_a_page(loop, size, _text_of(seq[-period:], text)) else loop
    return None


class LoopGuard:
    """Watches a stream of tokens for a loop.

    Args:
        text: text of some tokens (a tokenizer's `decode`); without it table rows are not told from other patterns.
        every: elements between two checks.

    Attributes:
        seen: all elements so far.
    """

    def __init__(self, text: Callable[[Sequence[Any]], str] | None = None, *, every: int = CHECK_EVERY) -> None:
        self._text = text
        self._every = every
        self.seen: list[Any] = []
        self._next_check = MIN_SPAN

    def push(self, tokens: Iterable[Any]) -> Loop | None:
        """Take the next tokens of the stream; return the loop they end in, found at most `every` tokens late."""
        self.seen.extend(tokens)
        if len(self.seen) < self._next_check:
            return None
        self._next_check = len(self.seen) + self._every
        return find_loop(self.seen, text=self._text)


def _text_of(pattern: Sequence[Any], text: Callable[[Sequence[Any]], str] | None) -> str:
    if text is not None:
        return text(pattern)
    return "".join(pattern) if all(isinstance(piece, str) for piece in pattern) else ""


def _fits_a_page(loop: Loop, size: int, pattern: str) -> bool:
    """Whether a page can honestly hold this: rows of a table or wordless lines, not more of them than a page has."""
    around = pattern * 2  # the pattern starts anywhere in a row, also inside a tag
    row = _ROW_END.search(around) and (_CELL.search(around) or not any(c.isalpha() for c in _TAG.sub("", around)))
    return bool(row) and loop.repeats < ROW_REPEATS and size - loop.start < ROW_SPAN
