"""The command line: ``jina-ocr read FILE…``. Output goes to stdout, everything else to stderr."""

from __future__ import annotations

import io
import json
import logging
import os
import sys
from collections.abc import Generator
from contextlib import AbstractContextManager, closing
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.logging import RichHandler
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from jina_ocr_loaders.engines.select import ENGINES
from jina_ocr_loaders.errors import JinaOCRError, MissingExtraError, PageRangeError
from jina_ocr_loaders.ocr import JinaOCR, OpenDocument
from jina_ocr_loaders.output import EXIT_NOTHING, EXIT_PARTLY, Format, Outcome, Sink, complain, err
from jina_ocr_loaders.ranges import check_pages
from jina_ocr_loaders.results import PageResult, PageStatus
from local_engine.errors import LocalEngineError

app = typer.Typer(
    name="jina-ocr",
    help="Read documents into Markdown with jina-ocr-v1. Without a command it is: read.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help: two columns, readable in 80 characters and in any encoding
)


@app.callback(invoke_without_command=True)
def _common(
    version: Annotated[bool, typer.Option("--version", help="Print the version.", is_eager=True)] = False,
    verbose: Annotated[
        int, typer.Option("--verbose", "-v", count=True, show_default=False, help="Say more; twice for all.")
    ] = 0,
) -> None:
    if version:
        from jina_ocr_loaders import __version__

        typer.echo(f"jina-ocr {__version__}")
        raise typer.Exit
    level = [logging.WARNING, logging.INFO, logging.DEBUG][min(verbose, 2)]
    handler = RichHandler(console=err, show_path=False, show_time=False)
    logger = logging.getLogger("jina_ocr_loaders")
    logger.addHandler(handler)
    logger.setLevel(level)
    logger.propagate = False  # mcp gives the root logger a handler of its own


@app.command()
def read(
    files: Annotated[list[str], typer.Argument(help="Files, URLs, or - for standard input.")],
    pages: Annotated[str | None, typer.Option(help="1-based pages, such as 1-5,8,-1.")] = None,
    engine: Annotated[str, typer.Option(help=f"One of {', '.join(ENGINES)}.")] = "auto",
    format: Annotated[Format, typer.Option(help="What is written.")] = Format.MD,
    output: Annotated[
        str | None, typer.Option("--output", "-o", help="A file; a folder if there are several inputs, or with /.")
    ] = None,
    prompt: Annotated[str | None, typer.Option(help='"default", "benchmark", or the text itself.')] = None,
    concurrency: Annotated[
        int | None, typer.Option(help="Pages in flight at most; by default as many as suit the engine.", min=1)
    ] = None,
    password: Annotated[str | None, typer.Option(help="Opens encrypted documents.")] = None,
    on_error: Annotated[str, typer.Option(help="What failed pages do: mark, skip or raise.")] = "mark",
    base_url: Annotated[str | None, typer.Option(help="An OpenAI-compatible server.")] = None,
    model: Annotated[str, typer.Option(help="The model's name there, or a local snapshot.")] = "jina-ocr-v1",
    max_tokens: Annotated[int, typer.Option(help="Output tokens a page at most.", min=1, max=8192)] = 4096,
    text_layer: Annotated[
        str, typer.Option(help="cpu engine: never or trust the text of born-digital pages.")
    ] = "trust",
    raw: Annotated[bool, typer.Option("--raw", help="Leave the model's text as it is.")] = False,
    allow_private_networks: Annotated[
        bool, typer.Option("--allow-private-networks", help="Fetch from private addresses too.")
    ] = False,
    cache: Annotated[bool | None, typer.Option(help="Keep pages; by default if JINA_OCR_CACHE_DIR is set.")] = None,
    refresh: Annotated[bool, typer.Option("--refresh", help="Read again what the cache holds.")] = False,
    max_pages: Annotated[int | None, typer.Option(help="Refuse documents with more pages.", min=1)] = None,
    max_cost: Annotated[float | None, typer.Option(help="Refuse documents above these dollars.", min=0)] = None,
    stream: Annotated[bool, typer.Option("--stream", help="Print the text as it comes.")] = False,
) -> None:
    """Read documents.

    Exit status: 0 all pages fine, 1 nothing read, 2 usage, 3 some file or page failed, was cut or looped.
    """
    _check("--engine", engine, ENGINES)
    _check("--on-error", on_error, ("raise", "mark", "skip"))
    _check("--text-layer", text_layer, ("never", "trust"))
    try:
        check_pages(pages)
    except PageRangeError as error:
        raise typer.BadParameter(error.message, param_hint="--pages") from None
    if stream and (output or format is not Format.MD):
        raise typer.BadParameter("it prints Markdown: leave out --output and --format.", param_hint="--stream")
    if output and any(_same(file, output) for file in files):
        raise typer.BadParameter("this is one of the documents to be read.", param_hint="--output")
    if output and len(files) > 1 and os.path.exists(output) and not os.path.isdir(output):
        raise typer.BadParameter("for several inputs it must be a folder.", param_hint="--output")
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
    with JinaOCR(engine, **options) as ocr, Sink(format, output, files) as sink:
        _ = ocr.engine  # without one there is nothing to say of each file
        for file in files:
            try:
                if stream:
                    _stream(ocr, file, pages, password, outcome)
                else:
                    _read(ocr, file, pages, password, sink, outcome)
            except JinaOCRError as error:
                outcome.broken += 1
                complain(str(error))
                if outcome.hopeless(error):
                    break
    outcome.report()
    raise typer.Exit(outcome.exit_code())


@app.command()
def estimate(
    files: Annotated[list[str], typer.Argument(help="Files, URLs, or - for standard input.")],
    pages: Annotated[str | None, typer.Option(help="1-based pages, such as 1-5,8,-1.")] = None,
    engine: Annotated[str, typer.Option(help=f"One of {', '.join(ENGINES)}.")] = "auto",
    password: Annotated[str | None, typer.Option(help="Opens encrypted documents.")] = None,
    base_url: Annotated[str | None, typer.Option(help="An OpenAI-compatible server.")] = None,
    model: Annotated[str, typer.Option(help="The model's name there, or a local snapshot.")] = "jina-ocr-v1",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Say what reading documents will cost. Spends nothing."""
    from rich.table import Column, Table

    document = Column("document", overflow="fold")
    table = Table(document, "pages", "tokens in", "tokens out", "cost", box=None, pad_edge=False)
    found, broken = [], False
    with JinaOCR(engine, base_url=base_url, model=model) as ocr:
        for file in files:
            try:
                expected = ocr.estimate(_source(file), pages, password)
            except JinaOCRError as error:
                broken = True
                complain(str(error))
                continue
            found.append(expected)
            cost = "unknown" if expected.cost is None else f"${expected.cost:.4f}" if expected.cost else "free"
            counts = (expected.pages, expected.input_tokens, expected.output_tokens)
            table.add_row(escape(expected.source), *(f"{count:,}" for count in counts), cost)
    if as_json:
        typer.echo(json.dumps([expected.to_dict() for expected in found], ensure_ascii=False, indent=2))
    elif found:
        Console().print(table)
    raise typer.Exit((EXIT_PARTLY if found else EXIT_NOTHING) if broken else 0)


@app.command()
def doctor(as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """Say which engines are ready here and how to get the others."""
    from jina_ocr_loaders.doctor import PYTHON, examine

    findings = examine()
    if as_json:
        typer.echo(json.dumps([finding.to_dict() for finding in findings], ensure_ascii=False, indent=2))
    else:
        from jina_ocr_loaders import __version__

        typer.echo(f"jina-ocr {__version__}, {PYTHON}")
        show = partial(Console().print, highlight=False, soft_wrap=True)  # commands stay whole, to be copied
        marks = {True: "[green]ok[/green]", False: "[red]no[/red]", None: "- "}
        width = max(len(finding.name) for finding in findings)
        for finding in findings:
            show(f"{marks[finding.ok]}  {finding.name:{width}}  {escape(finding.detail)}")
            for line in finding.fix.splitlines():
                show(f"{'':{width}}      [bold]{escape(line.strip())}[/bold]")
    raise typer.Exit(0 if findings[0].ok else EXIT_NOTHING)


@app.command()
def mcp(
    http: Annotated[
        bool, typer.Option("--http", help="Serve streamable HTTP; by default standard input and output.")
    ] = False,
    host: Annotated[str, typer.Option(help="Where HTTP listens.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Where HTTP listens.", min=1, max=65535)] = 8765,
    token: Annotated[
        str | None,
        typer.Option(
            help="What HTTP clients must send; better JINA_OCR_MCP_TOKEN, which ps does not show. Or one is made up."
        ),
    ] = None,
    no_token: Annotated[bool, typer.Option("--no-token", help="Let every HTTP client in.")] = False,
    allow_root: Annotated[
        list[Path] | None,
        typer.Option(help="A folder whose files may be read. None by default.", exists=True, file_okay=False),
    ] = None,
    engine: Annotated[str, typer.Option(help=f"One of {', '.join(ENGINES)}.")] = "auto",
    max_pages: Annotated[int, typer.Option(help="Pages of one call at most.", min=1)] = 20,
    max_cost: Annotated[float | None, typer.Option(help="Refuse documents above these dollars.", min=0)] = None,
    allow_private_networks: Annotated[
        bool, typer.Option("--allow-private-networks", help="Fetch from private addresses too.")
    ] = False,
) -> None:
    """Offer reading as a tool to agents (Model Context Protocol)."""
    from jina_ocr_loaders.access import AccessPolicy
    from jina_ocr_loaders.mcp import run_server
    from jina_ocr_loaders.tools import DocumentTool

    policy = AccessPolicy(allowed_roots=allow_root or [], allow_private_networks=allow_private_networks)
    tool = DocumentTool(engine, policy=policy, pages_per_answer=max_pages, max_cost=max_cost)
    run_server(tool, transport="http" if http else "stdio", host=host, port=port, token=False if no_token else token)


_HAND_ON = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
engine_app = typer.Typer(help="The engine on this machine's GPU.", no_args_is_help=True)
app.add_typer(engine_app, name="engine")


@engine_app.command("selftest")
def engine_selftest(
    full: Annotated[bool, typer.Option("--full", help="The model's full size: 6.7 GB of disk and GPU memory.")] = False,
    k: Annotated[int, typer.Option("--k", help="Tokens drafted a step; 0 is without the draft head.", min=0)] = 3,
    seconds: Annotated[
        float, typer.Option(help="Then read under full load for so long, and compare each page.", min=0)
    ] = 0,
) -> None:
    """Try vLLM here on made-up weights whose text is known, before the real ones arrive."""
    from local_engine.selftest import selftest

    report = selftest(size="full" if full else "tiny", num_speculative_tokens=k, seconds=seconds)
    typer.echo(str(report))
    raise typer.Exit(0 if report.ok else EXIT_PARTLY)


@engine_app.command("tune", context_settings=_HAND_ON, add_help_option=False)
def engine_tune(context: typer.Context) -> None:
    """Find this GPU's fastest kernels and draft length, and keep them for the engine. --help lists its options."""
    from local_engine.tune import main as tune

    raise typer.Exit(tune(context.args))


@engine_app.command("compare", context_settings=_HAND_ON, add_help_option=False)
def engine_compare(context: typer.Context) -> None:
    """Compare the texts that the engine reads with those of the model card's recipe. --help lists its options."""
    from local_engine.compare import main as compare

    raise typer.Exit(compare(context.args))


bench_app = typer.Typer(help="Benchmarks.", no_args_is_help=True)
app.add_typer(bench_app, name="bench")


@bench_app.command("engine", context_settings=_HAND_ON, add_help_option=False)
def bench_engine(context: typer.Context) -> None:
    """Measure the engine on this GPU: pages/s, tokens/s, acceptance, memory, dollars. --help lists its options."""
    from local_engine.benchmark import main as measure

    raise typer.Exit(measure(context.args))


@bench_app.command("pipeline", context_settings=_HAND_ON, add_help_option=False)
def bench_pipeline(context: typer.Context) -> None:
    """Measure the pipeline around the engine beside bare loops. --help lists its options."""
    import runpy
    from importlib.util import find_spec

    if not find_spec("psutil"):
        raise MissingExtraError('bench pipeline needs pip install "jina-ocr-loaders[bench]"')
    sys.argv = ["jina-ocr bench pipeline", *context.args]
    runpy.run_module("jina_ocr_loaders.bench", run_name="__main__")


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
    try:
        app(args, prog_name="jina-ocr")
    except (JinaOCRError, LocalEngineError) as error:
        complain(str(error))
    except OSError as error:  # of documents they are ours: this is what is written
        complain(f"cannot write {error.filename or 'the output'}: {error.strerror}")
    sys.exit(EXIT_NOTHING)  # otherwise the app has made its own exit


def _same(one: str, other: str) -> bool:
    return os.path.exists(one) and os.path.exists(other) and os.path.samefile(one, other)


def _source(file: str) -> Any:
    return sys.stdin.buffer if file == "-" else file


def _open(ocr: JinaOCR, file: str, pages: str | None, password: str | None) -> AbstractContextManager[OpenDocument]:
    return ocr.open(_source(file), pages, password, name="-" if file == "-" else None)


def _read(ocr: JinaOCR, file: str, pages: str | None, password: str | None, sink: Sink, outcome: Outcome) -> None:
    with _open(ocr, file, pages, password) as document, _progress(sink) as progress:
        task = progress.add_task(escape(document.source), total=len(document.numbers))
        with closing(_counted(document, progress, task, outcome)) as results:  # before the document is
            sink.write(document, results)
        if prices := ocr.engine.prices:
            outcome.cost = outcome.usage.cost(prices)


def _counted(
    document: OpenDocument, progress: Progress, task: TaskID, outcome: Outcome
) -> Generator[PageResult, None, None]:
    for page in document:
        outcome.add(page)
        progress.advance(task)
        yield page


def _stream(ocr: JinaOCR, file: str, pages: str | None, password: str | None, outcome: Outcome) -> None:
    with _open(ocr, file, pages, password) as document:
        for number in document.numbers:
            cut: list[PageStatus] = []
            try:
                for piece in document.stream(number, on_cut=cut.append):
                    sys.stdout.write(piece)
                    sys.stdout.flush()
                outcome.read += 1
                outcome.imperfect += bool(cut)
            except JinaOCRError as error:
                if error.fatal:
                    raise
                outcome.imperfect += 1
                complain(str(error))
            sys.stdout.write("\n\n")


def _progress(sink: Sink) -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=err, transient=True, disable=not err.is_terminal or sink.on_terminal)


def _check(option: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise typer.BadParameter(f"{value!r} is not one of {', '.join(allowed)}.", param_hint=option)


if __name__ == "__main__":
    main()
