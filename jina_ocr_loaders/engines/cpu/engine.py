"""The engine: pages read in threads of this process, by models that come with two wheels."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import AsyncIterator
from contextlib import suppress
from importlib.util import find_spec
from typing import TYPE_CHECKING

from jina_ocr_loaders.engines.base import Delta, OCRRequest, Render
from jina_ocr_loaders.errors import JinaOCRError, MissingExtraError, RequestRejectedError
from jina_ocr_loaders.settings import OCRSettings
from jina_ocr_loaders.threads import in_daemon_thread

if TYPE_CHECKING:
    from jina_ocr_loaders.pages import PageImage

LONG_SIDE = 1600  # pixels; measured on the olmOCR-bench sample (docs/cpu-engine.md)


class CPUEngine:
    """Reads pages with RapidOCR and a small layout model; the Markdown is put together here.

    Raises:
        MissingExtraError: RapidOCR or onnxruntime is not installed.
    """

    name = "cpu"
    leaves_machine = False
    prices: tuple[float, float] | None = None
    max_concurrency: int | None = 1  # one page at a time keeps both cores busy; two at once are no faster

    def __init__(self, settings: OCRSettings) -> None:
        for module in ("rapidocr", "onnxruntime"):
            if find_spec(module) is None:
                raise MissingExtraError(
                    f'The cpu engine needs {module}, which is not installed: pip install "jina-ocr-loaders[cpu]"'
                )
        self.model = "rapidocr"
        self.render = Render(long_side=settings.long_side or LONG_SIDE, text_layer=settings.text_layer == "trust")

    async def stream(self, page: PageImage, request: OCRRequest) -> AsyncIterator[Delta]:
        """Yield the whole page at once. The prompt and the token limit have no meaning here."""
        from jina_ocr_loaders.engines.cpu.reader import shared_reader

        cancelled = threading.Event()

        def check() -> None:
            if cancelled.is_set():
                raise _CancelledError

        def read() -> Delta:
            try:
                reading = shared_reader().read(page.rgb(), check, page.text)
            except (_CancelledError, JinaOCRError):
                raise
            except Exception as error:
                raise RequestRejectedError(
                    f"The cpu engine failed on this page ({type(error).__name__}: {error}). Other engines may read it.",
                    page=page.number,
                ) from error
            finally:
                _give_memory_back()
            return Delta(
                reading.markdown,
                finish_reason="stop",
                model=reading.model,
                confidence=reading.confidence,
                warnings=reading.warnings,
            )

        try:
            delta = await in_daemon_thread(read)
        finally:
            cancelled.set()
        yield delta

    def warm(self) -> None:
        """Load the models, which takes some two seconds, before the first page comes."""
        from jina_ocr_loaders.engines.cpu.reader import shared_reader

        shared_reader()

    async def aclose(self) -> None:
        """Nothing to give back: the models are shared by the process."""


class _CancelledError(Exception):
    """Nobody waits for the page any more."""


def _give_memory_back() -> None:
    """Return freed memory to the system: glibc keeps it, some 100 MB more after each page with new line lengths."""
    with suppress(OSError, AttributeError, TypeError):  # other C libraries have no such call, and need none
        ctypes.CDLL(None).malloc_trim(0)
