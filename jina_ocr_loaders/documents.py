"""What the framework adapters share: one ``JinaOCR`` made on first use, and pages as texts with ids and metadata."""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from jina_ocr_loaders.errors import EngineNotReadyError
from jina_ocr_loaders.joining import join_pages
from jina_ocr_loaders.ocr import JinaOCR, OpenDocument
from jina_ocr_loaders.ranges import PageSelection
from jina_ocr_loaders.results import DocumentResult, PageResult, PageStatus
from jina_ocr_loaders.settings import OCRSettings
from jina_ocr_loaders.sources import Source

Mode = Literal["page", "single"]
Metadata = dict[str, str | int]

_ONE_PER_MACHINE = ("vllm", "transformers")  # engines that load the model into the process that uses them


class LazyOCR:
    """A ``JinaOCR`` that is made when it is first asked for, once; a pickle carries the settings (and the key) only."""

    def __init__(self, settings: OCRSettings, *, copied: bool = False) -> None:
        self.settings = settings
        self._copied = copied
        self._lock = threading.Lock()
        self._ocr: JinaOCR | None = None

    def __call__(self) -> JinaOCR:
        """The one ``JinaOCR``.

        Raises:
            EngineNotReadyError: this is a copy in a pool of processes, and each would load the model for itself.
        """
        with self._lock:
            if self._ocr is None:
                self._ocr = JinaOCR.from_settings(self.settings)
                if self._copied and multiprocessing.parent_process():
                    self._refuse_model_per_process(self._ocr)
            return self._ocr

    def close(self) -> None:
        """Give back what the ``JinaOCR`` holds, if there is one; asked again, it works again."""
        with self._lock:
            if self._ocr is not None:
                self._ocr.close()

    def _refuse_model_per_process(self, ocr: JinaOCR) -> None:
        named = self.settings.engine
        engine = named if isinstance(named, str) and named != "auto" else ocr.engine.name
        if engine in _ONE_PER_MACHINE:
            raise EngineNotReadyError(
                f"engine {engine!r} would load the model once in every worker process. Leave num_workers out, or serve "
                "the model once (python -m local_engine serve) and pass base_url= of that server."
            )

    def __reduce__(self) -> tuple[object, ...]:
        return _copy_lazily, (self.settings,)


def _copy_lazily(settings: OCRSettings) -> LazyOCR:
    return LazyOCR(settings, copied=True)


@dataclass(frozen=True, slots=True)
class Piece:
    """A text on its way to becoming a framework's document.

    Attributes:
        id: from the source's identity and the page number, so it is the same in every run.
        text: the Markdown.
        metadata: flat, and nothing in it changes from run to run.
        page: the page it is, or None for a whole document.
    """

    id: str
    text: str
    metadata: Metadata
    page: PageResult | None = None


@dataclass(frozen=True, slots=True)
class Slicing:
    """How a document becomes texts.

    Attributes:
        mode: "page" gives one text per page, "single" one for the whole document.
        pages: which pages, 1-based; None for all.
        password: opens an encrypted document.
        pages_delimiter: what stands between pages in single mode. None puts together what page breaks cut: words,
            sentences and tables (see ``joining``); a string keeps pages as they are and stands between them.
        include_empty: blank pages give empty texts. They give none by default, as embedding APIs refuse them.
        show_progress: a bar on standard error; ``load`` shows none, as it runs for many documents at once.
    """

    mode: Mode = "page"
    pages: PageSelection = None
    password: str | None = field(default=None, repr=False)
    pages_delimiter: str | None = None
    include_empty: bool = False
    show_progress: bool = False

    def __post_init__(self) -> None:
        if self.mode not in get_args(Mode):
            raise ValueError(f"mode is {' or '.join(map(repr, get_args(Mode)))}, not {self.mode!r}")

    async def lazy(self, ocr: JinaOCR, source: Source) -> AsyncGenerator[Piece, None]:
        """Read a document and yield its texts as they come.

        Raises:
            JinaOCRError: as ``JinaOCR.apages`` does.
        """
        async with ocr.aopen(source, self.pages, self.password) as document, aclosing(aiter(document)) as results:
            with self._bar(document) as bar:
                whole: list[PageResult] = []
                async for page in results:
                    bar.update()
                    if page.status is PageStatus.FAILED and ocr.settings.on_error == "raise":
                        continue  # it is raised at the end
                    if self.mode == "single":
                        whole.append(page)
                        continue
                    for piece in self.cut(document, [page]):
                        yield piece
            for piece in self.cut(document, whole):
                yield piece

    async def load(self, ocr: JinaOCR, source: Source) -> list[Piece]:
        """Read a document whole; of many calls at once a few run, as ``JinaOCR.aread`` limits them."""
        result = await ocr.aread(source, self.pages, self.password)
        return list(self.cut(result, result.pages))

    def cut(self, document: OpenDocument | DocumentResult, pages: Iterable[PageResult]) -> Iterable[Piece]:
        """The texts of these pages."""
        if self.mode == "single":
            return self._whole(document, list(pages))
        return [
            Piece(f"{document.source_id}#page={page.number}", page.markdown, _of_page(document, page), page)
            for page in pages
            if page.markdown or self.include_empty or page.status is PageStatus.FAILED
        ]

    def _whole(self, document: OpenDocument | DocumentResult, pages: list[PageResult]) -> list[Piece]:
        texts = [page.markdown for page in pages]
        text = join_pages(texts) if self.pages_delimiter is None else self.pages_delimiter.join(texts)
        failed = [str(page.number) for page in pages if page.status is PageStatus.FAILED]
        metadata = _of_document(document) | ({"failed_pages": ",".join(failed)} if failed else {})
        return [Piece(document.source_id, text, metadata)] if any(texts) or failed or self.include_empty else []

    def _bar(self, document: OpenDocument) -> Any:
        from tqdm.auto import tqdm  # type: ignore[import-untyped]

        return tqdm(total=len(document.numbers), unit="page", desc=document.source, disable=not self.show_progress)


def _of_document(document: OpenDocument | DocumentResult) -> Metadata:
    return {**document.metadata, "source": document.source_id, "total_pages": document.page_count}


def _of_page(document: OpenDocument | DocumentResult, page: PageResult) -> Metadata:
    metadata = _of_document(document) | {
        "page_number": page.number,
        "page_label": page.label,
        "status": str(page.status),
        "engine": page.engine,
    }
    return metadata | ({"error": page.error.code} if page.error else {})
