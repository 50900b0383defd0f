"""Where documents come from: one type for paths, URLs, bytes, streams and files of fsspec.

A source is opened once, into a local file: the user's own where there is one, a temporary one otherwise. Its identity
comes from what it is, so that ids stay the same from run to run: a path as given; a URL without userinfo, fragment and
the parameters that sign it; bytes and streams by the hash of their content.
"""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import os
import re
import stat
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO, TypeAlias
from urllib.parse import urlsplit
from urllib.request import url2pathname

from jina_ocr_loaders.errors import ResourceLimitError, SourceError, SourceNotFoundError, UnsupportedSourceError
from jina_ocr_loaders.sources.filetypes import HEAD_BYTES, Kind, kind_of
from jina_ocr_loaders.sources.limits import FetchLimits
from jina_ocr_loaders.sources.origins import (
    Data,
    FileSystem,
    FileSystemPath,
    FileSystemURL,
    LocalFile,
    Origin,
    Spool,
    Stream,
    WebAddress,
)
from jina_ocr_loaders.threads import in_daemon_thread
from jina_ocr_loaders.urls import printable, scheme_of, shown

PathLike: TypeAlias = "str | os.PathLike[str]"
SourceLike: TypeAlias = "PathLike | bytes | bytearray | memoryview | BinaryIO | tuple[FileSystem, PathLike] | Source"


@dataclass(slots=True)
class Content:
    """An opened document: a local file of a known kind.

    Attributes:
        path: the file; the user's own, or a temporary one that goes when the source is closed.
        kind: "pdf", "image", or "heif" (an image that needs the ``heif`` extra).
        size: bytes.
    """

    path: Path
    kind: Kind
    size: int
    _sha256: str | None = None

    async def sha256(self) -> str:
        """SHA-256 of the content in hexadecimal digits; computed once."""
        if self._sha256 is None:
            self._sha256 = await in_daemon_thread(lambda: _hash(self.path))
        return self._sha256


@dataclass(frozen=True, repr=False)
class Source:
    """A document that can be opened. Make one with `Source.of`.

    Sources compare by what they hold, and pickle unless that is a stream.

    Attributes:
        name: the document as it is shown to people: never with credentials, always printable.
        origin: where it comes from.
        source_id: an identity to use instead of its own.
    """

    name: str
    origin: Origin
    source_id: str | None = None

    @classmethod
    def of(
        cls, source: SourceLike, *, fs: FileSystem | None = None, source_id: str | None = None, name: str | None = None
    ) -> Source:
        """Make a source of what people have. Nothing is opened yet.

        Parameters:
            source: a path (str or os.PathLike), a URL (``http://``, ``https://``, ``file://``, or one of fsspec such as
                ``s3://``), bytes, a binary stream, ``(fs, path)``, or what holds both (fsspec's OpenFile, UPath).
            fs: the fsspec file system that a path belongs to.
            source_id: replaces the identity.
            name: replaces the name.

        Raises:
            UnsupportedSourceError: it is none of these.
        """
        if isinstance(source, Source):
            made = source
        elif isinstance(source, tuple) and len(source) == 2:
            made = cls._of_file_system(*source)
        elif fs is not None:
            made = cls._of_file_system(fs, source)
        elif hasattr(source, "fs") and hasattr(source, "path") and not hasattr(source, "read"):
            made = cls._of_file_system(source.fs, source.path)
        else:
            made = cls._of(source)
        return replace(
            made,
            name=made.name if name is None else printable(name),
            source_id=made.source_id if source_id is None else source_id,
        )

    @classmethod
    def _of(cls, source: object) -> Source:
        if isinstance(source, bytes | bytearray | memoryview):
            return cls("<bytes>", Data(bytes(source)))
        if isinstance(source, os.PathLike):
            return cls._of_path(os.fsdecode(source))
        if isinstance(source, str):
            return cls._of_text(source)
        if callable(getattr(source, "read", None)):
            return cls._of_stream(source)  # type: ignore[arg-type]  # it has what counts
        raise UnsupportedSourceError(
            f"a source is a path, a URL, bytes, a binary stream or (fs, path), not {type(source).__name__}"
        )

    @classmethod
    def _of_text(cls, text: str) -> Source:
        scheme = scheme_of(text)
        if scheme in ("http", "https"):
            return cls(shown(text), WebAddress(text))
        if text[:6].lower() == "file:/" and "::" not in text:
            return cls._of_path(_path_of(text))
        if scheme:
            return cls(shown(text), FileSystemURL(text))
        return cls._of_path(text)

    @classmethod
    def _of_path(cls, path: str) -> Source:
        if not path:
            raise UnsupportedSourceError("the path is empty")
        return cls(printable(path), LocalFile(path))

    @classmethod
    def _of_file_system(cls, fs: FileSystem, source: object) -> Source:
        if not isinstance(source, str | os.PathLike):
            raise UnsupportedSourceError(f"with fs= a source is a path, not {type(source).__name__}")
        path = os.fsdecode(source)
        if not callable(getattr(fs, "open", None)):
            raise UnsupportedSourceError(f"fs= is a file system of fsspec, not {type(fs).__name__}")
        if "file" in getattr(fs, "protocol", ()):  # the local file system: read in place
            return cls._of(path)
        return cls(shown(path), FileSystemPath(fs, path))

    @classmethod
    def _of_stream(cls, stream: BinaryIO) -> Source:
        if inspect.iscoroutinefunction(stream.read):
            raise UnsupportedSourceError("this stream is an asynchronous one: pass its bytes, or the file below it")
        name = getattr(stream, "name", None)
        return cls(printable(name) if isinstance(name, str) and name else "<stream>", Stream(stream))

    @property
    def id(self) -> str:
        """The stable identity. That of a stream is known once it has been opened; before, asking raises."""
        return self.origin.id if self.source_id is None else self.source_id

    @property
    def url(self) -> str | None:
        """The full http(s) URL, credentials included, if it is one."""
        return self.origin.url if isinstance(self.origin, WebAddress) else None

    @property
    def path(self) -> str | None:
        """The path as given, if it is one; in a file system of fsspec, too. Fit for metadata, as an id is."""
        return self.origin.id if isinstance(self.origin, LocalFile | FileSystemPath) else None

    def __repr__(self) -> str:
        return f"Source({self.name!r})"

    @asynccontextmanager
    async def open(self, limits: FetchLimits = FetchLimits()) -> AsyncIterator[Content]:  # noqa: B008  # frozen
        """Get hold of the document: read once, bounded in bytes and time.

        Raises:
            SourceNotFoundError: there is no such file (``code`` is "not_found").
            SourceError: it cannot be read (``code`` is "not_readable").
            DownloadError, ForbiddenURLError: see `fetch.download`.
            ResourceLimitError: it takes more bytes or time than ``limits`` allow.
            UnsupportedSourceError, CorruptDocumentError: see `filetypes.kind_of`.
            MissingExtraError: a URL of fsspec without the ``remote`` extra.
        """
        with ExitStack() as stack:
            try:
                async with asyncio.timeout(limits.timeout) as time:
                    content = await self._content(limits, stack)
            except TimeoutError:
                if not time.expired():
                    raise
                raise ResourceLimitError(
                    f"getting it took longer than {limits.timeout:g} s", source=self.name
                ) from None
            yield content

    async def _content(self, limits: FetchLimits, stack: ExitStack) -> Content:
        if isinstance(self.origin, LocalFile):
            path = Path(self.origin.path)
            if await in_daemon_thread(lambda: _is_regular(path, self.name)):
                return await in_daemon_thread(lambda: _look_at(path, self.name, limits))
        spool = stack.enter_context(Spool(limits.max_bytes, name=self.name))
        await self.origin.copy_to(spool, limits, self.name)
        sha256 = spool.finish()
        return replace(await in_daemon_thread(lambda: _look_at(spool.path, self.name, limits)), _sha256=sha256)


def _path_of(file_url: str) -> str:
    parts = urlsplit(file_url)
    if parts.netloc.lower() not in ("", "localhost"):
        raise UnsupportedSourceError(f"a file:// URL names a file of this machine, not of {parts.hostname}")
    return url2pathname(parts.path)


def _is_regular(path: Path, name: str) -> bool:
    """Whether a path is a file that can be read in place; a pipe or a device is none.

    Raises:
        SourceNotFoundError: there is nothing.
        SourceError: it is a folder, or cannot be looked at.
    """
    try:
        mode = path.stat().st_mode
    except FileNotFoundError as error:
        hint = "; a URL must be given as str, not as Path" if re.match(r"[a-z0-9+]{2,}:[\\/]", str(path)) else ""
        raise SourceNotFoundError(f"no such file{hint}", source=name, code="not_found") from error
    except (OSError, ValueError) as error:  # ValueError: a null character in the path
        reason = getattr(error, "strerror", None) or error  # without the path
        raise SourceError(f"cannot be read: {reason}", source=name, code="not_readable") from error
    if stat.S_ISDIR(mode):
        raise SourceError("this is a folder: pass the files in it", source=name, code="not_readable")
    return stat.S_ISREG(mode)


def _look_at(path: Path, name: str, limits: FetchLimits) -> Content:
    """Check size and kind of a file."""
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            head = file.read(HEAD_BYTES)
    except OSError as error:
        raise SourceError(f"cannot be read: {error.strerror}", source=name, code="not_readable") from error
    if size > limits.max_bytes:
        raise ResourceLimitError(f"{size:,} bytes, more than max_bytes={limits.max_bytes:,}", source=name)
    return Content(path, kind_of(head, name=name), size)


def _hash(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise SourceError(
            f"cannot be read any more: {error.strerror}", source=printable(str(path)), code="not_readable"
        ) from error
