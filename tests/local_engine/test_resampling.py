"""A kernel of vLLM that races with itself. That texts are right takes a GPU: `jina-ocr engine selftest --seconds`."""

import os
import subprocess
import sys

import pytest

SAMPLE = """
import torch, triton, triton.language
import vllm.triton_utils

# vLLM puts stand-ins there where Triton finds no GPU.
vllm.triton_utils.triton, vllm.triton_utils.tl = triton, triton.language

from vllm.v1.worker.gpu.spec_decode import rejection_sampler_utils as sampler
from local_engine.resampling import mend_resampling

launches = []

class Noting:
    def __init__(self, kernel):
        self.kernel = kernel
    def __getitem__(self, grid):
        def launch(*arguments, **options):
            launches.append(options.get("num_warps"))
            return self.kernel[grid](*arguments, **options)
        return launch

sampler._insert_resampled_kernel = Noting(sampler._insert_resampled_kernel)
mend_resampling()
mend_resampling()

# Two pages with two drafts each: both drafts right, so that a third token comes free; the second draft wrong.
likeliest = [3000, 5, 2999, 17, 1234, 8]
drafts = [0, 3000, 5, 0, 17, 4]  # the token before, then the drafts
logits = torch.zeros(6, 3001)
logits[range(6), likeliest] = 9.0
def whole(*numbers, kind=torch.int32):
    return torch.tensor(numbers, dtype=kind)
sampled, number = sampler.rejection_sample(
    target_logits=logits,
    draft_logits=None,
    draft_sampled=whole(*drafts),
    cu_num_logits=whole(0, 3, 6),
    pos=whole(*range(6), kind=torch.int64),
    idx_mapping=whole(0, 1),
    expanded_idx_mapping=whole(0, 0, 0, 1, 1, 1),
    expanded_local_pos=whole(0, 1, 2, 0, 1, 2),
    temperature=torch.zeros(2),
    seed=whole(0, 0, kind=torch.int64),
    num_speculative_steps=2,
)
print([tokens[:count] for tokens, count in zip(sampled.tolist(), number.tolist())], launches)
"""


@pytest.mark.engine
def test_vllm_inserts_resampled_tokens_with_one_warp() -> None:
    """vLLM's own sampling launches it with one warp, however often it is mended, and its tokens are right."""
    pytest.importorskip("triton")
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    done = subprocess.run([sys.executable, "-c", SAMPLE], env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[-1:] == ["[[3000, 5, 2999], [17, 1234]] [1]"], done.stderr[-2000:]
