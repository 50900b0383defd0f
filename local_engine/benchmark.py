"""Measures the engine on this machine and with any snapshot: what `jina-ocr bench engine` runs.

    python -m local_engine.benchmark [MODEL] [page.png ...] [--price 3.50] [--concurrency 32 128] [--drafts 0 1 3]

Every configuration has a process of its own, one after the other, and is warmed up before it is measured. The first is
the model card's recipe (one `LLM.chat` call, no draft head, vLLM's older runner), which the others are compared with.
"""

import argparse
import asyncio
import json
import os
import random
import statistics
import string
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from local_engine import tuning
from local_engine.errors import LocalEngineError
from local_engine.hardware import GIB, list_gpus, on_cpu, require_vllm
from local_engine.plugin import ONE_GROUP_ROUTING
from local_engine.snapshot import REPOSITORY, resolve

if TYPE_CHECKING:
    from PIL.Image import Image
    from vllm import LLM
    from vllm.outputs import RequestOutput

    from local_engine.engine import LocalEngine

MAX_TOKENS = 1085  # a page's mean output in others' reports on the real model; a real page ends by itself
CARD = "card recipe"
ROUNDS = 3  # of what one run tells too little of: a lone page, and `pipeline`, whose two sides are so near
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


@dataclass(frozen=True)
class Measurement:
    """What one configuration did.

    Attributes:
        start_seconds: until the first page could be read.
        pages_per_second, tokens_per_second: by concurrency, the latter counting output only.
        lone_seconds: one page, nothing else in work; the median of `ROUNDS`.
        lone_tokens_per_second: its output tokens over `lone_seconds`.
        acceptance: share of drafts accepted up to position 1, 2, ... K.
        mean_accepted_length: tokens per step of the model.
        memory_gib: memory taken on the GPU; without one, by the processes.
        pipeline: by concurrency, pages/s of `JinaOCR` on a PDF over those of the engine given the drawn pages, round
            by round.
    """

    name: str
    start_seconds: float
    pages_per_second: dict[str, float]
    tokens_per_second: dict[str, float]
    lone_seconds: float
    lone_tokens_per_second: float
    acceptance: tuple[float, ...] = ()
    mean_accepted_length: float = 1.0
    memory_gib: float = 0.0
    pipeline: dict[str, list[float]] = field(default_factory=dict)


def measure_setups(setups: Sequence[Setup]) -> list[Measurement]:
    """Measure configurations, each in a process of its own; stderr is told of each, and of one that fails."""
    measurements = []
    for setup in setups:
        if (result := in_process("local_engine.benchmark", setup)) is not None:
            measurements.append(Measurement(**result))
            print(measurements[-1], file=sys.stderr)  # the table comes minutes later, or never
    return measurements


def in_process(module: str, setup: Setup) -> Any:
    """What `python -m module --worker SETUP FILE` leaves in the file, as JSON; None if it fails, and stderr says so."""
    with tempfile.NamedTemporaryFile("r") as result:
        command = [sys.executable, "-m", module, "--worker", json.dumps(asdict(setup)), result.name]
        if subprocess.run(command, stdout=STDERR, check=False).returncode:  # vLLM's log may go to stdout
            print(f"{setup.name}: failed; its last words are above", file=sys.stderr)
            return None
        return json.load(result)


def table(measurements: Sequence[Measurement], price: float | None = None) -> str:
    """The figures as a Markdown table, one configuration a row, and the ratios that docs/performance.md names.

    Args:
        measurements: the card's recipe first, if it was measured.
        price: of the machine, dollars an hour.
    """
    loads = list(dict.fromkeys(load for m in measurements for load in m.pages_per_second))
    head = ["configuration"]
    for load in loads:
        head += [f"pages/s at {load}", f"tokens/s at {load}", *([f"$ per 1,000 pages at {load}"] if price else [])]
    head += ["lone page, s", "lone tokens/s", "acceptance", "tokens/step", "memory, GiB", "start, s"]
    rows = [head, ["---"] * len(head)]
    for m in measurements:
        row = [m.name]
        for load in loads:
            speed = m.pages_per_second.get(load)
            row += [f"{speed:.2f}", f"{m.tokens_per_second[load]:.0f}"] if speed else ["-", "-"]
            if price:
                row.append(f"{price / 3.6 / speed:.3f}" if speed else "-")  # 1,000 pages, 3,600 seconds an hour
        shares = " / ".join(f"{share:.2f}" for share in m.acceptance) or "-"
        row += [f"{m.lone_seconds:.2f}", f"{m.lone_tokens_per_second:.0f}", shares, f"{m.mean_accepted_length:.2f}"]
        rows.append([*row, f"{m.memory_gib:.1f}", f"{m.start_seconds:.0f}"])
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([*lines, "", *_ratios(measurements)])


def _ratios(measurements: Sequence[Measurement]) -> list[str]:
    card = next((m for m in measurements if m.name == CARD), None)
    ours = [m for m in measurements if m.name != CARD]
    plain = next((m for m in ours if not m.acceptance), None)
    lines = []
    for m in ours:
        if card:
            for load, speed in card.pages_per_second.items():
                lines.append(f"concurrency-{load}, {m.name}: {m.pages_per_second[load] / speed:.2f} x the card recipe")
            lines.append(f"lone-page, {m.name}: {m.lone_seconds / card.lone_seconds:.2f} of the card recipe's time")
        if plain and m.acceptance:
            lone = m.lone_tokens_per_second / plain.lone_tokens_per_second
            loaded = (f"{m.pages_per_second[load] / plain.pages_per_second[load]:.2f}" for load in m.pages_per_second)
            lines.append(f"fastmtp-lone, {m.name}: {lone:.2f}; fastmtp-loaded: {', '.join(loaded)}")
        if m.pipeline:
            shares = ", ".join(f"{statistics.median(rounds):.2f}" for rounds in m.pipeline.values())
            lines.append(f"pipeline, {m.name}: {shares} of the same pages ready-made")
    for load in dict.fromkeys(load for m in ours for load in m.pages_per_second):
        best = max((m for m in ours if load in m.pages_per_second), key=lambda m: m.pages_per_second[load])
        lines.append(f"fastest at {load}: {best.name} (num_speculative_tokens)")
    return lines


async def run_pages(
    engine: "LocalEngine", images: Sequence["Image"], pages: int, concurrency: int, max_tokens: int
) -> tuple[float, int]:
    """Read so many pages, so many at once; returns seconds and output tokens."""
    slots = asyncio.Semaphore(concurrency)

    async def read(number: int) -> int:
        async with slots:
            return (await engine.transcribe(images[number % len(images)], max_tokens=max_tokens)).output_tokens

    start = time.perf_counter()
    tokens = await asyncio.gather(*map(read, range(pages)))
    return time.perf_counter() - start, sum(tokens)


async def measure_engine(setup: Setup) -> Measurement:
    """Measure `LocalEngine` in this process."""
    from local_engine.engine import LocalEngine

    images = pages_of(setup.images)
    start = time.perf_counter()
    options: dict[str, Any] = {
        "num_speculative_tokens": setup.num_speculative_tokens,
        "max_num_seqs": max(setup.concurrency),
        "engine_args": setup.engine_args,
    }
    engine = LocalEngine(setup.model, **options)
    async with engine:
        await engine.start()
        ready = time.perf_counter() - start
        await run_pages(engine, images, max(setup.concurrency), max(setup.concurrency), 100)
        before = engine.metrics
        pages_per_second, tokens_per_second = {}, {}
        for concurrency in setup.concurrency:
            seconds, tokens = await run_pages(engine, images, setup.pages, concurrency, setup.max_tokens)
            pages_per_second[str(concurrency)] = setup.pages / seconds
            tokens_per_second[str(concurrency)] = tokens / seconds
        alone = [await run_pages(engine, images[:1], 1, 1, setup.max_tokens) for _ in range(ROUNDS)]
        lone = statistics.median_low(alone)
        drafting = engine.metrics.since(before)
        pipeline = await measure_pipeline(engine, setup, options, images) if setup.pipeline else {}
        return Measurement(
            setup.name,
            ready,
            pages_per_second,
            tokens_per_second,
            lone[0],
            lone[1] / lone[0],
            drafting.acceptance,
            drafting.mean_accepted_length,
            _memory(),
            pipeline,
        )


async def measure_pipeline(
    engine: "LocalEngine", setup: Setup, options: dict[str, Any], images: Sequence["Image"]
) -> dict[str, list[float]]:
    """Read a PDF of the pages with `JinaOCR`, and its drawn pages with the engine, in turn.

    The engine runs and is warm on both sides, and so is the process that draws pages. Returns `Measurement.pipeline`.
    """
    from pypdfium2 import PdfDocument

    from jina_ocr_loaders import JinaOCR
    from jina_ocr_loaders.engines.base import Render

    shares = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "pages.pdf"
        first, *rest = (images[number % len(images)] for number in range(setup.pages))
        first.save(path, save_all=True, append_images=rest)
        with PdfDocument(path) as pdf:
            sheets = [pdf[number] for number in range(min(len(images), setup.pages))]
            drawn = [sheet.render(scale=Render().long_side / max(sheet.get_size())).to_pil() for sheet in sheets]
        for concurrency in setup.concurrency:
            ocr = JinaOCR(
                engine="vllm",
                model=setup.model,
                engine_options=options,
                concurrency=concurrency,
                max_tokens=setup.max_tokens,
                content_retries=0,  # pages of a fixed number of tokens end in their middle
                cache=False,
                on_error="mark",
            )
            async with ocr:
                await ocr.aread(path, pages=1)
                rounds = []
                for _ in range(ROUNDS):
                    ready, _ = await run_pages(engine, drawn, setup.pages, concurrency, setup.max_tokens)
                    start = time.perf_counter()
                    await ocr.aread(path)
                    rounds.append(ready / (time.perf_counter() - start))
                shares[str(concurrency)] = rounds
    return shares


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


def measure_card(setup: Setup) -> Measurement:
    """Measure the model card's recipe in this process."""
    images = pages_of(setup.images)
    start = time.perf_counter()
    llm = start_card(setup)
    ready = time.perf_counter() - start

    def run(pages: int) -> tuple[float, int]:
        began = time.perf_counter()
        outputs = read_all(llm, [images[number % len(images)] for number in range(pages)], setup.max_tokens)
        return time.perf_counter() - began, sum(len(output.outputs[0].token_ids) for output in outputs)

    run(8)
    seconds, tokens = run(setup.pages)
    lone = statistics.median_low(run(1) for _ in range(ROUNDS))
    load = str(max(setup.concurrency))
    speed, tokens_speed = {load: setup.pages / seconds}, {load: tokens / seconds}
    return Measurement(setup.name, ready, speed, tokens_speed, lone[0], lone[1] / lone[0], memory_gib=_memory())


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


def _memory() -> float:
    """GiB taken on the GPUs; without one, by this process and its children."""
    if gpus := list_gpus():
        return sum(gpu.total - gpu.free for gpu in gpus) / GIB
    import psutil  # vLLM brings it

    process = psutil.Process()
    return float(sum(each.memory_full_info().pss for each in (process, *process.children(recursive=True)))) / GIB


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


def loads(program: str, description: str) -> argparse.ArgumentParser:
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


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    parser = loads("jina-ocr bench engine", "Measure the engine here, beside the model card's recipe.")
    parser.add_argument("--price", type=float, help="of this machine, dollars an hour")
    parser.add_argument("--worker", nargs=2, help=argparse.SUPPRESS)  # a setup, and the file for its measurement
    chosen = parser.parse_args(arguments)
    if chosen.worker:
        setup = Setup(**json.loads(chosen.worker[0]))
        result = measure_card(setup) if setup.name == CARD else asyncio.run(measure_engine(setup))
        Path(chosen.worker[1]).write_text(json.dumps(asdict(result)))
        return 0
    try:
        require_vllm()
        resolve(chosen.model)
    except LocalEngineError as error:
        print(f"bench engine: {error}", file=sys.stderr)
        return 1
    *others, last = setups(chosen)
    ours = [*others, replace(last, pipeline=True)]
    card = replace(ours[0], name=CARD, num_speculative_tokens=0, pipeline=False, engine_args={})
    card = replace(card, concurrency=card.concurrency[:1], pages=max(1, chosen.pages // 4))
    measurements = measure_setups([card, *ours])
    if not measurements:
        return 1
    print(table(measurements, chosen.price))
    return 0


if __name__ == "__main__":
    sys.exit(main())
