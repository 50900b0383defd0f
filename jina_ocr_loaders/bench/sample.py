"""Reads the PDFs of a folder and writes each page's Markdown as olmOCR-bench wants it.

    python -m jina_ocr_loaders.bench.sample PDF_FOLDER OUTPUT_FOLDER [--engine cpu] [--text-layer trust]

Files are named ``{pdf stem}_pg{page}_repeat1.md``, in the sub-folders of the PDFs. What it took goes to stderr.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import psutil
import typer

from jina_ocr_loaders import JinaOCR


def main(
    pdfs: Annotated[Path, typer.Argument(exists=True, file_okay=False, help="Folder of PDFs, searched deeply.")],
    output: Annotated[Path, typer.Argument(help="Folder for the Markdown files.")],
    engine: Annotated[str, typer.Option(help="As for jina-ocr.")] = "cpu",
    text_layer: Annotated[str, typer.Option(help='"never" or "trust".')] = "never",
    long_side: Annotated[int | None, typer.Option(help="Pixels of the page image's longer side.")] = None,
) -> None:
    """Write predictions for every page of every PDF."""
    process, pages, peak = psutil.Process(), 0, 0
    start, busy = time.perf_counter(), sum(process.cpu_times()[:2])
    with JinaOCR(engine, text_layer=text_layer, long_side=long_side, on_error="mark", cache=False) as ocr:  # type: ignore[arg-type]
        for pdf in sorted(pdfs.rglob("*.pdf")):
            folder = output / pdf.parent.relative_to(pdfs)
            folder.mkdir(parents=True, exist_ok=True)
            for page in ocr.pages(pdf):
                (folder / f"{pdf.stem}_pg{page.number}_repeat1.md").write_text(page.markdown, encoding="utf-8")
                pages += 1
                peak = max(peak, process.memory_info().rss)
                typer.echo(
                    f"{pdf.name} {page.number}: {page.status} {page.model} {page.confidence} {peak >> 20} MB", err=True
                )
    wall, busy = time.perf_counter() - start, sum(process.cpu_times()[:2]) - busy
    typer.echo(
        f"{pages} pages, {wall / pages:.1f} s and {busy / pages:.1f} CPU s a page, peak RSS {peak >> 20} MB", err=True
    )


if __name__ == "__main__":
    typer.run(main)
