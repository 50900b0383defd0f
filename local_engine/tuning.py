"""Settings that make the engine fast, found by measuring (docs/performance.md).

Each can be switched off: the arguments of `LocalEngine` win over `draft_tokens`, its `engine_args` over
`engine_settings`, and variables that the user has set over `environment`. `local_engine.tune` finds those of this GPU.
"""

import logging
import os
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import TypeAdapter

from local_engine.hardware import GIB, list_gpus, on_cpu
from local_engine.plugin import WORKER
from local_engine.snapshot import one_name

logger = logging.getLogger("local_engine")

TABLES = Path(__file__).parent / "moe_configs"  # fused-MoE tables made by `tune.tune_moe`, one per GPU
CPU_CACHE = 2 * GIB  # bytes, within `hardware.WORKING_MEMORY`: three long pages at once, or some twenty of usual length
# Tokens of a step that runs as CUDA graphs: vLLM's own up to 512, and those of steps that take up one page or two.
CAPTURE_SIZES = [1, 2, 4, *range(8, 256, 8), *range(256, 513, 16), *range(640, 2049, 128)]
DRAFT_TOKENS = 3  # the card's K, and the fastest at every load where it was measured


_FILE = TypeAdapter(dict[str, dict[str, int]])  # device, model, K


class DraftTokens(NamedTuple):
    """K, tokens that FastMTP drafts per step, and where the number comes from, in words."""

    number: int
    origin: str


def engine_settings() -> dict[str, Any]:
    """Arguments of vLLM's `AsyncEngineArgs` for what it runs on."""
    if on_cpu():
        return {
            "enforce_eager": True,  # compiling takes longer than some pages do
            "kv_cache_memory_bytes": CPU_CACHE,  # or vLLM would take `gpu_memory_utilization` of the machine's memory
        }
    return {
        # Scheduler and worker in two processes: each is bound by Python, and in one they take turns.
        "distributed_executor_backend": "mp",
        "max_num_batched_tokens": 8192,  # eight pages a step may be encoded and prefilled together
        "renderer_num_workers": 4,  # threads that hand pages over
        "compilation_config": {"cudagraph_capture_sizes": CAPTURE_SIZES},
        "scheduler_cls": "local_engine.scheduling.make_scheduler",
        "worker_cls": WORKER,
    }


def environment() -> dict[str, str]:
    """Variables for the engine's processes on what they run on."""
    if on_cpu():
        return {}
    tuned = tables_folder()
    return {
        # vLLM's newer runner keeps the counts of the repetition penalty on the device, applies them in one kernel, and
        # replays target and drafts as CUDA graphs. vLLM 0.26 does not choose it for this model by itself.
        "VLLM_USE_V2_MODEL_RUNNER": "1",
        "VLLM_TUNED_CONFIG_FOLDER": str(tuned if tuned.is_dir() else TABLES),
    }


def tables_folder() -> Path:
    """Where `jina-ocr engine tune` puts a fused-MoE table for the user's own GPU."""
    return _cache() / "moe_configs"


def tuned_file() -> Path:
    """Where `jina-ocr engine tune` keeps the K it found, by device and model."""
    return _cache() / "tuned.json"


def draft_tokens(model: str | os.PathLike[str]) -> DraftTokens:
    """The K that `jina-ocr engine tune` found for a model on this machine's device, or the card's."""
    found = _tuned()  # looked at first: asking for the device takes a moment
    number = found.get(device(), {}).get(one_name(model)) if found else None
    if number is None:
        return DraftTokens(DRAFT_TOKENS, "the card's; `jina-ocr engine tune` finds the fastest")
    return DraftTokens(number, f"found by `jina-ocr engine tune`: {tuned_file()}")


def keep_draft_tokens(model: str | os.PathLike[str], number: int) -> None:
    """Write down the K to use for a model on this machine's device."""
    found = _tuned()
    found.setdefault(device(), {})[one_name(model)] = number
    path = tuned_file()
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("wb", dir=path.parent, delete=False) as file:
        file.write(_FILE.dump_json(found, indent=1))
    os.replace(file.name, path)


def device() -> str:
    """What the engine runs on: the GPU's name, or "CPU"."""
    gpus = list_gpus()
    return gpus[0].name if gpus else "CPU"


def _tuned() -> dict[str, dict[str, int]]:
    path = tuned_file()
    try:
        return _FILE.validate_json(path.read_bytes())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        logger.warning("%s cannot be read (%s): run `jina-ocr engine tune` again", path, error)
        return {}


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "jina-ocr-loaders"
