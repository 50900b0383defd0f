"""The kernels that cut a page into views on a GPU: run here by Triton's interpreter, on the CPU."""

import os
import subprocess
import sys

import pytest

COMPARE = """
import torch, triton, triton.language
import vllm.triton_utils

# vLLM puts stand-ins there where Triton finds no GPU.
vllm.triton_utils.triton, vllm.triton_utils.tl = triton, triton.language

from local_engine import resize

resize.TILE, resize.VIEW, resize.BLOCK = 40, 64, 32  # the interpreter is slow; several blocks a line
torch.manual_seed(0)
for width, height, grid in [(60, 90, (2, 3)), (130, 70, (3, 2)), (80, 80, (2, 2)), (50, 40, (1, 1)), (1, 200, (1, 4))]:
    page = torch.randint(0, 2, (height, width, 3), dtype=torch.uint8) * 255  # sharp edges overshoot
    expected = resize.cut_views(page, grid, torch.bfloat16)
    on_cpu, resize._lay_out = resize._lay_out, resize._lay_out_on_gpu
    made = resize.cut_views(page, grid, torch.bfloat16)
    resize._lay_out = on_cpu
    for one, other in zip(made, expected, strict=True):
        assert torch.equal(one, other), (width, height)
print("equal")
"""


@pytest.mark.engine
def test_the_kernels_pixels_are_those_of_pytorch() -> None:
    """Tiles and view are laid out and resized by the kernels as by PyTorch's operations, in every pixel."""
    pytest.importorskip("triton")
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    done = subprocess.run([sys.executable, "-c", COMPARE], env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[-1:] == ["equal"], done.stderr[-2000:]
