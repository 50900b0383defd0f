"""Pages that were read before: one SQLite file that several processes share.

A page is found by everything that its text depends on: the document's content, the page, how it is drawn, the prompt,
the sampling, the engine and the model. The raw text is kept, so that mending can get better without reading again.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import os
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar

from jina_ocr_loaders.engines.base import DocumentEngine, Engine, OCRRequest, Render
from jina_ocr_loaders.errors import JinaOCRError
from jina_ocr_loaders.reading import Reading
from jina_ocr_loaders.settings import OCRSettings

T = TypeVar("T")
logger = logging.getLogger("jina_ocr_loaders.cache")

FORMAT = 1  # raised when what is stored changes its meaning: older entries are not found then
LAYOUT = 1  # raised when the table changes: a file with a higher number is left alone
SCHEMA = (
    "CREATE TABLE IF NOT EXISTS pages "
    "(key TEXT PRIMARY KEY, reading TEXT NOT NULL, size INTEGER NOT NULL, used REAL NOT NULL) WITHOUT ROWID",
    "CREATE INDEX IF NOT EXISTS pages_by_use ON pages (used, size)",  # what is to go is found without reading the texts
    f"PRAGMA user_version = {LAYOUT}",
)
FILE_NAME = "pages.sqlite3"
MAX_BYTES = 2 << 30  # some 400,000 pages of 5 KB
MAX_AGE = 365 * 86400.0  # seconds
BUSY_TIMEOUT = 10.0  # seconds to wait for another process's write
TIDY_EVERY = 200  # writes between two looks at size and age
USED_AGAIN = 3600.0  # seconds; a page that is used more often is not noted each time, which would be a write for a read

_making = threading.Lock()  # the file, in this process


@dataclass(frozen=True, slots=True)
class CacheInfo:
    """What a cache holds: its file, pages, bytes of text, and bytes on disk."""

    path: Path
    pages: int
    text_bytes: int
    file_bytes: int


def open_cache(settings: OCRSettings, *, encrypted: bool = False) -> Cache | None:
    """The cache that the settings ask for: a folder, the default one (True), none (False), or what
    JINA_OCR_CACHE_DIR says (None).

    Parameters:
        encrypted: the document needed a password; its text is then kept only when a cache was asked for by argument.
    """
    asked = settings.cache
    if asked is False or (asked is None and encrypted):
        return None
    folder = os.environ.get("JINA_OCR_CACHE_DIR") if asked in (None, True) else os.fspath(str(asked))
    if folder:
        return Cache(Path(folder))
    return Cache(default_folder()) if asked is True else None


def default_folder() -> Path:
    """Where a cache lies that no one named a folder for: the user's cache folder."""
    if folder := os.environ.get("JINA_OCR_CACHE_DIR"):
        return Path(folder)
    base = os.environ.get("XDG_CACHE_HOME") or os.environ.get("LOCALAPPDATA") or "~/.cache"
    return Path(base).expanduser() / "jina-ocr"


class Cache:
    """Readings of pages in ``folder``; trouble with it is logged and never fails a reading.

    Parameters:
        folder: made if it is not there; the file in it is readable by its owner only.
        max_bytes: text kept at most; what was used longest ago goes first.
        max_age: seconds since a page was last used after which it goes.
        now: the time in seconds since the epoch; tests inject their own.
    """

    def __init__(
        self,
        folder: Path,
        *,
        max_bytes: int = MAX_BYTES,
        max_age: float = MAX_AGE,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._path = folder / FILE_NAME
        self._max_bytes = max_bytes
        self._max_age = max_age
        self._now = now
        self._writes = 0

    def document(
        self, content_hash: str, engine: Engine | DocumentEngine, request: OCRRequest, render: Render | None
    ) -> PageCache:
        """The part of the cache that belongs to one document read in one way."""
        ways = [
            *(FORMAT, content_hash, engine.name, engine.model, request.prompt, request.max_tokens),
            *(asdict(request.sampling), asdict(render) if render else None),
        ]
        return PageCache(self, hashlib.sha256(json.dumps(ways, sort_keys=True).encode()).hexdigest())

    def get(self, key: str) -> Reading | None:
        """The reading under ``key``, if there is one that is not too old."""
        row = self._look(lambda db: db.execute("SELECT reading, used FROM pages WHERE key = ?", (key,)).fetchone())
        if row is None or self._now() - row[1] > self._max_age:
            return None
        if self._now() - row[1] > USED_AGAIN:
            try:
                self._change(lambda db: db.execute("UPDATE pages SET used = ? WHERE key = ?", (self._now(), key)))
            except (JinaOCRError, OSError) as error:  # a full disk, a folder that may only be read
                logger.debug("%s", error)
        data = json.loads(row[0])
        return Reading(**{**data, "warnings": tuple(data["warnings"])})

    def put(self, key: str, reading: Reading) -> None:
        """Keep a reading, in place of an older one under the same key."""
        text = json.dumps(asdict(reading))
        self._writes += 1
        tidy = self._writes % TIDY_EVERY == 1

        def work(db: sqlite3.Connection) -> None:
            row = (key, text, len(text), self._now())
            db.execute("INSERT OR REPLACE INTO pages (key, reading, size, used) VALUES (?, ?, ?, ?)", row)
            if tidy:
                self._tidy(db)

        self._change(work)

    def info(self) -> CacheInfo:
        """What is in it."""
        held = self._look(lambda db: db.execute("SELECT count(*), coalesce(sum(size), 0) FROM pages").fetchone())
        pages, size = held or (0, 0)
        return CacheInfo(self._path, pages, size, self._path.stat().st_size if self._path.exists() else 0)

    def clear(self, older_than: float = 0.0) -> int:
        """Remove pages last used more than ``older_than`` seconds ago, 0 for all; return how many went."""

        def work(db: sqlite3.Connection) -> int:
            if older_than <= 0:
                return db.execute("DELETE FROM pages").rowcount  # those of a clock that went ahead, too
            return db.execute("DELETE FROM pages WHERE used < ?", (self._now() - older_than,)).rowcount

        removed = self._change(work) if self._path.exists() else 0
        self._look(lambda db: db.execute("VACUUM"))
        return removed

    def tidy(self) -> None:
        """Remove what is too old, and what was used longest ago while there is too much."""
        self._change(self._tidy)

    def _tidy(self, db: sqlite3.Connection) -> None:
        db.execute("DELETE FROM pages WHERE used < ?", (self._now() - self._max_age,))
        db.execute(
            "DELETE FROM pages WHERE key IN (SELECT key FROM "
            "(SELECT key, sum(size) OVER (ORDER BY used DESC, key) AS held FROM pages) WHERE held > ?)",
            (self._max_bytes,),
        )

    def _look(self, work: Callable[[sqlite3.Connection], T]) -> T | None:
        """Do something that needs no transaction; None where there is no cache yet."""

        def look(db: sqlite3.Connection) -> T | None:
            return work(db) if self._layout(db) else None

        return self._do(look) if self._path.exists() else None

    def _change(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Do something in one transaction, in a cache that is made where there is none."""

        def change(db: sqlite3.Connection) -> T:
            # No WAL mode: there, the last connection to close makes those just opening fail with "database is locked",
            # without waiting. With a rollback journal, and the write lock taken first, each waits its turn.
            db.execute("BEGIN IMMEDIATE")
            if not self._layout(db):
                for statement in SCHEMA:
                    db.execute(statement)
            result = work(db)
            db.execute("COMMIT")
            return result

        self._make_file()
        return self._do(change)

    def _layout(self, db: sqlite3.Connection) -> int:
        """The number of the file's layout: ours, or 0 for an empty file."""
        number: int = db.execute("PRAGMA user_version").fetchone()[0]
        if number > LAYOUT:
            raise JinaOCRError(
                f"The page cache {self._path} is of a newer version of jina-ocr-loaders: update this one, or name "
                "another folder in JINA_OCR_CACHE_DIR.",
                code="cache",
            )
        return number

    def _do(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Do something, in a new file if this one turns out to be spoiled.

        Raises:
            JinaOCRError: SQLite cannot do it.
        """
        try:
            try:
                return self._connected(work)
            except sqlite3.DatabaseError as error:
                if error.sqlite_errorcode & 0xFF not in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT):
                    raise
                spoiled = self._path.with_suffix(f".spoiled-{time.time_ns()}")
                logger.warning("%s is spoiled (%s): moved to %s, beginning anew", self._path, error, spoiled)
                with suppress(FileNotFoundError):  # another process has moved it
                    self._path.rename(spoiled)
                self._make_file()
                return self._connected(work)
        except sqlite3.Error as error:
            raise JinaOCRError(f"The page cache {self._path} cannot be used ({error}).", code="cache") from error

    def _connected(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Do something in a connection of its own: none is shared between threads or over a fork."""
        with closing(sqlite3.connect(self._path, timeout=BUSY_TIMEOUT, isolation_level=None)) as db:
            return work(db)

    def _make_file(self) -> None:
        with _making:
            if not self._path.exists():
                self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                # Made with the right mode before SQLite writes into it: its own would follow the umask. Never opened
                # when it is there already, since closing it would drop the locks of this process's other threads.
                os.close(os.open(self._path, os.O_CREAT | os.O_RDWR, 0o600))


class PageCache:
    """One document's pages in a cache, by number."""

    def __init__(self, cache: Cache, fingerprint: str) -> None:
        self._cache = cache
        self._fingerprint = fingerprint
        self._warned = False

    async def get(self, number: int) -> Reading | None:
        """The page's reading, if it is there."""
        return await self._unharmed(lambda: self._cache.get(f"{self._fingerprint}:{number}"))

    async def put(self, number: int, reading: Reading) -> None:
        """Keep the page's reading."""
        await self._unharmed(lambda: self._cache.put(f"{self._fingerprint}:{number}", reading))

    async def _unharmed(self, work: Callable[[], T]) -> T | None:
        try:
            return await asyncio.to_thread(work)
        except (JinaOCRError, OSError, ValueError, TypeError, KeyError) as error:
            # Once a document: what is wrong with one page is wrong with all.
            logger.log(logging.DEBUG if self._warned else logging.WARNING, "the page cache is of no use now: %s", error)
            self._warned = True
            return None
