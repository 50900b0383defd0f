"""Blocking calls in threads that nobody has to wait for."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import textwrap
import threading

import pytest

from jina_ocr_loaders.threads import in_daemon_thread


def test_results_and_exceptions_come_back():
    """What the function returns or raises is the caller's, in the caller's loop."""

    def fail() -> None:
        raise KeyError("mine")

    async def run() -> None:
        assert await in_daemon_thread(threading.current_thread) is not threading.current_thread()
        with pytest.raises(KeyError, match="mine"):
            await in_daemon_thread(fail)

    asyncio.run(run())


@pytest.mark.parametrize("loop_is_closed", [True, False])
def test_a_cancelled_call_is_left_behind(loop_is_closed):
    """The caller goes on at once; the thread ends quietly later, whether its loop still runs or not."""
    started, release, threads = threading.Event(), threading.Event(), []

    def wait() -> None:
        threads.append(threading.current_thread())
        started.set()
        release.wait()
        raise ValueError("nobody asks any more")

    async def run() -> None:
        call = asyncio.create_task(in_daemon_thread(wait))
        await in_daemon_thread(started.wait)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        if not loop_is_closed:
            release.set()
            await in_daemon_thread(threads[0].join)

    asyncio.run(run())
    release.set()
    threads[0].join(60)
    assert threads[0].daemon
    assert not threads[0].is_alive()


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a stack of any size may be had")
def test_when_no_thread_can_be_started():
    """Making a JinaOCR works, for it needs none yet; reading, in sync and async code, says what is the matter."""
    program = """
        import asyncio, threading
        from jina_ocr_loaders import EngineNotReadyError, JinaOCR
        threading.stack_size(1 << 46)  # more than there is: the system refuses every thread from now on
        ocr = JinaOCR("hosted", base_url="http://127.0.0.1:9/v1", api_key="key")
        for read in (lambda: ocr.read(b"x"), lambda: asyncio.run(ocr.aread(b"x"))):
            try:
                read()
            except EngineNotReadyError as error:
                print(error.code, error)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=240)
    assert done.stdout.count("no_thread no thread can be started (can't start new thread)\n") == 2, done.stderr
    assert done.stderr == ""
