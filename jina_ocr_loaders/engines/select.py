"""Which engine reads: the one that was named, or the first that is ready here."""

from __future__ import annotations

import importlib
import logging
import os
from importlib.util import find_spec
from urllib.parse import urlsplit

from jina_ocr_loaders.engines.base import DocumentEngine, Engine
from jina_ocr_loaders.engines.endpoint import JINA_BASE_URL
from jina_ocr_loaders.errors import EngineNotReadyError
from jina_ocr_loaders.settings import OCRSettings
from local_engine.hardware import gpu_ready

logger = logging.getLogger("jina_ocr_loaders.engines")

_CLASSES = {
    "hosted": "jina_ocr_loaders.engines.hosted:HostedEngine",
    "reader": "jina_ocr_loaders.engines.reader:ReaderEngine",
    "vllm": "jina_ocr_loaders.engines.vllm:VLLMEngine",
    "transformers": "jina_ocr_loaders.engines.transformers:TransformersEngine",
    "cpu": "jina_ocr_loaders.engines.cpu:CPUEngine",
}
ENGINES = ("auto", *_CLASSES)

WAYS = """No engine is set up. Any of these will do:
  a key from https://jina.ai:             export JINA_API_KEY=...
  your own OpenAI-compatible server:      export JINA_OCR_BASE_URL=http://host:8000/v1
  this machine's NVIDIA GPU:              pip install "jina-ocr-loaders[vllm]"
  this machine's CPU, without any model:  pip install "jina-ocr-loaders[cpu]"
"""

CPU_WARNING = (
    "engine cpu: no key, server or GPU is set up, so pages are read on this CPU by a small OCR pipeline, not by "
    "jina-ocr-v1; tables, formulas and handwriting suffer. Set JINA_API_KEY for the model."
)


def create_engine(settings: OCRSettings) -> Engine | DocumentEngine:
    """The engine that the settings name, or the first that is ready.

    Raises:
        EngineNotReadyError: the name is unknown, or "auto" finds none; the message names each way to set one up.
        MissingExtraError: the engine's own dependency is missing.
    """
    if not isinstance(settings.engine, str):
        engine: Engine | DocumentEngine = settings.engine
        return engine
    name = settings.engine
    if name == "auto":
        name = os.environ.get("JINA_OCR_ENGINE") or "auto"
    if name == "auto":
        name = first_ready(settings)
        if name == "hosted":
            logger.info("engine hosted: pages are sent to %s", urlsplit(_base_url(settings) or JINA_BASE_URL).hostname)
        if name == "cpu":
            logger.warning(CPU_WARNING)
    if name not in _CLASSES:
        raise EngineNotReadyError(f"There is no engine {name!r}. Engines: {', '.join(ENGINES)}.")
    module, _, cls = _CLASSES[name].partition(":")
    created: Engine | DocumentEngine = getattr(importlib.import_module(module), cls)(settings)
    return created


def first_ready(settings: OCRSettings) -> str:
    """The name of the first engine that is ready here: hosted, vllm, cpu.

    Raises:
        EngineNotReadyError: none is.
    """
    if _base_url(settings) or settings.api_key or os.environ.get("JINA_API_KEY"):
        return "hosted"
    if gpu_ready():
        return "vllm"
    if find_spec("rapidocr") and find_spec("onnxruntime"):
        return "cpu"
    raise EngineNotReadyError(WAYS)


def _base_url(settings: OCRSettings) -> str | None:
    return settings.base_url or os.environ.get("JINA_OCR_BASE_URL")
