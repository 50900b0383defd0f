"""What comes out: one result per requested page, in order, and the document's totals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Any

from jina_ocr_loaders.errors import JinaOCRError


class PageStatus(StrEnum):
    """How the reading of a page ended."""

    OK = "ok"
    EMPTY = "empty"  # a blank page: nothing to read, the engine was not asked
    TRUNCATED = "truncated"  # the token limit cut the text
    REPETITION = "repetition"  # the model went round in circles; the loop was found and cut
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens spent."""

    input_tokens: int = 0
    output_tokens: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(self.input_tokens + other.input_tokens, self.output_tokens + other.output_tokens)

    @property
    def total_tokens(self) -> int:
        return self.input_tokens + self.output_tokens

    def cost(self, prices: tuple[float, float]) -> float:
        """Dollars, at these prices per million input and output tokens."""
        return (self.input_tokens * prices[0] + self.output_tokens * prices[1]) / 1e6


@dataclass(frozen=True, slots=True)
class Attempt:
    """One request for a page: how it ended and what it used.

    ``outcome`` is a finish reason ("stop", "length", "repetition") or the code of an error ("transient", …).
    """

    outcome: str
    usage: Usage = Usage()
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class PageResult:
    """One page.

    Attributes:
        number: 1-based page number in the document.
        label: the printed page label ("iv"), or the number as text.
        markdown: the text; empty unless the page was read. Never an error message.
        status: how it ended.
        error: why, when the status is ``failed``; ``error.code`` is stable.
        warnings: codes such as "low_confidence", "strips", "downscaled".
        finish_reason: "stop", "length", "repetition", or None where the engine does not say.
        confidence: mean confidence from 0 to 1 where the engine knows it.
        engine, model: who read it.
        usage: tokens, summed over all attempts.
        attempts: every request that was made for it.
        width, height: size of the page image in pixels, 0 where there was none.
        source: the document as it is shown to people.
        cached: whether it came out of the cache, without a request.
    """

    number: int
    label: str = ""
    markdown: str = ""
    status: PageStatus = PageStatus.OK
    error: JinaOCRError | None = None
    warnings: tuple[str, ...] = ()
    finish_reason: str | None = None
    confidence: float | None = None
    engine: str = ""
    model: str = ""
    usage: Usage = Usage()
    attempts: tuple[Attempt, ...] = ()
    width: int = 0
    height: int = 0
    source: str = ""
    cached: bool = False

    @property
    def ok(self) -> bool:
        """Whether the page is wholly read (blank pages are)."""
        return self.status in (PageStatus.OK, PageStatus.EMPTY)

    def to_dict(self) -> dict[str, Any]:
        """The result as plain JSON types."""
        data = asdict(replace(self, error=None))
        data["status"] = str(self.status)
        if self.error:
            data["error"] = {"code": self.error.code, "message": self.error.message}
        return data


@dataclass(frozen=True, slots=True)
class DocumentResult:
    """All requested pages of one document, in page order.

    Attributes:
        source: the document as it is shown to people.
        source_id: its stable identity.
        pages: one result per requested page.
        page_count: pages in the whole document.
        metadata: the document's own properties (producer, creator, creationdate, title, …), flat.
        cost: dollars spent, where the price is known.
    """

    source: str
    source_id: str
    pages: tuple[PageResult, ...]
    page_count: int
    metadata: dict[str, str] = field(default_factory=dict)
    cost: float | None = None

    def __iter__(self) -> Iterator[PageResult]:
        return iter(self.pages)

    def __len__(self) -> int:
        return len(self.pages)

    @property
    def markdown(self) -> str:
        """The text of all pages that have any, with blank lines between them."""
        return "\n\n".join(page.markdown for page in self.pages if page.markdown)

    @property
    def failed(self) -> tuple[PageResult, ...]:
        """The pages that could not be read."""
        return tuple(page for page in self.pages if page.status is PageStatus.FAILED)

    @property
    def usage(self) -> Usage:
        """Tokens, summed over all pages and attempts."""
        return sum((page.usage for page in self.pages), Usage())

    @property
    def counts(self) -> dict[str, int]:
        """Pages by status."""
        return {str(status): n for status, n in Counter(page.status for page in self.pages).items()}

    @property
    def ok(self) -> bool:
        """Whether every requested page is wholly read."""
        return all(page.ok for page in self.pages)

    def to_dict(self) -> dict[str, Any]:
        """The result as plain JSON types."""
        return {
            "source": self.source,
            "source_id": self.source_id,
            "page_count": self.page_count,
            "metadata": dict(self.metadata),
            "cost": self.cost,
            "usage": asdict(self.usage),
            "counts": self.counts,
            "pages": [page.to_dict() for page in self.pages],
        }
