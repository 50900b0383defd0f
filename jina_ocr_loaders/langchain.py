"""LangChain: a loader and a blob parser that give one Document per page, and a tool for agents."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, closing
from typing import TYPE_CHECKING, Any, Literal, Unpack

from pydantic import BaseModel, PrivateAttr

from jina_ocr_loaders import bridge
from jina_ocr_loaders.arrays import NUMPY_ARRAY, png_of_array
from jina_ocr_loaders.documents import LazyOCR, Mode, Piece, Slicing
from jina_ocr_loaders.errors import JinaOCRError, MissingExtraError
from jina_ocr_loaders.ranges import PageSelection
from jina_ocr_loaders.settings import OCROptions, OCRSettings
from jina_ocr_loaders.sources import Source, SourceLike
from jina_ocr_loaders.tools import DESCRIPTION, NAME, DocumentTool, ReadArguments, ToolOptions

try:
    from langchain_core.document_loaders import BaseBlobParser, BaseLoader, Blob
    from langchain_core.documents import Document
    from langchain_core.tools import BaseTool, ToolException
except ImportError as error:
    raise MissingExtraError(f'JinaOCRLoader needs pip install "jina-ocr-loaders[langchain]" ({error})') from error

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem


class JinaOCRLoader(BaseLoader):
    """Loads a PDF or image into LangChain Documents with jina-ocr-v1.

    >>> documents = JinaOCRLoader("report.pdf").load()

    Parameters:
        source: a path, URL, bytes, binary stream or ``(fs, path)``.
        engine: see ``JinaOCR``.
        mode: "page" gives one Document per page, "single" one for all.
        pages: 1-based: ``"1-5,8,-1"``, a number or a list; None for all.
        password: opens an encrypted document.
        pages_delimiter: what stands between pages in single mode; None puts together the words, sentences and tables
            that page breaks cut.
        include_empty: blank pages give empty Documents.
        fs: the fsspec file system that ``source`` is a path in.
        show_progress: a bar on standard error.
        options: those of ``JinaOCR``; see ``OCRSettings``.

    Metadata is flat and the same in every run: ``source, total_pages, page`` (from 0, as in LangChain's own loaders of
    PDFs), ``page_number`` (from 1), ``page_label, status, engine`` and the document's own ``producer, creator,
    creationdate, …``.
    """

    def __init__(
        self,
        source: SourceLike,
        *,
        engine: Any = "auto",
        mode: Mode = "page",
        pages: PageSelection = None,
        password: str | None = None,
        pages_delimiter: str | None = None,
        include_empty: bool = False,
        fs: AbstractFileSystem | None = None,
        show_progress: bool = False,
        **options: Unpack[OCROptions],
    ) -> None:
        self._source = Source.of(source, fs=fs)
        self._slicing = Slicing(mode, pages, password, pages_delimiter, include_empty, show_progress)
        self._ocr = LazyOCR(OCRSettings.model_validate({"engine": engine, **options}))

    def lazy_load(self) -> Iterator[Document]:
        """Yield Documents in page order, each as soon as it and those before it are read.

        Raises:
            SourceError, EngineError: nothing can be read.
            PagesFailedError: after the last page, if some failed and ``on_error="raise"``.
        """
        return bridge.iterate(self.alazy_load)

    async def alazy_load(self) -> AsyncIterator[Document]:
        """``lazy_load`` for async code."""
        async with aclosing(self._slicing.lazy(self._ocr(), self._source)) as pieces:
            async for piece in pieces:
                yield _document(piece)


class JinaOCRBlobParser(BaseBlobParser):
    """Parses blobs of PDFs and images into LangChain Documents with jina-ocr-v1, by content and not by suffix.

    >>> loader = GenericLoader(FileSystemBlobLoader("scans"), JinaOCRBlobParser())
    >>> loader = PyPDFium2Loader("report.pdf", images_parser=JinaOCRBlobParser())

    Parameters: as for ``JinaOCRLoader``, where the source is the blob's.
    """

    def __init__(
        self,
        *,
        engine: Any = "auto",
        mode: Mode = "page",
        pages: PageSelection = None,
        password: str | None = None,
        pages_delimiter: str | None = None,
        include_empty: bool = False,
        show_progress: bool = False,
        **options: Unpack[OCROptions],
    ) -> None:
        self._slicing = Slicing(mode, pages, password, pages_delimiter, include_empty, show_progress)
        self._ocr = LazyOCR(OCRSettings.model_validate({"engine": engine, **options}))

    def lazy_parse(self, blob: Blob) -> Iterator[Document]:
        """Yield the blob's Documents in page order; errors as for ``JinaOCRLoader.lazy_load``.

        An image without a source comes from a PDF parser, which takes one Document and not none: it gets an empty one
        where there is nothing to read.
        """
        found = False
        with closing(bridge.iterate(lambda: self._slicing.lazy(self._ocr(), _source_of(blob)))) as pieces:
            for piece in pieces:
                found = True
                yield _document(piece, blob.metadata)
        if not found and blob.source is None:
            yield Document("", metadata=dict(blob.metadata))


class JinaOCRTool(BaseTool):
    """Lets an agent read documents: ``create_agent(model, tools=[JinaOCRTool()])``.

    The content is text for the model, the artifact ``DocumentResult.to_dict()`` of the pages read. What goes wrong is
    told to the model.

    Parameters:
        engine, options: those of ``DocumentTool``.
    """

    name: str = NAME
    description: str = DESCRIPTION
    args_schema: type[BaseModel] = ReadArguments
    response_format: Literal["content", "content_and_artifact"] = "content_and_artifact"
    handle_tool_error: bool = True
    handle_validation_error: bool = True

    _tool: DocumentTool = PrivateAttr()

    def __init__(self, engine: Any = "auto", **options: Unpack[ToolOptions]) -> None:
        super().__init__()
        self._tool = DocumentTool(engine, **options)

    def _run(self, source: str, pages: str | None = None) -> tuple[str, dict[str, Any]]:
        return bridge.run(lambda: self._arun(source, pages))

    async def _arun(self, source: str, pages: str | None = None) -> tuple[str, dict[str, Any]]:
        try:
            answer = await self._tool.aread(source, pages)
        except JinaOCRError as error:
            raise ToolException(str(error)) from error
        return answer.text, answer.result.to_dict()


def _source_of(blob: Blob) -> Source:
    data = blob.as_bytes() if blob.data is not None or blob.mimetype == NUMPY_ARRAY or not blob.path else None
    where = Source.of(str(blob.source)) if blob.source else None
    source_id, name = (where.id, where.name) if where else (None, None)
    if data is not None and blob.mimetype == NUMPY_ARRAY:
        return Source.of(png_of_array(data), source_id=source_id or Source.of(data).id, name=name)
    return Source.of(data if data is not None else str(blob.path), source_id=source_id, name=name)


def _document(piece: Piece, extra: dict[str, Any] | None = None) -> Document:
    metadata: dict[str, Any] = {**(extra or {}), **piece.metadata}
    if piece.page:
        metadata["page"] = piece.page.number - 1
    return Document(id=piece.id, page_content=piece.text, metadata=metadata)
