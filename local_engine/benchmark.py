"""Measures the engine on this machine and with any snapshot: what `jina-ocr bench engine` runs.

    python -m local_engine.benchmark [MODEL] [page.png ...] [--price 3.50] [--concurrency 32 128] [--drafts 0 1 3]

Every configuration has a process of its own, one after the other, and is warmed up before it is measured. The first is
the model card's recipe (one `LLM.chat` call, no draft head, vLLM's older runner), which the others are compared with.
"""

import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from local_engine.hardware import GIB, list_gpus
from local_engine.setups import (
    CARD,
    Setup,
    can_run,
    in_process,
    load_options,
    markdown_table,
    pages_of,
    read_all,
    setups,
    start_card,
)

if TYPE_CHECKING:
    from PIL.Image import Image

    from local_engine.engine import LocalEngine

ROUNDS = 3  # of what one run tells too little of: a lone page, and `pipeline`, whose two sides are so near


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
        if (result := in_process("local_engine.benchmark:measure", setup)) is not None:
            measurements.append(Measurement(**result))
            print(measurements[-1], file=sys.stderr)  # the table comes minutes later, or never
    return measurements


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
    rows = []
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
    return "\n".join([markdown_table(head, rows), "", *_ratios(measurements)])


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


def _memory() -> float:
    """GiB taken on the GPUs; without one, by this process and its children."""
    if gpus := list_gpus():
        return sum(gpu.total - gpu.free for gpu in gpus) / GIB
    import psutil  # vLLM brings it

    process = psutil.Process()
    return float(sum(each.memory_full_info().pss for each in (process, *process.children(recursive=True)))) / GIB


def measure(setup: Setup) -> Measurement:
    """Measure a configuration in this process."""
    return measure_card(setup) if setup.name == CARD else asyncio.run(measure_engine(setup))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    parser = load_options("jina-ocr bench engine", "Measure the engine here, beside the model card's recipe.")
    parser.add_argument("--price", type=float, help="of this machine, dollars an hour")
    chosen = parser.parse_args(arguments)
    if not can_run("bench engine", chosen.model):
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
