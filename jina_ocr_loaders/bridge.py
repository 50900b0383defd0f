"""Sync callers on an async core: one background event loop for the whole process.

The loop's thread is a daemon, and it ends by itself, cleaning up, when the main thread has ended: a script that never
closes anything still exits. A forked child starts its own loop. Nothing is patched, so it works beside any loop that
runs already (a notebook's, uvloop's).
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from concurrent.futures import Future
from contextlib import suppress
from typing import TypeVar

import anyio
from anyio.from_thread import BlockingPortal

T = TypeVar("T")

_lock = threading.Lock()
_portal: BlockingPortal | None = None


def run(func: Callable[[], Awaitable[T]]) -> T:
    """Run an async function on the background loop and wait for it.

    An exception in the waiting thread (Ctrl-C) cancels it there.
    """
    future = _background().start_task_soon(func)
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise


def iterate(source: Callable[[], AsyncIterator[T]]) -> Generator[T, None, None]:
    """Iterate over an async generator on the background loop; an iterator that is dropped closes it there."""
    items = source()
    try:
        while True:
            try:
                yield run(lambda: anext(items))
            except StopAsyncIteration:
                return
    finally:
        # While the interpreter is being taken down the loop's thread stands still: there is nobody to wait for.
        if (close := getattr(items, "aclose", None)) and not sys.is_finalizing():
            run(close)


def _background() -> BlockingPortal:
    global _portal
    with _lock:
        if _portal is None:
            started: Future[BlockingPortal] = Future()
            threading.Thread(target=_run_loop, args=(started,), name="jina-ocr", daemon=True).start()
            _portal = started.result()
        return _portal


def _run_loop(started: Future[BlockingPortal]) -> None:
    async def main() -> None:
        async with BlockingPortal() as portal:
            threading.Thread(target=_stop_after_main_thread, args=(portal,), name="jina-ocr-exit", daemon=True).start()
            started.set_result(portal)
            await portal.sleep_until_stopped()

    try:
        anyio.run(main)
    finally:
        _forget()


def _stop_after_main_thread(portal: BlockingPortal) -> None:
    threading.main_thread().join()
    with suppress(RuntimeError):  # the loop is gone already
        portal.start_task_soon(portal.stop, True)


def _forget() -> None:
    """The loop is gone: its thread has ended, or this is a forked child, where it does not exist."""
    global _portal, _lock
    _portal, _lock = None, threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
