"""The text layer of a PDF page: the letters of the lines that are seen on it, if the layer says what the page shows.

Lines are found in the pixels, as for a scan; so text that nobody sees has no say, and the layout is the same. What a
line says comes from the layer. A layer may lie: fonts whose letters stand for others, a bad OCR text under a scan. So
some lines are read from the pixels and compared first. Lines that the layer lacks or spoils are read from the pixels.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import TYPE_CHECKING

from jina_ocr_loaders.engines.cpu.geometry import Box, Line, Word

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from jina_ocr_loaders.pages import TextRun

SAMPLE = 12  # lines read from the pixels
SAMPLED = 8  # letters of such a line at least
LEGIBLE = 0.85  # confidence from which a line read from the pixels is taken for the truth
ALIKE = 0.98  # likeness of its letters to the layer's, one wrong in fifty
MISREAD = 8  # one in so many lines may be less alike: the recogniser errs too; the OCR texts of scans err more often
FOREIGN = 0.5  # share of letters in scripts that the recogniser does not know, from which pixels prove nothing
KNOWN_SCRIPTS = ("LATIN", "GREEK", "CJK", "HIRAGANA", "KATAKANA", "FULLWIDTH", "HALFWIDTH", "MICRO", "FEMININE")
INK = 60  # of 255; contrast of a place where something is printed
TIDY = str.maketrans(
    # Ligatures; pdfium's own signs for a hyphen at a line's end; the soft hyphen.
    {0xFB00 + i: text for i, text in enumerate(("ff", "fi", "fl", "ffi", "ffl", "st", "st"))}
    | {"\x02": "-", "\ufffe": "-", "\u00ad": "-"}
)
SPOILT = re.compile(r"[\u00a8\u00b4\u00b8\u02c6-\u02dd\ufffd\ue000-\uf8ff\x00-\x08\x0e-\x1f]")  # accents that stand
# apart from their letters, letters without a meaning
NARROW, WIDE = set("ijlftrI1.,;:'|!()[]-"), set("mwMW@%—")


@dataclass(frozen=True, slots=True)
class _Piece:
    """A word of the layer; ``run`` is the number of its run."""

    text: str
    box: Box
    run: int


class TextLayer:
    """What the layer has for each of the lines that are seen.

    Parameters:
        runs: the layer.
        quads: corners of the lines.
    """

    def __init__(self, runs: Sequence[TextRun], quads: NDArray[np.float32]) -> None:
        self._quads = quads
        places = [Box(*map(float, (*quad.min(axis=0), *quad.max(axis=0)))) for quad in quads]
        level = [(i, run) for i, run in enumerate(runs) if run.angle == 0 and not _is_over_two(run, places)]
        pieces = [piece for i, run in level for piece in _pieces(run, i)]
        held: list[list[_Piece]] = [[] for _ in places]
        self._loose: list[_Piece] = []
        for piece in pieces:
            inside = [i for i, place in enumerate(places) if _middle_in(piece.box, place)]
            if inside:
                held[max(inside, key=lambda i: piece.box.inside(places[i]))].append(piece)
            else:
                self._loose.append(piece)
        self.lines = {
            i: _line(place, some)
            for i, (place, some) in enumerate(zip(places, held, strict=True))
            if some and place.width > place.height * 0.5
        }
        for i in [i for i, line in self.lines.items() if SPOILT.search(line.text)]:
            del self.lines[i]

    @property
    def missing(self) -> list[int]:
        """Numbers of the lines that have to be read from the pixels."""
        return [i for i in range(len(self._quads)) if i not in self.lines]

    def is_true(self, read: Callable[[list[int]], list[Line]]) -> bool:
        """Whether the layer says what the page shows.

        Parameters:
            read: reads some lines, given by number, from the pixels, in any order.
        """
        text = "".join(line.text for line in self.lines.values())
        if _foreign_share(text) > FOREIGN:
            return True
        long = [i for i, line in sorted(self.lines.items()) if len(_letters(line.text)) >= SAMPLED]
        sample = long[:: -(-len(long) // SAMPLE)] if long else []
        truth = [line for line in read(sample) if line.confidence >= LEGIBLE] if sample else []
        likeness = sorted(max(_likeness(line, self.lines[i]) for i in sample) for line in truth)
        return bool(likeness) and len(likeness) >= len(sample) / 2 and likeness[len(likeness) // MISREAD] >= ALIKE

    def seen_elsewhere(self, image: NDArray[np.uint8]) -> list[Line]:
        """Words that lie in none of the lines but where something is printed, such as initials."""
        runs: dict[int, list[_Piece]] = {}
        for piece in self._loose:
            if re.search(r"\w", piece.text) and not SPOILT.search(piece.text) and _is_inked(image, piece.box):
                runs.setdefault(piece.run, []).append(piece)
        return [_line(Box.around(piece.box for piece in some), some) for some in runs.values()]


def _is_over_two(run: TextRun, places: Sequence[Box]) -> bool:
    """Whether a run reaches over two lines, as one does that begins with an initial: its words cannot be placed."""
    box = Box(run.left, run.top, run.right, run.bottom)
    met = [place for place in places if place.overlap_x(box) > 0 and box.top < place.center_y < box.bottom]
    return any(not one.same_row(other) for one in met for other in met)


def _pieces(run: TextRun, number: int) -> list[_Piece]:
    """The words of a run, placed in proportion to the usual width of their letters."""
    text = " ".join(run.text.translate(TIDY).replace("‘‘", "“").replace("’’", "”").split())
    middle, half = (run.top + run.bottom) / 2, max(run.bottom - run.top, 0.7 * run.size) / 2
    scale = (run.right - run.left) / (_width(text) or 1.0)
    pieces, at = [], 0.0
    for word in text.split():
        start, end = at * scale, (at + _width(word)) * scale
        left, right = (run.right - end, run.right - start) if _is_rtl(text) else (run.left + start, run.left + end)
        pieces.append(_Piece(word, Box(left, middle - half, right, middle + half), number))
        at += _width(word) + _width(" ")
    return pieces


def _width(text: str) -> float:
    """In the usual width of a letter."""
    return sum(0.5 if c in NARROW or c == " " else 1.5 if c in WIDE else 1.0 for c in text)


def _line(place: Box, pieces: Sequence[_Piece]) -> Line:
    rtl = _is_rtl("".join(piece.text for piece in pieces))
    ordered = sorted(pieces, key=lambda piece: -piece.box.right if rtl else piece.box.left)
    text = ""
    for before, piece in zip([None, *ordered], ordered, strict=False):
        # Words of one run have a space between them; runs that touch are parts of one word.
        touching = before and before.run != piece.run and -before.box.overlap_x(piece.box) < 0.12 * place.height
        text += piece.text if not text or touching else f" {piece.text}"
    words = () if rtl else tuple(Word(piece.text, piece.box) for piece in ordered)
    return Line(text, place, 1.0, words, 0.0, place.height)


def _middle_in(word: Box, place: Box) -> bool:
    return place.left <= word.center_x <= place.right and place.top <= word.center_y <= place.bottom


def _is_inked(image: NDArray[np.uint8], box: Box) -> bool:
    there = image[max(0, int(box.top)) : int(box.bottom) + 1, max(0, int(box.left)) : int(box.right) + 1]
    return bool(there.size) and int(there.max()) - int(there.min()) > INK


def _likeness(line: Line, other: Line) -> float:
    if line.box.inside(other.box) < 0.9:
        return 0.0
    return SequenceMatcher(None, _letters(line.text), _letters(other.text), autojunk=False).ratio()


def _letters(text: str) -> str:
    return re.sub(r"[\W_]", "", unicodedata.normalize("NFKC", text)).casefold()


def _is_rtl(text: str) -> bool:
    sides = [unicodedata.bidirectional(c) for c in text]
    return sum(side in ("R", "AL") for side in sides) > sides.count("L")


def _foreign_share(text: str) -> float:
    letters = [c for c in text if c.isalpha()]
    foreign = sum(not unicodedata.name(c, "").startswith(KNOWN_SCRIPTS) for c in letters)
    return foreign / len(letters) if letters else 0.0
