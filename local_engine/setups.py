"""Configurations of vLLM, each tried in a process of its own: what measuring, tuning and comparing share."""

import argparse
import json
import os
import random
import string
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from local_engine import tuning
from local_engine.errors import LocalEngineError
from local_engine.hardware import on_cpu, require_vllm
from local_engine.plugin import ONE_GROUP_ROUTING
from local_engine.snapshot import REPOSITORY, resolve

if TYPE_CHECKING:
    from PIL.Image import Image
    from vllm import LLM
    from vllm.outputs import RequestOutput

MAX_TOKENS = 1085  # a page's mean output in others' reports on the real model; a real page ends by itself
CARD = "card recipe"
STDERR = 2  # the file descriptor


@dataclass(frozen=True)
class Setup:
    """One configuration to measure.

    Attributes:
        name: what the table calls it.
        model: folder of the snapshot.
        num_speculative_tokens: K; the card's recipe has none here.
        concurrency: pages in work at once, measured one after the other.
        pages: pages read at each concurrency.
        images: files of pages; without any, pages of made-up words in the shape of A4.
        max_tokens: of a page's output.
        pipeline: measure `JinaOCR` on a PDF of the pages, too.
        engine_args: further arguments of vLLM's `AsyncEngineArgs`.
    """

    name: str
    model: str
    num_speculative_tokens: int = 0
    concurrency: tuple[int, ...] = (32, 128)
    pages: int = 256
    images: tuple[str, ...] = ()
    max_tokens: int = MAX_TOKENS
    pipeline: bool = False
    engine_args: Mapping[str, Any] = field(default_factory=dict)


def in_process(work: str, setup: Setup) -> Any:
    """Do some work for a setup in a process of its own.

    Args:
        work: the function, `module:name`; it takes the setup.
        setup: which configuration.

    Returns:
        What the function returns, as JSON gives it back (dataclasses as objects); None if it fails, and stderr says so.
    """
    with tempfile.NamedTemporaryFile("r") as result:
        command = [sys.executable, "-m", "local_engine.setups", work, json.dumps(asdict(setup)), result.name]
        if subprocess.run(command, stdout=STDERR, check=False).returncode:  # vLLM's log may go to stdout
            print(f"{setup.name}: failed; its last words are above", file=sys.stderr)
            return None
        return json.load(result)


def can_run(program: str, model: str) -> bool:
    """Whether vLLM and the snapshot are there, before any process is started for them; stderr is told what is not."""
    try:
        require_vllm()
        resolve(model)
    except LocalEngineError as error:
        print(f"{program}: {error}", file=sys.stderr)
        return False
    return True


def start_card(setup: Setup, **more: Any) -> "LLM":
    """vLLM as in the model card's recipe: no draft head, the older runner; `more` are arguments of `LLM`."""
    os.environ["VLLM_USE_V2_MODEL_RUNNER"] = "0"
    os.environ.setdefault("VLLM_USE_FLASHINFER_SAMPLER", "0")
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
    from vllm import LLM

    from local_engine.card import vllm_llm_kwargs

    kwargs: dict[str, Any] = {"max_model_len": 4096, "max_num_seqs": max(setup.concurrency), "mm_processor_cache_gb": 0}
    kwargs |= {"enable_prefix_caching": False, "gpu_memory_utilization": 0.85}
    kwargs |= {"additional_config": {ONE_GROUP_ROUTING: False}}  # ours, which `JinaOCRForCausalLM` brings
    if on_cpu():
        kwargs |= tuning.engine_settings()
    return LLM(**vllm_llm_kwargs(setup.model, 0, **(kwargs | dict(setup.engine_args) | more)))


def read_all(llm: "LLM", images: Sequence["Image"], max_tokens: int, **sampling: Any) -> "list[RequestOutput]":
    """Pages read in one call, with the model card's prompt and, unless told otherwise, its sampling."""
    from local_engine.preprocess import DEFAULT_OCR_PROMPT
    from local_engine.sampling import vllm_sampling_params

    text = {"type": "text", "text": DEFAULT_OCR_PROMPT}
    pictures = ({"type": "image_pil", "image_pil": image} for image in images)
    chats: Any = [[{"role": "user", "content": [picture, text]}] for picture in pictures]
    return list(llm.chat(chats, sampling_params=vllm_sampling_params(max_tokens, **sampling), use_tqdm=False))


def pages_of(files: Sequence[str]) -> list["Image"]:
    """The pages in files; without any, made-up words in the shape of A4."""
    from PIL import Image, ImageDraw

    if files:
        return [Image.open(file).convert("RGB") for file in files]
    letters = random.Random(0)
    pages = [Image.new("RGB", (1024, 1448), "white") for _ in range(8)]
    for page in pages:
        draw = ImageDraw.Draw(page)
        for y in range(80, 1370, 26):
            words = ("".join(letters.choices(string.ascii_lowercase, k=letters.randint(2, 9))) for _ in range(14))
            draw.text((80, y), " ".join(words), fill="black", font_size=18)
    return pages


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Cells as a Markdown table."""
    return "\n".join("| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head), *rows))


def options(program: str, description: str, drafts: Sequence[int]) -> argparse.ArgumentParser:
    """The command line that measuring, tuning and comparing share."""
    parser = argparse.ArgumentParser(program, description=description)
    parser.add_argument("model", nargs="?", default=REPOSITORY, help="folder of a snapshot, or its Hugging Face name")
    parser.add_argument("images", nargs="*", help="pages; without any, made-up words in the shape of A4")
    parser.add_argument("--drafts", type=int, nargs="+", default=drafts, metavar="K", help="tokens drafted per step")
    parser.add_argument("--max-tokens", type=int, default=MAX_TOKENS, help="of a page")
    parser.add_argument(
        "--engine-args", type=_json_object, default={}, metavar="JSON", help="for the engine: vLLM's AsyncEngineArgs"
    )
    return parser


def load_options(program: str, description: str) -> argparse.ArgumentParser:
    """The command line that measuring and tuning share."""
    parser = options(program, description, [0, 1, 3])
    parser.add_argument("--concurrency", type=int, nargs="+", default=[32, 128], metavar="PAGES")
    parser.add_argument("--pages", type=int, default=256, help="pages read at each concurrency")
    return parser


def _json_object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise argparse.ArgumentTypeError(f"not a JSON object: {text}")
    return value


def setups(chosen: argparse.Namespace) -> list[Setup]:
    """One configuration for each K that was asked for."""
    return [
        Setup(
            f"K = {drafts}",
            chosen.model,
            num_speculative_tokens=drafts,
            concurrency=tuple(chosen.concurrency),
            pages=chosen.pages,
            images=tuple(chosen.images),
            max_tokens=chosen.max_tokens,
            engine_args=chosen.engine_args,
        )
        for drafts in chosen.drafts
    ]


if __name__ == "__main__":  # the other side of `in_process`
    done = resolve_name(sys.argv[1])(Setup(**json.loads(sys.argv[2])))
    Path(sys.argv[3]).write_text(json.dumps(done, default=asdict))
