"""Finds the settings of this machine: what `jina-ocr engine tune` runs.

    python -m local_engine.tune [MODEL] [page.png ...] [--concurrency 32 128] [--drafts 0 1 3]

On a GPU it times the fused-MoE kernels and writes a table for vLLM; then it reads pages with each K of FastMTP and
writes down which one to use. `LocalEngine` finds both by itself (`local_engine.tuning`).
"""

import argparse
import json
import math
import multiprocessing
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any

from local_engine import benchmark
from local_engine.errors import EngineSetupError, LocalEngineError
from local_engine.hardware import gpu_ready
from local_engine.setups import can_run, load_options, setups
from local_engine.snapshot import has_draft, resolve
from local_engine.tuning import keep_draft_tokens, tables_folder, tuned_file

# The model's experts (config.json: n_routed_experts, moe_intermediate_size, hidden_size, num_experts_per_tok).
EXPERTS, INTERMEDIATE, HIDDEN, TOP_K = 64, 896, 1280, 6
BATCH_SIZES = (1, 4, 8, 32, 128, 512)  # tokens of a step: a lone page and 8, 32, 128 pages, with and without drafts
# vLLM takes the entry nearest to a step's tokens: without entries for prefill, it would run on what suits decoding.
PREFILL_SIZES = (1024, 2048, 4096, 8192)
SHARED_MEMORY = 227 * 1024  # bytes a block may use on Hopper (CUDA programming guide, compute capability 9.0)

Config = dict[str, int]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    parser = load_options("jina-ocr engine tune", "Find the fastest settings of this machine and keep them.")
    parser.set_defaults(pages=128)
    chosen = parser.parse_args(arguments)
    if not can_run("engine tune", chosen.model):
        return 1
    try:
        if gpu_ready():
            print(f"fused-MoE table: {tune_moe(tables_folder())}", flush=True)
        drafts = tune_drafts(chosen)
    except LocalEngineError as error:
        print(f"engine tune: {error}", file=sys.stderr)
        return 1
    print(f"K = {drafts}: {tuned_file()}")
    return 0


def tune_drafts(chosen: argparse.Namespace) -> int:
    """Measure each K on a model and its pages, print the figures, and keep the K to use.

    Args:
        chosen: what `load_options` parsed.

    Raises:
        EngineSetupError: there is no draft head, or the engine does not run without it.
    """
    if not has_draft(resolve(chosen.model)):
        raise EngineSetupError(f"{chosen.model} has no draft head, and so no K to find: num_speculative_tokens=0")
    chosen.drafts = sorted({0, *chosen.drafts})
    measured = setups(chosen)
    drafts_of = {setup.name: setup.num_speculative_tokens for setup in measured}
    measurements = {drafts_of[m.name]: m for m in benchmark.measure_setups(measured)}
    if 0 not in measurements:
        raise EngineSetupError(f"the engine could not be measured with {chosen.model}; its last words are above")
    print(benchmark.table(list(measurements.values())), flush=True)
    drafts = fastest({k: {"1": 1 / m.lone_seconds, **m.pages_per_second} for k, m in measurements.items()})
    keep_draft_tokens(chosen.model, drafts)
    return drafts


def fastest(speeds: Mapping[int, Mapping[str, float]]) -> int:
    """The K of largest mean gain over K = 0, of those that are slower than it at no load: a running engine has one K.

    Args:
        speeds: pages per second, by K and load; K = 0 is among them.
    """
    gains = {k: [speed / speeds[0][load] for load, speed in loads.items()] for k, loads in speeds.items()}
    never_slower = [k for k in gains if min(gains[k]) >= 1]
    return max(never_slower, key=lambda k: math.prod(gains[k]))


def candidates() -> list[Config]:
    """Kernel settings worth a try for few tokens per expert: at most 60."""
    return [
        {
            "BLOCK_SIZE_M": 16,
            "BLOCK_SIZE_N": n,
            "BLOCK_SIZE_K": k,
            "GROUP_SIZE_M": 1,
            "SPLIT_K": 1,
            "num_warps": warps,
            "num_stages": stages,
        }
        for n, k, warps, stages in product((32, 64, 128), (64, 128, 256), (4, 8), (2, 3, 4, 5))
        if (16 + n) * k * 2 * stages <= SHARED_MEMORY and (k < 256 or stages < 4)
    ]


def tune_moe(folder: Path, batch_sizes: Sequence[int] = BATCH_SIZES, workers: int = 8) -> Path:
    """Write the fused-MoE table of this GPU, for vLLM's `VLLM_TUNED_CONFIG_FOLDER`.

    Args:
        folder: Where the table goes; its file name is vLLM's own.
        batch_sizes: Tokens of a step to tune for.
        workers: Processes that compile the kernels (about a second each) before anything is timed.

    Returns:
        The table's path.

    Raises:
        EngineSetupError: there is no GPU here, or vLLM is not installed for one.
    """
    if not gpu_ready():
        raise EngineSetupError("Tuning needs an NVIDIA GPU, and vLLM for CUDA: it times the kernels on the GPU itself.")
    from vllm.model_executor.layers.fused_moe.fused_moe import get_config_file_name, get_default_config

    tried = candidates()
    with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as pool:
        list(pool.map(_compile, [tried[i::workers] for i in range(workers)], [batch_sizes] * workers))
    layer = _Layer()
    table: dict[str, Any] = {}
    for tokens in batch_sizes:
        default = get_default_config(tokens, EXPERTS, INTERMEDIATE, HIDDEN, TOP_K, None)
        times = [(layer.seconds(tokens, config), index) for index, config in enumerate([default, *tried])]
        best = min(times)
        print(f"{tokens} tokens: {times[0][0] * 1e6:.1f} us by default, {best[0] * 1e6:.1f} us tuned", flush=True)
        table[str(tokens)] = [default, *tried][best[1]]
    for tokens in PREFILL_SIZES:
        table[str(tokens)] = get_default_config(tokens, EXPERTS, INTERMEDIATE, HIDDEN, TOP_K, None)
    folder.mkdir(parents=True, exist_ok=True)
    path: Path = folder / get_config_file_name(EXPERTS, INTERMEDIATE, None)
    path.write_text(json.dumps(table, indent=1) + "\n")
    return path


def _compile(configs: Sequence[Config], batch_sizes: Sequence[int]) -> None:
    layer = _Layer()
    for config, tokens in product(configs, batch_sizes):
        layer.run(tokens, config)


class _Layer:
    """One MoE layer of the model with random weights on the GPU."""

    ROUNDS = 8  # routings per timing: enough that the weights of the next do not lie in the cache

    def __init__(self) -> None:
        import torch

        self.torch = torch
        bf16 = {"dtype": torch.bfloat16, "device": "cuda"}
        self.w1 = torch.randn(EXPERTS, 2 * INTERMEDIATE, HIDDEN, **bf16) * 0.02
        self.w2 = torch.randn(EXPERTS, HIDDEN, INTERMEDIATE, **bf16) * 0.02

    def inputs(self, tokens: int) -> Iterator[tuple[Any, Any, Any]]:
        torch = self.torch
        generator = torch.Generator("cuda").manual_seed(0)
        for _ in range(self.ROUNDS):
            scores = torch.rand(tokens, EXPERTS, generator=generator, device="cuda")
            weights, ids = scores.topk(TOP_K)
            yield torch.randn(tokens, HIDDEN, dtype=torch.bfloat16, device="cuda"), weights, ids.int()

    def run(self, tokens: int, config: Config) -> None:
        """Run once, to compile; a setting the GPU cannot hold is passed over here and in `seconds`."""
        self._each(list(self.inputs(tokens))[:1], config)

    def seconds(self, tokens: int, config: Config) -> float:
        """Time one pass of the layer, as replayed in a CUDA graph."""
        torch = self.torch
        inputs = list(self.inputs(tokens))
        if not self._each(inputs, config):
            return float("inf")
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._each(inputs, config)
        graph.replay()
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        for _ in range(10):
            graph.replay()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end)) / 1e3 / 10 / self.ROUNDS

    def _each(self, inputs: Sequence[tuple[Any, Any, Any]], config: Config) -> bool:
        from triton.runtime.errors import OutOfResources
        from vllm.model_executor.layers.fused_moe import override_config
        from vllm.model_executor.layers.fused_moe.fused_moe import fused_experts

        try:
            with override_config(config):
                for hidden, weights, ids in inputs:
                    fused_experts(hidden, self.w1, self.w2, weights, ids)
        except OutOfResources:
            return False
        return True


if __name__ == "__main__":
    sys.exit(main())
