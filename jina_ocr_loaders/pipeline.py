"""The loop: pages of one document through one engine, many in flight, results in page order, none missing.

Retry, cache, loop and blank-page detection, mending and progress live here, once, for every engine.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from jina_ocr_loaders import markdown
from jina_ocr_loaders.engines.base import (
    Delta,
    DocumentEngine,
    Engine,
    OCRRequest,
    Sampling,
    Transcription,
    TranscriptionBuilder,
)
from jina_ocr_loaders.errors import EngineError, JinaOCRError, SourceError
from jina_ocr_loaders.pages.strips import join_strips
from jina_ocr_loaders.prompts import resolve_prompt
from jina_ocr_loaders.reading import Reading
from jina_ocr_loaders.results import Attempt, PageResult, PageStatus, Usage
from jina_ocr_loaders.retry import Clock, Retrier, RetryPolicy
from jina_ocr_loaders.settings import OCRSettings, RetryEvent
from jina_ocr_loaders.stopping import TextGuard, cut_loop
from jina_ocr_loaders.tracing import span

if TYPE_CHECKING:
    from jina_ocr_loaders.cache import PageCache
    from jina_ocr_loaders.pages import Page, PageImage
    from jina_ocr_loaders.sources import Source

logger = logging.getLogger("jina_ocr_loaders.pipeline")

CONCURRENCY = 32  # pages in flight where neither the user nor the engine says how many
MAX_OUTPUT_TOKENS = 8192  # the hosted API's cap on output (reference: jina-ocr-v1)
RETRY_TEMPERATURE = 0.2  # leaves the rut that greedy decoding runs in, and stays near the most likely text

_STATUS = {"length": PageStatus.TRUNCATED, "repetition": PageStatus.REPETITION}
_FLAWS = {
    PageStatus.TRUNCATED: "the token limit cut the text",
    PageStatus.REPETITION: "the text went in circles and was cut",
}


class PageSource(Protocol):
    """What the pipeline needs of an opened document: ``pages.Document`` is one."""

    async def page(self, number: int) -> Page:
        """The page, rendered."""
        ...

    async def sizes(self, numbers: Sequence[int]) -> Sequence[Sequence[tuple[int, int]]]:
        """For each page the sizes in pixels of the images it will have."""
        ...


class Runtime:
    """What all documents of one ``JinaOCR`` share on one event loop: slots and retries."""

    def __init__(self, settings: OCRSettings, max_concurrency: int | None, clock: Clock) -> None:
        wanted = settings.concurrency or max_concurrency or CONCURRENCY
        self.concurrency = min(wanted, max_concurrency or wanted)
        self.slots = asyncio.Semaphore(self.concurrency)
        self.retrier = Retrier(
            RetryPolicy(settings.max_retries, settings.warmup_timeout, settings.wait_for_server, 2 * settings.timeout),
            clock,
        )
        self._started = False
        self._proven = asyncio.Event()

    async def head_start(self, engine: Engine | DocumentEngine) -> None:
        """Let the first request go alone for ``engine.head_start`` seconds, or until ``prove`` is called.

        An engine that asks a server has this member, so that a wrong key or model costs one request, not one a page.
        ``engine.prepare()``, if there is one, comes before: importing a client is no part of that time.
        """
        if self._proven.is_set():
            return
        if not self._started:
            self._started = True
            if prepare := getattr(engine, "prepare", None):
                try:
                    await prepare()
                except BaseException:
                    self._proven.set()
                    raise
            asyncio.get_running_loop().call_later(getattr(engine, "head_start", 0), self._proven.set)
        else:
            await self._proven.wait()

    def prove(self) -> None:
        """The engine has begun to answer: the others may go."""
        self._proven.set()


@dataclass(frozen=True, slots=True)
class Job:
    """One document's reading: what to read, with which engine, and what to ask."""

    source: Source
    engine: Engine | DocumentEngine
    settings: OCRSettings
    runtime: Runtime
    document: PageSource | None = None  # None: the engine reads the source by itself, or its URL is handed on
    cache: PageCache | None = None

    def request(self) -> OCRRequest:
        """The first attempt's request."""
        return OCRRequest(
            prompt=resolve_prompt(self.settings.prompt),
            max_tokens=self.settings.max_tokens,
            sampling=Sampling(temperature=self.settings.temperature),
            deadline=self.settings.timeout,
        )


async def read_pages(job: Job, numbers: Sequence[int]) -> AsyncGenerator[PageResult, None]:
    """Yield one result per number, in order.

    At most twice the concurrency pages are held as images, and results run ahead of the consumer by a bound, so memory
    is flat and a consumer that stops pulling stops the work.

    Raises:
        JinaOCRError: a fatal one, after the pages that had been read by then; all else is a page's status.
    """
    tasks: asyncio.Queue[asyncio.Task[PageResult] | None] = asyncio.Queue()
    ahead = asyncio.Semaphore(8 * job.runtime.concurrency)  # results that may wait for the consumer
    # The producer owns the task group: no cancel scope spans a yield.
    producer = asyncio.create_task(_produce(job, numbers, tasks, ahead), name=f"jina-ocr {job.source.name}")
    try:
        while task := await tasks.get():
            await asyncio.wait([task])
            if task.cancelled() or task.exception():
                producer.cancel()  # it ends by itself, unless an engine has cancelled its own task
                break
            yield task.result()
            ahead.release()
        await producer  # raises what ended it
    finally:
        producer.cancel()
        await asyncio.gather(producer, return_exceptions=True)


async def _produce(
    job: Job, numbers: Sequence[int], tasks: asyncio.Queue[asyncio.Task[PageResult] | None], ahead: asyncio.Semaphore
) -> None:
    window = asyncio.Semaphore(2 * job.runtime.concurrency)  # pages held as images
    about = {"jina_ocr.source": job.source.name, "jina_ocr.engine": job.engine.name, "jina_ocr.pages": len(numbers)}
    try:
        with span("jina_ocr.document", about):
            async with asyncio.TaskGroup() as group:
                for number in numbers:
                    await ahead.acquire()
                    await window.acquire()
                    task = group.create_task(_read_in_span(job, number))
                    task.add_done_callback(lambda _: window.release())
                    tasks.put_nowait(task)
    except BaseExceptionGroup as failures:
        raise _first_of(failures) from None
    finally:
        tasks.put_nowait(None)


async def _read_in_span(job: Job, number: int) -> PageResult:
    with span("jina_ocr.page", {"jina_ocr.source": job.source.name, "jina_ocr.page": number}) as current:
        result = await PageReader(job, number).read()
        usage = {
            "jina_ocr.tokens.input": result.usage.input_tokens,
            "jina_ocr.tokens.output": result.usage.output_tokens,
        }
        current.set_attributes(
            {"jina_ocr.status": str(result.status), "jina_ocr.attempts": len(result.attempts), **usage}
        )
        return result


async def stream_page(
    job: Job, number: int, on_cut: Callable[[PageStatus], object] | None = None
) -> AsyncGenerator[str, None]:
    """Yield one page's text as it comes; a blank page yields nothing, a loop ends it.

    Passing failures are tried again as long as nothing was yielded. ``on_cut`` is told of a text that is not whole, by
    its status.

    Raises:
        JinaOCRError: the page cannot be read, or not to its end.
    """
    reader = PageReader(job, number)

    def ended(status: PageStatus) -> None:
        if status in _FLAWS:
            logger.warning("%s, page %d: %s", job.source.name, number, _FLAWS[status])
            if on_cut:
                on_cut(status)

    try:
        if isinstance(job.engine, DocumentEngine):
            result = await reader.read()
            if result.error:
                raise result.error
            yield result.markdown
            ended(result.status)
            return
        for strip in (await reader.page()).strips:
            async with aclosing(_stream_image(job, strip, ended)) as pieces:
                async for piece in pieces:
                    yield piece
    except JinaOCRError as error:
        _locate(error, job, number)
        raise


async def _stream_image(job: Job, image: PageImage, ended: Callable[[PageStatus], None]) -> AsyncGenerator[str, None]:
    engine, request = job.engine, job.request()
    assert isinstance(engine, Engine)
    async with job.runtime.slots, AsyncExitStack() as stack:

        async def begin() -> tuple[Delta | None, AsyncIterator[Delta]]:
            deltas = await stack.enter_async_context(_closing(engine.stream(image, request)))
            first = await anext(deltas, None)
            while first and not first.text and (following := await anext(deltas, None)):
                first = following
            return first, deltas

        delta, rest = await job.runtime.retrier.call(begin, deadline=job.settings.timeout)
        guard = TextGuard(request.max_tokens)
        while delta:
            if delta.text:
                yield delta.text
            reason = guard.push(delta.text, last=delta.finish_reason is not None) or delta.finish_reason
            if reason in _STATUS:
                ended(_STATUS[reason])
                break
            delta = await anext(rest, None)


class PageReader:
    """Reads one page: render, look up, ask, ask again, mend, judge."""

    def __init__(self, job: Job, number: int) -> None:
        self._job = job
        self._number = number
        self._attempts: list[Attempt] = []

    async def read(self) -> PageResult:
        """The page's result; only fatal errors are raised."""
        job = self._job
        blank = PageResult(
            number=self._number,
            label=str(self._number),
            engine=job.engine.name,
            model=job.engine.model,
            source=job.source.name,
        )
        try:
            result = await self._read(blank)
        except JinaOCRError as error:
            _locate(error, job, self._number)
            if error.fatal:
                raise
            logger.warning("%s [%s]", error, error.code)
            result = replace(blank, status=PageStatus.FAILED, error=error)
        usage = sum((attempt.usage for attempt in self._attempts), Usage())
        return replace(result, usage=usage, attempts=tuple(self._attempts))

    async def _read(self, blank: PageResult) -> PageResult:
        job = self._job
        if job.cache and not job.settings.refresh and (hit := await job.cache.get(self._number)):
            return _finish(replace(blank, label=hit.label, width=hit.width, height=hit.height, cached=True), hit, job)
        if isinstance(job.engine, DocumentEngine):
            reading = await self._best(self._ask_document)
            page_fields = blank
        else:
            page = await self.page()
            page_fields = replace(blank, label=page.label, warnings=page.warnings, width=page.width, height=page.height)
            if page.blank:
                reading = Reading()
            else:
                readings = await self._read_strips(page)
                reading = readings[0] if len(readings) == 1 else _join(readings)
        result = _finish(page_fields, reading, job)
        if job.cache and result.ok:
            reading = replace(
                reading, label=result.label, width=result.width, height=result.height, warnings=result.warnings
            )
            await job.cache.put(self._number, reading)
        return result

    async def _read_strips(self, page: Page) -> list[Reading]:
        """Read a page's images at once; when one cannot be read the others are cancelled, for the page has failed."""
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._best(self._asker(strip))) for strip in page.strips]
        except BaseExceptionGroup as failures:
            raise _first_of(failures) from None
        return [task.result() for task in tasks]

    async def page(self) -> Page:
        """The page's images."""
        if self._job.document is None:
            from jina_ocr_loaders.pages import Page, PageImage

            image = PageImage(self._number, str(self._number), url=self._job.source.url)
            return Page(self._number, str(self._number), (image,))
        return await self._job.document.page(self._number)

    async def _best(self, ask: Callable[[OCRRequest], Awaitable[Transcription]]) -> Reading:
        """Ask, and ask again where the text was cut or went in circles; the best attempt is kept."""
        request = self._job.request()
        best: Reading | None = None
        for turn in range(self._job.settings.content_retries + 1):
            try:
                reading = await self._ask(ask, request)
            except EngineError as error:
                if best is None or error.fatal:
                    raise
                break  # the cut text is better than none
            best = reading if best is None or reading.better_than(best) else best
            if reading.finish_reason == "length":
                if request.max_tokens >= MAX_OUTPUT_TOKENS:
                    break
                request = replace(request, max_tokens=min(MAX_OUTPUT_TOKENS, 2 * request.max_tokens))
            elif reading.finish_reason == "repetition":
                request = replace(request, sampling=replace(request.sampling, temperature=RETRY_TEMPERATURE))
            else:
                break
            if turn < self._job.settings.content_retries:
                logger.info("%s, page %d: %s, asking again", self._job.source.name, self._number, reading.finish_reason)
        assert best is not None
        return best

    async def _ask(self, ask: Callable[[OCRRequest], Awaitable[Transcription]], request: OCRRequest) -> Reading:
        job = self._job

        async def attempt() -> Transcription:
            started = time.monotonic()
            try:
                answer = await ask(request)
            except EngineError as error:
                self._attempts.append(Attempt(error.code, seconds=time.monotonic() - started))
                raise
            outcome = answer.finish_reason or "stop"
            self._attempts.append(Attempt(outcome, answer.usage, time.monotonic() - started))
            return answer

        def on_wait(number: int, error: EngineError, wait: float) -> None:
            logger.warning(
                "%s, page %d: %s [%s]; attempt %d failed, next in %.1f s",
                *(job.source.name, self._number, error.message, error.code, number, wait),
            )
            if job.settings.on_retry:
                job.settings.on_retry(
                    RetryEvent(source=job.source.name, page=self._number, attempt=number, code=error.code, wait=wait)
                )

        async with job.runtime.slots:
            await job.runtime.head_start(job.engine)
            answer = await job.runtime.retrier.call(attempt, deadline=request.deadline, on_wait=on_wait)
        text, finish_reason = _whole_characters(answer.text), answer.finish_reason
        cut = cut_loop(text)
        if cut is None and finish_reason == "repetition":  # a server that stops loops itself leaves copies, maybe few
            cut = cut_loop(text, min_span=0)
        if cut is not None:
            text, finish_reason = cut, "repetition"
        return Reading(text, finish_reason, answer.model, answer.confidence, answer.warnings)

    def _asker(self, image: PageImage) -> Callable[[OCRRequest], Awaitable[Transcription]]:
        engine, runtime = self._job.engine, self._job.runtime
        assert isinstance(engine, Engine)

        async def ask(request: OCRRequest) -> Transcription:
            builder, guard = TranscriptionBuilder(), TextGuard(request.max_tokens)
            async with _closing(engine.stream(image, request)) as stream:
                async for delta in stream:
                    runtime.prove()
                    builder.add(delta)
                    if reason := guard.push(delta.text, last=False):  # its end is looked at in `_ask`
                        return replace(builder.build(), finish_reason=reason)
            return builder.build()

        return ask

    async def _ask_document(self, request: OCRRequest) -> Transcription:
        engine = self._job.engine
        assert isinstance(engine, DocumentEngine)
        answer = await engine.read_page(self._job.source, self._number, request)
        self._job.runtime.prove()
        return answer


def _whole_characters(text: str) -> str:
    """The text with the halves of a character, which JSON can hold, put together or replaced: no file takes them."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def _finish(result: PageResult, reading: Reading, job: Job) -> PageResult:
    text = reading.text if job.settings.raw else markdown.mend(reading.text)
    status = _STATUS.get(reading.finish_reason or "", PageStatus.OK)
    if status is PageStatus.OK and markdown.is_null(reading.text):
        text, status = "", PageStatus.EMPTY
    return replace(
        result,
        markdown=text,
        status=status,
        finish_reason=reading.finish_reason,
        confidence=reading.confidence,
        model=reading.model or result.model,
        warnings=tuple(dict.fromkeys((*result.warnings, *reading.warnings))),
    )


def _join(readings: Sequence[Reading]) -> Reading:
    """One reading of the strips of a long page; it ended as the worst of them did."""
    worst = min(readings, key=lambda reading: reading.rank)
    known = [reading.confidence for reading in readings if reading.confidence is not None]
    return Reading(
        text=join_strips([reading.text for reading in readings]),
        finish_reason=worst.finish_reason,
        model=readings[0].model,
        confidence=min(known, default=None),
        warnings=tuple(dict.fromkeys(code for reading in readings for code in reading.warnings)),
    )


def _locate(error: JinaOCRError, job: Job, number: int) -> None:
    """Give the error its document, and its page unless it concerns the whole document."""
    error.source = error.source or job.source.name
    error.page = error.page or (None if error.fatal and isinstance(error, SourceError) else number)


@asynccontextmanager
async def _closing(stream: AsyncIterator[Delta]) -> AsyncIterator[AsyncIterator[Delta]]:
    """Close an engine's stream at the end, so that a request which nobody waits for any more ends at once."""
    try:
        yield stream
    finally:
        if close := getattr(stream, "aclose", None):
            await close()


def _first_of(failures: BaseExceptionGroup[BaseException]) -> BaseException:
    """The error to raise for a task group: ours if there is one, for the others follow from it."""
    flat: list[BaseException] = []
    todo: list[BaseException] = [failures]
    while todo:
        error = todo.pop(0)
        if isinstance(error, BaseExceptionGroup):
            todo.extend(error.exceptions)
        else:
            flat.append(error)
    return next((error for error in flat if isinstance(error, JinaOCRError)), flat[0])
