"""The repetition penalty of vLLM's newer runner, which the engine uses on a GPU: its result, without its cost.

That runner keeps what was said as counts on the device and applies the penalty in a Triton kernel. Triton's interpreter
runs that kernel here, on the CPU.
"""

import os
import subprocess
import sys

import pytest

PENALTY = 1.05  # the card's

COMPARE = f"""
import torch, triton, triton.language
import vllm.triton_utils

# vLLM puts stand-ins there where Triton finds no GPU.
vllm.triton_utils.triton, vllm.triton_utils.tl = triton, triton.language

from vllm.model_executor.layers.utils import apply_penalties as plain
from vllm.v1.worker.gpu.sample.penalties import apply_penalties, bincount

torch.manual_seed(0)
REQUESTS, DRAFTED, PROMPT, VOCABULARY = 3, 3, 40, 1003  # no multiple of the kernel's 32 bits and 8,192 columns

prompts = torch.randint(0, 200, (REQUESTS, PROMPT))
rounds = torch.randint(300, 330, (REQUESTS, 7))  # a short round again and again, as a looping page has it
outputs = torch.cat([rounds.repeat(1, 9), torch.randint(400, 500, (REQUESTS, 5))], dim=1)
drafts = torch.cat([rounds[:, :2], torch.full((REQUESTS, DRAFTED - 2), 999)], dim=1)  # said before, said before, new

tokens = torch.cat([prompts, outputs], dim=1).int()
said = torch.zeros(REQUESTS, -(-VOCABULARY // 32), dtype=torch.int32)
counts = torch.zeros(REQUESTS, VOCABULARY, dtype=torch.int32)
length = tokens.shape[1]
asked, known = (torch.full((REQUESTS,), size, dtype=torch.int32) for size in (PROMPT, length))
bincount(torch.arange(REQUESTS, dtype=torch.int32), tokens, asked, known, said, counts, length)

rows = REQUESTS * (1 + DRAFTED)  # each page's next token, and one more after each drafted token
logits = torch.randn(rows, VOCABULARY) * 4
verified = torch.cat([outputs[:, -1:], drafts], dim=1).flatten().int()
request = torch.arange(REQUESTS, dtype=torch.int32).repeat_interleave(1 + DRAFTED)
position = torch.arange(1 + DRAFTED, dtype=torch.int32).repeat(REQUESTS)
fast = logits.clone()
none = torch.zeros(REQUESTS)
apply_penalties(fast, request, verified, position, torch.full((REQUESTS,), {PENALTY}), none, none, said, counts)

for row in range(rows):
    page, ahead = int(request[row]), int(position[row])
    before = torch.cat([outputs[page], drafts[page, :ahead]])[None]
    zero = torch.zeros(1)
    expected = plain(logits[row : row + 1].clone(), prompts[page][None], before, zero, zero, torch.tensor([{PENALTY}]))
    torch.testing.assert_close(fast[row : row + 1], expected, rtol=1e-6, atol=0)
assert (fast != logits).any(dim=1).all()
print("equal")
"""


@pytest.mark.engine
def test_penalty_on_repeating_text_is_the_older_runners():
    """Prompt, a looping output and drafted tokens are penalised alike by both runners, at every drafted position."""
    pytest.importorskip("triton")
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    done = subprocess.run([sys.executable, "-c", COMPARE], env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[-1:] == ["equal"], done.stderr[-2000:]
