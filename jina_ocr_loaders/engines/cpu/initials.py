"""Initials over several lines, which the text detection takes for pictures: found by the notch in their paragraph."""

from __future__ import annotations

from collections.abc import Sequence

from jina_ocr_loaders.engines.cpu.geometry import Box, Line

DEPTH = (1.2, 7.0)  # letter heights; how far the first lines of a paragraph keep clear of an initial


def notches(lines: Sequence[Line]) -> list[Box]:
    """Places where an initial belongs: two lines and more begin further right than the line below them."""
    found = []
    level = sorted((line for line in lines if line.angle == 0.0), key=lambda line: line.box.top)
    for first in level:
        if _next_to(first, level, above=True):
            continue
        beside = [first]
        while below := _next_to(beside[-1], level):
            beside.append(below)
        under = _under(beside[-1], level)
        if len(beside) < 2 or len(beside) > 4 or under is None:
            continue
        notch = Box(under.box.left, first.box.top, first.box.left, beside[-1].box.bottom)
        depth = notch.width / first.size
        if DEPTH[0] < depth < DEPTH[1] and not any(line.box.inside(notch) > 0.3 for line in level):
            found.append(notch)
    return found


def _next_to(line: Line, lines: Sequence[Line], *, above: bool = False) -> Line | None:
    """The next line below (or above) that begins at the same place."""
    for other in lines:
        gap = line.box.top - other.box.bottom if above else other.box.top - line.box.bottom
        if (
            other is not line
            and -0.5 * line.size < gap < 0.6 * line.size
            and abs(other.box.left - line.box.left) < 0.5 * line.size
        ):
            return other
    return None


def _under(line: Line, lines: Sequence[Line]) -> Line | None:
    """The next line below, which begins further left and ends about where this one does."""
    for other in lines:
        if (
            -0.5 * line.size < other.box.top - line.box.bottom < 0.6 * line.size
            and other.box.left < line.box.left - line.size
            and abs(other.box.right - line.box.right) < 2 * line.size
            and max(line.size, other.size) < 1.3 * min(line.size, other.size)
        ):
            return other
    return None
