"""The page cache."""

import asyncio
import contextlib
import os
import shutil
import sqlite3
import stat
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor

import pytest

from jina_ocr_loaders.cache import FILE_NAME, USED_AGAIN, Cache, open_cache
from jina_ocr_loaders.engines.base import OCRRequest, Render, Sampling
from jina_ocr_loaders.errors import JinaOCRError
from jina_ocr_loaders.reading import Reading
from jina_ocr_loaders.settings import OCRSettings

READING = Reading("text ¶ \udce4", "stop", "jina-ocr-v1", 0.5, ("strips",), "iv", 100, 200)


class Named:
    """An engine as far as the cache looks at it."""

    def __init__(self, name="hosted", model="jina-ocr-v1"):
        self.name, self.model = name, model


@pytest.fixture
def cache(tmp_path):
    """A cache in a fresh folder."""
    return Cache(tmp_path / "cache")


def key(cache, **changes):
    """The fingerprint of a document read in some way."""
    ways = {"content_hash": "a", "engine": Named(), "request": OCRRequest("p"), "render": Render()} | changes
    return cache.document(**ways)._fingerprint


def test_a_reading_comes_back_as_it_was(cache):
    """All fields survive, surrogates in the text too."""
    cache.put("k", READING)
    assert cache.get("k") == READING
    assert cache.get("other") is None


@pytest.mark.parametrize(
    "change",
    [
        {"content_hash": "b"},
        {"engine": Named(name="cpu")},
        {"engine": Named(model="other")},
        {"request": OCRRequest("other")},
        {"request": OCRRequest("p", max_tokens=1)},
        {"request": OCRRequest("p", sampling=Sampling(temperature=0.1))},
        {"render": Render(long_side=100)},
        {"render": Render(quality=50)},
        {"render": None},
    ],
    ids=str,
)
def test_whatever_the_text_depends_on_is_part_of_the_key(cache, change):
    """Another document, engine, model, prompt, sampling or rendering is another entry."""
    assert key(cache) == key(cache)
    assert key(cache, **change) != key(cache)


def test_a_deadline_is_not_part_of_the_key(cache):
    """How long one is ready to wait does not change the text."""
    assert key(cache, request=OCRRequest("p", deadline=1)) == key(cache)


@pytest.mark.skipif(os.name != "posix", reason="file modes are POSIX")
def test_only_the_owner_can_read_it(cache):
    """The files are 0600 whatever the umask."""
    before = os.umask(0)
    try:
        cache.put("k", READING)
    finally:
        os.umask(before)
    files = list(cache.info().path.parent.iterdir())
    assert [stat.S_IMODE(file.stat().st_mode) for file in files] == [0o600] * len(files)


def test_old_pages_go_and_the_least_used_go_first(tmp_path):
    """Size and age are bounded; using a page keeps it."""
    now = [0.0]
    size = Cache(tmp_path / "size")
    size.put("k", READING)
    each = size.info().text_bytes
    cache = Cache(tmp_path / "c", max_bytes=2 * each, max_age=50 * USED_AGAIN, now=lambda: now[0])
    for name in "abc":
        now[0] += 2 * USED_AGAIN
        cache.put(name, READING)
    now[0] += 2 * USED_AGAIN
    cache.get("a")
    cache.tidy()
    assert [bool(cache.get(name)) for name in "abc"] == [True, False, True]
    now[0] += 51 * USED_AGAIN
    assert cache.get("a") is None
    cache.tidy()
    assert cache.info().pages == 0


def test_clear_removes_pages_by_age(tmp_path):
    """clear(older_than) spares what was used since; clear() empties it."""
    now = [0.0]
    cache = Cache(tmp_path, now=lambda: now[0])
    cache.put("old", READING)
    now[0] = 50.0
    cache.put("new", READING)
    assert cache.clear(older_than=10) == 1
    assert cache.get("new") == READING
    assert cache.clear() == 1
    assert cache.info().pages == 0
    cache.put("new", READING)
    now[0] = 20.0  # the clock was set back
    assert cache.clear() == 1


def overwrite(path, start):
    """Put zeros into the rest of a file."""
    with path.open("r+b") as file:
        file.seek(start)
        file.write(bytes(path.stat().st_size - start))


@pytest.mark.parametrize(
    "spoil",
    [
        lambda path: path.write_bytes(b"garbage" * 1000),
        lambda path: overwrite(path, 4096),
        lambda path: path.write_bytes(b""),
    ],
    ids=["no database", "pages lost", "empty"],
)
@pytest.mark.parametrize("use", ["get", "put"])
def test_a_spoiled_file_never_stands_in_the_way(cache, caplog, spoil, use):
    """It is moved away with a warning, unless it was merely empty, and the cache goes on anew."""
    for number in range(50):
        cache.put(f"k{number}", READING)
    path = cache.info().path
    spoil(path)
    empty = not path.stat().st_size
    if use == "get":
        assert cache.get("k25") is None
    else:
        cache.put("k25", READING)
    cache.put("k", READING)
    assert cache.get("k") == READING
    assert ("is spoiled" in caplog.text) is not empty
    assert len(list(path.parent.glob("pages.spoiled-*"))) == (not empty)


def test_a_file_of_a_newer_version_is_left_alone(cache, caplog):
    """Nothing is written into it; pages are read as without a cache, and whoever asks for it by name is told."""
    cache.put("k", READING)
    path = cache.info().path
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA user_version = 999")
    before = path.read_bytes()
    pages = cache.document("a", Named(), OCRRequest("p"), None)
    assert asyncio.run(pages.get(1)) is None
    asyncio.run(pages.put(1, READING))
    assert path.read_bytes() == before
    assert caplog.text.count("of a newer version") == 1
    for ask in (cache.info, cache.clear):
        with pytest.raises(JinaOCRError, match="newer version"):
            ask()


@pytest.mark.skipif(sys.platform == "win32", reason="limits of the file size are POSIX")
def test_a_full_disk_takes_no_pages_but_gives_them(cache):
    """What is there is still found, also when its use cannot be noted; what cannot be kept is said once."""
    cache.put("k", READING)
    pages = cache.document("a", Named(), OCRRequest("p"), None)
    asyncio.run(pages.put(1, READING))
    body = textwrap.dedent(f"""
        import asyncio, logging, resource, time
        from pathlib import Path
        from jina_ocr_loaders.cache import Cache
        from jina_ocr_loaders.engines.base import OCRRequest
        from tests.test_cache import READING, Named
        logging.basicConfig(format="%(levelname)s")
        resource.setrlimit(resource.RLIMIT_FSIZE, (1024, 1024))
        later = Cache(Path({str(cache.info().path.parent)!r}), now=lambda: time.time() + 86400)
        pages = later.document("a", Named(), OCRRequest("p"), None)
        assert asyncio.run(pages.get(1)) == READING
        for number in range(2, 5):
            asyncio.run(pages.put(number, READING))
            assert asyncio.run(pages.get(number)) is None
    """)
    done = subprocess.run([sys.executable, "-c", body], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "WARNING\n")
    assert cache.info().pages == 2
    assert cache.get("k") == READING


def test_a_folder_that_is_removed_comes_back(cache):
    """Someone clears the cache with rm -r while it is in use: pages are not found, and kept again."""
    cache.put("k", READING)
    shutil.rmtree(cache.info().path.parent)
    assert cache.get("k") is None
    cache.put("k", READING)
    assert cache.get("k") == READING


def test_looking_makes_no_file(tmp_path):
    """A cache that holds nothing is not made by asking it."""
    cache = Cache(tmp_path / "none")
    assert cache.get("k") is None
    assert (cache.info().pages, cache.info().file_bytes, cache.clear()) == (0, 0, 0)
    assert not (tmp_path / "none").exists()


def test_threads_and_processes_share_it(cache):
    """Two processes of two threads each write and read at once; nothing is lost."""
    body = textwrap.dedent(f"""
        import sys, threading
        from pathlib import Path
        from jina_ocr_loaders.cache import Cache
        from jina_ocr_loaders.reading import Reading
        cache = Cache(Path({str(cache.info().path.parent)!r}))
        def work(t):
            for n in range(20):
                cache.put(f"{{sys.argv[1]}}-{{t}}-{{n}}", Reading("x"))
        threads = [threading.Thread(target=work, args=(t,)) for t in range(2)]
        [t.start() for t in threads]; [t.join() for t in threads]
    """)
    processes = [subprocess.Popen([sys.executable, "-c", body, str(n)]) for n in range(2)]
    assert [process.wait(60) for process in processes] == [0, 0]
    assert cache.info().pages == 80


def test_a_killed_writer_leaves_a_cache_that_works(cache):
    """kill -9 amid its writes, several times: the file opens, nothing that was kept is gone, and none is half."""
    body = textwrap.dedent(f"""
        import itertools, sys
        from pathlib import Path
        from jina_ocr_loaders.cache import Cache
        from jina_ocr_loaders.reading import Reading
        cache = Cache(Path({str(cache.info().path.parent)!r}))
        for n in itertools.count():
            cache.put(f"{{sys.argv[1]}}-{{n}}", Reading("x" * 20_000))
            print(n, flush=True)
    """)
    kept = []
    for number in range(4):
        command = [sys.executable, "-c", body, str(number)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
            for line, _ in zip(writer.stdout, range(3 + number), strict=False):
                kept.append(f"{number}-{line.strip()}")
            writer.kill()
    assert len(kept) == 18
    assert {cache.get(name).text for name in kept} == {"x" * 20_000}
    with contextlib.closing(sqlite3.connect(cache.info().path)) as db:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def test_which_cache_the_settings_ask_for(tmp_path, monkeypatch):
    """None follows the environment and never holds encrypted documents, False is off, True and a folder are on."""
    monkeypatch.delenv("JINA_OCR_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert open_cache(OCRSettings()) is None
    assert open_cache(OCRSettings(cache=False)) is None
    assert open_cache(OCRSettings(cache=True)).info().path == tmp_path / "xdg" / "jina-ocr" / FILE_NAME
    assert open_cache(OCRSettings(cache=tmp_path / "mine")).info().path.parent == tmp_path / "mine"
    monkeypatch.setenv("JINA_OCR_CACHE_DIR", str(tmp_path / "env"))
    assert open_cache(OCRSettings()).info().path.parent == tmp_path / "env"
    assert open_cache(OCRSettings(), encrypted=True) is None
    assert open_cache(OCRSettings(cache=True), encrypted=True).info().path.parent == tmp_path / "env"


def test_a_cache_that_cannot_be_written_never_fails_a_reading(tmp_path, caplog):
    """A folder that is a file: one warning a document, and the page is read as without a cache."""
    (tmp_path / "file").write_text("")
    pages = Cache(tmp_path / "file" / "cache").document("a", Named(), OCRRequest("p"), None)
    assert asyncio.run(pages.get(1)) is None
    asyncio.run(pages.put(1, READING))
    assert caplog.text.count("the page cache is of no use now") == 1


def test_one_cache_serves_threads(tmp_path):
    """Connections belong to one call, and whoever opens while another makes or leaves the file waits its turn."""

    def work(folder, name):
        cache = Cache(folder)
        cache.put(name, READING)
        assert cache.get(name) == READING

    with ThreadPoolExecutor(8) as pool:
        for n in range(12):
            for done in [pool.submit(work, tmp_path / str(n), name) for name in "abcdefgh"]:
                done.result()
