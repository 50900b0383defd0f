"""What readers make of the corpus, each file in a process of its own: outcome, CPU seconds, memory.

    python -m tests.corpus.compare ours|pypdfium2|langchain [PART OF A PATH]

"langchain" needs ``pip install langchain-community``, which this project does not use. The figures are in
docs/robustness.md.
"""

from __future__ import annotations

import multiprocessing
import resource
import sys
from collections.abc import Callable
from itertools import groupby

from jina_ocr_loaders.pages import client
from tests.corpus.manifest import LINES, Line

PATIENCE = 300  # seconds for one file
FORK = multiprocessing.get_context("fork")

Outcome = list[str] | str


def ours(path: str, password: str | None) -> list[str]:
    """JinaOCR with an engine that decodes the images and says nothing."""
    import logging

    from jina_ocr_loaders import JinaOCR
    from tests.fuzz.fuzzing import LookingEngine

    logging.disable()
    with JinaOCR(LookingEngine(), on_error="mark") as ocr:
        return [str(page.status) for page in ocr.pages(path, password=password)]


def pypdfium2(path: str, password: str | None) -> list[str]:
    """The loop from pypdfium2's README, at the same size of images."""
    from pypdfium2 import PdfDocument

    outcomes = []
    for page in PdfDocument(path, password=password):
        low, high = page.render(scale=1920 / max(page.get_size())).to_pil().convert("L").getextrema()
        outcomes.append("ok" if low < high else "empty")
    return outcomes


def langchain(path: str, password: str | None) -> list[str]:
    """LangChain's PyPDFium2Loader: the text layer of each page."""
    from langchain_community.document_loaders import PyPDFium2Loader

    documents = PyPDFium2Loader(path, password=password).lazy_load()
    return ["ok" if document.page_content.strip() else "empty" for document in documents]


READERS: dict[str, Callable[[str, str | None], list[str]]] = {
    "ours": ours,
    "pypdfium2": pypdfium2,
    "langchain": langchain,
}


def read_one(reader: str, path: str, password: str | None) -> tuple[Outcome, float, float]:
    """Read one file in this process.

    Returns:
        Page by page what came of it, or the exception's class; CPU seconds of process and workers; the peak memory of
        the process and of its largest worker, in MB.
    """
    before = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    outcome: Outcome
    try:
        outcome = READERS[reader](path, password)
    except Exception as error:
        outcome = type(error).__name__
    client.end_idle()
    after = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    seconds = sum(use.ru_utime + use.ru_stime for use in after) - sum(use.ru_utime + use.ru_stime for use in before)
    return outcome, seconds, sum(use.ru_maxrss for use in after) / 1000


def in_child(reader: str, path: str, password: str | None) -> tuple[Outcome, float, float]:
    """``read_one`` in a process of its own, forked so that imports are not counted."""
    mine, its = FORK.Pipe()
    child = FORK.Process(target=lambda: its.send(read_one(reader, path, password)))
    child.start()
    its.close()
    try:
        if mine.poll(PATIENCE):
            answer: tuple[Outcome, float, float] = mine.recv()
            return answer
        return f"not done after {PATIENCE} s", 0, 0
    except EOFError:
        child.join()
        return f"the process ended with status {child.exitcode}", 0, 0
    finally:
        child.kill()
        child.join()


def is_right(line: Line, outcome: Outcome) -> bool:
    """Whether this is what the manifest says; of a document to be refused any exception will do."""
    if line.statuses is None:
        return isinstance(outcome, str) or set(outcome) <= line.errors
    if isinstance(outcome, str) or len(outcome) != line.pages:
        return False
    return all(status in allowed for status, allowed in zip(outcome, line.statuses, strict=True))


def compare(reader: str, part: str) -> None:
    """Print a line for each file, and the sums."""
    read_one(reader, str(LINES[0].file), None)  # imports what it needs
    right, cpu, most = 0, 0.0, 0.0
    for line in LINES:
        if part not in line.path:
            continue
        outcome, seconds, memory = in_child(reader, str(line.file), line.password)
        good = is_right(line, outcome)
        right, cpu, most = right + good, cpu + seconds, max(most, memory)
        shown = (
            outcome if isinstance(outcome, str) else ",".join(f"{len([*same])} {one}" for one, same in groupby(outcome))
        )
        print(f"{'right' if good else 'WRONG'}\t{line.path}\t{shown}\t{seconds:.2f} s\t{memory:.0f} MB", flush=True)
    print(f"{reader}: {right} right, {cpu:.0f} s of CPU, at most {most:.0f} MB")


if __name__ == "__main__":
    compare(sys.argv[1], "".join(sys.argv[2:3]))
