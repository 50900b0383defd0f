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
        gutter = next((gutter for gutter in gutters if _runs_through(image, box, gutter)), None)
        if gutter is None:
            out.append(quad)
        else:
            for half in (
                Box(box.left, box.top, gutter.left, box.bottom),
                Box(gutter.right, box.top, box.right, box.bottom),
            ):
                out.append(np.array(half.corners, np.float32))
    return np.stack(out) if out else quads


def find_gutters(boxes: Sequence[Box]) -> list[Gutter]:
    """Gutters over which at least three pairs of long lines face each other."""
    long = [box for box in boxes if box.width > LONG * box.height]
    pairs = [(a, b) for a in long for b in long if 0 < b.left - a.right < NARROW * a.height and a.same_row(b)]
    gutters: list[Gutter] = []
    while pairs:
        a, b = pairs[0]
        size = a.height
        alike = [(c, d) for c, d in pairs if abs(c.right - a.right) < size and abs(d.left - b.left) < size]
        pairs = [pair for pair in pairs if pair not in alike]
        if len(alike) >= ENOUGH:
            gutters.append(Gutter(median(c.right for c, _ in alike), median(d.left for _, d in alike)))
    return gutters


def _runs_through(image: NDArray[np.uint8], box: Box, gutter: Gutter) -> bool:
    """Whether a line goes on beyond a gutter although it is white there, over its whole width."""
    reach = LONG * box.height
    if not (box.left < gutter.left - reach and box.right > gutter.right + reach):
        return False
    line = image[int(box.top) : int(box.bottom), int(box.left) : int(box.right)].min(axis=2)
    white = line[:, int(gutter.left - box.left) : int(gutter.right - box.left) + 1]
    return bool(white.size and float(white.max()) - white.min() < BLANK * (float(line.max()) - line.min()))
