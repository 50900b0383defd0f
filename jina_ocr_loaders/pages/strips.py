"""Joining what was read from the overlapping strips of a very long page."""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import SequenceMatcher

_CJK = "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"  # kana, ideographs, Hangul: written without spaces, so each is a word
_WORD = re.compile(rf"<[^<>]*>|([{_CJK}]|[^\W{_CJK}]+)")  # tags are no words
_PART = 0.4  # of a strip's words in which the overlap is looked for; strips share at most 0.15 of their height
_FEW = 30  # words, for the same in short strips
_ALIKE = 0.6  # how much of the overlap must be read the same way in both strips
_EVIDENCE = 6  # letters and digits in a row that both must have in common, unless the whole overlap is the same


def join_strips(texts: Sequence[str]) -> str:
    """Join the texts of strips, from first to last, without what was read twice.

    Lines in the overlap are read in both strips, a line at its edge perhaps wrongly. Where the same words are found at
    the end of one text and at the start of the next, the first is left and the second entered there: paragraphs and
    tables run on. Elsewhere the texts follow each other as paragraphs.
    """
    joined = ""
    for text in filter(None, map(str.strip, texts)):
        joined = _join(joined, text) if joined else text
    return joined


def _join(before: str, after: str) -> str:
    ends, starts = _words(before), _words(after)
    ends = ends[-_window(ends) :]
    starts = starts[: _window(starts)]
    left = [word for word, _ in ends]
    right = [word for word, _ in starts]
    if meeting := _whole_overlap(left, right) or _likely_overlap(left, right):
        leave, enter = meeting
        return before[: ends[leave][1]] + after[starts[enter][1] :]
    return f"{before}\n\n{after}"


def _words(text: str) -> list[tuple[str, int]]:
    """Each word, and where it ends."""
    return [(match[1].casefold(), match.end()) for match in _WORD.finditer(text) if match[1]]


def _window(words: list[tuple[str, int]]) -> int:
    return _FEW + int(_PART * len(words))


def _whole_overlap(left: list[str], right: list[str]) -> tuple[int, int] | None:
    """Where the longest end of one that begins the other ends in each."""
    for length in range(min(len(left), len(right)), 0, -1):
        if left[-length:] == right[:length] and len("".join(right[:length])) > 1:
            return len(left) - 1, length - 1
    return None


def _likely_overlap(left: list[str], right: list[str]) -> tuple[int, int] | None:
    """Where the longest run of common words ends in each, if what lies around it is alike too."""
    match = SequenceMatcher(None, left, right, autojunk=False).find_longest_match()
    if len("".join(right[match.b : match.b + match.size])) < _EVIDENCE:
        return None
    overlap = left[max(0, match.a - match.b) :], right[: match.b + len(left) - match.a]
    if SequenceMatcher(None, "".join(overlap[0]), "".join(overlap[1]), autojunk=False).ratio() < _ALIKE:
        return None
    return match.a + match.size - 1, match.b + match.size - 1
