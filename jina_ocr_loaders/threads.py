"""Blocking calls from the event loop that may never come back."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

T = TypeVar("T")


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
