"""JinaOCR: documents in, page results out. Everything else in this package adapts it."""

from __future__ import annotations

import asyncio
import logging
import mimetypes
import os
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Self, Unpack
from urllib.parse import urlsplit

from pydantic import ValidationError

from jina_ocr_loaders import bridge
from jina_ocr_loaders.cache import open_cache
from jina_ocr_loaders.engines.base import DocumentEngine, Engine, Render
from jina_ocr_loaders.engines.http_client import PerLoop
from jina_ocr_loaders.engines.select import create_engine
from jina_ocr_loaders.errors import JinaOCRError, PageRangeError, PagesFailedError, SourceError
from jina_ocr_loaders.estimate import Estimate, check_cost_allowed, check_pages_allowed, estimate
from jina_ocr_loaders.pages import open_document, prestart
from jina_ocr_loaders.pipeline import Job, PageSource, Runtime, read_pages, stream_page
from jina_ocr_loaders.ranges import PageSelection, check_pages, parse_pages
from jina_ocr_loaders.results import DocumentResult, PageResult, PageStatus, Usage
from jina_ocr_loaders.retry import Clock
from jina_ocr_loaders.settings import OCROptions, OCRSettings
from jina_ocr_loaders.sources import Source, SourceLike
from jina_ocr_loaders.threads import run_aside

if TYPE_CHECKING:
    from jina_ocr_loaders.pages import Page

logger = logging.getLogger("jina_ocr_loaders")

OPEN_DOCUMENTS = 4  # documents that ``aread`` draws pages of at once; each has a worker process


class _Slots(NamedTuple):
    """What the readings on one event loop share."""

    pages: Runtime
    documents: asyncio.Semaphore  # open ones: `OPEN_DOCUMENTS`
    readings: asyncio.Semaphore  # calls of ``aread`` that may hold images


@dataclass(frozen=True, slots=True)
class OpenDocument:
    """A document that is being read: what is known before its pages are.

    Iterate over it for the results, in page order: ``async for`` from ``JinaOCR.aopen``, ``for`` from ``JinaOCR.open``.
    It is the process's that opened it: a forked child opens its own.

    Attributes:
        source: as shown to people.
        source_id: its stable identity.
        page_count: pages in the whole document.
        numbers: the 1-based pages that will be read.
        metadata: the document's own properties (producer, creator, creationdate, title, …).
    """

    source: str
    source_id: str
    page_count: int
    numbers: tuple[int, ...]
    metadata: dict[str, str]
    _job: Job
    _process: int = field(default_factory=os.getpid, repr=False)

    def __aiter__(self) -> AsyncGenerator[PageResult, None]:
        return self.results(self.numbers)

    def __iter__(self) -> Iterator[PageResult]:
        return bridge.iterate(lambda: self.results(self.numbers))

    async def results(self, numbers: Sequence[int]) -> AsyncGenerator[PageResult, None]:
        """Read some of ``self.numbers``; the caps and what ``on_page`` is told are still for all of them."""
        job = self._own_job()
        await self.check_allowed()
        settings = job.settings
        seen: list[PageResult] = []
        async with aclosing(read_pages(job, numbers)) as results:
            async for page in results:
                if settings.on_page:
                    settings.on_page(page, len(self.numbers))
                if settings.on_error == "raise":
                    seen.append(page)
                if settings.on_error != "skip" or page.status is not PageStatus.FAILED:
                    yield page
        failed = [page for page in seen if page.status is PageStatus.FAILED]
        if failed:
            raise self._failure(seen, failed)

    def stream(self, number: int, on_cut: Callable[[PageStatus], object] | None = None) -> Iterator[str]:
        """Yield the text of one page, 1-based, as it comes; see ``JinaOCR.stream``.

        Parameters:
            on_cut: told the status, ``truncated`` or ``repetition``, of a text that is not whole.
        """
        return bridge.iterate(lambda: self.astream(number, on_cut))

    async def astream(
        self, number: int, on_cut: Callable[[PageStatus], object] | None = None
    ) -> AsyncGenerator[str, None]:
        """``stream`` for async code."""
        job = self._own_job()
        await self.check_allowed()
        async with aclosing(stream_page(job, number, on_cut)) as pieces:
            async for piece in pieces:
                yield piece

    async def check_allowed(self) -> None:
        """Refuse what is above ``max_pages`` or ``max_cost``; reading begins with this.

        Raises:
            BudgetExceededError: these pages are more, or are expected to cost more. Nothing has been spent.
        """
        settings = self._job.settings
        check_pages_allowed(self.numbers, settings.max_pages, source=self.source)
        if settings.max_cost is not None:
            check_cost_allowed(await self.estimate(), settings.max_cost)

    async def estimate(self) -> Estimate:
        """What reading these pages will cost."""
        job = self._own_job()
        sizes = await job.document.sizes(self.numbers) if job.document else None
        fetch = getattr(job.engine, "fetch_prices", None)
        prices = await fetch() if fetch else job.engine.prices
        return estimate(self.source, job.engine, job.request(), self.page_count, self.numbers, sizes, prices)

    def result(self, pages: Sequence[PageResult]) -> DocumentResult:
        """The document's result made of these pages."""
        prices = self._job.engine.prices
        usage = sum((page.usage for page in pages), Usage())
        cost = usage.cost(prices) if prices else None
        return DocumentResult(self.source, self.source_id, tuple(pages), self.page_count, dict(self.metadata), cost)

    async def _closed_when_drawn(self, close: Callable[[], Awaitable[None]]) -> OpenDocument:
        """The same, for one reading of its pages; ``close`` is called when no page is to be drawn any more."""
        if self._job.document is None:  # the engine has the address
            await close()
            return self
        drawn = _ClosedWhenDrawn(self._job.document, len(self.numbers), close)
        return replace(self, _job=replace(self._job, document=drawn))

    def _own_job(self) -> Job:
        if os.getpid() != self._process:
            message = "it was opened in another process: open it again in this one"
            raise SourceError(message, source=self.source, code="other_process")
        return self._job

    def _failure(self, pages: Sequence[PageResult], failed: Sequence[PageResult]) -> PagesFailedError:
        listed = ", ".join(str(page.number) for page in failed[:20]) + (", …" if len(failed) > 20 else "")
        first = failed[0].error
        error = PagesFailedError(
            f"{len(failed)} of {len(pages)} pages failed: {listed} (page {failed[0].number}: "
            f"{first.message if first else 'unknown'}). The others are in .result; on_error='mark' returns all.",
            result=self.result(pages),
            source=self.source,
        )
        logger.error("%s", error)
        return error


class _ClosedWhenDrawn:
    """An opened document that is closed with its last page: the engine reads on, and another has the worker process."""

    def __init__(self, document: PageSource, pages: int, close: Callable[[], Awaitable[None]]) -> None:
        self._document = document
        self._left = pages
        self._close = close

    async def page(self, number: int) -> Page:
        try:
            return await self._document.page(number)
        finally:
            self._left -= 1
            if not self._left:
                await self._close()

    async def sizes(self, numbers: Sequence[int]) -> Sequence[Sequence[tuple[int, int]]]:
        return await self._document.sizes(numbers)


class JinaOCR:
    """Reads documents into Markdown, page by page.

    >>> with JinaOCR() as ocr:
    ...     print(ocr.read("report.pdf").markdown)

    Parameters:
        engine: "auto" (the first that is ready), "hosted", "reader", "vllm", "transformers", "cpu", or an object that
            implements ``Engine``.
        options: see ``OCRSettings``, where each has its default and meaning.

    One instance may be used from several threads and several event loops.

    Raises:
        TypeError: an option has an unknown name or a wrong value.
    """

    def __init__(self, engine: str | Engine | DocumentEngine = "auto", **options: Unpack[OCROptions]) -> None:
        try:
            settings = OCRSettings.model_validate({"engine": engine, **options})
        except ValidationError as error:
            raise TypeError("; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())) from None
        self._setup(settings, Clock())

    @classmethod
    def from_settings(cls, settings: OCRSettings, *, clock: Clock | None = None) -> Self:
        """Make one from ready settings; ``clock`` replaces the time that waits between attempts are made of."""
        self = cls.__new__(cls)
        self._setup(settings, clock or Clock())
        return self

    def _setup(self, settings: OCRSettings, clock: Clock) -> None:
        self.settings = settings
        self._clock = clock
        self._engine: Engine | DocumentEngine | None = None
        self._lock = threading.Lock()
        self._runtimes = PerLoop(self._new_runtime)
        # The first page need not wait for a worker to start and a client to be imported.
        prestart()
        run_aside(self._warm)

    def _warm(self) -> None:
        with suppress(Exception):  # whatever it is, the first reading meets it again and raises it
            if warm := getattr(self.engine, "warm", None):
                warm()

    def __getstate__(self) -> dict[str, Any]:
        return {"settings": self.settings}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._setup(state["settings"], Clock())

    def __repr__(self) -> str:
        return f"JinaOCR(engine={self.settings.engine!r}, model={self.settings.model!r})"

    @property
    def engine(self) -> Engine | DocumentEngine:
        """The engine that reads; chosen and made on first use.

        Raises:
            EngineNotReadyError: none is set up.
        """
        with self._lock:
            if self._engine is None:
                self._engine = create_engine(self.settings)
            return self._engine

    @property
    def document_slot(self) -> asyncio.Semaphore:
        """Bounds how many documents are open at once on the running event loop; ``aread`` holds it, others may."""
        return self._runtimes.get().documents

    def read(
        self,
        source: SourceLike,
        pages: PageSelection = None,
        password: str | None = None,
        *,
        fs: Any = None,
        source_id: str | None = None,
        name: str | None = None,
    ) -> DocumentResult:
        """Read a document.

        Parameters:
            source: path, URL, bytes, binary stream, or ``(fs, path)``.
            pages: 1-based: ``"1-5,8,-1"``, a number or a list; None for all.
            password: opens an encrypted document; the empty one is tried first.
            fs: the fsspec file system that ``source`` is a path in.
            source_id: the document's identity, where its address is not the right one.
            name: what it is called in messages and metadata, where the source has no name.

        Returns:
            One result per page, in order.

        Raises:
            SourceError, EngineError: it cannot be read, or not to its end; pages that had been read are in ``result``.
            PagesFailedError: some pages failed, with ``on_error="raise"``; it holds all results.
        """
        return bridge.run(lambda: self.aread(source, pages, password, fs=fs, source_id=source_id, name=name))

    async def aread(
        self,
        source: SourceLike,
        pages: PageSelection = None,
        password: str | None = None,
        *,
        fs: Any = None,
        source_id: str | None = None,
        name: str | None = None,
    ) -> DocumentResult:
        """``read`` for async code."""
        check_pages(pages)
        async with self._runtimes.get().readings, AsyncExitStack() as opened:
            await opened.enter_async_context(self.document_slot)
            opening = self.aopen(source, pages, password, fs=fs, source_id=source_id, name=name)
            document = await (await opened.enter_async_context(opening))._closed_when_drawn(opened.aclose)
            read: list[PageResult] = []
            async with aclosing(aiter(document)) as results:
                try:
                    async for page in results:
                        read.append(page)
                except JinaOCRError as error:
                    if read and error.result is None:
                        error.result = document.result(read)
                    raise
            return document.result(read)

    def pages(
        self,
        source: SourceLike,
        pages: PageSelection = None,
        password: str | None = None,
        *,
        fs: Any = None,
        source_id: str | None = None,
        name: str | None = None,
    ) -> Iterator[PageResult]:
        """Read a document lazily: each page as soon as it and those before it are read. Arguments as for ``read``.

        An iterator that is dropped stops the work.

        Raises:
            SourceError, EngineError: nothing can be read.
            PagesFailedError: after the last page, if some failed and ``on_error="raise"``.
        """
        return bridge.iterate(lambda: self.apages(source, pages, password, fs=fs, source_id=source_id, name=name))

    async def apages(
        self,
        source: SourceLike,
        pages: PageSelection = None,
        password: str | None = None,
        *,
        fs: Any = None,
        source_id: str | None = None,
        name: str | None = None,
    ) -> AsyncGenerator[PageResult, None]:
        """``pages`` for async code."""
        async with (
            self.aopen(source, pages, password, fs=fs, source_id=source_id, name=name) as document,
            aclosing(aiter(document)) as results,
        ):
            async for page in results:
                yield page

    @contextmanager
    def open(
        self,
        source: SourceLike,
        pages: PageSelection = None,
        password: str | None = None,
        *,
        fs: Any = None,
        source_id: str | None = None,
        name: str | None = None,
    ) -> Iterator[OpenDocument]:
        """Open a document: its page count and properties are known, its pages are read as it is iterated over.

        Arguments and errors as for ``read``.
        """
        manager = self.aopen(source, pages, password, fs=fs, source_id=source_id, name=name)
        document = bridge.run(manager.__aenter__)
        try:
            yield document
        finally:
            if os.getpid() == document._process:  # a forked child leaves it to its parent
                bridge.run(lambda: manager.__aexit__(None, None, None))

    @asynccontextmanager
    async def aopen(
        self,
        source: SourceLike,
        pages: PageSelection = None,
        password: str | None = None,
        *,
        fs: Any = None,
        source_id: str | None = None,
        name: str | None = None,
    ) -> AsyncIterator[OpenDocument]:
        """``open`` for async code."""
        check_pages(pages)
        origin = Source.of(source, fs=fs, source_id=source_id, name=name)
        engine, runtime = self.engine, self._runtimes.get().pages
        job = Job(origin, engine, self.settings, runtime)
        async with AsyncExitStack() as stack:
            if isinstance(engine, DocumentEngine):
                retry = partial(runtime.retrier.call, deadline=self.settings.timeout)
                count = await engine.page_count(origin, password, retry)
                metadata = dict[str, str]()
            elif self._hands_on(origin):
                count, metadata = 1, {}
            else:
                content = await stack.enter_async_context(origin.open(self.settings.fetch_limits()))
                document = await stack.enter_async_context(
                    await open_document(content, name=origin.name, password=password, render=self._render(engine))
                )
                count, metadata = document.page_count, document.metadata
                job = Job(origin, engine, self.settings, runtime, document)
                if cache := open_cache(self.settings, encrypted=password is not None):
                    pages_cache = cache.document(await content.sha256(), engine, job.request(), self._render(engine))
                    job = replace(job, cache=pages_cache)
            numbers = _select(pages, count, origin)
            yield OpenDocument(origin.name, origin.id, count, numbers, metadata, job)

    def estimate(
        self,
        source: SourceLike,
        pages: PageSelection = None,
        password: str | None = None,
        *,
        fs: Any = None,
        source_id: str | None = None,
        name: str | None = None,
    ) -> Estimate:
        """What reading the document will cost: tokens by the tile rule, dollars by the server's price. Spends nothing.

        Arguments as for ``read``.

        Raises:
            SourceError, EngineError: it cannot be opened.
        """
        return bridge.run(lambda: self.aestimate(source, pages, password, fs=fs, source_id=source_id, name=name))

    async def aestimate(
        self,
        source: SourceLike,
        pages: PageSelection = None,
        password: str | None = None,
        *,
        fs: Any = None,
        source_id: str | None = None,
        name: str | None = None,
    ) -> Estimate:
        """``estimate`` for async code."""
        async with self.aopen(source, pages, password, fs=fs, source_id=source_id, name=name) as document:
            return await document.estimate()

    def stream(
        self, source: SourceLike, page: int = 1, password: str | None = None, *, fs: Any = None
    ) -> Iterator[str]:
        """Yield one page's text as it comes, unmended.

        Parameters:
            source, password, fs: as for ``read``.
            page: 1-based, or negative from the end.

        Raises:
            SourceError, EngineError: it cannot be read, or not to its end.
        """
        return bridge.iterate(lambda: self.astream(source, page, password, fs=fs))

    async def astream(
        self, source: SourceLike, page: int = 1, password: str | None = None, *, fs: Any = None
    ) -> AsyncGenerator[str, None]:
        """``stream`` for async code."""
        async with (
            self.aopen(source, page, password, fs=fs) as document,
            aclosing(document.astream(document.numbers[0])) as pieces,
        ):
            async for piece in pieces:
                yield piece

    def close(self) -> None:
        """Give back connections, threads and devices. Reading again opens them anew."""
        if not bridge.ending():  # then the process gives them back itself
            bridge.run(self.aclose)

    async def aclose(self) -> None:
        """``close`` for async code."""
        with self._lock:
            engine, self._engine = self._engine, None
        if engine is not None:
            await engine.aclose()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    def _new_runtime(self) -> _Slots:
        runtime = Runtime(self.settings, self.engine.max_concurrency, self._clock)
        # A document has a page at least, and twice as many pages as are in flight are held as images.
        return _Slots(runtime, asyncio.Semaphore(OPEN_DOCUMENTS), asyncio.Semaphore(2 * runtime.concurrency))

    def _render(self, engine: Engine) -> Render:
        return replace(engine.render, long_side=self.settings.long_side) if self.settings.long_side else engine.render

    def _hands_on(self, source: Source) -> bool:
        """Whether the engine is given the image's address instead of the image."""
        if not (self.settings.pass_urls and source.url):
            return False
        return (mimetypes.guess_type(urlsplit(source.url).path)[0] or "").startswith("image/")


def _select(pages: PageSelection, count: int, source: Source) -> tuple[int, ...]:
    try:
        return tuple(parse_pages(pages, count))
    except PageRangeError as error:
        error.source = source.name
        raise
