"""What vLLM is started with: arguments and environment of the engine for one model."""

import contextlib
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self

from local_engine import plugin, tuning
from local_engine.hardware import on_cpu
from local_engine.snapshot import one_name

# Tokens: 8,192 of output, the hosted API's cap, beside 1,203 of the largest image (nine tiles) and a long prompt.
MAX_MODEL_LEN = 10_240
# Pages read at once: as many as the fastest figure of docs/performance.md had; memory for fewer makes some wait.
MAX_NUM_SEQS = 128
GPU_MEMORY_UTILIZATION = 0.85  # the rest is left to the vision path's peaks and to other programs
# Tokens of a piece: handing over each by itself costs the event loop more than a step of the model, at 32 pages.
STREAM_INTERVAL = 8

# Set for the engine's processes where the user has not set them, while it starts.
_ENVIRONMENT = {
    "VLLM_WORKER_MULTIPROC_METHOD": "spawn",  # a forked child of a process with threads can hang in OpenMP or a lock
    "VLLM_LOGGING_LEVEL": "WARNING",
    "VLLM_LOGGING_STREAM": "ext://sys.stderr",  # stdout belongs to the program's own output
    "VLLM_NO_USAGE_STATS": "1",  # vLLM reports its use over the network unless told not to
}


@dataclass(frozen=True)
class EngineSettings:
    """The settings of `LocalEngine`; two engines with equal ones are the same."""

    model: str
    num_speculative_tokens: int
    max_num_seqs: int
    gpu_memory_utilization: float
    engine_args: Mapping[str, Any]
    drafts_from: str = field(default="", compare=False, repr=False)

    @classmethod
    def of(
        cls,
        model: str | os.PathLike[str],
        num_speculative_tokens: int | None = None,
        max_num_seqs: int = MAX_NUM_SEQS,
        gpu_memory_utilization: float = GPU_MEMORY_UTILIZATION,
        engine_args: Mapping[str, Any] | None = None,
    ) -> Self:
        """The settings for the options of `LocalEngine`."""
        drafts = tuning.DraftTokens(num_speculative_tokens or 0, "as asked for")
        if num_speculative_tokens is None:
            drafts = tuning.draft_tokens(model)
        arguments = dict(engine_args or {})
        return cls(
            one_name(model),
            drafts.number,
            arguments.pop("max_num_seqs", max_num_seqs),
            arguments.pop("gpu_memory_utilization", gpu_memory_utilization),
            arguments,
            drafts.origin,
        )

    def arguments(self, snapshot: Path) -> dict[str, Any]:
        """Arguments of vLLM's `AsyncEngineArgs` and `LLM`."""
        from local_engine.card import vllm_llm_kwargs

        ours: dict[str, Any] = {
            "max_model_len": MAX_MODEL_LEN,
            "max_num_seqs": self.max_num_seqs,
            "gpu_memory_utilization": self.gpu_memory_utilization,
            "enable_prefix_caching": False,  # no two pages share more than the first few tokens
            "mm_processor_cache_gb": 0,
            "stream_interval": STREAM_INTERVAL,
        }
        ours |= tuning.engine_settings()
        arguments = vllm_llm_kwargs(snapshot, self.num_speculative_tokens, **ours)
        if not on_cpu() and arguments["hf_overrides"] == {"architectures": [plugin.TARGET]}:
            arguments["hf_overrides"] = {"architectures": [plugin.FAST_TARGET]}
        return arguments | dict(self.engine_args)

    def environment(self) -> dict[str, str]:
        """Variables for the engine's processes."""
        variables = _ENVIRONMENT | tuning.environment()
        if not on_cpu() and not (shutil.which("nvcc") and find_spec("flashinfer")):
            variables["VLLM_USE_FLASHINFER_SAMPLER"] = "0"  # it compiles its kernels with nvcc
        return variables


@contextlib.contextmanager
def default_environment(values: Mapping[str, str]) -> Iterator[None]:
    """Set the variables that the user has not set, for as long as the block runs."""
    added = {name: value for name, value in values.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)
