"""jina-ocr-v1 by Transformers: on any device, one page at a time, and with the snapshot's own Python code."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator
from contextlib import aclosing
from importlib.util import find_spec
from typing import TYPE_CHECKING

from jina_ocr_loaders.engines.base import Delta, OCRRequest, Render
from jina_ocr_loaders.engines.local import deltas, local_errors
from jina_ocr_loaders.errors import EngineNotReadyError, MissingExtraError
from jina_ocr_loaders.settings import OCRSettings
from local_engine import transformers_engine

if TYPE_CHECKING:
    from jina_ocr_loaders.pages import PageImage


class TransformersEngine:
    """Reads pages with `local_engine.TransformersEngine`; the model is loaded with the first page.

    Parameters:
        settings: ``model`` (a snapshot's folder, or its name if it was downloaded), ``long_side``, and
            ``engine_options``: ``trust_remote_code``, which must be True, ``device`` and ``dtype``.

    Raises:
        MissingExtraError: Transformers or PyTorch is not installed.
        EngineNotReadyError: an option is unknown, or the snapshot's code may not run.
    """

    name = "transformers"
    leaves_machine = False
    max_concurrency: int | None = 1  # its generate() reads one page
    prices: tuple[float, float] | None = None

    def __init__(self, settings: OCRSettings) -> None:
        for module in ("transformers", "torch"):
            if find_spec(module) is None:
                raise MissingExtraError(
                    f"The transformers engine needs {module}, which is not installed: "
                    'pip install "jina-ocr-loaders[transformers]"'
                )
        self.model = settings.model
        self.render = Render(long_side=settings.long_side or Render().long_side)
        self._options = dict(settings.engine_options or {})
        self._lock = threading.Lock()
        self._handle: transformers_engine.TransformersEngine | None = self._open()

    async def stream(self, page: PageImage, request: OCRRequest) -> AsyncGenerator[Delta]:
        """Yield the whole page at once. Repetition is kept down as in the card's recipe, not by a penalty.

        Raises:
            EngineError: EngineNotReadyError when the model cannot be loaded.
        """
        image = await asyncio.to_thread(page.rgb)
        pieces = self._engine().stream(
            image, prompt=request.prompt, max_tokens=request.max_tokens, temperature=request.sampling.temperature
        )
        async with aclosing(deltas(pieces, self.model)) as stream:
            async for delta in stream:
                yield delta

    async def aclose(self) -> None:
        """Give up this loader's handle; the model's memory is free with the last one."""
        with self._lock:
            handle, self._handle = self._handle, None
        if handle is not None:
            await handle.aclose()

    def _engine(self) -> transformers_engine.TransformersEngine:
        with self._lock:
            if self._handle is None:
                self._handle = self._open()
            return self._handle

    def _open(self) -> transformers_engine.TransformersEngine:
        with local_errors():
            try:
                return transformers_engine.TransformersEngine(self.model, **self._options)
            except TypeError as error:
                raise EngineNotReadyError(f"engine_options of the transformers engine: {error}") from error
