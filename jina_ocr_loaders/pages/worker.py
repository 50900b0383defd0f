"""The process in which documents are opened and drawn: ``python -P -m jina_ocr_loaders.pages.worker``.

Frames come on standard input and answers go to standard output (wire.py). It serves one document at a time and ends
when its input ends, even in the middle of a page. Whatever Pillow or pdfium raise leaves it as an error of ours.
"""

from __future__ import annotations

import os
import queue
import sys
import threading
import warnings
from io import FileIO
from typing import Any, Protocol

from jina_ocr_loaders.errors import CorruptDocumentError, JinaOCRError, PageRenderError, ResourceLimitError
from jina_ocr_loaders.pages import wire
from jina_ocr_loaders.pages.drawing import Drawing
from jina_ocr_loaders.pages.limits import Limits
from jina_ocr_loaders.urls import printable


class Opened(Protocol):
    """An open document, as pdf.py and images.py offer it."""

    page_count: int
    metadata: dict[str, str]

    def page(self, number: int) -> Drawing: ...

    def size(self, number: int) -> list[tuple[int, int]]: ...

    def close(self) -> None: ...


def main() -> None:
    """Serve until standard input ends."""
    answers = FileIO(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print must not get between the frames
    warnings.simplefilter("ignore")  # under PYTHONWARNINGS=error they would be errors
    requests: queue.SimpleQueue[wire.Header] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(FileIO(os.dup(0), "r"), requests), daemon=True).start()
    import PIL.Image
    import pypdfium2  # noqa: F401  a spare worker has done these before it is needed

    PIL.Image.preinit()
    document: Opened | None = None
    while True:
        request = requests.get()
        payload: list[bytes] = []
        try:
            if request["do"] == "page":
                assert document is not None
                answer, payload = _page(document, request["number"])
            elif request["do"] == "sizes":
                assert document is not None
                answer = {"sizes": [_size(document, number) for number in request["numbers"]]}
            else:
                if document is not None:
                    document.close()
                document = _open(request) if request["do"] == "open" else None
                answer = {"page_count": document.page_count, "metadata": document.metadata} if document else {}
        except Exception as error:
            answer = {"error": _describe(error, request.get("number"))}
        wire.send(answers, answer, payload)


def _listen(stream: FileIO, requests: queue.SimpleQueue[wire.Header]) -> None:
    try:
        while True:
            requests.put(wire.receive(stream)[0])
    except (EOFError, OSError):
        os._exit(0)  # the client is gone, so nobody waits for the page that may be in work


def _open(request: wire.Header) -> Opened:
    limits = Limits(**request["limits"])
    _limit_memory(limits.memory)
    if request["kind"] == "pdf":
        from jina_ocr_loaders.pages.pdf import PDF

        return PDF(request["path"], request["password"], request["render"])
    from jina_ocr_loaders.pages.images import Images

    return Images(request["path"], request["kind"], request["render"], limits)


def _page(document: Opened, number: int) -> tuple[wire.Header, list[bytes]]:
    drawing = document.page(number)
    strips = [
        {"width": strip.width, "height": strip.height, "size": len(strip.jpeg), "text": strip.text}
        for strip in drawing.strips
    ]
    answer = {"label": drawing.label, "size": drawing.size, "warnings": drawing.warnings, "strips": strips}
    return answer, [strip.jpeg for strip in drawing.strips]


def _size(document: Opened, number: int) -> list[tuple[int, int]]:
    try:
        return document.size(number)
    except Exception:  # drawing it will tell
        return []


def _describe(error: Exception, number: int | None) -> list[Any]:
    """The error as what crosses the pipe: class name, message, page, code."""
    if isinstance(error, MemoryError):
        error = ResourceLimitError("it needs more memory than a document may take")
    elif not isinstance(error, JinaOCRError):
        said = printable(" ".join(str(error).split()))[:200]  # some of libheif's end in a line break
        what = f"{type(error).__name__}: {said}" if said else type(error).__name__
        if number is None:
            error = CorruptDocumentError(f"it cannot be opened ({what}); it seems to be damaged")
        else:
            error = PageRenderError(f"this page cannot be drawn ({what})", code="render_error")
    return [type(error).__name__, error.message, number, error.code]


def _limit_memory(size: int) -> None:
    if sys.platform == "linux":
        import resource

        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        resource.setrlimit(resource.RLIMIT_DATA, (size if hard < 0 else min(size, hard), hard))


if __name__ == "__main__":
    main()
