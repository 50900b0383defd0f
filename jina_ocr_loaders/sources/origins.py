"""The kinds of place that a document can come from; `Source` holds one of them.

Each has an ``id`` and copies its bytes, once, into a `Spool`.
"""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import IO, BinaryIO, Protocol, Self

from jina_ocr_loaders.errors import (
    DownloadError,
    JinaOCRError,
    MissingExtraError,
    ResourceLimitError,
    SourceError,
    SourceNotFoundError,
    UnsupportedSourceError,
)
from jina_ocr_loaders.sources.limits import FetchLimits
from jina_ocr_loaders.threads import in_daemon_thread
from jina_ocr_loaders.urls import public_form, redact, scheme_of, shown, storable

CHUNK = 1 << 20  # bytes read at a time


class FileSystem(Protocol):
    """What is used of a file system of fsspec."""

    def open(self, path: str, mode: str = ...) -> IO[bytes]: ...


class Spool:
    """A temporary file that takes a document piece by piece, and not more than ``max_bytes``.

    On Linux it has no name, so that nothing is left of it even when the process is killed, and other processes open it
    through /proc. Elsewhere a file without a name could not be opened by workers that have begun before it.

    Raises:
        ResourceLimitError: there is no room for it; or, when written to, it is too much.
    """

    def __init__(self, max_bytes: int, *, name: str) -> None:
        self._name = name
        self._max_bytes = max_bytes
        self._size = 0
        self._hash = hashlib.sha256()
        self._open = ExitStack()
        with self._storing():
            self._file, self.path = self._nameless() or self._named()

    def _nameless(self) -> tuple[IO[bytes], Path] | None:
        if sys.platform != "linux":
            return None
        file = self._open.enter_context(tempfile.TemporaryFile())  # noqa: SIM115
        path = Path(f"/proc/{os.getpid()}/fd/{file.fileno()}")
        with suppress(OSError):
            path.open("rb").close()
            if path.parent.stat().st_uid == os.geteuid():  # else this process is closed to others (PR_SET_DUMPABLE)
                return file, path
        return None

    def _named(self) -> tuple[IO[bytes], Path]:
        folder = tempfile.TemporaryDirectory(prefix="jina-ocr-", ignore_cleanup_errors=True)
        path = Path(self._open.enter_context(folder), "document")
        return self._open.enter_context(path.open("wb")), path

    def write(self, chunk: bytes) -> None:
        """Add a piece."""
        self._size += len(chunk)
        if self._size > self._max_bytes:
            raise ResourceLimitError(f"more than max_bytes={self._max_bytes:,}", source=self._name)
        with self._storing():
            self._file.write(chunk)
        self._hash.update(chunk)

    def finish(self) -> str:
        """Nothing more comes; returns the content's SHA-256 in hexadecimal digits."""
        with self._storing():
            self._file.flush()
        return self._hash.hexdigest()

    @contextmanager
    def _storing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise ResourceLimitError(
                f"no room for a copy in the folder for temporary files ({error.strerror}): set TMPDIR to another",
                source=self._name,
            ) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        with suppress(OSError):
            self._open.close()


class Origin(Protocol):
    """A place that a document comes from."""

    @property
    def id(self) -> str:
        """The document's identity: the same in every run."""

    async def copy_to(self, spool: Spool, limits: FetchLimits, name: str) -> None:
        """Copy the document; ``name`` is what errors call it. May be cancelled at any time."""


@dataclass(frozen=True)
class LocalFile:
    """A path of the local file system."""

    path: str

    @property
    def id(self) -> str:
        return storable(self.path)

    async def copy_to(self, spool: Spool, limits: FetchLimits, name: str) -> None:
        """For pipes and devices; a regular file is read where it is."""
        await in_daemon_thread(lambda: _copy(self._opened, spool, name))

    def _opened(self) -> IO[bytes]:
        return open(self.path, "rb")


@dataclass(frozen=True, repr=False)
class WebAddress:
    """An http(s) URL."""

    url: str

    @property
    def id(self) -> str:
        return storable(public_form(self.url))

    async def copy_to(self, spool: Spool, limits: FetchLimits, name: str) -> None:
        from jina_ocr_loaders.sources.fetch import download  # httpx: 9 MB that files do not need

        await download(self.url, spool.write, limits)


@dataclass(frozen=True, repr=False)
class FileSystemPath:
    """A path in a file system of fsspec."""

    fs: FileSystem
    path: str

    @property
    def id(self) -> str:
        return storable(public_form(self.path))

    async def copy_to(self, spool: Spool, limits: FetchLimits, name: str) -> None:
        await in_daemon_thread(lambda: _copy(self._opened, spool, name, url=self.path, failure=DownloadError))

    def _opened(self) -> IO[bytes]:
        return self.fs.open(self.path, "rb")


@dataclass(frozen=True, repr=False)
class FileSystemURL:
    """A URL that fsspec knows how to open, chained ones included."""

    url: str

    @property
    def id(self) -> str:
        return storable(public_form(self.url))

    async def copy_to(self, spool: Spool, limits: FetchLimits, name: str) -> None:
        await in_daemon_thread(lambda: _copy(self._opened, spool, name, url=self.url, failure=DownloadError))

    def _opened(self) -> AbstractContextManager[IO[bytes]]:
        try:
            import fsspec

            return fsspec.open(self.url, "rb")  # type: ignore[no-any-return]
        except ImportError as error:
            raise MissingExtraError(
                f'{scheme_of(self.url)} URLs need more: pip install "jina-ocr-loaders[remote]" ({error})',
                source=shown(self.url),
            ) from None
        except ValueError as error:  # no such protocol
            raise UnsupportedSourceError(redact(str(error), self.url), source=shown(self.url)) from None


@dataclass(frozen=True, repr=False)
class Data:
    """Bytes in memory."""

    data: bytes

    @cached_property
    def id(self) -> str:
        return f"sha256:{hashlib.sha256(self.data).hexdigest()}"

    async def copy_to(self, spool: Spool, limits: FetchLimits, name: str) -> None:
        await in_daemon_thread(lambda: spool.write(self.data))


@dataclass(repr=False, eq=False)
class Stream:
    """A binary stream of the caller's: read from its start if it can be rewound, and left open as it was."""

    stream: BinaryIO
    sha256: str | None = field(default=None, init=False)

    @property
    def id(self) -> str:
        """Known once the stream has been read.

        Raises:
            UnsupportedSourceError: it has not been.
        """
        if self.sha256 is None:
            raise UnsupportedSourceError(
                "the id of a stream is the hash of its content: open the source first, or pass source_id="
            )
        return f"sha256:{self.sha256}"

    async def copy_to(self, spool: Spool, limits: FetchLimits, name: str) -> None:
        await in_daemon_thread(lambda: _copy(self._rewound, spool, name))
        self.sha256 = spool.finish()

    @contextmanager
    def _rewound(self) -> Iterator[BinaryIO]:
        seekable = getattr(self.stream, "seekable", None)
        if seekable is not None and seekable():
            position = self.stream.tell()
            self.stream.seek(0)
            try:
                yield self.stream
            finally:
                self.stream.seek(position)
        elif self.sha256 is None:
            yield self.stream
        else:
            raise OSError("this stream has been read already and cannot be rewound: pass its bytes instead")


def _copy(
    opened: Callable[[], AbstractContextManager[IO[bytes]]],
    spool: Spool,
    name: str,
    *,
    url: str = "",
    failure: type[SourceError] = SourceError,
) -> None:
    """Copy all that a stream gives; whatever it raises becomes ours, without the credentials of ``url``."""
    try:
        with opened() as stream:
            while (chunk := stream.read(CHUNK)) != b"":
                if not isinstance(chunk, bytes | bytearray | memoryview):
                    raise UnsupportedSourceError(
                        f"reading the stream gives {type(chunk).__name__}, not bytes: open it in binary mode ('rb')",
                        source=name,
                    )
                spool.write(chunk)
    except JinaOCRError:
        raise
    except UnicodeDecodeError as no_text:
        raise UnsupportedSourceError("the stream gives text: open it in binary mode ('rb')", source=name) from no_text
    except Exception as raised:
        error = _reason(raised)
        text = str(error)
        safe = redact(text, url)
        cause = error if safe == text else None
        if isinstance(error, FileNotFoundError):
            raise SourceNotFoundError("no such file", source=name, code="not_found") from cause
        message = f"cannot be read: {safe or type(error).__name__}"
        raise failure(message, source=name, code="not_readable") from cause


def _reason(error: Exception) -> Exception:
    """What went wrong: of whatever it is, fsspec's http file system says that the file is not there."""
    cause = error.__cause__
    if isinstance(error, FileNotFoundError) and isinstance(cause, Exception):
        of_http = type(cause).__module__.startswith("aiohttp") or isinstance(cause, TimeoutError)
        if of_http and getattr(cause, "status", None) not in (404, 410):
            return cause
    return error
