"""Gutters: the white between two columns. Where it is narrow, the text detection takes two lines for one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from jina_ocr_loaders.engines.cpu.geometry import Box
from jina_ocr_loaders.engines.cpu.spacing import white_gaps

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

LONG = 5.0  # line heights; shorter pieces are no lines of a column
NARROW = 2.0  # line heights; over a wider gutter no two lines are taken for one
LEAST = 0.25  # line heights; a space between words is as wide
ENOUGH = 3  # pairs of lines that face each other over it
BLANK = 0.25  # share of a line's contrast; less is white
OFF = 0.3  # line heights by which detected boxes are off at the left
AWAY = 4.0  # line heights; so far above and below the lines that show a gutter, others may run through it
GAP, WIDER = 0.35, 1.3  # line heights, and times the widest space in a line, from which a gap parts it


@dataclass(frozen=True, slots=True)
class Gutter:
    """Where the left column ends and the right one begins; ``top`` and ``bottom`` are those of the lines beside it."""

    left: float
    right: float
    top: float
    bottom: float


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
        through = _partings(image, box, gutters)
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
        right = median(d.left for _, d in alike)
        top, bottom = min(d.top for _, d in alike), max(d.bottom for _, d in alike)
        gutter = Gutter(rights[9 * (len(rights) - 1) // 10], right, top, bottom)
        if len(alike) >= ENOUGH and LEAST * b.height < gutter.right - gutter.left < widest * b.height:
            gutters.append(gutter)
    return sorted(gutters, key=lambda gutter: gutter.left)


def _left_of(box: Box, boxes: Sequence[Box]) -> Box | None:
    """The nearest of the boxes that stand to the left of one, at its height."""
    beside = [other for other in boxes if other.right < box.left and other.same_row(box)]
    return max(beside, key=lambda other: other.right, default=None)


def _partings(image: NDArray[np.uint8], box: Box, gutters: Sequence[Gutter]) -> list[Gutter]:
    """Where to part a line that goes on beyond a gutter: where it is white over the gutter's whole width, or, since the
    longest lines of a ragged column reach into the gutter, where a gap wider than all spaces ends with the gutter."""
    met = [gutter for gutter in gutters if _goes_on(box, gutter, 1.0)]
    if not met:
        return []
    line = image[int(box.top) : int(box.bottom), int(box.left) : int(box.right)]
    gaps = [Gutter(int(box.left) + a, int(box.left) + b, box.top, box.bottom) for a, b in white_gaps(line)]
    near = [[gap for gap in gaps if _is_at(gutter, gap)] for gutter in met]
    spaces = [gap.right - gap.left for gap in gaps if not any(gap in some for some in near)]
    least = max([GAP * box.height, *(WIDER * space for space in spaces)])
    out: list[Gutter] = []
    for gutter, some in zip(met, near, strict=True):
        clear = _is_white(line, gutter.left - box.left, gutter.right - box.left)
        wide = (gap for gap in some if gap.right - gap.left >= least)
        parting = gutter if clear and _goes_on(box, gutter, LONG) else next(wide, None)
        if parting and (not out or parting.left > out[-1].right):
            out.append(parting)
    return out


def _is_at(gutter: Gutter, gap: Gutter) -> bool:
    """Whether a gap in a line ends with a gutter, and is no farther above or below than a few lines of the columns."""
    height = gap.bottom - gap.top
    beside = gutter.top - AWAY * height < gap.top and gap.bottom < gutter.bottom + AWAY * height
    return beside and abs(gap.right - gutter.right) < OFF * height


def _goes_on(box: Box, gutter: Gutter, reach: float) -> bool:
    """Whether a line begins well before a gutter and goes on beyond it.

    Parameters:
        reach: how far beyond, in line heights.
    """
    return box.left < gutter.left - LONG * box.height and box.right > gutter.right + reach * box.height


def _is_white(line: NDArray[np.uint8], left: float, right: float) -> bool:
    grey = line.min(axis=2)
    white = grey[:, int(left) : int(right) + 1]
    return bool(white.size and float(white.max()) - white.min() < BLANK * (float(grey.max()) - grey.min()))
