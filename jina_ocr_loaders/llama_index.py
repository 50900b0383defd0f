"""LlamaIndex: a reader that gives one Document per page, and a tool for agents.

Annotations are looked up at run time here (LlamaIndex makes schemas of ``load_data`` and ``read_document``), so this
module does without ``from __future__ import annotations``.
"""

import os
from collections.abc import Iterable, Mapping
from contextlib import closing
from pathlib import PurePath
from typing import TYPE_CHECKING, Annotated, Any, Unpack, cast

from pydantic import Field, PrivateAttr, SecretStr, field_serializer

from jina_ocr_loaders import bridge
from jina_ocr_loaders.documents import LazyOCR, Mode, Piece, Slicing
from jina_ocr_loaders.errors import MissingExtraError
from jina_ocr_loaders.settings import OCROptions, OCRSettings
from jina_ocr_loaders.sources import Source
from jina_ocr_loaders.tools import DESCRIPTION, PAGES, SOURCE, DocumentTool, ToolOptions
from jina_ocr_loaders.urls import public_form

try:
    from llama_index.core.readers.base import BasePydanticReader
    from llama_index.core.schema import Document
    from llama_index.core.tools.tool_spec.base import BaseToolSpec
except ImportError as error:
    raise MissingExtraError(f'JinaOCRReader needs pip install "jina-ocr-loaders[llama-index]" ({error})') from error

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

    from jina_ocr_loaders.sources import SourceLike
else:  # what a schema can say
    SourceLike, AbstractFileSystem = str | os.PathLike, Any

_SHOWN = ("file_name", "page_label")  # what embeddings and models see of our metadata; the rest is for filters


class ReaderOptions(OCROptions, total=False):
    """The keyword arguments of ``JinaOCRReader``."""

    mode: Mode
    pages: str | int | list[int] | None
    password: str | SecretStr | None
    pages_delimiter: str | None
    include_empty: bool
    show_progress: bool
    is_remote: bool


class JinaOCRReader(OCRSettings, BasePydanticReader):
    """Reads PDFs and images into LlamaIndex Documents with jina-ocr-v1.

    >>> documents = JinaOCRReader().load_data("report.pdf")
    >>> SimpleDirectoryReader("reports", file_extractor={".pdf": JinaOCRReader()}, raise_on_error=True).load_data()

    Options are those of ``JinaOCR`` and those below. Ids are ``<source>#page=<n>`` (``<source>`` in single mode), and
    metadata is the same in every run, so that an ``IngestionPipeline`` with a document store skips what it knows.

    It pickles (with the key, which other processes need) and serialises (without it).
    """

    mode: Mode = Field(default="page", description='One Document per page, or "single" for one per file.')
    pages: str | int | list[int] | None = Field(default=None, description='1-based: "1-5,8,-1", a number or a list.')
    password: SecretStr | None = Field(default=None, exclude=True, repr=False, description="Of encrypted files.")
    pages_delimiter: str | None = Field(
        default=None, description="Between pages in single mode; None puts together what page breaks cut."
    )
    include_empty: bool = Field(default=False, description="Blank pages give empty Documents.")
    show_progress: bool = Field(default=False, description="A bar on standard error; not for ``aload_data``.")

    _ocr: LazyOCR = PrivateAttr()

    def __init__(self, engine: Any = "auto", **options: Unpack[ReaderOptions]) -> None:
        super().__init__(**cast("dict[str, Any]", {"engine": engine, **options}))

    def model_post_init(self, context: Any) -> None:
        self._ocr = LazyOCR(OCRSettings(**{name: getattr(self, name) for name in OCRSettings.model_fields}))

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._ocr = LazyOCR(self._ocr.settings, copied=True)

    @classmethod
    def class_name(cls) -> str:
        return "JinaOCRReader"

    @field_serializer("engine")
    def _name_of_engine(self, engine: Any) -> str:
        return engine if isinstance(engine, str) else str(engine.name)

    @field_serializer("base_url")
    def _without_credentials(self, url: str | None) -> str | None:
        return url and public_form(url)

    @field_serializer("cache", "ca_bundle")
    def _path_as_text(self, value: Any) -> Any:
        return os.fspath(value) if isinstance(value, os.PathLike) else value

    def load_data(
        self,
        file_path: SourceLike,
        extra_info: dict[str, Any] | None = None,
        fs: AbstractFileSystem | None = None,
    ) -> list[Document]:
        """Read a document.

        Parameters:
            file_path: a path, URL, bytes or binary stream.
            extra_info: metadata for each Document; it wins over ours.
            fs: the fsspec file system that ``file_path`` is in.

        Raises:
            SourceError, EngineError: nothing can be read.
            PagesFailedError: some pages failed, with ``on_error="raise"``.
        """
        return list(self.lazy_load_data(file_path, extra_info, fs))

    def lazy_load_data(
        self,
        file_path: SourceLike,
        extra_info: dict[str, Any] | None = None,
        fs: AbstractFileSystem | None = None,
    ) -> Iterable[Document]:
        """``load_data``, page by page: an iterator that is dropped stops the work."""
        source = Source.of(file_path, fs=fs)
        with closing(bridge.iterate(lambda: self._slicing().lazy(self._ocr(), source))) as pieces:
            for piece in pieces:
                yield _document(piece, source, extra_info)

    async def aload_data(
        self,
        file_path: SourceLike,
        extra_info: dict[str, Any] | None = None,
        fs: AbstractFileSystem | None = None,
    ) -> list[Document]:
        """``load_data`` for async code; of many calls at once a few documents are open at a time."""
        source = Source.of(file_path, fs=fs)
        return [_document(piece, source, extra_info) for piece in await self._slicing().load(self._ocr(), source)]

    async def alazy_load_data(
        self,
        file_path: SourceLike,
        extra_info: dict[str, Any] | None = None,
        fs: AbstractFileSystem | None = None,
    ) -> Iterable[Document]:
        """As LlamaIndex has it: awaited, it gives something to iterate over, which is all of ``aload_data``."""
        return await self.aload_data(file_path, extra_info, fs)

    def _slicing(self) -> Slicing:
        password = self.password.get_secret_value() if self.password else None
        return Slicing(self.mode, self.pages, password, self.pages_delimiter, self.include_empty, self.show_progress)


class JinaOCRToolSpec(BaseToolSpec):
    """Lets an agent read documents: ``FunctionAgent(tools=JinaOCRToolSpec().to_tool_list(), llm=...)``.

    Parameters:
        engine, options: those of ``DocumentTool``.
    """

    spec_functions = [("read_document", "aread_document")]  # noqa: RUF012  # as the base declares it

    def __init__(self, engine: Any = "auto", **options: Unpack[ToolOptions]) -> None:
        self._tool = DocumentTool(engine, **options)

    def read_document(self, source: Annotated[str, SOURCE], pages: Annotated[str | None, PAGES] = None) -> str:
        return self._tool.read(source, pages).text

    async def aread_document(self, source: Annotated[str, SOURCE], pages: Annotated[str | None, PAGES] = None) -> str:
        return (await self._tool.aread(source, pages)).text

    read_document.__doc__ = aread_document.__doc__ = DESCRIPTION


def _document(piece: Piece, source: Source, extra_info: Mapping[str, Any] | None) -> Document:
    metadata: dict[str, Any] = {"file_name": PurePath(source.name).name or source.name, **piece.metadata}
    if source.path is not None:
        metadata["file_path"] = source.path
    hidden = [key for key in metadata if key not in _SHOWN]
    return Document(
        id_=piece.id,
        text=piece.text,
        metadata=metadata | dict(extra_info or {}),
        excluded_embed_metadata_keys=hidden,
        excluded_llm_metadata_keys=list(hidden),
    )
