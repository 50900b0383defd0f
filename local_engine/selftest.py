"""Tries this machine's vLLM on a synthetic snapshot, before the 6.7 GB of the real weights arrive."""

import asyncio
import random
import tempfile
import time
from dataclasses import dataclass
from typing import Any

from PIL import Image, ImageDraw

from local_engine.engine import LocalEngine
from local_engine.errors import LocalEngineError
from local_engine.hardware import check_device, list_gpus, vllm_version
from local_engine.metrics import EngineMetrics
from local_engine.settings import GPU_MEMORY_UTILIZATION, MAX_NUM_SEQS
from local_engine.synthetic import Size, Snapshot, write_snapshot

_PAGES = (
    (480, 360),
    (1280, 1920),
    (1920, 1080),
)  # pixels: global view alone, an upright page of six tiles, a landscape one
_LOADED_PAGES = (*_PAGES, (600, 600), (1000, 1400), (1700, 2200), (500, 2000), (300, 3000))
_TOKENS = 120  # of the known text
_LOADED_TOKENS = 600  # of the text of a test under load: long enough that many pages are decoded together
_GIVEN_UP = 0.04  # share of the pages under load that are stopped halfway, as callers do


@dataclass(frozen=True)
class LoadReport:
    """What came of reading under load.

    Attributes:
        seconds: how long pages were read.
        at_once: how many together.
        pages: read to their end.
        wrong: of these, whose text was not the known one.
        lost: pages that ended with an error.
        given_up: pages that the test itself stopped halfway.
    """

    seconds: float
    at_once: int
    pages: int
    wrong: int
    lost: int
    given_up: int

    @property
    def ok(self) -> bool:
        """Whether pages were read, and each had the known text."""
        return bool(self.pages) and not self.wrong and not self.lost

    def __str__(self) -> str:
        verdict = "text as known" if self.ok else f"WRONG text on {self.wrong}, {self.lost} ended with an error"
        return (
            f"under load, {self.at_once} at once: {self.pages} pages in {self.seconds:.0f} s "
            f"and {self.given_up} given up halfway: {verdict}"
        )


@dataclass(frozen=True)
class SelftestReport:
    """What a self-test saw.

    Attributes:
        vllm: its version.
        device: the GPU's name, or "CPU".
        start_seconds: time until the engine was ready.
        metrics: of the pages read.
        wrong_pages: pages whose text was not the known one.
        expected: how often the draft at position 1, 2, ... K had to be accepted; `metrics` has how often it was.
        load: of a test under load, if it was asked for; its pages are in none of the others.
    """

    vllm: str
    device: str
    start_seconds: float
    metrics: EngineMetrics
    wrong_pages: int
    expected: tuple[int, ...]
    load: LoadReport | None = None

    @property
    def ok(self) -> bool:
        """Whether text and acceptance are as built."""
        return not self.wrong_pages and self.metrics.accepted == self.expected and (self.load is None or self.load.ok)

    def __str__(self) -> str:
        text = "as known" if not self.wrong_pages else f"WRONG on {self.wrong_pages} of {len(_PAGES)} pages"
        lines = [
            f"vLLM {self.vllm} on {self.device}: started in {self.start_seconds:.0f} s",
            f"text: {text}",
            f"drafts accepted per position: {list(self.metrics.accepted)}, as built: {list(self.expected)}",
            str(self.metrics),
            *([str(self.load)] if self.load else []),
            "the engine works here" if self.ok else "the engine does NOT work here",
        ]
        return "\n".join(lines)


def selftest(
    *, size: Size = "tiny", num_speculative_tokens: int = 3, seconds: float = 0, **options: Any
) -> SelftestReport:
    """Write a synthetic snapshot whose text is known, read three pages at once with it, and compare.

    Args:
        size: "tiny" (50 MB, shrunken vision towers) checks the installation; "full" (6.7 GB of disk, then of GPU
            memory) also shows that the real model will fit, and its speed.
        num_speculative_tokens: K; 0 tests without draft head.
        seconds: how long to read pages of many sizes after that, as many at once as the engine takes, and compare each
            text: some faults of a GPU, its driver or vLLM only show under load.
        options: of `LocalEngine`.

    Returns:
        The report; `ok` is the verdict.

    Raises:
        EngineSetupError: the engine cannot run here.
    """
    check_device(0, options.get("gpu_memory_utilization", GPU_MEMORY_UTILIZATION))  # before anything is written
    at_once = options.get("max_num_seqs", MAX_NUM_SEQS)
    with tempfile.TemporaryDirectory(prefix="jina-ocr-selftest-") as folder:
        snapshot = write_snapshot(folder, size=size, length=_LOADED_TOKENS if seconds else _TOKENS)
        expected = snapshot.accepted(num_speculative_tokens, len(snapshot.tokens) + 1)

        async def read() -> SelftestReport:
            async with LocalEngine(folder, num_speculative_tokens=num_speculative_tokens, **options) as engine:
                begin = time.monotonic()
                await engine.start()
                started = time.monotonic() - begin
                pages = await asyncio.gather(*(engine.transcribe(_page(*sides)) for sides in _PAGES))
                metrics, gpus = engine.metrics, list_gpus()
                return SelftestReport(
                    vllm_version() or "",
                    gpus[0].name if gpus else "CPU",
                    started,
                    metrics,
                    sum(page.text != snapshot.text for page in pages),
                    tuple(len(_PAGES) * count for count in expected),
                    await read_under_load(engine, snapshot, seconds, at_once) if seconds else None,
                )

        return asyncio.run(read())


async def read_under_load(engine: LocalEngine, snapshot: Snapshot, seconds: float, at_once: int) -> LoadReport:
    """Read pages of many sizes and lengths for so long, so many at once, and compare each with the known text."""
    pages = [_page(*sides) for sides in _LOADED_PAGES]
    begin = time.monotonic()
    counts = {"pages": 0, "wrong": 0, "lost": 0, "given_up": 0}

    async def keep_reading(number: int) -> None:
        choose = random.Random(number)
        while time.monotonic() < begin + seconds:
            tokens = choose.randint(1, len(snapshot.tokens))
            patience = choose.random() if choose.random() < _GIVEN_UP else None
            try:
                async with asyncio.timeout(patience):
                    page = await engine.transcribe(choose.choice(pages), max_tokens=tokens)
            except TimeoutError:
                counts["given_up"] += 1
            except LocalEngineError:
                counts["lost"] += 1
                await asyncio.sleep(0.1)  # an engine that died answers at once
            else:
                counts["pages"] += 1
                counts["wrong"] += page.output_tokens != tokens or not snapshot.text.startswith(page.text)

    await asyncio.gather(*map(keep_reading, range(at_once)))
    return LoadReport(time.monotonic() - begin, at_once, **counts)


def _page(width: int, height: int) -> Image.Image:
    page = Image.new("RGB", (width, height), "white")
    draw = ImageDraw.Draw(page)
    for top in range(20, height - 20, 30):
        draw.line((20, top, width - 20 - top % 90, top), fill="black", width=8)
    return page
