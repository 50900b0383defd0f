"""Reads documents into Markdown with jina-ocr-v1: hosted, on your GPU, or on the CPU.

Names are imported when they are first used: importing the package costs little and needs no framework.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jina_ocr_loaders.access import AccessPolicy
    from jina_ocr_loaders.engines.base import Delta, DocumentEngine, Engine, OCRRequest, Transcription
    from jina_ocr_loaders.errors import (
        AuthenticationError,
        BudgetExceededError,
        CorruptDocumentError,
        DeadlineExceededError,
        DownloadError,
        EngineError,
        EngineNotReadyError,
        ForbiddenURLError,
        JinaOCRError,
        MissingExtraError,
        ModelNotFoundError,
        PageRangeError,
        PageRenderError,
        PagesFailedError,
        PasswordRequiredError,
        QuotaError,
        RateLimitedError,
        RequestRejectedError,
        ResourceLimitError,
        SourceError,
        SourceNotFoundError,
        TransientError,
        UnsupportedEncryptionError,
        UnsupportedSourceError,
        WarmingUpError,
        WrongPasswordError,
    )
    from jina_ocr_loaders.estimate import Estimate
    from jina_ocr_loaders.langchain import JinaOCRBlobParser, JinaOCRLoader, JinaOCRTool
    from jina_ocr_loaders.llama_index import JinaOCRReader, JinaOCRToolSpec
    from jina_ocr_loaders.ocr import JinaOCR, OpenDocument
    from jina_ocr_loaders.pages import PageImage
    from jina_ocr_loaders.prompts import BENCHMARK_PROMPT, DEFAULT_PROMPT
    from jina_ocr_loaders.results import Attempt, DocumentResult, PageResult, PageStatus, Usage
    from jina_ocr_loaders.settings import OCRSettings, RetryEvent
    from jina_ocr_loaders.sources import Source
    from jina_ocr_loaders.tools import DocumentTool

__all__ = [
    "BENCHMARK_PROMPT",
    "DEFAULT_PROMPT",
    "AccessPolicy",
    "Attempt",
    "AuthenticationError",
    "BudgetExceededError",
    "CorruptDocumentError",
    "DeadlineExceededError",
    "Delta",
    "DocumentEngine",
    "DocumentResult",
    "DocumentTool",
    "DownloadError",
    "Engine",
    "EngineError",
    "EngineNotReadyError",
    "Estimate",
    "ForbiddenURLError",
    "JinaOCR",
    "JinaOCRBlobParser",
    "JinaOCRError",
    "JinaOCRLoader",
    "JinaOCRReader",
    "JinaOCRTool",
    "JinaOCRToolSpec",
    "MissingExtraError",
    "ModelNotFoundError",
    "OCRRequest",
    "OCRSettings",
    "OpenDocument",
    "PageImage",
    "PageRangeError",
    "PageRenderError",
    "PageResult",
    "PageStatus",
    "PagesFailedError",
    "PasswordRequiredError",
    "QuotaError",
    "RateLimitedError",
    "RequestRejectedError",
    "ResourceLimitError",
    "RetryEvent",
    "Source",
    "SourceError",
    "SourceNotFoundError",
    "Transcription",
    "TransientError",
    "UnsupportedEncryptionError",
    "UnsupportedSourceError",
    "Usage",
    "WarmingUpError",
    "WrongPasswordError",
]

_MODULES = {
    "engines.base": ["Delta", "DocumentEngine", "Engine", "OCRRequest", "Transcription"],
    "estimate": ["Estimate"],
    "langchain": ["JinaOCRBlobParser", "JinaOCRLoader", "JinaOCRTool"],
    "llama_index": ["JinaOCRReader", "JinaOCRToolSpec"],
    "ocr": ["JinaOCR", "OpenDocument"],
    "pages": ["PageImage"],
    "prompts": ["BENCHMARK_PROMPT", "DEFAULT_PROMPT"],
    "results": ["Attempt", "DocumentResult", "PageResult", "PageStatus", "Usage"],
    "settings": ["OCRSettings", "RetryEvent"],
    "sources": ["Source"],
    "tools": ["DocumentTool"],
    "access": ["AccessPolicy"],
}
_HOME = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("jina-ocr-loaders")
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOME.get(name, 'errors')}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
