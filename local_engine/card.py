"""The functions of the model card's `deepseek_ocr_mtp.py`, with its signatures and defaults.

Two things differ: nothing runs the snapshot's code (`trust_remote_code` is False), and the architectures are this
package's own.
"""

import json
import os
import sys
from typing import TYPE_CHECKING, Any, Literal

from local_engine import plugin, snapshot
from local_engine.preprocess import MAX_TILES
from local_engine.sampling import GREEDY

if TYPE_CHECKING:
    from vllm import LLM

Speculator = Literal["fastmtp", "snapshot"]


def register() -> None:
    """Register the model with vLLM in this process. vLLM does it by itself, in each of its own; twice does no harm.

    Raises:
        EngineSetupError: the installed vLLM is not supported.
    """
    plugin.check_vllm_version()
    plugin.register()


def vllm_llm_kwargs(
    model: str | os.PathLike[str] = snapshot.REPOSITORY,
    num_speculative_tokens: int = 3,
    mtp_heads: int = 1,
    mtp_recursive: bool = True,
    *,
    speculator: Speculator = "fastmtp",
    max_tiles: int = MAX_TILES,
    **overrides: Any,
) -> dict[str, Any]:
    """Arguments for vLLM's `LLM` and `AsyncEngineArgs`.

    Parameters:
        model: directory of the snapshot, or its name on Hugging Face if it has been downloaded.
        num_speculative_tokens: K, tokens drafted per step; 0 turns drafting off.
        mtp_heads, mtp_recursive: what the one published head is; other values are refused.
        speculator: "snapshot" uses the snapshot's own `deepseek_ocr_mtp.py` instead, which runs its code in every
            process of vLLM; the environment variable `JINA_OCR_SNAPSHOT_SPECULATOR` names it to them, and stays set.
        max_tiles: tiles a page is cut into at most. 9 is the model's own, 6 is vLLM's.
        overrides: further arguments, which win.

    Raises:
        EngineSetupError: vLLM is not supported, or the snapshot is missing, damaged, or has no draft head while K > 0.
        ValueError: a value that the published head does not have.
    """
    if mtp_heads != 1 or not mtp_recursive:
        raise ValueError("the published draft head is one head, used recursively: mtp_heads=1, mtp_recursive=True")
    if num_speculative_tokens < 0:
        raise ValueError("num_speculative_tokens must be 0 (no drafting) or more")
    plugin.check_vllm_version()
    folder = snapshot.resolve(model)
    if speculator == "snapshot":
        return _snapshot_kwargs(folder, num_speculative_tokens) | overrides
    config = snapshot.read_config(folder)
    side = snapshot.side_directory(folder)
    kwargs: dict[str, Any] = {
        "model": str(folder),
        "tokenizer": str(side / "tokenizer"),
        "trust_remote_code": False,
        "dtype": "bfloat16",
        "disable_log_stats": False,  # `LLM` keeps no figures by default
        # A tiny synthetic snapshot names the class that shrinks the vision towers.
        "hf_overrides": {"architectures": [config.get("local_engine_architecture", plugin.TARGET)]},
        "mm_processor_kwargs": {"max_crops": max_tiles},
        "limit_mm_per_prompt": {"image": 1},
    }
    if num_speculative_tokens:
        if missing := snapshot.missing_draft_tensors(folder):
            raise snapshot.SnapshotError(
                f"{folder} has no draft head ({len(missing)} tensors missing, such as {missing[0]}): "
                f"use num_speculative_tokens=0, or download {snapshot.REPOSITORY} again"
            )
        kwargs["speculative_config"] = {
            "model": str(side / "draft"),
            "method": "eagle",
            "num_speculative_tokens": num_speculative_tokens,
        }
    return kwargs | overrides


def vllm_serve_command(
    model: str | os.PathLike[str] = snapshot.REPOSITORY,
    num_speculative_tokens: int = 3,
    *,
    max_tiles: int = MAX_TILES,
    served_model_name: str = snapshot.NAMES[0],
    arguments: tuple[str, ...] = (),
) -> list[str]:
    """Command line of an OpenAI-compatible server of the model: plain `vllm serve` with the flags that match.

    Requests that say nothing else are sampled as the model card says, and a loop is stopped by vLLM itself.

    Parameters:
        model, num_speculative_tokens, max_tiles: as for `vllm_llm_kwargs`.
        served_model_name: what clients call the model.
        arguments: further flags, which win.
    """
    kwargs = vllm_llm_kwargs(model, num_speculative_tokens, max_tiles=max_tiles)
    flags = {
        "--served-model-name": served_model_name,
        "--tokenizer": kwargs["tokenizer"],
        "--dtype": kwargs["dtype"],
        "--hf-overrides": json.dumps(kwargs["hf_overrides"]),
        "--mm-processor-kwargs": json.dumps(kwargs["mm_processor_kwargs"]),
        "--limit-mm-per-prompt": json.dumps(kwargs["limit_mm_per_prompt"]),
        "--override-generation-config": json.dumps(GREEDY),
        "--middleware": "local_engine.serving.LoopStop",
    }
    if speculative := kwargs.get("speculative_config"):
        flags["--speculative-config"] = json.dumps(speculative)
    vllm = [sys.executable, "-m", "vllm.entrypoints.cli.main", "serve", kwargs["model"]]
    return [*vllm, *(part for flag in flags.items() for part in flag), *arguments]


def log_spec_stats(llm: "LLM") -> None:
    """Log an `LLM`'s drafting figures now (level INFO); vLLM does it about every ten seconds."""
    llm.llm_engine.do_log_stats()


def _snapshot_kwargs(folder: os.PathLike[str], num_speculative_tokens: int) -> dict[str, Any]:
    os.environ[plugin.SNAPSHOT_SPECULATOR] = os.fspath(folder)
    plugin.register()
    module = plugin.load_snapshot_speculator(snapshot.resolve(folder))
    kwargs: dict[str, Any] = module.vllm_llm_kwargs(
        os.fspath(folder), num_speculative_tokens=num_speculative_tokens, mtp_heads=1, mtp_recursive=True
    )
    return kwargs
