"""Daemon threads: for blocking calls that may never come back, and for what is better done beside the first steps."""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from jina_ocr_loaders.errors import EngineNotReadyError

T = TypeVar("T")

FORK_WAITS = 60.0  # seconds at most for what runs aside
_aside: weakref.WeakSet[threading.Thread] = weakref.WeakSet()


async def in_daemon_thread(function: Callable[[], T]) -> T:
    """Run a blocking function in a thread of its own, which is left behind when the caller is cancelled.

    Thread pools (asyncio's, anyio's) are waited for when the interpreter ends: a stream that gives nothing, or a dead
    network mount, would keep it from ending. A daemon thread does not.

    Raises:
        EngineNotReadyError: no thread can be started.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def report(result: T | None, error: BaseException | None) -> None:
        if done.cancelled():
            return
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(result)  # type: ignore[arg-type]  # what the function returned

    def run() -> None:
        result, error = None, None
        try:
            result = function()
        except BaseException as raised:
            error = raised
        with suppress(RuntimeError):  # the loop has been closed: nobody waits any more
            loop.call_soon_threadsafe(report, result, error)

    start_daemon(run, "jina-ocr work")
    return await done


def start_daemon(function: Callable[[], object], name: str) -> None:
    """Run a function in a daemon thread.

    Raises:
        EngineNotReadyError: no thread can be started: there are too many, or Python ends.
    """
    try:
        threading.Thread(target=function, name=name, daemon=True).start()
    except RuntimeError as error:
        raise no_thread(error) from error


def no_thread(error: RuntimeError) -> EngineNotReadyError:
    """What to raise where no thread could be started.

    Once the main thread has ended Python starts none for its thread pools, though others may still be at work, and
    3.12 starts none at all.
    """
    late = not threading.main_thread().is_alive()
    hint = "; read, or wait for your threads, before the main one ends" if late else ""
    return EngineNotReadyError(f"no thread can be started ({error}){hint}", code="no_thread")


def run_aside(function: Callable[[], object]) -> None:
    """Start a function that imports modules in a daemon thread, and have forks wait until it has ended.

    A thread that is importing when the process forks leaves the child a lock that nobody gives back.
    """

    def run() -> None:
        _aside.add(threading.current_thread())
        function()

    with suppress(EngineNotReadyError):  # what it would have begun is begun when it is needed
        start_daemon(run, "jina-ocr aside")


def _wait_for_all() -> None:
    for thread in list(_aside):
        if thread is not threading.current_thread():
            thread.join(FORK_WAITS)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_wait_for_all)
