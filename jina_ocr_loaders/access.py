"""What somebody else, such as a model, may have opened."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import httpx

from jina_ocr_loaders.errors import ForbiddenURLError
from jina_ocr_loaders.sources import Source
from jina_ocr_loaders.sources.addresses import literal_address, why_not_public
from jina_ocr_loaders.sources.origins import FileSystemURL, LocalFile, WebAddress
from jina_ocr_loaders.urls import scheme_of

MAX_CHARS = 8_000  # of a source; signed links have some 2,000, and what a model is told repeats it


@dataclass(frozen=True)
class AccessPolicy:
    """The developer's choice of what may be opened when the address comes from elsewhere.

    Public http(s) addresses may. That a name leads to a public address is checked when it is fetched: read what
    `check` returns with ``allow_private_networks=False``.

    Attributes:
        allowed_roots: folders whose files may be opened; none by default. Relative paths are looked for in each.
        fsspec_protocols: protocols of fsspec whose URLs may be opened with the developer's credentials ("s3"); none by
            default. Chained URLs never may.
        allow_private_networks: whether http(s) addresses that are not public may be opened.
    """

    allowed_roots: Collection[str | os.PathLike[str]] = ()
    fsspec_protocols: Collection[str] = ()
    allow_private_networks: bool = False

    def __post_init__(self) -> None:
        # One alone is taken, too: each letter of "/data" would be a folder, and the first of them the whole disk.
        for name in ("allowed_roots", "fsspec_protocols"):
            given = getattr(self, name)
            object.__setattr__(self, name, (given,) if isinstance(given, str | os.PathLike) else tuple(given))

    def check(self, source: str) -> Source:
        """Make a source of a path or URL, if it may be opened. Whether a forbidden file exists is not told.

        Raises:
            ForbiddenURLError: it may not; the message begins with "not allowed".
        """
        if len(source) > MAX_CHARS:
            raise ForbiddenURLError(f"not allowed: a source of more than {MAX_CHARS:,} characters")
        asked = Source.of(source)
        origin = asked.origin
        if isinstance(origin, WebAddress):
            self._check_host(origin.url, asked.name)
            return asked
        if isinstance(origin, FileSystemURL):
            scheme = scheme_of(origin.url)
            if "::" in origin.url or scheme == "local" or scheme not in self.fsspec_protocols:
                raise ForbiddenURLError(f"not allowed: {scheme} URLs may not be opened here", source=asked.name)
            return asked
        assert isinstance(origin, LocalFile)  # text makes no other
        root, file = self._under_a_root(origin.path, asked.name)
        return Source.of((_FilesBelow(root), file.relative_to(root)), source_id=asked.id, name=asked.name)

    def _check_host(self, url: str, name: str) -> None:
        try:
            host = httpx.URL(url).host
        except (httpx.InvalidURL, UnicodeError):
            host = ""
        if not host:
            raise ForbiddenURLError("not allowed: this is not a valid URL", source=name)
        address = literal_address(host)
        what = why_not_public(address) if address else None
        if what and not self.allow_private_networks:
            raise ForbiddenURLError(f"not allowed: this is {what}", source=name)

    def _under_a_root(self, path: str, name: str) -> tuple[Path, Path]:
        found = list(self._candidates(path))
        if not found:
            where = "outside the allowed folders" if self.allowed_roots else "no local files may be opened"
            raise ForbiddenURLError(f"not allowed: {where}", source=name)
        return next(((root, file) for root, file in found if os.path.exists(file)), found[0])

    def _candidates(self, path: str) -> Iterator[tuple[Path, Path]]:
        """The roots, and where in them a path may lead, links followed in both."""
        for root in map(Path, self.allowed_roots):
            if Path(path).drive not in ("", root.drive):
                continue  # resolving a path of another machine (\\host\share) would already log in to it
            try:
                real_root, file = root.resolve(), (root / path).resolve()
            except (OSError, ValueError, RuntimeError):  # no such path can be: null characters, links in a circle
                continue
            if file.is_relative_to(real_root):
                yield real_root, file


@dataclass(frozen=True)
class _FilesBelow:
    """A file system that ends at a folder and follows no link: one may have taken the place of what was checked."""

    root: Path

    def open(self, path: str, mode: str = "rb") -> IO[bytes]:
        """Open a file by its path from the root."""
        if os.open not in os.supports_dir_fd:  # Windows, where making a link takes a privilege
            return (self.root / path).open("rb")
        *folders, name = Path(path).parts or (".",)
        at = os.open(self.root, os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            for folder in folders:
                outer, at = at, os.open(folder, os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=at)
                os.close(outer)
            return open(name, "rb", opener=lambda file, flags: os.open(file, flags | os.O_NOFOLLOW, dir_fd=at))
        finally:
            os.close(at)
