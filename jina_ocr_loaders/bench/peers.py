"""Other ways to read a PDF through the same server, side by side, each in a process of its own.

    python -m jina_ocr_loaders.bench.peers [NAME…] [--python NAME=INTERPRETER…]

The others' packages are not this package's: give the interpreter of an environment that has them, for instance

    python -m venv lc-env && lc-env/bin/pip install langchain-community langchain-openai pypdfium2 pillow
    python -m jina_ocr_loaders.bench.peers jina gather langchain --python langchain=lc-env/bin/python

The PDF is a scan, for LangChain's loader sends the images that a page holds, not the page.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from jina_ocr_loaders.bench import contenders, server
from jina_ocr_loaders.bench.document import make_scan
from jina_ocr_loaders.bench.memory import peak_pss

FAIL_EVERY = 10  # requests, of which one is answered 500
NEEDS = {
    "jina": "jina-ocr-loaders",
    "gather": "openai pypdfium2 pillow",
    "langchain": "langchain-community langchain-openai pypdfium2 pillow",
    "docling": "docling",
}

Row = tuple[str, str, str, str, str]


def compare(
    names: Sequence[str], pythons: Mapping[str, str] | None = None, pages: int = 96, delay: float = 1.0
) -> Iterator[Row]:
    """Run the contenders one after the other.

    Parameters:
        names: keys of ``contenders.CONTENDERS``.
        pythons: the interpreter that has a contender's packages, where it is not this one.
        pages: in the PDF.
        delay: seconds that the server takes for an answer.

    Yields:
        Name, speed, peak PSS, pages lost, and pages lost when one request in ten is answered 500.
    """
    with tempfile.TemporaryDirectory() as folder:
        pdf = Path(folder) / "scan.pdf"
        pdf.write_bytes(make_scan(pages))
        for name in names:
            python = (pythons or {}).get(name, sys.executable)
            found, peak = _run(python, name, pdf, delay, 0)
            if missing := found.get("missing"):
                yield name, "not run", f"{missing} is not installed: pip install {NEEDS[name]}", "", ""
                continue
            troubled, _ = _run(python, name, pdf, delay, FAIL_EVERY)
            speed = f"{pages / found['seconds']:.1f} pages/s"
            yield name, speed, f"{peak:.0f} MB", _lost(found, pages), _lost(troubled, pages)


def _run(python: str, name: str, pdf: Path, delay: float, fail_every: int) -> tuple[dict[str, Any], float]:
    with server.running(delay, fail_every) as url:
        peak, _, output = peak_pss([python, "-P", contenders.__file__, name, url, str(pdf)])
    return json.loads(output.splitlines()[-1]), peak


def _lost(found: Mapping[str, Any], pages: int) -> str:
    lost = f"{pages - found['pages']} of {pages}"
    return f"{lost} ({found['failure']})" if found["failure"] else lost


def main(
    names: Annotated[list[str] | None, typer.Argument(help=f"Some of: {', '.join(contenders.CONTENDERS)}.")] = None,
    python: Annotated[list[str] | None, typer.Option(help="NAME=INTERPRETER that has that one's packages.")] = None,
    pages: Annotated[int, typer.Option(help="Pages of the PDF.")] = 96,
    delay: Annotated[float, typer.Option(help="Seconds that the server takes.")] = 1.0,
) -> None:
    """Compare."""
    pythons = dict(item.split("=", 1) for item in python or [])
    print(
        f"| {pages} pages, {delay} s each | speed | peak PSS | pages lost | with 10 % of 500s |\n|---|---|---|---|---|"
    )
    for row in compare(names or list(contenders.CONTENDERS), pythons, pages, delay):
        print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    typer.run(main)
