"""Boxes, and what is found in them: words, lines and regions. All in pixels of the page image, origin top left."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from statistics import median

FAR = 2.0  # letter heights; no space in running text is as wide


@dataclass(frozen=True, slots=True)
class Box:
    """An upright rectangle."""

    left: float
    top: float
    right: float
    bottom: float

    @classmethod
    def around(cls, boxes: Iterable[Box]) -> Box:
        """The smallest box that holds all of ``boxes``, of which there must be one at least."""
        all_boxes = list(boxes)
        return cls(
            min(box.left for box in all_boxes),
            min(box.top for box in all_boxes),
            max(box.right for box in all_boxes),
            max(box.bottom for box in all_boxes),
        )

    @property
    def width(self) -> float:
        return self.right - self.left

    @property
    def height(self) -> float:
        return self.bottom - self.top

    @property
    def area(self) -> float:
        return max(0.0, self.width) * max(0.0, self.height)

    @property
    def corners(self) -> tuple[tuple[float, float], ...]:
        """Top left, top right, bottom right, bottom left."""
        return (self.left, self.top), (self.right, self.top), (self.right, self.bottom), (self.left, self.bottom)

    @property
    def center_x(self) -> float:
        return (self.left + self.right) / 2

    @property
    def center_y(self) -> float:
        return (self.top + self.bottom) / 2

    def overlap_x(self, other: Box) -> float:
        """Shared width; negative is the gap between both."""
        return min(self.right, other.right) - max(self.left, other.left)

    def overlap_y(self, other: Box) -> float:
        """Shared height; negative is the gap between both."""
        return min(self.bottom, other.bottom) - max(self.top, other.top)

    def inside(self, other: Box) -> float:
        """Share of this box's area that lies in ``other``, 0 to 1."""
        shared = max(0.0, self.overlap_x(other)) * max(0.0, self.overlap_y(other))
        return shared / self.area if self.area else 0.0

    def same_row(self, other: Box) -> bool:
        """Whether both share at least half of the lower one's height."""
        return self.overlap_y(other) >= 0.5 * min(self.height, other.height)


@dataclass(frozen=True, slots=True)
class Word:
    """A word of a line."""

    text: str
    box: Box


@dataclass(frozen=True, slots=True)
class Line:
    """A piece of text that stands on one base line.

    ``angle`` is its writing direction in degrees, counted counter-clockwise: 0 for ordinary text, 90 for text that
    runs upwards. ``size`` is the height of its letters in pixels, which for slanted lines is not the box's. ``pitch``
    is how far its letters stand apart if its face is of fixed width, else 0.
    """

    text: str
    box: Box
    confidence: float = 1.0
    words: tuple[Word, ...] = ()
    angle: float = 0.0
    size: float = 0.0
    pitch: float = 0.0

    def part(self, words: tuple[Word, ...]) -> Line:
        """The piece of this line that consists of ``words``."""
        box = Box.around(word.box for word in words)
        return replace(self, text=" ".join(word.text for word in words), box=box, words=words)

    def runs(self, gap: float = FAR) -> Iterator[Line]:
        """The pieces of this line between which there are gaps wider than ``gap`` letter heights."""
        start = 0
        for i in range(1, len(self.words)):
            if self.words[i].box.left - self.words[i - 1].box.right > gap * self.size:
                yield self.part(self.words[start:i])
                start = i
        yield self.part(self.words[start:]) if start else self


@dataclass(frozen=True, slots=True)
class Region:
    """A part of a page that the layout model knows.

    ``label`` is one of text, title, figure, figure_caption, table, table_caption, header, footer, reference, equation.
    """

    label: str
    box: Box
    score: float


def letter_size(lines: Iterable[Line]) -> float:
    """The usual letter height of some lines, weighted by their length; 0 when there are none."""
    sizes = [line.size for line in lines for _ in range(1 + len(line.text) // 8)]
    return median(sizes) if sizes else 0.0
