"""Pages per second of the whole pipeline, each beside a bare loop in the same run."""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

from jina_ocr_loaders.bench import baselines, server
from jina_ocr_loaders.bench.document import make_pdf
from jina_ocr_loaders.ocr import JinaOCR

CONCURRENCY = 32


@dataclass(frozen=True, slots=True)
class Figures:
    """Medians over the repetitions: ours and the baseline's pages a second, and what belongs to one page.

    Attributes:
        ratio: median of the ratios of neighbouring runs.
        first_page: seconds from the call to the first result.
        own_cpu: milliseconds of this process a page, beyond what the client alone takes; drawing is in other processes.
    """

    ours: float
    baseline: float
    ratio: float
    first_page: float
    own_cpu: float


def slow_server(pages: int = 320, repeats: int = 3, read: baselines.Read = baselines.read_dicts) -> Figures:
    """A server that answers after 1.0 s; the baseline has its pages drawn and encoded already.

    Parameters:
        read: how the baseline streams: as the engine does, or as the client's documentation shows.
    """
    with _document(pages) as path:
        jpegs = baselines.encoded([baselines.render(path, index) for index in range(pages)])
        return _compare(path, pages, repeats, 1.0, lambda url: baselines.bare_loop(url, jpegs, CONCURRENCY, read))


def instant_server(pages: int = 320, repeats: int = 3) -> Figures:
    """A server that answers at once; the baseline draws and encodes in two processes."""
    with _document(pages) as path, ProcessPoolExecutor(2, get_context("spawn")) as pool:
        first = range(min(8, pages))
        list(pool.map(baselines.render, [path] * len(first), first))  # both have started and opened the document
        tasks = baselines.rendered(pool, path, pages)
        return _compare(path, pages, repeats, 0.0, lambda url: baselines.bare_loop(url, tasks, CONCURRENCY))


def client_cpu(pages: int = 320) -> float:
    """CPU milliseconds a page of the client alone on an instant server, used as the engine uses it, pages ready."""
    with _document(pages) as path, server.running() as url:
        jpegs = baselines.encoded([baselines.render(path, index) for index in range(pages)])
        return asyncio.run(baselines.bare_loop(url, jpegs, CONCURRENCY, baselines.read_dicts))[1] / pages * 1e3


async def _ours(url: str, path: str) -> tuple[float, float, float]:
    """Seconds, seconds to the first page, CPU seconds of this process."""
    async with JinaOCR("hosted", base_url=url, api_key="key", concurrency=CONCURRENCY) as ocr:
        start, cpu, first, count = time.perf_counter(), time.process_time(), 0.0, 0
        async for page in ocr.apages(path):
            assert page.ok, page.error
            first = first or time.perf_counter() - start
            count += 1
        return time.perf_counter() - start, first, time.process_time() - cpu


def _compare(path: str, pages: int, repeats: int, delay: float, baseline: Callable[[str], object]) -> Figures:
    ours, theirs, firsts, cpus = [], [], [], []
    client = client_cpu(pages) / 1e3
    with server.running(delay) as url:
        asyncio.run(_ours(url, path))  # imports and caches are warm for both
        for _ in range(repeats):
            theirs.append(pages / asyncio.run(baseline(url))[0])  # type: ignore[arg-type]
            seconds, first, cpu = asyncio.run(_ours(url, path))
            ours.append(pages / seconds)
            firsts.append(first)
            cpus.append((cpu / pages - client) * 1e3)
    ratios = [a / b for a, b in zip(ours, theirs, strict=True)]
    return Figures(*map(statistics.median, (ours, theirs, ratios, firsts, cpus)))


@contextmanager
def _document(pages: int) -> Iterator[str]:
    """The benchmark's PDF in a temporary file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "bench.pdf"
        path.write_bytes(make_pdf(pages))
        try:
            yield str(path)
        finally:
            baselines.close_documents()
