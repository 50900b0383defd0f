"""JinaOCR in scripts of its own: exit, Ctrl-C, fork, spawn, uvloop."""

import os
import signal
import subprocess
import sys
import textwrap
import time

import psutil
import pytest

from tests.servers import hosted
from tests.servers.hosted import marked_pdf


@pytest.fixture
def start(server, tmp_path):
    """Start a script in which ``ocr`` reads from the test's server and ``PDF`` is a document of nine pages."""
    pdf = tmp_path / "nine.pdf"
    pdf.write_bytes(marked_pdf(9))
    head = f"""
        import asyncio, os, sys
        from jina_ocr_loaders import JinaOCR
        PDF, URL = {str(pdf)!r}, {server.base_url!r}
        def make():
            return JinaOCR("hosted", base_url=URL, concurrency=2)
    """
    started = []

    def start(body):
        path = tmp_path / "script.py"
        path.write_text(textwrap.dedent(head) + textwrap.dedent(body))
        environment = {**os.environ, "PYTHONPATH": os.getcwd()}
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        started.append(subprocess.Popen([sys.executable, str(path)], env=environment, **pipes))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


def test_a_script_that_never_closes_anything_exits(start):
    """An iterator left half way, nothing closed: the interpreter ends by itself, and its worker with it."""
    process = start("""
        ocr = make()
        pages = ocr.pages(PDF)
        print(next(pages).number, flush=True)
    """)
    out, err = process.communicate(timeout=240)
    assert (out.strip(), err, process.returncode) == ("1", "", 0)


LOADERS = {
    "read": "make().read(PDF)",
    "pages": "list(make().pages(PDF))",
    "reader": "JinaOCRReader('hosted', base_url=URL).load_data(PDF)",
    "loader": "list(JinaOCRLoader(PDF, engine='hosted', base_url=URL).lazy_load())",
}


@pytest.mark.parametrize("call", LOADERS.values(), ids=LOADERS)
def test_ctrl_c_ends_a_reading_and_its_workers(start, server, call):
    """SIGINT during a sync call: KeyboardInterrupt, and neither process nor worker is left."""
    server.otherwise = hosted.stall()
    process = start(f"""
        import signal
        from jina_ocr_loaders import JinaOCRLoader, JinaOCRReader
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job starts with Ctrl-C ignored
        try:
            {call}
        except KeyboardInterrupt:
            print("interrupted", flush=True)
    """)
    while not server.requests:
        time.sleep(0.02)
    children = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=240)
    assert out.strip() == "interrupted", err
    assert not psutil.wait_procs(children, timeout=120)[1]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this platform")
def test_a_forked_child_reads_on_its_own(start):
    """Parent and child read with the same object; each gets all pages."""
    process = start("""
        ocr = make()
        assert len(ocr.read(PDF)) == 9
        child = os.fork()
        if not child:
            code = 1
            try:
                code = 0 if len(ocr.read(PDF)) == 9 else 2
            finally:
                os._exit(code)
        assert len(ocr.read(PDF)) == 9
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
    """)
    out, err = process.communicate(timeout=240)
    assert out.strip() == "0", err


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this platform")
def test_a_fork_right_after_the_constructor_reads(start):
    """The constructor imports in the background: the fork waits for it, for a child would find the import locked."""
    process = start("""
        ocr = make()
        child = os.fork()
        if not child:
            print(len(ocr.read(PDF)), flush=True)
            os._exit(0)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
    """)
    out, err = process.communicate(timeout=240)
    assert out.split() == ["9", "0"], err


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this platform")
def test_an_open_document_is_its_own_process_s(start):
    """A forked child that reads its parent's document is told to open its own, and leaving it there closes nothing."""
    process = start("""
        from jina_ocr_loaders import SourceError
        ocr = make()
        with ocr.open(PDF) as document:
            child = os.fork()
            if not child:
                for read in (lambda: list(document), lambda: list(document.stream(1))):
                    try:
                        read()
                    except SourceError as error:
                        print(error.code, flush=True)
                sys.exit(0)
            print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), len(list(document)), flush=True)
    """)
    out, err = process.communicate(timeout=240)
    assert out.split() == ["other_process", "other_process", "0", "9"], err


def test_closing_at_exit_is_quiet(start):
    """``close`` as an exit handler and in a finaliser: nothing hangs and nothing is printed."""
    process = start("""
        import atexit
        class Late:
            def __del__(self):
                ocr.close()
        ocr, kept = make(), Late()
        atexit.register(ocr.close)
        print(len(ocr.read(PDF)), flush=True)
    """)
    out, err = process.communicate(timeout=240)
    assert (out.split(), err, process.returncode) == (["9"], "", 0)


def test_spawned_processes_get_the_object_by_pickle(start):
    """A pool of two spawned processes reads with one pickled JinaOCR; no __main__ guard is asked of the worker."""
    process = start("""
        from concurrent.futures import ProcessPoolExecutor
        from multiprocessing import get_context
        def read(ocr):
            return len(ocr.read(PDF))
        if __name__ == "__main__":
            with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
                print(*pool.map(read, [make()] * 2), flush=True)
    """)
    out, err = process.communicate(timeout=240)
    assert out.split() == ["9", "9"], err


def test_uvloop_reads(start):
    """Native async under uvloop, and a sync call inside it."""
    pytest.importorskip("uvloop")
    process = start("""
        import uvloop
        async def main():
            ocr = make()
            print(len(await ocr.aread(PDF)), len(ocr.read(PDF)), flush=True)
            await ocr.aclose()
        uvloop.run(main())
    """)
    out, err = process.communicate(timeout=240)
    assert out.split() == ["9", "9"], err
