"""The seam: what an engine is, what it is asked, and what it answers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from jina_ocr_loaders.results import Usage

if TYPE_CHECKING:
    from jina_ocr_loaders.pages import PageImage
    from jina_ocr_loaders.sources import Source


@dataclass(frozen=True, slots=True)
class Sampling:
    """How tokens are chosen; the defaults are the model card's for vLLM (greedy, light repetition penalty)."""

    temperature: float = 0.0
    repetition_penalty: float = 1.05


@dataclass(frozen=True, slots=True)
class OCRRequest:
    """What is asked for one page.

    Attributes:
        prompt: the instruction.
        max_tokens: output tokens at most.
        sampling: how tokens are chosen.
        deadline: seconds that this attempt may take.
    """

    prompt: str
    max_tokens: int = 4096
    sampling: Sampling = Sampling()
    deadline: float = 300.0


@dataclass(frozen=True, slots=True)
class Delta:
    """A piece of a page's text. The last one carries the finish reason, the usage and the model's name."""

    text: str = ""
    finish_reason: str | None = None  # "stop", "length", "repetition"
    usage: Usage | None = None
    model: str | None = None
    confidence: float | None = None
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Transcription:
    """A page's whole text as the engine gave it, unmended."""

    text: str
    finish_reason: str | None = None
    usage: Usage = Usage()
    model: str = ""
    confidence: float | None = None
    warnings: tuple[str, ...] = ()


Retry = Callable[[Callable[[], Awaitable[Transcription]]], Awaitable[Transcription]]
"""Makes attempts, each with its own deadline, until one succeeds or no further one makes sense."""


@dataclass(frozen=True, slots=True)
class Render:
    """How an engine wants its page images.

    Attributes:
        long_side: pixels of the longer side. An upright A4 or Letter page is two by three tiles of 640 px, 1,280 x
            1,920, whatever its size above 640: less is blown up, more thrown away (processor_config.json: image_size).
        quality: of the JPEG, 1 to 95.
        text_layer: whether the page's own text (characters with boxes) comes with the image.
    """

    long_side: int = 1920
    quality: int = 90
    text_layer: bool = False


@runtime_checkable
class Engine(Protocol):
    """Reads one page image. An engine is this and nothing more; retry, order, cache and progress are the pipeline's."""

    name: str
    model: str
    leaves_machine: bool
    """True: page images are uploaded."""
    render: Render
    max_concurrency: int | None
    """Pages in flight at most, and where the user names no number; None: as many as the user wants."""
    prices: tuple[float, float] | None
    """Dollars per million input and output tokens; None: free or unknown."""

    def stream(self, page: PageImage, request: OCRRequest) -> AsyncIterator[Delta]:
        """Yield the page's Markdown as it comes; the last Delta carries finish reason and usage.

        Raises:
            EngineError: its class tells the pipeline whether, and after how long, another attempt makes sense.
        """
        ...

    async def aclose(self) -> None:
        """Give back connections, threads and devices. An engine may be closed more than once."""
        ...


@runtime_checkable
class DocumentEngine(Protocol):
    """Reads page n of a source by itself (Reader): nothing is rasterised here."""

    name: str
    model: str
    leaves_machine: bool
    max_concurrency: int | None
    prices: tuple[float, float] | None

    async def page_count(self, source: Source, password: str | None, retry: Retry) -> int:
        """Pages in the document; a page that has to be read to count them is read through ``retry``."""
        ...

    async def read_page(self, source: Source, number: int, request: OCRRequest) -> Transcription:
        """Read one page, 1-based.

        Raises:
            EngineError: as for ``Engine.stream``.
        """
        ...

    async def aclose(self) -> None:
        """Give back connections."""
        ...


@dataclass(slots=True)
class TranscriptionBuilder:
    """Collects the deltas of one stream into a Transcription."""

    parts: list[str] = field(default_factory=list)
    last: dict[str, Any] = field(default_factory=dict)

    def add(self, delta: Delta) -> None:
        """Take one delta; what it carries besides text replaces what earlier ones carried."""
        if delta.text:
            self.parts.append(delta.text)
        for name in ("finish_reason", "usage", "model", "confidence"):
            if (value := getattr(delta, name)) is not None:
                self.last[name] = value
        if delta.warnings:
            self.last["warnings"] = (*self.last.get("warnings", ()), *delta.warnings)

    def build(self) -> Transcription:
        """The transcription of what came so far."""
        return Transcription("".join(self.parts), **self.last)


async def transcribe(engine: Engine, page: PageImage, request: OCRRequest) -> Transcription:
    """Collect an engine's stream for one page.

    Raises:
        EngineError: as the engine does.
    """
    builder = TranscriptionBuilder()
    async for delta in engine.stream(page, request):
        builder.add(delta)
    return builder.build()
