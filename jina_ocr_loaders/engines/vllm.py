"""jina-ocr-v1 on this machine's GPU, by vLLM with its draft head. All loaders of the process share one engine."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TYPE_CHECKING

from jina_ocr_loaders.engines.base import Delta, OCRRequest, Render
from jina_ocr_loaders.engines.local import deltas, local_errors
from jina_ocr_loaders.errors import EngineNotReadyError, MissingExtraError
from jina_ocr_loaders.settings import OCRSettings
from local_engine.engine import LocalEngine
from local_engine.hardware import on_cpu, vllm_version

if TYPE_CHECKING:
    from jina_ocr_loaders.pages import PageImage


class VLLMEngine:
    """Reads pages with `local_engine.LocalEngine`, which starts with the first page and ends with the last loader.

    Parameters:
        settings: ``model`` (a snapshot's folder, or its name if it was downloaded), ``long_side``, and
            ``engine_options``: the options of ``LocalEngine``.

    Raises:
        MissingExtraError: vLLM is not installed.
        EngineNotReadyError: an option is unknown, or this process runs the model with other options already.
    """

    name = "vllm"
    leaves_machine = False
    prices: tuple[float, float] | None = None

    def __init__(self, settings: OCRSettings) -> None:
        if vllm_version() is None:
            raise MissingExtraError(
                'The vllm engine needs vLLM, which is not installed: pip install "jina-ocr-loaders[vllm]" on a machine '
                "with an NVIDIA GPU."
            )
        self.model = settings.model
        self.render = Render(long_side=settings.long_side or Render().long_side)
        self._options = dict(settings.engine_options or {})
        self._lock = threading.Lock()
        self._handle: LocalEngine | None = self._open()
        # On a CPU the cache holds some twenty pages: more would only wait there, while their time runs out.
        self.max_concurrency: int | None = None if on_cpu() else self._engine().capacity

    async def stream(self, page: PageImage, request: OCRRequest) -> AsyncGenerator[Delta]:
        """Yield the page's Markdown as it comes; the last Delta carries finish reason, usage and the model's name.

        Raises:
            EngineError: TransientError when the engine's process died; EngineNotReadyError when it cannot run here.
        """
        image = await asyncio.to_thread(page.rgb)
        pieces = self._engine().stream(
            image,
            prompt=request.prompt,
            max_tokens=request.max_tokens,
            temperature=request.sampling.temperature,
            repetition_penalty=request.sampling.repetition_penalty,
        )
        async with aclosing(deltas(pieces, self.model)) as stream:
            async for delta in stream:
                yield delta

    async def prepare(self) -> None:
        """Start the engine, if it does not run: one to two minutes on a GPU.

        Raises:
            EngineNotReadyError: it cannot run here.
        """
        with local_errors():
            await self._engine().start()

    async def aclose(self) -> None:
        """Give up this loader's handle; the engine ends, and its memory is free, with the last one."""
        with self._lock:
            handle, self._handle = self._handle, None
        if handle is not None:
            await handle.aclose()

    def _engine(self) -> LocalEngine:
        with self._lock:
            if self._handle is None:
                self._handle = self._open()
            return self._handle

    def _open(self) -> LocalEngine:
        with local_errors():
            try:
                return LocalEngine(self.model, **self._options)
            except TypeError as error:
                raise EngineNotReadyError(f"engine_options of the vllm engine: {error}") from error
