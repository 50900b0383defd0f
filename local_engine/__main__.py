"""What the model card's example.py does: read one page with vLLM or Transformers; and a server.

python -m local_engine --backend vllm --image page.png
python -m local_engine serve [MODEL] [--num-speculative-tokens K] [-- flags of vllm serve]
"""

import argparse
import asyncio
import contextlib
import os
import sys
from collections.abc import Sequence

from PIL import Image

from local_engine.engine import LocalEngine
from local_engine.errors import LocalEngineError
from local_engine.hardware import require_vllm
from local_engine.preprocess import DEFAULT_OCR_PROMPT
from local_engine.snapshot import REPOSITORY
from local_engine.transformers_engine import TransformersEngine
from local_engine.tuning import draft_tokens

_K = "K of FastMTP, 0 for none (vllm); by default what `jina-ocr engine tune` found, or 3"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    try:
        if arguments[:1] == ["serve"]:
            return _serve(arguments[1:])
        return asyncio.run(_read(_reader().parse_args(arguments)))
    except LocalEngineError as error:
        print(f"local_engine: {error}", file=sys.stderr)
        return 1


def _reader() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m local_engine", description="Read one page image into Markdown.")
    parser.add_argument("--backend", choices=("vllm", "transformers"), default="vllm")
    parser.add_argument("--image", required=True, help="the page")
    parser.add_argument("--model", default=REPOSITORY, help="folder of a snapshot, or its name on Hugging Face")
    parser.add_argument("--prompt", default=DEFAULT_OCR_PROMPT)
    parser.add_argument("--max-tokens", type=int, default=4096)
    parser.add_argument("--num-speculative-tokens", type=int, help=_K)
    parser.add_argument("--device", help="such as cuda:1 or cpu (transformers)")
    parser.add_argument("--dtype", choices=("bfloat16", "float32"), default="bfloat16")
    parser.add_argument(
        "--trust-remote-code", action="store_true", help="let the snapshot's Python files run (transformers)"
    )
    return parser


async def _read(options: argparse.Namespace) -> int:
    try:
        with Image.open(options.image) as opened:
            image = opened.convert("RGB")
    except OSError as error:
        print(f"local_engine: cannot read {options.image}: {error}", file=sys.stderr)
        return 1
    engine: LocalEngine | TransformersEngine
    if options.backend == "vllm":
        engine = LocalEngine(
            options.model,
            num_speculative_tokens=options.num_speculative_tokens,
            engine_args={"dtype": options.dtype},
        )
    else:
        engine = TransformersEngine(
            options.model,
            trust_remote_code=options.trust_remote_code,
            device=options.device,
            dtype=options.dtype,
        )
    async with engine:
        pieces = engine.stream(image, prompt=options.prompt, max_tokens=options.max_tokens)
        async with contextlib.aclosing(pieces):
            async for piece in pieces:
                print(piece.text, end="", flush=True)
                last = piece
        print()
        print(f"{last.finish_reason}: {last.prompt_tokens} tokens in, {last.output_tokens} out", file=sys.stderr)
        if isinstance(engine, LocalEngine):
            print(engine.metrics, file=sys.stderr)
    return 0


def _serve(arguments: Sequence[str]) -> int:
    from local_engine.card import vllm_serve_command

    parser = argparse.ArgumentParser("python -m local_engine serve", description="An OpenAI-compatible server.")
    parser.add_argument("model", nargs="?", default=REPOSITORY)
    parser.add_argument("--num-speculative-tokens", type=int, help=_K)
    cut = arguments.index("--") if "--" in arguments else len(arguments)
    options = parser.parse_args(arguments[:cut])
    require_vllm()
    drafts = options.num_speculative_tokens
    if drafts is None:
        drafts = draft_tokens(options.model).number
    command = vllm_serve_command(options.model, drafts, arguments=tuple(arguments[cut + 1 :]))
    os.execv(command[0], command)


if __name__ == "__main__":
    sys.exit(main())
