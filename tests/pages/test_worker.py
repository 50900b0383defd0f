"""The worker process: what a bad document does to it, and what happens to all others then."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import psutil
import pytest

from jina_ocr_loaders.errors import CorruptDocumentError, ResourceLimitError, SourceError
from jina_ocr_loaders.pages import Limits, client, document, prestart
from tests.data import pdfs
from tests.pages.opening import open_bytes, read, run

posix = pytest.mark.skipif(sys.platform == "win32", reason="signals")


def workers(parent: int | None = None) -> list[psutil.Process]:
    """The worker processes of a process, this one by default."""
    found = []
    for child in psutil.Process(parent).children():
        with contextlib.suppress(psutil.NoSuchProcess):
            while not (command := child.cmdline()):
                time.sleep(0.001)  # it is being started: the kernel has its command in a moment
            if "jina_ocr_loaders.pages.worker" in command:
                found.append(child)
    return found


@pytest.fixture(autouse=True)
def no_spare():
    """Each test starts without workers and leaves none."""
    client.end_idle()
    yield
    client.end_idle()
    assert workers() == []


def test_a_killed_worker_costs_its_own_document_only(tmp_path):
    """Two documents of 50 pages in flight, one worker killed: one clear error there, all 50 pages here."""

    async def work():
        async with (
            await open_bytes(tmp_path, pdfs.plain(50)) as victim,
            await open_bytes(tmp_path, pdfs.plain(50) + b"\n") as other,
        ):
            first, second = workers()
            doomed = [asyncio.ensure_future(victim.page(number)) for number in range(1, 51)]
            fine = [asyncio.ensure_future(other.page(number)) for number in range(1, 51)]
            await doomed[4]
            opened_first = first if first.create_time() <= second.create_time() else second
            opened_first.kill()
            lost = await asyncio.gather(*doomed, return_exceptions=True)
            kept = await asyncio.gather(*fine)
            with pytest.raises(CorruptDocumentError):
                await victim.page(1)
        return lost, kept

    lost, kept = run(work())
    assert [page.number for page in kept] == list(range(1, 51))
    errors = [error for error in lost if isinstance(error, BaseException)]
    assert errors
    assert all(isinstance(error, CorruptDocumentError) and error.code == "worker_lost" for error in errors)
    assert len({str(error) for error in errors}) == 1
    assert len({id(error) for error in errors}) == len(errors)  # each caller raises its own
    assert read(tmp_path, pdfs.plain(1)).page.strips  # and the next document has a fresh worker


def test_a_page_that_takes_too_long(tmp_path):
    """A page that would be painted for hours: the time limit ends it, and the message says which page."""
    with pytest.raises(ResourceLimitError, match="longer than 1 s"):
        raise read(tmp_path, pdfs.slow(), limits=Limits(seconds=1)).error


@posix
def test_a_worker_that_hangs_without_working(tmp_path):
    """A stopped process answers nothing: the limit holds for it too, and nobody waits for it on closing."""
    read(tmp_path, pdfs.plain(1))  # so that opening the next one does not wait for a process to start

    async def work():
        async with await open_bytes(tmp_path, pdfs.plain(3), limits=Limits(seconds=2)) as opened:
            workers()[0].suspend()
            return await asyncio.gather(*map(opened.page, (1, 2, 3)), return_exceptions=True)

    errors = run(work())
    assert all(isinstance(error, ResourceLimitError) for error in errors)


class SlowToKill(client.Worker):
    """One whose killer is not scheduled again until its caller has seen the end."""

    def kill(self) -> None:
        super().kill()
        if isinstance(threading.current_thread(), threading.Timer):
            time.sleep(0.2)


@posix
def test_the_end_of_a_worker_is_seen_before_its_killer_is_done():
    """On a busy machine its caller is first: it is told that time ran out all the same, not of a crash."""
    worker = SlowToKill()
    psutil.Process(worker.pid).suspend()
    with pytest.raises(client.WorkerLostError) as lost:
        worker.call({}, 0.05)
    assert lost.value.timed_out
    worker.discard()


@pytest.mark.skipif(sys.platform != "linux", reason="RLIMIT_DATA is held by Linux only")
def test_a_page_that_takes_too_much_memory(tmp_path):
    """A kilobyte that unpacks to 200 MB: an error under a limit of 150 MiB, a blank page under the usual one."""
    data = pdfs.bloating(200)
    assert len(data) < 3000
    error = read(tmp_path, data, limits=Limits(memory=150 << 20)).error
    assert isinstance(error, CorruptDocumentError | ResourceLimitError)
    assert "memory" in str(error)
    assert read(tmp_path, data).page.blank


def test_the_limit_on_memory_is_that_of_the_document(tmp_path):
    """A worker that served a document with a low limit serves the next one with its own."""
    read(tmp_path, pdfs.plain(1), limits=Limits(memory=150 << 20))
    assert len(workers()) == 1
    assert read(tmp_path, pdfs.bloating(200)).page.blank


def test_closing_gives_up_what_is_in_work(tmp_path):
    """A document closed while it draws for hours closes at once, and who waits for a page is told."""

    async def work():
        opened = await open_bytes(tmp_path, pdfs.slow())
        pages = [asyncio.ensure_future(opened.page(1)) for _ in range(3)]
        await asyncio.sleep(0.1)
        await opened.aclose()
        await opened.aclose()
        with pytest.raises(SourceError, match="closed"):
            await opened.page(1)
        return await asyncio.gather(*pages, return_exceptions=True)

    for outcome in run(work()):
        assert isinstance(outcome, SourceError)
        assert "closed" in str(outcome)


def test_cancelling_a_page_leaves_the_others(tmp_path):
    """A call that is given up, waiting or in work, costs the other pages nothing."""

    async def work():
        async with await open_bytes(tmp_path, pdfs.plain(20)) as opened:
            pages = [asyncio.ensure_future(opened.page(number)) for number in range(1, 21)]
            await pages[0]
            for page in pages[1::2]:
                page.cancel()
            return await asyncio.gather(*pages, return_exceptions=True)

    outcomes = run(work())
    assert [page.number for page in outcomes[2::2]] == list(range(3, 21, 2))
    assert all(isinstance(outcome, asyncio.CancelledError) for outcome in outcomes[1::2])


def test_cancelling_an_opening_ends_the_worker(tmp_path):
    """Nothing is left behind when opening is given up half way."""

    async def work():
        opening = asyncio.ensure_future(open_bytes(tmp_path, pdfs.plain(1)))
        await asyncio.sleep(0.01)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening

    run(work())
    deadline = time.monotonic() + 30
    while any(worker.status() != psutil.STATUS_ZOMBIE for worker in workers() if worker not in idle_pids()):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def idle_pids() -> list[psutil.Process]:
    """The workers that wait for the next document."""
    return [psutil.Process(worker.pid) for worker in client._idle]


def test_a_spare_worker_serves_the_first_document(tmp_path):
    """prestart starts one process, once; the first document takes it and hands it on to the next."""
    prestart()
    prestart()
    (spare,) = workers()
    for _ in range(3):
        read(tmp_path, pdfs.plain(1))
        assert workers() == [spare]


def test_a_spare_worker_that_died_is_replaced(tmp_path):
    """A spare one killed while it waited costs nothing but the start of another."""
    prestart()
    (spare,) = workers()
    spare.kill()
    spare.wait()
    assert read(tmp_path, pdfs.plain(1)).page.strips


def test_documents_that_fail_do_not_use_up_workers(tmp_path):
    """A refused document leaves its worker to the next one."""
    for _ in range(3):
        with pytest.raises(CorruptDocumentError):
            read(tmp_path, pdfs.garbage())
    assert len(workers()) == 1


@pytest.mark.parametrize("patience", [0, float("inf")], ids=["waiting", "many"])
def test_a_second_worker_helps_when_calls_queue_up(tmp_path, monkeypatch, patience):
    """Calls that wait, or are many, bring a second worker, never a third; every page comes once; one at a time: one."""
    monkeypatch.setattr(document, "PATIENCE", patience)

    async def work(at_once):
        limit = asyncio.Semaphore(at_once)
        most = 0

        async def page(number):
            nonlocal most
            async with limit:
                drawn = await opened.page(number)
            most = max(most, len(workers()))
            return drawn

        async with await open_bytes(tmp_path, pdfs.plain(40)) as opened:
            pages = await asyncio.gather(*map(page, range(1, 41)))
        return [page.number for page in pages], most

    assert run(work(40)) == (list(range(1, 41)), 2)
    client.end_idle()
    assert run(work(1)) == (list(range(1, 41)), 1)


@pytest.mark.parametrize("threads", [0, 1])
def test_threads_that_cannot_be_started(tmp_path, monkeypatch, threads):
    """Where the system gives no thread the document is refused; where it gives one, that one draws every page."""
    start = threading.Thread.start
    started = 0

    def limited(thread):
        nonlocal started
        if thread.name == "jina-ocr-pages":
            started += 1
            if started > threads:
                raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(document, "PATIENCE", 0)
    monkeypatch.setattr(threading.Thread, "start", limited)

    async def work():
        async with await open_bytes(tmp_path, pdfs.plain(5)) as opened:
            return [page.number for page in await asyncio.gather(*map(opened.page, range(1, 6)))]

    if threads:
        assert run(work()) == [1, 2, 3, 4, 5]
        assert started > 1
    else:
        with pytest.raises(ResourceLimitError, match="thread"):
            run(work())


def test_it_works_on_any_loop_and_thread(tmp_path):
    """Two loops in turn, uvloop, and a thread that is not the main one."""
    assert read(tmp_path, pdfs.plain(2)).pages[1].number == 2
    assert read(tmp_path, pdfs.plain(2)).pages[1].number == 2
    outcomes = []
    thread = threading.Thread(target=lambda: outcomes.append(read(tmp_path, pdfs.plain(2))))
    thread.start()
    thread.join()
    assert outcomes[0].pages[1].number == 2
    uvloop = pytest.importorskip("uvloop", reason="not on Windows")

    async def work():
        async with await open_bytes(tmp_path, pdfs.plain(2)) as opened:
            return await opened.page(2)

    assert uvloop.run(work()).number == 2


def script(code: str, *arguments: object) -> subprocess.Popen[str]:
    """Run a script of its own process; its folder is where this package lies."""
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=root,
    )


def test_a_script_that_never_closes_ends(tmp_path):
    """An open document and a page still in work do not keep the interpreter alive, and the worker ends with it."""
    (tmp_path / "slow.pdf").write_bytes(pdfs.slow())
    process = script(
        """
        import asyncio, sys
        from pathlib import Path
        from jina_ocr_loaders.pages import open_document
        from tests.pages.opening import File

        async def main():
            document = await open_document(File(Path(sys.argv[1])), name="sample")
            page = asyncio.ensure_future(document.page(1))
            await asyncio.sleep(0.2)
            print([child.pid for child in __import__("psutil").Process().children()][0], flush=True)

        asyncio.run(main())
        """,
        tmp_path / "slow.pdf",
    )
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "")
    assert_gone(int(out))


@posix
def test_the_worker_ends_with_its_parent(tmp_path):
    """The parent is killed while the worker draws a page that would take hours: the worker ends all the same."""
    (tmp_path / "slow.pdf").write_bytes(pdfs.slow())
    process = script(
        """
        import asyncio, os, signal, sys
        from pathlib import Path
        from jina_ocr_loaders.pages import open_document
        from tests.pages.opening import File

        async def main():
            document = await open_document(File(Path(sys.argv[1])), name="sample")
            page = asyncio.ensure_future(document.page(1))
            await asyncio.sleep(0.2)
            print([child.pid for child in __import__("psutil").Process().children()][0], flush=True)
            os.kill(os.getpid(), signal.SIGKILL)

        asyncio.run(main())
        """,
        tmp_path / "slow.pdf",
    )
    out, _ = process.communicate(timeout=60)
    assert_gone(int(out))


def assert_gone(pid: int) -> None:
    """Wait for a process that is no child of this one to end."""
    with contextlib.suppress(psutil.NoSuchProcess):
        psutil.Process(pid).wait(timeout=30)


@posix
def test_a_forked_child_has_workers_of_its_own(tmp_path):
    """A fork with a spare worker and an open document: parent and child both read on, undisturbed."""
    (tmp_path / "plain.pdf").write_bytes(pdfs.plain(5))
    process = script(
        """
        import asyncio, os, sys, warnings
        from pathlib import Path
        from jina_ocr_loaders.pages import open_document, prestart
        from tests.pages.opening import File

        warnings.simplefilter("ignore", DeprecationWarning)

        async def read(who):
            async with await open_document(File(Path(sys.argv[1])), name="sample") as document:
                print(who, [(await document.page(number)).number for number in range(1, 6)], flush=True)

        prestart()
        loop = asyncio.new_event_loop()
        document = loop.run_until_complete(open_document(File(Path(sys.argv[1])), name="sample"))
        prestart()
        child = os.fork()
        if child == 0:
            asyncio.run(read("child"))
            os._exit(0)
        os.waitpid(child, 0)
        print("parent", loop.run_until_complete(document.page(5)).number, flush=True)
        loop.run_until_complete(document.aclose())
        asyncio.run(read("parent"))
        """,
        tmp_path / "plain.pdf",
    )
    out, err = process.communicate(timeout=60)
    assert out.splitlines() == ["child [1, 2, 3, 4, 5]", "parent 5", "parent [1, 2, 3, 4, 5]"], err


def test_a_folder_full_of_traps_is_not_imported(tmp_path, monkeypatch):
    """The worker does not import from the current folder: a json.py there is nobody's business."""
    (tmp_path / "json.py").write_text("raise SystemExit('imported from the current folder')")
    monkeypatch.chdir(tmp_path)
    assert read(tmp_path, pdfs.plain(1)).page.strips


def test_a_relative_path_after_a_change_of_folder(tmp_path, monkeypatch):
    """The spare worker began in another folder: what counts is where the caller is."""
    from jina_ocr_loaders.pages import open_document
    from tests.pages.opening import File

    prestart()
    (tmp_path / "here.pdf").write_bytes(pdfs.plain(1))
    monkeypatch.chdir(tmp_path)

    async def work():
        async with await open_document(File(Path("here.pdf")), name="here") as opened:
            return opened.page_count

    assert run(work()) == 1


def test_a_file_that_is_gone(tmp_path):
    """A temporary file swept away before it is opened is a clear error, not the interpreter's."""
    from jina_ocr_loaders.pages import open_document
    from tests.pages.opening import File

    for kind in ("pdf", "image"):
        with pytest.raises(SourceError, match="gone"):
            run(open_document(File(tmp_path / "gone", kind), name="gone"))
