"""The text that the pipeline settled on for a page; the cache keeps it."""

from __future__ import annotations

from dataclasses import dataclass

_RANK = {"repetition": 0, "length": 1}


@dataclass(frozen=True, slots=True)
class Reading:
    """A page's text, unmended, and what is known of it.

    Attributes:
        text: as the engine gave it, a loop at its end cut to one copy.
        finish_reason, model, confidence, warnings: as in ``PageResult``.
        label, width, height: of the page, so that a cached page needs no rendering.
    """

    text: str = ""
    finish_reason: str | None = None
    model: str = ""
    confidence: float | None = None
    warnings: tuple[str, ...] = ()
    label: str = ""
    width: int = 0
    height: int = 0

    @property
    def rank(self) -> int:
        """Looping, cut, whole: 0, 1, 2."""
        return _RANK.get(self.finish_reason or "", 2)

    def better_than(self, other: Reading) -> bool:
        """A whole text beats a cut one, a cut one beats a looping one, and of equals the longer wins."""
        return (self.rank, len(self.text)) > (other.rank, len(other.text))
