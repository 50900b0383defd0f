"""Gutters: the white between two columns. Where it is narrow, the text detection takes two lines for one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from jina_ocr_loaders.engines.cpu.geometry import Box

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

LONG = 5.0  # line heights; shorter pieces are no lines of a column
NARROW = 2.0  # line heights; over a wider gutter no two lines are taken for one
LEAST = 0.25  # line heights; a space between words is as wide
ENOUGH = 3  # pairs of lines that face each other over it
BLANK = 0.25  # share of a line's contrast; less is white


@dataclass(frozen=True, slots=True)
class Gutter:
    """Where the left column ends and the right one begins."""

    left: float
    right: float


def split_at_gutters(image: NDArray[np.uint8], quads: NDArray[np.float32]) -> NDArray[np.float32]:
    """Part the lines that run through a gutter.

    Parameters:
        image: the page.
        quads: corners of its lines.
    """
    import numpy as np

    boxes = [Box(*map(float, (*quad.min(axis=0), *quad.max(axis=0)))) for quad in quads]
    gutters = find_gutters(boxes)
    out: list[NDArray[np.float32]] = []
    for quad, box in zip(quads, boxes, strict=True):
        through = [gutter for gutter in gutters if _runs_through(image, box, gutter)]
        if not through:
            out.append(quad)
            continue
        lefts = [box.left, *(gutter.right for gutter in through)]
        rights = [*(gutter.left for gutter in through), box.right]
        for left, right in zip(lefts, rights, strict=True):
            out.append(np.array(Box(left, box.top, right, box.bottom).corners, np.float32))
    return np.stack(out) if out else quads


def find_gutters(boxes: Sequence[Box], widest: float = NARROW) -> list[Gutter]:
    """Gutters over which at least three pairs of long lines face each other, those on the right beginning at one place.

    Parameters:
        widest: in line heights.
    """
    long = [box for box in boxes if box.width > LONG * box.height]
    pairs = [(a, b) for b in long if (a := _left_of(b, long))]
    gutters: list[Gutter] = []
    while pairs:
        _, b = pairs[0]
        alike = [(c, d) for c, d in pairs if abs(d.left - b.left) < 0.5 * b.height]
        pairs = [pair for pair in pairs if pair not in alike]
        rights = sorted(c.right for c, _ in alike)
        # The detection takes a line here and there too wide; whether the gutter is white is looked at anyway.
        gutter = Gutter(rights[9 * (len(rights) - 1) // 10], median(d.left for _, d in alike))
        if len(alike) >= ENOUGH and LEAST * b.height < gutter.right - gutter.left < widest * b.height:
            gutters.append(gutter)
    return sorted(gutters, key=lambda gutter: gutter.left)


def _left_of(box: Box, boxes: Sequence[Box]) -> Box | None:
    """The nearest of the boxes that stand to the left of one, at its height."""
    beside = [other for other in boxes if other.right < box.left and other.same_row(box)]
    return max(beside, key=lambda other: other.right, default=None)


def _runs_through(image: NDArray[np.uint8], box: Box, gutter: Gutter) -> bool:
    """Whether a line goes on beyond a gutter although it is white there, over its whole width."""
    reach = LONG * box.height
    if not (box.left < gutter.left - reach and box.right > gutter.right + reach):
        return False
    line = image[int(box.top) : int(box.bottom), int(box.left) : int(box.right)].min(axis=2)
    white = line[:, int(gutter.left - box.left) : int(gutter.right - box.left) + 1]
    return bool(white.size and float(white.max()) - white.min() < BLANK * (float(line.max()) - line.min()))
