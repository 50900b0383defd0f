"""The worker process seen from the parent, and the spare ones that wait for work."""

from __future__ import annotations

import atexit
import contextlib
import os
import subprocess
import sys
import threading
import weakref
from io import FileIO
from pathlib import Path
from typing import cast

from jina_ocr_loaders.pages import wire

MAX_IDLE = 2  # workers kept for the next documents
MAX_DOCUMENTS = 100  # that one worker opens, one after the other: what libraries leak does not add up
_ROOT = str(Path(__file__).parents[2])  # where this package lies
_COMMAND = ("-P", "-m", "jina_ocr_loaders.pages.worker")
if sys.platform == "win32":
    _FLAGS = subprocess.CREATE_NO_WINDOW | subprocess.CREATE_NEW_PROCESS_GROUP
else:
    _FLAGS = 0


class WorkerLostError(Exception):
    """The worker ended before it answered. ``timed_out`` says that it was killed for being too slow."""

    def __init__(self, timed_out: bool, returncode: int | None) -> None:
        super().__init__(timed_out, returncode)
        self.timed_out = timed_out
        self.returncode = returncode


class Worker:
    """A worker process. Calls block; one thread at a time makes them, any thread may kill."""

    def __init__(self) -> None:
        self.documents = 0
        self._timed_out = False
        self._process = subprocess.Popen(
            [sys.executable, *_COMMAND],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(_import_path())},
            start_new_session=True,  # Ctrl-C is the parent's to handle
            creationflags=_FLAGS,
        )
        self._requests = cast(FileIO, self._process.stdin)
        self._answers = cast(FileIO, self._process.stdout)
        _workers.add(self)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def call(self, request: wire.Header, seconds: float) -> tuple[wire.Header, memoryview]:
        """Send a request and wait for the answer, at most for some seconds; then the worker is killed.

        Raises:
            WorkerLostError: it was killed, crashed, or was too slow.
        """
        timer = threading.Timer(seconds, self._time_out)
        timer.daemon = True
        timer.start()
        try:
            wire.send(self._requests, request)
            return wire.receive(self._answers)
        except (EOFError, OSError, ValueError):
            self.kill()
            raise WorkerLostError(self._timed_out, self._process.wait()) from None
        finally:
            timer.cancel()

    def _time_out(self) -> None:
        self._timed_out = True  # first: the caller may see the process end before `kill` returns
        self.kill()

    def kill(self) -> None:
        """End it at once."""
        self._process.kill()

    def discard(self) -> None:
        """End it and give back its pipes; only from the thread that makes the calls."""
        self.kill()
        self._process.wait()
        self.forget()

    def forget(self) -> None:
        """Close this end of the pipes and leave the process alone."""
        self._requests.close()
        self._answers.close()


def _import_path() -> list[str]:
    """Where the worker imports from: as this process does, but for the current folder, unless this package is there."""
    path = [entry for entry in sys.path if entry]
    return path if _ROOT in path else [_ROOT, *path]


_workers: weakref.WeakSet[Worker] = weakref.WeakSet()
_idle: list[Worker] = []
_lock = threading.Lock()


def prestart() -> None:
    """Start a spare worker unless one waits already, so that the first document need not wait for it."""
    with _lock, contextlib.suppress(OSError):  # who opens a document will be told
        if not _idle:
            _idle.append(Worker())


def take() -> Worker:
    """A worker without a document: a spare one if there is one."""
    with _lock:
        while _idle:
            worker = _idle.pop()
            if worker.alive:
                break
            worker.discard()
        else:
            worker = Worker()
    worker.documents += 1
    return worker


def give_back(worker: Worker) -> None:
    """Keep a worker for the next document, or end it when enough wait already or it has served its time."""
    with _lock:
        if worker.alive and worker.documents < MAX_DOCUMENTS and len(_idle) < MAX_IDLE:
            _idle.append(worker)
            return
    worker.discard()


def end_idle() -> None:
    """End the workers that wait; the next document starts one anew."""
    with _lock:
        while _idle:
            _idle.pop().discard()


def _end_all() -> None:
    for worker in list(_workers):
        if worker.alive:
            worker.discard()


def _forget_all() -> None:
    """In a forked child the workers are the parent's."""
    global _lock
    _lock = threading.Lock()
    _idle.clear()
    for worker in list(_workers):
        worker.forget()
    _workers.clear()


atexit.register(_end_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)
