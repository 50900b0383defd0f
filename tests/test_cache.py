"""The page cache."""

import os
import stat
import subprocess
import sys
import textwrap
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from jina_ocr_loaders.cache import FILE_NAME, Cache, open_cache
from jina_ocr_loaders.engines.base import OCRRequest, Render, Sampling
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
    cache = Cache(tmp_path / "c", max_bytes=2 * each, max_age=100, now=lambda: now[0])
    for name in "abc":
        now[0] += 1
        cache.put(name, READING)
    now[0] += 1
    cache.get("a")
    cache.tidy()
    assert [bool(cache.get(name)) for name in "abc"] == [True, False, True]
    now[0] += 101
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


def test_a_spoiled_file_is_set_aside(cache, caplog):
    """A file that is no database any more is moved away, said, and the cache goes on."""
    cache.put("k", READING)
    cache.info().path.write_bytes(b"garbage" * 1000)
    cache.put("k", READING)
    assert cache.get("k") == READING
    assert "no database" in caplog.text


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


def test_a_writer_killed_half_way_leaves_a_cache_that_works(cache):
    """After kill -9 in the middle of a transaction the file opens, and only the half transaction is gone."""
    cache.put("k", READING)
    body = textwrap.dedent(f"""
        import os, signal, sqlite3
        db = sqlite3.connect({str(cache.info().path)!r})
        db.execute("INSERT INTO pages VALUES ('half', '{{}}', 2, 0)")
        os.kill(os.getpid(), signal.SIGKILL)
    """)
    subprocess.run([sys.executable, "-c", body], check=False)
    assert cache.get("k") == READING
    assert cache.info().pages == 1


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
    """A folder that is a file: a warning, and the page is read as without a cache."""
    import asyncio

    (tmp_path / "file").write_text("")
    pages = Cache(tmp_path / "file" / "cache").document("a", Named(), OCRRequest("p"), None)
    assert asyncio.run(pages.get(1)) is None
    asyncio.run(pages.put(1, READING))
    assert "cache" in caplog.text


def test_one_cache_serves_threads(tmp_path):
    """Connections belong to one call, and whoever opens while another makes or leaves the file waits its turn."""

    def work(folder):
        cache = Cache(folder)
        for n in range(4):
            cache.put(f"{threading.get_ident()} {n}", READING)
            assert cache.get(f"{threading.get_ident()} {n}") == READING

    with ThreadPoolExecutor(8) as pool:
        for n in range(25):
            for done in [pool.submit(work, tmp_path / str(n)) for _ in range(8)]:
                done.result()
