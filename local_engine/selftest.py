"""Tries this machine's vLLM on a synthetic snapshot, before the 6.7 GB of the real weights arrive."""

import asyncio
import tempfile
import time
from dataclasses import dataclass
from typing import Any

from PIL import Image, ImageDraw

from local_engine.engine import GPU_MEMORY_UTILIZATION, LocalEngine
from local_engine.hardware import check_device, list_gpus, vllm_version
from local_engine.metrics import EngineMetrics
from local_engine.synthetic import Size, write_snapshot

_PAGES = (
    (480, 360),
    (1280, 1920),
    (1920, 1080),
)  # pixels: global view alone, an upright page of six tiles, a landscape one


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
    """

    vllm: str
    device: str
    start_seconds: float
    metrics: EngineMetrics
    wrong_pages: int
    expected: tuple[int, ...]

    @property
    def ok(self) -> bool:
        """Whether text and acceptance are as built."""
        return not self.wrong_pages and self.metrics.accepted == self.expected

    def __str__(self) -> str:
        text = "as known" if not self.wrong_pages else f"WRONG on {self.wrong_pages} of {len(_PAGES)} pages"
        lines = [
            f"vLLM {self.vllm} on {self.device}: started in {self.start_seconds:.0f} s",
            f"text: {text}",
            f"drafts accepted per position: {list(self.metrics.accepted)}, as built: {list(self.expected)}",
            str(self.metrics),
            "the engine works here" if self.ok else "the engine does NOT work here",
        ]
        return "\n".join(lines)


def selftest(*, size: Size = "tiny", num_speculative_tokens: int = 3, **options: Any) -> SelftestReport:
    """Write a synthetic snapshot whose text is known, read three pages at once with it, and compare.

    Args:
        size: "tiny" (50 MB, shrunken vision towers) checks the installation; "full" (6.7 GB of disk, then of GPU
            memory) also shows that the real model will fit, and its speed.
        num_speculative_tokens: K; 0 tests without draft head.
        options: of `LocalEngine`.

    Returns:
        The report; `ok` is the verdict.

    Raises:
        EngineSetupError: the engine cannot run here.
    """
    check_device(0, options.get("gpu_memory_utilization", GPU_MEMORY_UTILIZATION))  # before anything is written
    with tempfile.TemporaryDirectory(prefix="jina-ocr-selftest-") as folder:
        snapshot = write_snapshot(folder, size=size)
        expected = snapshot.accepted(num_speculative_tokens, len(snapshot.tokens) + 1)

        async def read() -> SelftestReport:
            async with LocalEngine(folder, num_speculative_tokens=num_speculative_tokens, **options) as engine:
                begin = time.monotonic()
                await engine.start()
                started = time.monotonic() - begin
                pages = await asyncio.gather(*(engine.transcribe(_page(*sides)) for sides in _PAGES))
                gpus = list_gpus()
                return SelftestReport(
                    vllm_version() or "",
                    gpus[0].name if gpus else "CPU",
                    started,
                    engine.metrics,
                    sum(page.text != snapshot.text for page in pages),
                    tuple(len(_PAGES) * count for count in expected),
                )

        return asyncio.run(read())


def _page(width: int, height: int) -> Image.Image:
    page = Image.new("RGB", (width, height), "white")
    draw = ImageDraw.Draw(page)
    for top in range(20, height - 20, 30):
        draw.line((20, top, width - 20 - top % 90, top), fill="black", width=8)
    return page
