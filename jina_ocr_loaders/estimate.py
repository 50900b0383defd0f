"""What reading a document will cost, before it is spent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from jina_ocr_loaders.engines.base import DocumentEngine, Engine, OCRRequest
from jina_ocr_loaders.errors import BudgetExceededError
from jina_ocr_loaders.results import Usage
from local_engine.preprocess import image_token_count

OUTPUT_TOKENS = 1085  # a page on average, measured on olmOCR-bench (model card, "Performance")
CHARACTERS_PER_TOKEN = 4  # of an English prompt, roughly
LAYOUT_TOKENS = 10  # around prompt and image (reference: "Rendered: <|User|>: …")


@dataclass(frozen=True, slots=True)
class Estimate:
    """The expected cost of one document.

    Attributes:
        source: the document as it is shown to people.
        engine, model: who would read it.
        page_count: pages in the document.
        numbers: the 1-based pages that would be read.
        image_tokens: tokens of each page's image, in the same order; a blank page is counted like any other, for it is
            not drawn yet, so the true figure is never above this one by much, and often below.
        input_tokens, output_tokens: expected for all of them.
        cost: dollars, None where the price is not known; 0 for an engine that costs nothing.
    """

    source: str
    engine: str
    model: str
    page_count: int
    numbers: tuple[int, ...]
    image_tokens: tuple[int, ...]
    input_tokens: int
    output_tokens: int
    cost: float | None

    @property
    def pages(self) -> int:
        """Pages that would be read."""
        return len(self.numbers)

    def to_dict(self) -> dict[str, Any]:
        """The estimate as plain JSON types."""
        return asdict(self) | {"pages": self.pages}


def estimate(
    source: str,
    engine: Engine | DocumentEngine,
    request: OCRRequest,
    page_count: int,
    numbers: Sequence[int],
    sizes: Sequence[Sequence[tuple[int, int]]] | None,
    prices: tuple[float, float] | None,
) -> Estimate:
    """Add up what the pages will take.

    Parameters:
        sizes: for each page the sizes in pixels of its images; None where the engine draws pages itself.
        prices: dollars per million input and output tokens.
    """
    if sizes is None:
        tokens = [getattr(engine, "tokens_per_page", 0)] * len(numbers)
        text = output = 0  # Reader's figure is for all that it does with a page
    else:
        tokens = [sum(image_token_count(*size) for size in images) for images in sizes]
        requests = sum(len(images) for images in sizes)
        text = requests * (len(request.prompt) // CHARACTERS_PER_TOKEN + LAYOUT_TOKENS)
        output = requests * min(OUTPUT_TOKENS, request.max_tokens)
    total = sum(tokens) + text
    cost = Usage(total, output).cost(prices) if prices else None if engine.leaves_machine else 0.0
    return Estimate(
        *(source, engine.name, engine.model, page_count, tuple(numbers), tuple(tokens)),
        *(total, output, cost),
    )


def check_pages_allowed(numbers: Sequence[int], max_pages: int | None, *, source: str) -> None:
    """Stop before anything is spent.

    Raises:
        BudgetExceededError: more pages are asked for than ``max_pages``.
    """
    if max_pages is not None and len(numbers) > max_pages:
        raise BudgetExceededError(
            f"{len(numbers)} pages are asked for, max_pages is {max_pages}: select fewer with pages=, or raise it.",
            source=source,
        )


def check_cost_allowed(expected: Estimate, max_cost: float) -> None:
    """Stop before anything is spent.

    Raises:
        BudgetExceededError: the document is expected to cost more than ``max_cost`` dollars, or nobody can say.
    """
    if expected.cost is None:
        raise BudgetExceededError(
            f"the price of engine {expected.engine!r} is not known, so max_cost cannot be kept to: leave it out, or "
            "use max_pages.",
            source=expected.source,
        )
    if expected.cost > max_cost:
        raise BudgetExceededError(
            f"{expected.pages} pages are expected to cost ${expected.cost:.4f}, max_cost is ${max_cost:.4f}: select "
            "fewer with pages=, or raise it.",
            source=expected.source,
        )
