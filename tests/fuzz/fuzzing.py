"""Damaged files through ``JinaOCR.read``: what may come of it, and what may not."""

from __future__ import annotations

import hashlib
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

from jina_ocr_loaders import JinaOCR, JinaOCRError
from jina_ocr_loaders.engines.base import Delta, OCRRequest, Render
from jina_ocr_loaders.pages import Limits, PageImage
from jina_ocr_loaders.results import PageStatus, Usage
from tests.fuzz.mutations import mutate, samples

OVERHEAD = 30.0  # seconds that may come on top of the time limit of the worker on a busy machine
NO_ONES_TEXT = "The text of a page."


class LookingEngine:
    """An engine that decodes each image that reaches it, as a real one does, and says the same of all of them."""

    name = "looking"
    model = "none"
    leaves_machine = False
    render = Render()
    max_concurrency: int | None = 2
    prices: tuple[float, float] | None = None

    async def stream(self, page: PageImage, request: OCRRequest) -> AsyncIterator[Delta]:
        """Check the image."""
        image = page.rgb()
        assert image.size == (page.width, page.height)
        assert max(image.size) <= self.render.long_side
        yield Delta(NO_ONES_TEXT, finish_reason="stop", usage=Usage(1, 1), model=self.model)

    async def aclose(self) -> None:
        """It holds nothing."""


@dataclass(frozen=True)
class Case:
    """A damaged file."""

    sample: str
    seed: str
    data: bytes

    @property
    def name(self) -> str:
        """Short, and the same for the same bytes."""
        return hashlib.sha256(self.data).hexdigest()[:16]


@dataclass(frozen=True)
class Verdict:
    """What came of a file: an outcome that may be, or a fault."""

    outcome: str
    fault: str | None
    seconds: float


def cases(seed: int) -> Iterator[Case]:
    """Damaged files without end, the same ones for the same seed."""
    whole = samples()
    names = list(whole)
    for number in range(1 << 30):
        each = random.Random(f"{seed}/{number}")
        sample, other = each.choice(names), each.choice(names)
        yield Case(sample, f"{seed}/{number}", mutate(each, whole[sample], whole[other]))


def examine(ocr: JinaOCR, data: bytes) -> Verdict:
    """Read a file. A fault is an exception that is not ours, a result that contradicts itself, or a hang."""
    start = time.monotonic()
    outcome, fault = _read(ocr, data)
    seconds = time.monotonic() - start
    if fault is None and seconds > Limits().seconds + OVERHEAD:
        fault = f"took {seconds:.0f} s"
    return Verdict(outcome, fault, seconds)


def _read(ocr: JinaOCR, data: bytes) -> tuple[str, str | None]:
    try:
        result = ocr.read(data)
    except JinaOCRError as error:
        return error.code, _fault_of(error)
    except BaseException as error:  # a PanicException or a RecursionError is a fault like any other
        if isinstance(error, KeyboardInterrupt | SystemExit):
            raise
        return "foreign", f"{type(error).__name__}: {error}"
    codes: Counter[str] = Counter()
    for page in result.pages:
        if (page.status is PageStatus.FAILED) != (page.error is not None):
            return "inconsistent", f"page {page.number}: {page.status} with the error {page.error}"
        if page.error is not None and (fault := _fault_of(page.error)):
            return page.error.code, fault
        codes[page.error.code if page.error else str(page.status)] += 1
    if [page.number for page in result.pages] != list(range(1, result.page_count + 1)):
        return "inconsistent", f"{result.page_count} pages, results for {[page.number for page in result.pages]}"
    return "+".join(sorted(codes)) or "no pages", None if codes else "a document without pages and without an error"


def _fault_of(error: JinaOCRError) -> str | None:
    """What is wrong with an error of ours, if anything."""
    text = str(error)
    if error.source is None:
        return f"an error that does not say which document: {text}"
    if not text.isprintable() or len(text) > 1000:
        return f"an error that cannot be shown: {text[:1000]!r}"
    if "AssertionError" in text or "jina_ocr_loaders" in text or "/tmp" in text:
        return f"an error with inner workings in it: {text}"
    return None
