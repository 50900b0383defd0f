"""The command line: ``jina-ocr read FILE…``. Output goes to stdout, everything else to stderr."""

from __future__ import annotations

import io
import json
import logging
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, TextIO

import typer
from rich.console import Console
from rich.logging import RichHandler
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from jina_ocr_loaders.engines.select import ENGINES
from jina_ocr_loaders.errors import JinaOCRError, PageRangeError
from jina_ocr_loaders.ocr import JinaOCR, OpenDocument
from jina_ocr_loaders.ranges import check_pages
from jina_ocr_loaders.results import DocumentResult, PageResult, Usage

EXIT_NOTHING, EXIT_USAGE, EXIT_PARTLY = 1, 2, 3

app = typer.Typer(
    name="jina-ocr",
    help="Read documents into Markdown with jina-ocr-v1.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)
err = Console(stderr=True)


class Format(StrEnum):
    """How results are written."""

    MD = "md"
    JSON = "json"
    JSONL = "jsonl"


@app.callback(invoke_without_command=True)
def _common(
    version: Annotated[bool, typer.Option("--version", help="Print the version.", is_eager=True)] = False,
    verbose: Annotated[int, typer.Option("--verbose", "-v", count=True, help="Say more; twice for all.")] = 0,
) -> None:
    if version:
        from jina_ocr_loaders import __version__

        typer.echo(f"jina-ocr {__version__}")
        raise typer.Exit
    level = [logging.WARNING, logging.INFO, logging.DEBUG][min(verbose, 2)]
    handler = RichHandler(console=err, show_path=False, show_time=False)
    logging.getLogger("jina_ocr_loaders").addHandler(handler)
    logging.getLogger("jina_ocr_loaders").setLevel(level)


@app.command()
def read(
    files: Annotated[list[str], typer.Argument(help="Files, URLs, or - for standard input.", metavar="FILE…")],
    pages: Annotated[str | None, typer.Option(help="1-based pages, such as 1-5,8,-1.")] = None,
    engine: Annotated[str, typer.Option(help=f"One of {', '.join(ENGINES)}.")] = "auto",
    format: Annotated[Format, typer.Option(help="What is written.")] = Format.MD,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="A file; a folder when there are several inputs.")
    ] = None,
    prompt: Annotated[str | None, typer.Option(help='"default", "benchmark", or the text itself.')] = None,
    concurrency: Annotated[int, typer.Option(help="Pages in flight at most.", min=1)] = 32,
    password: Annotated[str | None, typer.Option(help="Opens encrypted documents.")] = None,
    on_error: Annotated[str, typer.Option(help="What failed pages do: mark, skip or raise.")] = "mark",
    base_url: Annotated[str | None, typer.Option(help="An OpenAI-compatible server.")] = None,
    model: Annotated[str, typer.Option(help="The model's name there, or a local snapshot.")] = "jina-ocr-v1",
    max_tokens: Annotated[int, typer.Option(help="Output tokens a page at most.", min=1, max=8192)] = 4096,
    text_layer: Annotated[
        str, typer.Option(help="cpu engine: never or trust the text of born-digital pages.")
    ] = "never",
    raw: Annotated[bool, typer.Option(help="Leave the model's text as it is.")] = False,
    allow_private_networks: Annotated[bool, typer.Option(help="Fetch from private addresses too.")] = False,
    cache: Annotated[bool | None, typer.Option(help="Keep pages; by default if JINA_OCR_CACHE_DIR is set.")] = None,
    refresh: Annotated[bool, typer.Option("--refresh", help="Read again what the cache holds.")] = False,
    max_pages: Annotated[int | None, typer.Option(help="Refuse documents with more pages.", min=1)] = None,
    max_cost: Annotated[float | None, typer.Option(help="Refuse documents above these dollars.", min=0)] = None,
    stream: Annotated[bool, typer.Option("--stream", help="Print each page's text as it comes.")] = False,
) -> None:
    """Read documents. Exit status: 0 all pages fine, 1 nothing read, 2 usage, 3 some page failed, was cut or looped."""
    _check("--engine", engine, ENGINES)
    _check("--on-error", on_error, ("raise", "mark", "skip"))
    _check("--text-layer", text_layer, ("never", "trust"))
    try:
        check_pages(pages)
    except PageRangeError as error:
        raise typer.BadParameter(error.message, param_hint="--pages") from None
    options: dict[str, Any] = {
        "prompt": prompt,
        "concurrency": concurrency,
        "on_error": on_error,
        "base_url": base_url,
        "model": model,
        "max_tokens": max_tokens,
        "text_layer": text_layer,
        "raw": raw,
        "allow_private_networks": allow_private_networks,
        "cache": cache,
        "refresh": refresh,
        "max_pages": max_pages,
        "max_cost": max_cost,
    }
    outcome = Outcome()
    with JinaOCR(engine, **options) as ocr, Sink(format, output, len(files)) as sink:
        for file in files:
            try:
                if stream:
                    _stream(ocr, file, pages, password, outcome)
                else:
                    _read(ocr, file, pages, password, sink, outcome)
            except JinaOCRError as error:
                outcome.broken += 1
                err.print(f"[red]{_escape(str(error))}[/red]", highlight=False, soft_wrap=True)
                if error.fatal and outcome.hopeless(error):
                    break
    outcome.report()
    raise typer.Exit(outcome.exit_code())


@app.command()
def estimate(
    files: Annotated[list[str], typer.Argument(help="Files or URLs.", metavar="FILE…")],
    pages: Annotated[str | None, typer.Option(help="1-based pages, such as 1-5,8,-1.")] = None,
    engine: Annotated[str, typer.Option(help=f"One of {', '.join(ENGINES)}.")] = "auto",
    password: Annotated[str | None, typer.Option(help="Opens encrypted documents.")] = None,
    base_url: Annotated[str | None, typer.Option(help="An OpenAI-compatible server.")] = None,
    model: Annotated[str, typer.Option(help="The model's name there, or a local snapshot.")] = "jina-ocr-v1",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Say what reading documents will cost. Spends nothing."""
    from rich.table import Table

    table = Table("document", "pages", "tokens in", "tokens out", "cost", box=None, pad_edge=False)
    found, broken = [], False
    with JinaOCR(engine, base_url=base_url, model=model) as ocr:
        for file in files:
            try:
                expected = ocr.estimate(file, pages, password)
            except JinaOCRError as error:
                broken = True
                err.print(f"[red]{_escape(str(error))}[/red]", highlight=False, soft_wrap=True)
                continue
            found.append(expected)
            cost = "unknown" if expected.cost is None else f"${expected.cost:.4f}" if expected.cost else "free"
            counts = (expected.pages, expected.input_tokens, expected.output_tokens)
            table.add_row(_escape(expected.source), *(f"{count:,}" for count in counts), cost)
    if as_json:
        typer.echo(json.dumps([expected.to_dict() for expected in found], ensure_ascii=False, indent=2))
    elif found:
        Console().print(table)
    raise typer.Exit((EXIT_PARTLY if found else EXIT_NOTHING) if broken else 0)


@app.command()
def doctor(as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """Say which engines are ready here, and the command that gets each of the others."""
    from rich.table import Table

    from jina_ocr_loaders.doctor import PYTHON, examine

    findings = examine()
    if as_json:
        typer.echo(json.dumps([finding.to_dict() for finding in findings], ensure_ascii=False, indent=2))
    else:
        from jina_ocr_loaders import __version__

        typer.echo(f"jina-ocr {__version__}, {PYTHON}")
        table = Table(box=None, show_header=False, pad_edge=False)
        marks = {True: "[green]ok[/green]", False: "[red]no[/red]", None: "-"}
        for finding in findings:
            fix = f"\n[bold]{_escape(finding.fix)}[/bold]" if finding.fix else ""
            table.add_row(marks[finding.ok], finding.name, _escape(finding.detail) + fix)
        Console().print(table)
    raise typer.Exit(0 if findings[0].ok else EXIT_NOTHING)


@app.command()
def mcp(
    http: Annotated[
        bool, typer.Option("--http", help="Serve streamable HTTP; by default standard input and output.")
    ] = False,
    host: Annotated[str, typer.Option(help="Where HTTP listens.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Where HTTP listens.")] = 8000,
    token: Annotated[
        str | None, typer.Option(help="What HTTP clients must send; JINA_OCR_MCP_TOKEN, or one is made up.")
    ] = None,
    no_token: Annotated[bool, typer.Option("--no-token", help="Let every HTTP client in.")] = False,
    allow_root: Annotated[
        list[Path] | None, typer.Option(help="A folder whose files may be read. None by default.")
    ] = None,
    engine: Annotated[str, typer.Option(help=f"One of {', '.join(ENGINES)}.")] = "auto",
    max_pages: Annotated[int, typer.Option(help="Pages of one call at most.", min=1)] = 20,
    max_cost: Annotated[float | None, typer.Option(help="Refuse documents above these dollars.", min=0)] = None,
    allow_private_networks: Annotated[bool, typer.Option(help="Fetch from private addresses too.")] = False,
) -> None:
    """Offer reading as a tool to agents (Model Context Protocol)."""
    from jina_ocr_loaders.access import AccessPolicy
    from jina_ocr_loaders.mcp import run_server
    from jina_ocr_loaders.tools import DocumentTool

    policy = AccessPolicy(allowed_roots=allow_root or [], allow_private_networks=allow_private_networks)
    tool = DocumentTool(engine, policy=policy, pages_per_answer=max_pages, max_cost=max_cost)
    run_server(tool, transport="http" if http else "stdio", host=host, port=port, token=False if no_token else token)


cache_app = typer.Typer(help="The page cache.", no_args_is_help=True)
app.add_typer(cache_app, name="cache")


@cache_app.command("info")
def cache_info(as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """Say where it is and how much it holds."""
    from jina_ocr_loaders.cache import Cache, default_folder

    info = Cache(default_folder()).info()
    if as_json:
        data = {
            "path": str(info.path),
            "pages": info.pages,
            "text_bytes": info.text_bytes,
            "file_bytes": info.file_bytes,
        }
        typer.echo(json.dumps(data, indent=2))
    else:
        typer.echo(f"{info.path}: {info.pages:,} pages, {info.file_bytes / 1e6:.1f} MB")


@cache_app.command("clear")
def cache_clear(
    older_than: Annotated[float, typer.Option(help="Only pages last used so many days ago.", min=0)] = 0,
) -> None:
    """Remove pages from it."""
    from jina_ocr_loaders.cache import Cache, default_folder

    typer.echo(f"{Cache(default_folder()).clear(older_than * 86400):,} pages removed")


def main() -> None:
    """Entry point: ``jina-ocr FILE…`` is ``jina-ocr read FILE…``."""
    args = sys.argv[1:]
    commands = {command.name or command.callback.__name__ for command in app.registered_commands if command.callback}
    commands |= {group.name for group in app.registered_groups if group.name}
    own = {"-h", "--help", "--version", "--install-completion", "--show-completion"}
    rest = [arg for arg in args if arg not in ("-v", "-vv", "--verbose")]
    if rest and rest[0] not in commands | own:
        args = [arg for arg in args if arg not in rest] + ["read", *rest]
    # File names and text may hold what the terminal's encoding cannot say: written all the same.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8", errors="surrogateescape")
    if isinstance(sys.stderr, io.TextIOWrapper):
        sys.stderr.reconfigure(errors="backslashreplace")
    app(args)


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
            err.print(
                f"{_escape(page.source)}, page {page.number}: {said[page.status]}", highlight=False, soft_wrap=True
            )
        else:
            err.print(f"[red]{_escape(str(page.error))}[/red]", highlight=False, soft_wrap=True)

    def hopeless(self, error: JinaOCRError) -> bool:
        """Whether other files would meet the same error: the engine's, not the document's."""
        from jina_ocr_loaders.errors import EngineError

        return isinstance(error, EngineError)

    def report(self) -> None:
        """Say what was spent."""
        if self.usage.total_tokens:
            cost = f", ${self.cost:.4f}" if self.cost is not None else ""
            tokens = f"{self.usage.input_tokens:,} tokens in, {self.usage.output_tokens:,} out"
            err.print(
                f"{self.read} pages read, {self.imperfect} imperfect; {tokens}{cost}", style="dim", highlight=False
            )

    def exit_code(self) -> int:
        """0 all pages fine, 1 nothing read, 3 some file or page failed, was cut or looped."""
        if not self.broken and not self.imperfect:
            return 0
        return EXIT_PARTLY if self.read else EXIT_NOTHING


class Sink:
    """Where results go: standard output, one file, or a folder with one file a document."""

    def __init__(self, format: Format, output: Path | None, documents: int) -> None:
        self._format = format
        self._folder = output if output and (documents > 1 or output.is_dir()) else None
        self._file = output if output and not self._folder else None
        self._array = format is Format.JSON and documents > 1 and not self._folder
        self._written = 0
        self._names: set[str] = set()
        self._out: TextIO = sys.stdout

    def __enter__(self) -> Sink:
        if self._folder:
            self._folder.mkdir(parents=True, exist_ok=True)
        elif self._file:
            self._out = self._file.open("w", encoding="utf-8", errors="surrogateescape")
        return self

    def __exit__(self, *_: object) -> None:
        if self._array and self._written:
            self._out.write("\n]\n")
        if self._file:
            self._out.close()
        self._out.flush() if not self._out.closed else None

    def write(self, document: OpenDocument, pages: Iterator[PageResult]) -> None:
        """Write a document's pages; Markdown and JSON lines as they come."""
        if self._folder:
            with self._name(self._folder, document.source).open(
                "w", encoding="utf-8", errors="surrogateescape"
            ) as self._out:
                self._write(document, pages)
        else:
            self._write(document, pages)

    def _write(self, document: OpenDocument, pages: Iterator[PageResult]) -> None:
        if self._format is Format.JSON:
            result = document.result(list(pages))
            lead = ("[\n" if not self._written else ",\n") if self._array else ""
            self._out.write(lead + _json(result) + ("" if self._array else "\n"))
            self._written += 1
            return
        for page in pages:
            if self._format is Format.JSONL:
                self._out.write(json.dumps(page.to_dict(), ensure_ascii=False) + "\n")
            elif page.markdown:
                self._out.write(("\n" if self._written and not self._folder else "") + page.markdown + "\n")
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


def _read(ocr: JinaOCR, file: str, pages: str | None, password: str | None, sink: Sink, outcome: Outcome) -> None:
    source: Any = sys.stdin.buffer if file == "-" else file
    with ocr.open(source, pages, password, name="-" if file == "-" else None) as document, _progress() as progress:
        task = progress.add_task(_escape(document.source), total=len(document.numbers))
        sink.write(document, _counted(document, progress, task, outcome))
        prices = ocr.engine.prices
        if prices:
            usage = outcome.usage
            outcome.cost = (usage.input_tokens * prices[0] + usage.output_tokens * prices[1]) / 1e6


def _counted(document: OpenDocument, progress: Progress, task: TaskID, outcome: Outcome) -> Iterator[PageResult]:
    for page in document:
        outcome.add(page)
        progress.advance(task)
        yield page


def _stream(ocr: JinaOCR, file: str, pages: str | None, password: str | None, outcome: Outcome) -> None:
    source: Any = sys.stdin.buffer.read() if file == "-" else file
    with ocr.open(source, pages, password) as document:
        numbers = document.numbers
    for number in numbers:
        for piece in ocr.stream(source, number, password):
            sys.stdout.write(piece)
            sys.stdout.flush()
        sys.stdout.write("\n\n")
        outcome.read += 1


def _progress() -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=err, transient=True, disable=not err.is_terminal)


def _json(result: DocumentResult) -> str:
    return json.dumps(result.to_dict(), ensure_ascii=False, indent=2)


def _check(option: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise typer.BadParameter(f"{value!r} is not one of {', '.join(allowed)}.", param_hint=option)


def _escape(text: str) -> str:
    from rich.markup import escape

    return escape(text)


if __name__ == "__main__":
    main()
