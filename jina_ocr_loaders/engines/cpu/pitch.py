"""Fixed-width faces: told in the picture by the letters of a line, which all stand in cells of one width."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import ceil
from typing import TYPE_CHECKING

from jina_ocr_loaders.engines.cpu.geometry import Line

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

ENOUGH = 8  # letters; in fewer, those of other faces may happen to stand evenly
NARROW = 6.0  # pixels; in narrower cells there is no telling
BINS = 12  # parts of a cell, two of which hold at least a pixel
WHITE = 0.3  # ink at the cells' edges as a share of the usual: up to 0.25 in fixed-width faces, 0.42 and more in others
UNSURE = 0.06  # share by which a line's width over the number of its letters may differ from the cells' width
DRIFT = 0.15  # cells by which a tried width may be off at the end of a line
INK = 0.3  # share of a line's contrast, summed over a column of pixels
FAINT = 20  # of 255; a line with less contrast is not looked at
ALIKE = 1.5  # ratio of line heights up to which a line is in the face of its neighbour
NEAR = 2.0, 12.0  # line heights and cells; a line in the same face is as near

Profile = tuple[int, "NDArray[np.float32]"]  # where the ink begins, and how much there is in each column of pixels


def pitched(image: NDArray[np.uint8], lines: Sequence[Line]) -> list[Line]:
    """The lines of a page; those in a fixed-width face have its pitch, and begin and end where their ink does.

    Lines of few letters, and those in which letters were missed, are looked at for the pitch of the lines beside them.
    """
    found = [_pitched(image, line) for line in lines]
    sure = [line for line in found if line.pitch]
    while sure:
        more: list[Line] = []
        for i, line in enumerate(found):
            near = None if line.pitch else next((other for other in sure if _is_near(line, other)), None)
            if near and (after := _in_pitch_of(image, line, near)).pitch:
                found[i] = after
                more.append(after)
        sure = more
    return found


def _pitched(image: NDArray[np.uint8], line: Line) -> Line:
    count = len(line.text)
    if count < ENOUGH or line.angle or max(line.text) >= "\u2e80" or (profile := _profile(image, line)) is None:
        return line  # Chinese and Japanese letters stand in cells in every face
    import numpy as np

    ink = profile[1]
    if len(ink) < NARROW * count:
        return line
    tries = 2 * ceil(UNSURE * count / DRIFT) + 1
    widths = len(ink) / count * np.linspace(1 - UNSURE, 1 + UNSURE, tries)
    edges = _ink_at_edges(ink, widths)
    best = int(edges.argmin())
    return _with_pitch(line, profile, float(widths[best])) if edges[best] < WHITE else line


def _is_near(line: Line, other: Line) -> bool:
    heights, cells = NEAR
    return (
        -line.box.overlap_y(other.box) < heights * other.size
        and -line.box.overlap_x(other.box) < cells * other.pitch
        and max(line.size, other.size) < ALIKE * min(line.size, other.size)
    )


def _in_pitch_of(image: NDArray[np.uint8], line: Line, other: Line) -> Line:
    if line.angle or (profile := _profile(image, line)) is None:
        return line
    import numpy as np

    few = len(line.text) < ENOUGH / 2  # their cells have hardly an edge
    same = few or _ink_at_edges(profile[1], np.array([other.pitch]))[0] < WHITE
    return _with_pitch(line, profile, other.pitch) if same else line


def _with_pitch(line: Line, profile: Profile, pitch: float) -> Line:
    left = float(profile[0])
    return replace(line, pitch=pitch, box=replace(line.box, left=left, right=left + len(profile[1])))


def _profile(image: NDArray[np.uint8], line: Line) -> Profile | None:
    """The ink of a line, from its first to its last column of pixels."""
    import numpy as np

    box = line.box
    top, left = max(0, int(box.top)), max(0, int(box.left))
    grey = image[top : int(box.bottom) + 1, left : int(box.right) + 1].min(axis=2).astype(np.int16)
    inner = grey[len(grey) // 8 : len(grey) - len(grey) // 8]  # lines above and below reach into the box
    if inner.size == 0:
        return None
    contrast = np.abs(inner - np.int16(np.median(inner)))
    full = float(np.percentile(contrast, 99))
    columns = np.minimum(contrast, full).sum(axis=0, dtype=np.float32) / max(full, 1.0)
    inked = np.flatnonzero(columns > INK)
    if full < FAINT or not len(inked):
        return None
    return left + int(inked[0]), columns[inked[0] : inked[-1] + 1]


def _ink_at_edges(ink: NDArray[np.float32], widths: NDArray[np.float64]) -> NDArray[np.float64]:
    """How much ink there is where cells of each of some widths would meet, as a share of the usual."""
    import numpy as np

    cells = np.arange(len(ink)) / widths[:, None]
    parts = ((cells - np.floor(cells)) * BINS).astype(np.intp)
    places = (parts + BINS * np.arange(len(widths))[:, None]).ravel()
    shape = len(widths), BINS
    amounts = np.bincount(places, np.tile(ink, len(widths)), shape[0] * BINS).reshape(shape)
    counts = np.bincount(places, minlength=shape[0] * BINS).reshape(shape)
    # An edge may lie between two parts.
    two = (amounts + np.roll(amounts, 1, axis=1)) / np.maximum(counts + np.roll(counts, 1, axis=1), 1)
    shares: NDArray[np.float64] = two.min(axis=1) / ink.mean()
    return shares
