"""``python -m jina_ocr_loaders.bench [NAME…]``: run the benchmarks and print a Markdown table."""

from __future__ import annotations

import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from jina_ocr_loaders.bench import baselines, contenders, peers, server, throughput
from jina_ocr_loaders.bench.document import make_pdf
from jina_ocr_loaders.bench.memory import peak_pss, python

Row = tuple[str, str, str]


def slow(_: Path | None) -> list[Row]:
    """Server that answers after 1.0 s."""
    found = throughput.slow_server()
    typed = throughput.slow_server(read=baselines.read)
    return [
        ("slow server: pages/s", f"{found.ours:.1f}", f"bare loop {found.baseline:.1f}: {found.ratio:.2f} of it"),
        (
            "the same",
            f"{typed.ours:.1f}",
            f"bare loop as openai shows it {typed.baseline:.1f}: {typed.ratio:.2f} of it",
        ),
        ("slow server: first page", f"{found.first_page:.2f} s", "1.0 s is the server's"),
    ]


def instant(_: Path | None) -> list[Row]:
    """Server that answers at once."""
    found = throughput.instant_server()
    return [
        (
            "instant server: pages/s",
            f"{found.ours:.1f}",
            f"bare loop, 2 processes {found.baseline:.1f}: {found.ratio:.2f}",
        ),
        ("own CPU a page", f"{found.own_cpu:.2f} ms", "beyond drawing and the client"),
    ]


def memory(pdf: Path | None) -> list[Row]:
    """Peak memory over a long document."""
    with tempfile.TemporaryDirectory() as folder, server.running() as url:
        if pdf is None:
            pdf = Path(folder) / "long.pdf"
            pdf.write_bytes(make_pdf(619))
        code = (
            "from jina_ocr_loaders import JinaOCR\n"
            f"ocr = JinaOCR('hosted', base_url={url!r}, api_key='key')\n"
            f"print(sum(page.ok for page in ocr.pages({str(pdf)!r})))"
        )
        peak, seconds, output = peak_pss(python(code))
    return [(f"{pdf.name}: peak PSS", f"{peak:.0f} MB", f"{output.strip()} pages, process tree, {seconds:.0f} s")]


def imports(_: Path | None) -> list[Row]:
    """What ``import jina_ocr_loaders`` takes."""
    code = "import time; t = time.perf_counter(); import jina_ocr_loaders; print(time.perf_counter() - t)"
    times = [float(subprocess.run(python(code), capture_output=True, text=True, check=True).stdout) for _ in range(11)]
    return [("import jina_ocr_loaders", f"{statistics.median(times) * 1e3:.0f} ms", "median of 11")]


def side_by_side(_: Path | None) -> list[Row]:
    """Other ways to read a PDF, as far as their packages are installed here."""
    return [
        (f"side by side: {name}", f"{speed}, {peak}", lost and f"pages lost {lost}; with 10 % of 500s {troubled}")
        for name, speed, peak, lost, troubled in peers.compare(list(contenders.CONTENDERS))
    ]


BENCHMARKS: dict[str, Callable[[Path | None], list[Row]]] = {
    "slow": slow,
    "instant": instant,
    "memory": memory,
    "import": imports,
    "peers": side_by_side,
}


def main(
    names: Annotated[list[str] | None, typer.Argument(help=f"Some of: {', '.join(BENCHMARKS)}.")] = None,
    pdf: Annotated[Path | None, typer.Option(help="The long document of the memory benchmark.")] = None,
) -> None:
    """Run the benchmarks."""
    machine = f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"
    print(f"{time.strftime('%Y-%m-%d')}, {machine}\n")
    print("| what | figure | beside |\n|---|---|---|", flush=True)
    for name in names or BENCHMARKS:
        if name not in BENCHMARKS:
            sys.exit(f"there is no benchmark {name!r}: {', '.join(BENCHMARKS)}")
        for row in BENCHMARKS[name](pdf):
            print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    typer.run(main)
