"""Letter heights: measured in the picture, since the boxes of the text detection are up to a fifth off."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from jina_ocr_loaders.engines.cpu.geometry import Line

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

INK = 0.4  # share of the line's contrast from which a pixel is ink
RULE = 0.9  # share of a line's width; a row of pixels with more ink is a rule below the text
SPECK = 1  # pixels of ink in a row; more may be the one descender of a long line
BOX = 1.25  # usual height of a detected box in heights of the letters' body, which spans ascenders and descenders
TRUST = 0.6, 1.1  # heights of the box between which a measured height is believed
# The classes of letters, and how high a line is that has them, from its top to its foot, in heights of the body; nine
# common fonts differ from these by less than a tenth.
TALL, HANGING, COMMAS = set("bdfhijklt"), set("gjpqyçş()[]{}|/@"), set(",;Q")
SMALL_LETTERS, FROM_TOP, TO_FOOT, TO_COMMA = 0.56, 0.77, 0.23, 0.13
RAISED = 0.15  # what the mark of a note above the letters adds
NOTE = re.compile(r"[^\W\d_]\d|[*†‡§¹²³⁰⁴-⁹]")


def measured(image: NDArray[np.uint8], lines: Sequence[Line]) -> list[Line]:
    """The lines of a page, each with the height of its letters in place of its box's."""
    return [_measured(image, line) for line in lines]


def _measured(image: NDArray[np.uint8], line: Line) -> Line:
    box = line.box
    share = _share(line.text)
    there = image[max(0, int(box.top)) : int(box.bottom) + 1, max(0, int(box.left)) : int(box.right) + 1]
    if line.angle or not share or there.size == 0 or line.size < 0.9 * box.height:  # slanted lines fill no box
        return line
    size = BOX * _ink_height(there) / share
    return replace(line, size=size) if TRUST[0] < size / line.size < TRUST[1] else line


def _share(text: str) -> float:
    """How much of the body's height the letters of a text take up; 0 where that cannot be said."""
    letters = [c for c in text if c.isalnum()]
    if not letters or any(c >= "\u0590" for c in letters):
        return 0.0
    share = FROM_TOP if any(c.isupper() or c.isdigit() or c in TALL for c in letters) else SMALL_LETTERS
    share += TO_FOOT if HANGING.intersection(text) else TO_COMMA if COMMAS.intersection(text) else 0.0
    return share + RAISED if NOTE.search(text) else share


def _ink_height(there: NDArray[np.uint8]) -> int:
    """Pixels from the first row with ink to the last."""
    import numpy as np

    grey = there.min(axis=2).astype(np.int16)
    contrast = np.abs(grey - np.median(grey))
    ink = (contrast > INK * np.percentile(contrast, 99)).sum(axis=1)
    ink[ink > RULE * there.shape[1]] = 0
    rows = np.flatnonzero(ink > SPECK)
    return int(rows[-1] - rows[0] + 1) if len(rows) else 0
