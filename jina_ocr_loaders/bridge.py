"""Sync callers on an async core: one background event loop for the whole process.

The loop's thread is a daemon, and it ends by itself, cleaning up, when the main thread has ended and with it all other
threads that called and that the interpreter waits for: a script that never closes anything still exits. A forked child
starts its own loop. Nothing is patched, so it works beside any loop that runs already (a notebook's, uvloop's).
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import TypeVar

from anyio.from_thread import BlockingPortal

from jina_ocr_loaders.errors import EngineNotReadyError
from jina_ocr_loaders.threads import no_thread, start_daemon

T = TypeVar("T")

CLOSING = 1.0  # seconds at most for what nobody closed
# Seconds after which a waiting caller looks for Ctrl-C, which does not always wake it: never on Windows, elsewhere
# not when it comes just as the waiting begins, or to another thread.
LOOK = 0.2
_lock = threading.Lock()
_portal: BlockingPortal | None = None
_callers: weakref.WeakSet[threading.Thread] = weakref.WeakSet()  # threads that have called
_begun: weakref.WeakSet[AsyncGenerator[object, None]] = weakref.WeakSet()


def run(func: Callable[[], Awaitable[T]]) -> T:
    """Run an async function on the background loop and wait for it.

    An exception in the waiting thread (Ctrl-C) cancels it there, and is raised when that has been done.

    Raises:
        EngineNotReadyError: the interpreter is being taken down, or no thread can be started for the loop.
    """
    if ending():
        raise EngineNotReadyError("the interpreter is being taken down: nothing more can be read", code="no_thread")
    task: asyncio.Task[object] | None = None
    ended = threading.Event()

    async def call() -> T:
        nonlocal task
        task = asyncio.current_task()
        try:
            return await func()
        except RuntimeError as error:
            if type(error) is RuntimeError and not threading.main_thread().is_alive():
                raise no_thread(error) from error  # for a thread pool of another library
            raise
        except (Exception, asyncio.CancelledError):
            raise
        except BaseException as error:
            raise _LeavingError(error) from None
        finally:
            ended.set()

    def cancel() -> None:
        if task:
            task.cancel()

    _callers.add(threading.current_thread())
    portal = _background()
    try:
        return _result(portal.start_task_soon(call))
    except _LeavingError as leaving:
        raise leaving.error from None
    except BaseException:
        # Not by the future: Ctrl-C can come before there is one, and to cancel it cancels each step of the clean-up.
        if not ended.is_set():
            portal.call(cancel)  # the loop keeps the order: what was begun has its task by now
            while task and not ended.wait(LOOK):
                pass
        raise


def _result(future: Future[T]) -> T:
    while not future.done():
        with suppress(TimeoutError):  # the call's own comes out below
            future.result(LOOK)
    return future.result()


class _LeavingError(Exception):
    """Carries what is no Exception (sys.exit() in a callback) past the loop, which all others would lose by it."""

    def __init__(self, error: BaseException) -> None:
        self.error = error


def iterate(source: Callable[[], AsyncIterator[T]]) -> Generator[T, None, None]:
    """Iterate over an async generator on the background loop; an iterator that is dropped closes it there.

    Raises:
        RuntimeError: this is a forked child, and the iterator was begun in its parent.
    """
    items = source()
    if isinstance(items, AsyncGenerator):
        _begun.add(items)
    process = os.getpid()
    try:
        while True:
            if os.getpid() != process:
                raise RuntimeError("this iterator was begun in another process: begin a new one here")
            try:
                yield run(lambda: anext(items))
            except StopAsyncIteration:
                return
    finally:
        # In a forked child it is the parent's to close. In a thread that never called the garbage collector has found
        # it, and that may be a thread which the loop waits for: asyncio closes it then.
        mine = not ending() and os.getpid() == process and threading.current_thread() in _callers
        if mine and (close := getattr(items, "aclose", None)):
            run(close)


def ending() -> bool:
    """Whether the interpreter is being taken down: the loop is gone or stands still, and nobody can wait for it."""
    if sys.is_finalizing():
        return True
    main = threading.main_thread()
    return threading.current_thread() is main and not main.is_alive()


def _background() -> BlockingPortal:
    global _portal
    # Nobody takes the portal away while the main thread runs, and Ctrl-C, which comes there, could leave a lock locked.
    if (portal := _portal) and threading.current_thread() is threading.main_thread():
        return portal
    with _lock:
        if _portal is None:
            started: Future[BlockingPortal] = Future()
            start_daemon(partial(_run_loop, started), "jina-ocr")
            _portal = started.result()
        return _portal


def _run_loop(started: Future[BlockingPortal]) -> None:
    async def main() -> None:
        async with BlockingPortal() as portal:
            start_daemon(partial(_stop_at_exit, portal), "jina-ocr-exit")
            started.set_result(portal)
            await portal.sleep_until_stopped()

    try:
        with asyncio.Runner() as runner:
            running = runner.get_loop().create_task(main())
            while not running.done():
                # sys.exit() in a task under ours (a page's, in ``on_retry``) halts the loop, and reaches who waits.
                with suppress(SystemExit, KeyboardInterrupt):
                    runner.get_loop().run_until_complete(running)
    except Exception as error:
        # Python 3.12 and later refuse the thread in which asyncio ends its executor once the main one has ended.
        if not started.done():
            started.set_exception(error)
        elif threading.main_thread().is_alive():
            raise
    finally:
        _forget()


def _stop_at_exit(portal: BlockingPortal) -> None:
    global _portal
    threading.main_thread().join()
    while True:
        with _lock:
            callers = [t for t in threading.enumerate() if t in _callers and t.is_alive() and not t.daemon]
            if not callers:
                _portal = None  # a thread that calls for the first time now gets a loop of its own
                break
        callers[0].join()
    with suppress(RuntimeError, TimeoutError):  # the loop is gone already
        portal.start_task_soon(_close_all).result(CLOSING)
    with suppress(RuntimeError):
        portal.start_task_soon(portal.stop, True)


async def _close_all() -> None:
    """End the iterators that nobody closed: from the outside in, which asyncio at its end does not."""
    for items in list(_begun):
        with suppress(Exception):
            await items.aclose()


def _forget() -> None:
    """The loop is gone: its thread has ended, or this is a forked child, where it does not exist."""
    global _portal, _lock
    _portal, _lock = None, threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
