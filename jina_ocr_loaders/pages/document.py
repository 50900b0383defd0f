"""An open document: its pages, drawn by a worker process."""

from __future__ import annotations

import asyncio
import copy
import os
import queue
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from jina_ocr_loaders import errors
from jina_ocr_loaders.engines.base import Render
from jina_ocr_loaders.errors import JinaOCRError
from jina_ocr_loaders.pages import client, wire
from jina_ocr_loaders.pages.limits import Limits
from jina_ocr_loaders.pages.page import Page, PageImage, TextRun

Answer = tuple[wire.Header, memoryview]
MAX_WORKERS = 2  # for one document
PATIENCE = 0.5  # seconds for which calls must have queued up before the second one starts
MANY = 32  # calls in the queue that one worker will not have done in that time: the second one starts at once


class Content(Protocol):
    """The part of sources.Content that is needed here: a local file."""

    @property
    def path(self) -> Path: ...

    @property
    def kind(self) -> str: ...


async def open_document(
    content: Content,
    *,
    name: str,
    password: str | None = None,
    render: Render | None = None,
    limits: Limits | None = None,
) -> Document:
    """Open a document in a worker process.

    Parameters:
        content: the local file and its kind ("pdf", "image", "heif"). It must stay until the document is closed.
        name: the document as errors show it.
        password: for encrypted documents; the empty one is tried first.
        render: how the engine wants its images.
        limits: what the document may cost.

    Raises:
        SourceError: it cannot be opened; the class says why.
        MissingExtraError: HEIC, without the extra that reads it.
    """
    document = Document(content, name=name, password=password, render=render or Render(), limits=limits or Limits())
    try:
        await document._open()
    except BaseException:
        document._end(document._closed())
        raise
    return document


class Document:
    """An open document, from ``open_document``. Pages may be asked for concurrently, from one event loop.

    One worker draws them in the order in which they are asked for. A second one joins in when calls have been waiting
    for a while, or are very many: then the engine is faster than one worker.

    Attributes:
        page_count: pages in the document.
        metadata: the document's own properties: producer, creator, creationdate, moddate, title, author, …
    """

    def __init__(self, content: Content, *, name: str, password: str | None, render: Render, limits: Limits) -> None:
        self.page_count = 0
        self.metadata: dict[str, str] = {}
        self._name = name
        self._limits = limits
        self._max_workers = MAX_WORKERS if content.kind == "pdf" else 1
        self._request: wire.Header = {
            "do": "open",
            "path": os.path.abspath(content.path),  # a spare worker may have begun in another folder
            "kind": content.kind,
            "password": password,
            "render": asdict(render),
            "limits": asdict(limits),
        }
        self._jobs: queue.SimpleQueue[tuple[wire.Header, Future[Answer]] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()  # guards what follows
        self._threads: list[Future[None]] = []  # one for each worker, done when its thread ends
        self._busy: set[client.Worker] = set()
        self._caught_up = 0.0  # when no call was waiting
        self._over: JinaOCRError | None = None  # why there are no more pages: lost, or closed

    async def page(self, number: int) -> Page:
        """Draw one page, 1-based.

        Raises:
            PageRenderError: this page cannot be drawn, the others can.
            SourceError: the document is lost, with all its pages: its worker crashed or took too long.
        """
        if not 1 <= number <= self.page_count:
            raise errors.PageRangeError(f"there is no page {number}, only 1 to {self.page_count}", source=self._name)
        return _page(number, *await self._ask({"do": "page", "number": number}))

    async def sizes(self, numbers: Sequence[int]) -> list[tuple[tuple[int, int], ...]]:
        """How large each page's images would be, without drawing them: for estimates.

        Parameters:
            numbers: of pages, 1-based.

        Returns:
            For each page the width and height of its strips in pixels, as if none were blank; () where it is unknown.
        """
        answer, _ = await self._ask({"do": "sizes", "numbers": list(numbers)})
        return [tuple((width, height) for width, height in sizes) for sizes in answer["sizes"]]

    async def aclose(self) -> None:
        """Let go of the file and the workers. Pages still in work are given up."""
        self._end(self._closed())
        await asyncio.gather(*map(asyncio.wrap_future, self._threads))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def _ask(self, request: wire.Header) -> Answer:
        job: Future[Answer] = Future()
        with self._lock:
            if self._over:
                raise copy.copy(self._over)
            if self._jobs.empty():
                self._caught_up = time.monotonic()
            self._jobs.put((request, job))
        return await asyncio.wrap_future(job)

    async def _open(self) -> None:
        try:
            opened = self._start()
        except RuntimeError as error:
            raise errors.ResourceLimitError(
                f"no thread can be started to read it ({error})", source=self._name
            ) from None
        answer = await asyncio.wrap_future(opened)
        self.page_count = answer["page_count"]
        self.metadata = answer["metadata"]

    def _start(self) -> Future[wire.Header]:
        opened: Future[wire.Header] = Future()
        ended: Future[None] = Future()
        for future in (opened, ended):
            future.set_running_or_notify_cancel()  # who awaits them cannot cancel them
        threading.Thread(target=self._run, args=(opened, ended), name="jina-ocr-pages", daemon=True).start()
        self._threads.append(ended)
        return opened

    def _closed(self) -> JinaOCRError:
        return errors.SourceError("the document is closed", source=self._name)

    def _end(self, reason: JinaOCRError) -> None:
        """Take no more calls, give up those that wait, and let the threads end."""
        with self._lock:
            if self._over:
                return
            self._over = reason
            for worker in self._busy:
                worker.kill()
            while not self._jobs.empty():
                waiting = self._jobs.get()
                if waiting and waiting[1].set_running_or_notify_cancel():
                    waiting[1].set_exception(copy.copy(reason))
            for _ in self._threads:
                self._jobs.put(None)

    # What the threads do, one for each worker

    def _run(self, opened: Future[wire.Header], ended: Future[None]) -> None:
        worker = None
        failure: BaseException | None = None
        try:
            worker = client.take()
            opened.set_result(self._call(worker, self._request)[0])
            while job := self._jobs.get():
                self._work(worker, *job)
            self._call(worker, {"do": "close"})
        except OSError as error:
            message = f"no worker process can be started to read it ({error})"
            failure = errors.ResourceLimitError(message, source=self._name)
        except BaseException as error:
            failure = error
        if worker:
            client.give_back(worker)
        if failure and not opened.done():
            opened.set_exception(failure)
        ended.set_result(None)

    def _work(self, worker: client.Worker, request: wire.Header, job: Future[Answer]) -> None:
        if not job.set_running_or_notify_cancel():
            return
        self._call_for_help()
        try:
            job.set_result(self._call(worker, request))
        except BaseException as error:  # whatever it is, somebody waits for it
            job.set_exception(error)
            if self._over:
                raise

    def _call(self, worker: client.Worker, request: wire.Header) -> Answer:
        """Call the worker.

        Raises:
            JinaOCRError: what the worker answered, or what it was lost of; then the document is lost too.
        """
        with self._lock:
            if self._over and request["do"] != "close":
                raise copy.copy(self._over)
            self._busy.add(worker)
        try:
            answer, payload = worker.call(request, self._limits.seconds)
        except client.WorkerLostError as lost:
            self._end(self._explain(lost, request.get("number")))
            raise copy.copy(self._over or lost) from None
        finally:
            with self._lock:
                self._busy.discard(worker)
        if error := answer.get("error"):
            kind, message, page, code = error
            raise getattr(errors, kind)(message, source=self._name, page=page, code=code)
        return answer, payload

    def _explain(self, lost: client.WorkerLostError, number: int | None) -> JinaOCRError:
        doing = "drawing this page" if number else "opening it"
        if lost.timed_out:
            message = f"{doing} took longer than {self._limits.seconds:g} s; the document was given up"
            return errors.ResourceLimitError(message, source=self._name, page=number)
        message = (
            f"the process that reads it ended while {doing} (exit status {lost.returncode}); the document is damaged, "
            f"or needs more than {self._limits.memory >> 20} MiB of memory"
        )
        return errors.CorruptDocumentError(message, source=self._name, page=number, code="worker_lost")

    def _call_for_help(self) -> None:
        """Start the second worker when calls have been waiting for long enough, or are many."""
        with self._lock:
            waited = not self._jobs.empty() and time.monotonic() - self._caught_up > PATIENCE
            if (waited or self._jobs.qsize() > MANY) and len(self._threads) < self._max_workers and not self._over:
                with suppress(RuntimeError):  # no thread can be started now: the first worker does it all
                    self._start()


def _page(number: int, answer: wire.Header, payload: memoryview) -> Page:
    strips = []
    start = 0
    for strip in answer["strips"]:
        stop = start + strip["size"]
        text = None if strip["text"] is None else tuple(TextRun(*run) for run in strip["text"])
        strips.append(
            PageImage(
                number=number,
                label=answer["label"],
                width=strip["width"],
                height=strip["height"],
                data=bytes(payload[start:stop]),
                text=text,
            )
        )
        start = stop
    return Page(number, answer["label"], tuple(strips), tuple(answer["warnings"]), *answer["size"])
