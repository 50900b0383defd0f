"""What the command line writes: results to stdout or files, what went wrong and what it cost to stderr."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain, islice
from pathlib import Path
from typing import TextIO

from rich.console import Console
from rich.markup import escape

from jina_ocr_loaders.errors import BudgetExceededError, EngineError, JinaOCRError, MissingExtraError
from jina_ocr_loaders.ocr import OpenDocument
from jina_ocr_loaders.results import DocumentResult, PageResult, Usage

EXIT_NOTHING, EXIT_PARTLY = 1, 3  # 2, wrong usage, is typer's

err = Console(stderr=True)


def complain(message: str) -> None:
    """Say on stderr what went wrong."""
    err.print(f"[red]{escape(message)}[/red]", highlight=False, soft_wrap=True)


class Format(StrEnum):
    """How results are written."""

    MD = "md"
    JSON = "json"
    JSONL = "jsonl"


@dataclass
class Outcome:
    """What came of all files: decides the exit status and the closing line."""

    read: int = 0
    imperfect: int = 0
    broken: int = 0
    usage: Usage = Usage()
    cost: float | None = None

    def add(self, page: PageResult) -> None:
        """Count one page and say what is wrong with it."""
        self.usage += page.usage
        if page.ok:
            self.read += 1
            return
        self.imperfect += 1
        if page.error is None:
            self.read += 1
            said = {"truncated": "cut at the token limit", "repetition": "the model went in circles; cut there"}
            complain(f"{page.source}, page {page.number}: {said[page.status]}")
        else:
            complain(str(page.error))

    def hopeless(self, error: JinaOCRError) -> bool:
        """Whether other files would meet the same error: the engine's, not the document's."""
        of_document = (BudgetExceededError, MissingExtraError)  # it is too large; it is HEIC
        return error.fatal and isinstance(error, EngineError) and not isinstance(error, of_document)

    def report(self) -> None:
        """Say what was spent."""
        if self.usage.total_tokens:
            cost = f", ${self.cost:.4f}" if self.cost is not None else ""
            tokens = f"{self.usage.input_tokens:,} tokens in, {self.usage.output_tokens:,} out"
            pages = f"{self.read} page{'' if self.read == 1 else 's'} read, {self.imperfect} imperfect"
            err.print(f"{pages}; {tokens}{cost}", style="dim", highlight=False, soft_wrap=True)

    def exit_code(self) -> int:
        """0 all pages fine, 1 nothing read, 3 some file or page failed, was cut or looped."""
        if not self.broken and not self.imperfect:
            return 0
        return EXIT_PARTLY if self.read else EXIT_NOTHING


class Sink:
    """Where results go: standard output, one file, or a folder with one file a document.

    A file that is there already is emptied when the first page is read, and not if none can be.
    """

    def __init__(self, format: Format, output: str | None, files: Sequence[str]) -> None:
        self._format = format
        in_folder = output and (len(files) > 1 or output.endswith(os.sep) or Path(output).is_dir())
        self._folder = Path(output) if output and in_folder else None
        self._file = Path(output) if output and not in_folder else None
        self._array = format is Format.JSON and len(files) > 1 and not self._folder
        self._begun = False
        self._written = 0
        self._names: set[str] = set()
        self._out: TextIO = sys.stdout

    @property
    def on_terminal(self) -> bool:
        """Whether people see the results come."""
        return not self._folder and self._out.isatty()

    def __enter__(self) -> Sink:
        if self._folder:
            self._folder.mkdir(parents=True, exist_ok=True)
        elif self._file:
            self._out = self._file.open("a", encoding="utf-8", errors="surrogateescape")
        return self

    def __exit__(self, *_: object) -> None:
        if self._array and self._written:
            self._out.write("\n]\n")
        if self._file:
            self._out.close()
        self._out.flush() if not self._out.closed else None

    def write(self, document: OpenDocument, pages: Iterator[PageResult]) -> None:
        """Write a document's pages; Markdown and JSON lines as they come."""
        first = list(islice(pages, 1))  # an error that ends the document leaves an older file as it is
        pages = chain(first, pages)
        if self._folder:
            path = self._name(self._folder, document.source)
            with path.open("w", encoding="utf-8", errors="surrogateescape") as self._out:
                self._written = 0
                self._write(document, pages)
            return
        if self._file and not self._begun and self._file.is_file():
            self._out.truncate(0)
        self._begun = True
        self._write(document, pages)

    def _write(self, document: OpenDocument, pages: Iterator[PageResult]) -> None:
        if self._format is Format.JSON:
            read: list[PageResult] = []
            try:
                for page in pages:
                    read.append(page)
            finally:  # what was read before an error is paid
                lead = ("[\n" if not self._written else ",\n") if self._array else ""
                self._out.write(lead + _json(document.result(read)) + ("" if self._array else "\n"))
                self._written += 1
            return
        for page in pages:
            if self._format is Format.JSONL:
                self._out.write(json.dumps(page.to_dict(), ensure_ascii=False) + "\n")
            elif page.markdown:
                self._out.write(("\n" if self._written else "") + page.markdown + "\n")
                self._written += 1
            self._out.flush()

    def _name(self, folder: Path, source: str) -> Path:
        # The suffix stays, and equal names are told apart: a.pdf and a.png, x/a.pdf and y/a.pdf.
        base = source.rstrip("/").rpartition("/")[2] or "document"
        extension = {Format.MD: "md", Format.JSON: "json", Format.JSONL: "jsonl"}[self._format]
        name, n = f"{base}.{extension}", 1
        while name in self._names:
            n += 1
            name = f"{base}.{n}.{extension}"
        self._names.add(name)
        return folder / name


def _json(result: DocumentResult) -> str:
    return json.dumps(result.to_dict(), ensure_ascii=False, indent=2)
