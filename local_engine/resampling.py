"""A race in vLLM's rejection sampling, avoided."""

from functools import partial
from typing import Any

from vllm.v1.worker.gpu.spec_decode import rejection_sampler_utils


class OneWarp:
    """A Triton kernel that is launched with one warp."""

    def __init__(self, kernel: Any) -> None:
        self._kernel = kernel

    def __getitem__(self, grid: Any) -> Any:
        return partial(self._kernel[grid], num_warps=1)


def mend_resampling() -> None:
    """Launch vLLM's `_insert_resampled_kernel` with one warp instead of four.

    It reads the number of accepted drafts, writes back one more, and goes by what it read. No barrier parts the two: a
    warp that comes late reads the new number, leaves, and its share of the vocabulary is missing when the likeliest
    token is searched for, so that the second likeliest wins; of the batch's last page it reads beyond the end. Seen on
    an H200 where pages are encoded beside the steps (docs/performance.md), in vLLM 0.26 to 0.32.
    """
    kernel = rejection_sampler_utils._insert_resampled_kernel
    if not isinstance(kernel, OneWarp):
        rejection_sampler_utils._insert_resampled_kernel = OneWarp(kernel)
