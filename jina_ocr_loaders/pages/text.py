"""A PDF page's own text: characters with boxes, as pdfium finds them."""

from __future__ import annotations

import ctypes
import math
import sys
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pypdfium2.raw as raw

from jina_ocr_loaders.pages.drawing import Box

GAP = 1.5  # font sizes between two characters of a line that part it into two runs: columns, cells
SAMPLE = 300  # characters of a page from which its direction is told
ENOUGH = 8  # characters in one direction at least
MAJORITY = 0.8  # of them
WHITE = 250  # of 255; text as light as this is not seen on paper

_Rect = tuple[float, float, float, float]  # left, bottom, right, top in points


@dataclass(slots=True)
class Run:
    """Characters of one line, and the fields of TextRun in pixels of the whole page."""

    text: str
    left: float
    top: float
    right: float
    bottom: float
    size: float
    angle: int

    def is_in(self, box: Box) -> bool:
        """Whether its middle is in a box of the page."""
        x, y = (self.left + self.right) / 2, (self.top + self.bottom) / 2
        return box[0] <= x < box[2] and box[1] <= y < box[3]

    def inside(self, box: Box) -> list[object]:
        """The fields of TextRun in order, with the box's corner as the origin."""
        x, y = box[0], box[1]
        corners = (self.left - x, self.top - y, self.right - x, self.bottom - y)
        return [self.text, *(round(corner, 1) for corner in corners), round(self.size, 1), self.angle]


@dataclass(slots=True)
class _Line:
    """A run in the making; ``first`` is the index of its first character."""

    first: int
    size: float
    rect: _Rect
    last: _Rect
    text: list[str] = field(default_factory=list)


def turn_upright(page: Any, textpage: Any) -> int:
    """Quarter turns clockwise after which the text of a page reads from left to right; 0 where it has none to go by.

    Pages are found sideways by their own /Rotate as much as by their content.
    """
    count = textpage.count_chars()
    seen: Counter[int] = Counter()
    for index in range(0, count, max(1, count // SAMPLE)):
        if not _character(textpage, index).isspace():
            seen[_angle(page, textpage, index)] += 1
    angle, most = max(seen.items(), key=lambda item: item[1], default=(0, 0))
    if angle % 90 or most < ENOUGH or most < MAJORITY * seen.total():
        return 0
    return -angle // 90 % 4


def text_runs(page: Any, textpage: Any, size: tuple[int, int], turn: int) -> list[Run]:
    """The runs of text of a page, in the order of the file, parted at line ends and wide gaps.

    Parameters:
        page, textpage: of pypdfium2.
        size: that the page is drawn at, in pixels, turned.
        turn: quarter turns clockwise.
    """
    lines: list[_Line] = []
    line: _Line | None = None
    space = False
    for index in range(textpage.count_chars()):
        character = _character(textpage, index)
        if character in "\r\n":
            line = None
        elif character <= " " or character.isspace():
            space = True
        else:
            rect = _rect(textpage, index)
            if line is None or _distance(rect, line.last) > GAP * line.size:
                line = _Line(index, _font_size(textpage, index), rect, rect)
                lines.append(line)
            elif space:
                line.text.append(" ")
            line.text.append(character)
            line.rect = _union(line.rect, rect)
            line.last = rect
            space = False
    scale = max(size) / max(page.get_size())
    return [
        Run(
            _whole("".join(line.text)),
            *_to_device(page, line.rect, size, turn),
            line.size * scale,
            (_angle(page, textpage, line.first) + 90 * turn) % 360,
        )
        for line in lines
    ]


def has_visible_text(page: Any, textpage: Any) -> bool:
    """Whether the page holds text that should be seen: on the page, neither transparent nor white."""
    width, height = page.get_size()
    size = (max(1, round(width)), max(1, round(height)))
    for index in range(textpage.count_chars()):
        character = _character(textpage, index)
        if character.isprintable() and not character.isspace() and _is_visible(textpage, index):
            left, top, right, bottom = _to_device(page, _rect(textpage, index), size, 0)
            if left < right and top < bottom and right > 0 and bottom > 0 and left < size[0] and top < size[1]:
                return True
    return False


def _character(textpage: Any, index: int) -> str:
    code = raw.FPDFText_GetUnicode(textpage, index)
    if code in (0x02, 0xFFFE):  # what pdfium makes of a hyphen at the end of a line
        return "-"
    return chr(code) if code <= sys.maxunicode else "\ufffd"


def _whole(text: str) -> str:
    """The text with surrogate pairs joined and lone surrogates replaced."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _is_visible(textpage: Any, index: int) -> bool:
    shape = raw.FPDFText_GetTextObject(textpage, index)
    if not shape or raw.FPDFTextObj_GetTextRenderMode(shape) in (
        raw.FPDF_TEXTRENDERMODE_INVISIBLE,
        raw.FPDF_TEXTRENDERMODE_CLIP,
    ):
        return False
    red, green, blue, alpha = (ctypes.c_uint() for _ in range(4))
    raw.FPDFText_GetFillColor(textpage, index, red, green, blue, alpha)
    return alpha.value > 0 and min(red.value, green.value, blue.value) < WHITE


def _angle(page: Any, textpage: Any, index: int) -> int:
    """The direction in which a character is read on the page as it is shown, in degrees clockwise."""
    degrees = math.degrees(raw.FPDFText_GetCharAngle(textpage, index))
    return round(degrees + int(page.get_rotation())) % 360


def _rect(textpage: Any, index: int) -> _Rect:
    left, right, bottom, top = (ctypes.c_double() for _ in range(4))
    raw.FPDFText_GetCharBox(textpage, index, left, right, bottom, top)
    return left.value, bottom.value, right.value, top.value


def _font_size(textpage: Any, index: int) -> float:
    """In points, with the scale of the text matrix."""
    matrix = raw.FS_MATRIX()
    raw.FPDFText_GetMatrix(textpage, index, matrix)
    return float(raw.FPDFText_GetFontSize(textpage, index)) * math.hypot(matrix.c, matrix.d)


def _to_device(page: Any, rect: _Rect, size: tuple[int, int], turn: int) -> tuple[float, float, float, float]:
    """A rectangle of the page in pixels, origin top left; pdfium knows about /Rotate and CropBox."""
    fine = 16  # pdfium rounds to whole pixels
    corners = []
    for x, y in (rect[:2], rect[2:]):
        across, down = ctypes.c_int(), ctypes.c_int()
        raw.FPDF_PageToDevice(page, 0, 0, size[0] * fine, size[1] * fine, turn, x, y, across, down)
        corners.append((across.value / fine, down.value / fine))
    (x0, y0), (x1, y1) = corners
    return min(x0, x1), min(y0, y1), max(x0, x1), max(y0, y1)


def _distance(one: _Rect, other: _Rect) -> float:
    return max(one[0] - other[2], other[0] - one[2], one[1] - other[3], other[1] - one[3])


def _union(one: _Rect, other: _Rect) -> _Rect:
    return min(one[0], other[0]), min(one[1], other[1]), max(one[2], other[2]), max(one[3], other[3])
