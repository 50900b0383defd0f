"""Daemon threads: for blocking calls that may never come back, and for what is better done beside the first steps."""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

T = TypeVar("T")

FORK_WAITS = 60.0  # seconds at most for what runs aside
_aside: weakref.WeakSet[threading.Thread] = weakref.WeakSet()


async def in_daemon_thread(function: Callable[[], T]) -> T:
    """Run a blocking function in a thread of its own, which is left behind when the caller is cancelled.

    Thread pools (asyncio's, anyio's) are waited for when the interpreter ends: a stream that gives nothing, or a dead
    network mount, would keep it from ending. A daemon thread does not.
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

    threading.Thread(target=run, name="jina-ocr work", daemon=True).start()
    return await done


def run_aside(function: Callable[[], object]) -> None:
    """Start a function that imports modules in a daemon thread, and have forks wait until it has ended.

    A thread that is importing when the process forks leaves the child a lock that nobody gives back.
    """
    thread = threading.Thread(target=function, name="jina-ocr aside", daemon=True)
    _aside.add(thread)
    thread.start()


def _wait_for_all() -> None:
    for thread in list(_aside):
        if thread is not threading.current_thread():
            thread.join(FORK_WAITS)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_wait_for_all)
