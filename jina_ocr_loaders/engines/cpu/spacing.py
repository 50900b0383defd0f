"""Spaces that the recogniser missed between words, seen as white gaps in the picture of the line."""

from __future__ import annotations

from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

INK = 0.4  # share of the line's contrast from which a pixel is ink
LEANS = (0.0, 0.21)  # upright, and italic of 12 degrees
LEAST = 0.14  # line heights; no space between words is narrower (a box is some 1.4 letter heights high)
CLEAR = 0.24  # line heights; a gap that is a space in a line of which no other space is known


def respace(text: str, places: list[float], crop: NDArray[np.uint8]) -> str:
    """Put in spaces where the gap between two letters is as wide as between words.

    Parameters:
        text: as it was read.
        places: of its letters without the spaces: their middles, as shares of the line's width.
        crop: the picture of the line.
    """
    letters = text.replace(" ", "")
    if len(letters) != len(places) or len(letters) < 3 or any(letter >= "\u2e80" for letter in letters):
        return text
    height, width = crop.shape[:2]
    spaces = _space_positions(text)
    widths: dict[int, float] = {}
    for start, end in white_gaps(crop):
        between = _letter_before((start + end) / 2 / width, places)
        if between is not None:
            widths[between] = max(widths.get(between, 0.0), end - start)
    inner = sorted(widths.get(i, 0.0) for i in range(len(letters) - 1) if i not in spaces)
    known = [widths[i] for i in spaces if i in widths]
    if not inner:
        return text
    usual = inner[int(0.75 * (len(inner) - 1))]
    least = max(0.7 * median(known), LEAST * height) if known else CLEAR * height
    wide = {i for i, gap in widths.items() if gap >= max(least, 2 * usual)} - spaces
    # Figures are often set wide, and commas and points stand apart from what follows them.
    wide = {i for i in wide if letters[i].isalnum() and letters[i + 1].isalnum() and not _both_digits(letters, i)}
    return "".join(letter + (" " if i in spaces or i in wide else "") for i, letter in enumerate(letters))


def _both_digits(letters: str, i: int) -> bool:
    return letters[i].isdigit() and letters[i + 1].isdigit()


def _space_positions(text: str) -> set[int]:
    """Numbers of the letters, spaces not counted, that a space follows."""
    positions, count = set(), 0
    for letter in text.strip():
        if letter == " ":
            positions.add(count - 1)
        else:
            count += 1
    return positions


def white_gaps(crop: NDArray[np.uint8]) -> list[tuple[int, int]]:
    """White stretches between the first and the last ink of a line, as columns of pixels."""
    import numpy as np

    grey = crop.min(axis=2).astype(np.int16)
    band = grey[grey.shape[0] // 8 : -(grey.shape[0] // 8) or None]
    contrast = np.abs(band - np.median(band))
    ink = contrast > INK * np.percentile(contrast, 99)
    # Whichever way of leaning shows more white is the way the letters lean.
    filled = min((_shear(ink, lean).any(axis=0) for lean in LEANS), key=lambda columns: int(columns.sum()))
    return [(int(a) + 1, int(b)) for a, b in pairwise(np.flatnonzero(filled)) if b - a > 1]


def _shear(ink: NDArray[np.bool_], lean: float) -> NDArray[np.bool_]:
    """Set leaning letters upright, about the middle of the line."""
    import numpy as np

    if not lean:
        return ink
    middle = len(ink) / 2
    return np.stack([np.roll(row, round((y - middle) * lean)) for y, row in enumerate(ink)])


def _letter_before(place: float, places: list[float]) -> int | None:
    """The letter after which a gap comes; None outside of the text, and where the gap is not between two letters."""
    for i, (a, b) in enumerate(pairwise(places)):
        if abs(place - (a + b) / 2) < 0.4 * (b - a):
            return i
    return None
