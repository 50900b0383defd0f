"""Runs jina-ocr-v1 on this machine: vLLM with the FastMTP draft head, or Transformers.

Importing the package imports neither: the names below are looked up when they are first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from local_engine.card import log_spec_stats, register, vllm_llm_kwargs, vllm_serve_command
    from local_engine.engine import LocalEngine, Piece, Transcript
    from local_engine.errors import (
        EngineClosedError,
        EngineDiedError,
        EngineSetupError,
        LocalEngineError,
        PageRejectedError,
    )
    from local_engine.metrics import EngineMetrics
    from local_engine.preprocess import DEFAULT_OCR_PROMPT
    from local_engine.sampling import vllm_sampling_params
    from local_engine.snapshot import SnapshotError
    from local_engine.transformers_engine import TransformersEngine

_MODULES = {
    "DEFAULT_OCR_PROMPT": "preprocess",
    "EngineClosedError": "errors",
    "EngineDiedError": "errors",
    "EngineMetrics": "metrics",
    "EngineSetupError": "errors",
    "LocalEngine": "engine",
    "LocalEngineError": "errors",
    "PageRejectedError": "errors",
    "Piece": "engine",
    "SnapshotError": "snapshot",
    "Transcript": "engine",
    "TransformersEngine": "transformers_engine",
    "log_spec_stats": "card",
    "register": "card",
    "vllm_llm_kwargs": "card",
    "vllm_sampling_params": "sampling",
    "vllm_serve_command": "card",
}

__all__ = [
    "DEFAULT_OCR_PROMPT",
    "EngineClosedError",
    "EngineDiedError",
    "EngineMetrics",
    "EngineSetupError",
    "LocalEngine",
    "LocalEngineError",
    "PageRejectedError",
    "Piece",
    "SnapshotError",
    "Transcript",
    "TransformersEngine",
    "log_spec_stats",
    "register",
    "vllm_llm_kwargs",
    "vllm_sampling_params",
    "vllm_serve_command",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
