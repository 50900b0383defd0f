"""The sync bridge: exit, Ctrl-C, fork, other loops."""

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import threading
from concurrent.futures import Future
from itertools import count

import pytest

from jina_ocr_loaders import bridge


def script(body: str, **options) -> subprocess.Popen:
    """Start a Python script of its own."""
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(body)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


async def numbers(log=None):
    """Count until closed."""
    n = 0
    try:
        while True:
            yield n
            n += 1
            await asyncio.sleep(0)
    finally:
        if log is not None:
            log.append("closed")


async def answer():
    await asyncio.sleep(0)
    return 42


def test_it_runs_beside_a_running_loop():
    """In a notebook, where a loop runs already, a sync call works."""

    async def main():
        return bridge.run(answer)

    assert asyncio.run(main()) == 42
    assert asyncio.run(main()) == 42


def test_it_runs_under_uvloop():
    """uvloop cannot be patched, and need not be."""
    uvloop = pytest.importorskip("uvloop")

    async def main():
        return bridge.run(answer)

    assert uvloop.run(main()) == 42


def test_threads_share_it():
    """Sync calls from eight threads at once all come back."""
    results = []
    threads = [threading.Thread(target=lambda: results.append(bridge.run(answer))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert results == [42] * 8


def test_two_iterators_interleave_and_a_dropped_one_is_closed():
    """Iterators do not wait for each other; dropping one runs its clean-up."""
    log: list[str] = []
    a, b = bridge.iterate(lambda: numbers(log)), bridge.iterate(lambda: numbers(log))
    assert [next(a), next(b), next(a), next(b)] == [0, 0, 1, 1]
    del a
    assert log == ["closed"]
    b.close()
    assert log == ["closed", "closed"]


def test_an_error_comes_out_as_it_is():
    """What the async function raises is what the caller sees."""

    async def fail():
        raise LookupError("x")

    with pytest.raises(LookupError, match="x"):
        bridge.run(fail)


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit(), BaseException("own")])
@pytest.mark.parametrize("deep", [False, True])
def test_what_ends_programs_ends_only_the_call(error, deep):
    """sys.exit() in the work, or in a task of it, is what its caller sees; others' work on the loop goes on."""
    other, begun, go_on, results = asyncio.Event(), threading.Event(), [], []

    async def wait():
        go_on.append(asyncio.get_running_loop())
        begun.set()
        await other.wait()
        return 42

    async def leave():
        raise error

    async def leave_deep():
        async with asyncio.TaskGroup() as group:
            group.create_task(asyncio.sleep(600))
            group.create_task(leave())

    thread = threading.Thread(target=lambda: results.append(bridge.run(wait)))
    thread.start()
    assert begun.wait(120)
    with pytest.raises((BaseExceptionGroup, type(error))) as caught:
        bridge.run(leave_deep if deep else leave)
    assert caught.value is error or caught.value.exceptions == (error,)
    assert thread.is_alive()
    go_on[0].call_soon_threadsafe(other.set)
    thread.join(120)
    assert results == [42]
    assert bridge.run(answer) == 42


def test_a_script_that_never_closes_exits():
    """An iterator half way, a thread of the loop's executor busy, nothing closed: the interpreter still ends."""
    process = script("""
        import asyncio, anyio, time
        from jina_ocr_loaders import bridge
        async def numbers():
            n = 0
            while True:
                yield n
                n += 1
                await anyio.to_thread.run_sync(time.sleep, 0.001)
        it = bridge.iterate(numbers)
        print(next(it), next(it), flush=True)
    """)
    out, err = process.communicate(timeout=240)
    assert (out.strip(), process.returncode) == ("0 1", 0), err


def test_ctrl_c_cancels_the_work():
    """SIGINT in a sync call raises KeyboardInterrupt there and cancels the task on the loop."""
    process = script("""
        import asyncio, signal
        from jina_ocr_loaders import bridge
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job starts with Ctrl-C ignored
        async def wait():
            print("waiting", flush=True)
            try:
                await asyncio.sleep(600)
            finally:
                print("cancelled", flush=True)
        async def idle():
            await asyncio.sleep(0.05)
        try:
            bridge.run(wait)
        except KeyboardInterrupt:
            bridge.run(idle)
            print("interrupted", flush=True)
    """)
    assert process.stdout.readline().strip() == "waiting"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=240)
    assert out.split() == ["cancelled", "interrupted"], err


@pytest.mark.skipif(not hasattr(signal, "pthread_sigmask"), reason="signals go to the main thread")
def test_ctrl_c_that_wakes_nobody_cancels_the_work():
    """A signal that another thread takes, or that comes just as the caller goes to sleep, is seen all the same."""
    process = script("""
        import asyncio, signal
        from jina_ocr_loaders import bridge
        signal.signal(signal.SIGINT, signal.default_int_handler)
        async def wait(seconds):
            print("waiting", flush=True)
            await asyncio.sleep(seconds)
        bridge.run(lambda: wait(0))
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])  # in this thread: the loop's takes it
        try:
            bridge.run(lambda: wait(600))
        except KeyboardInterrupt:
            print("interrupted", flush=True)
    """)
    assert [process.stdout.readline().strip() for _ in range(2)] == ["waiting"] * 2
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=240)
    assert out.strip() == "interrupted", err


def test_a_timeout_of_the_work_comes_out_as_such():
    """A TimeoutError raised by the work is no reason to wait on."""

    async def late():
        raise TimeoutError("too late")

    with pytest.raises(TimeoutError, match="too late"):
        bridge.run(late)


class Interrupt:
    """A Ctrl-C at the nth place where Python looks for one, when the loop has done what it was given so far."""

    def __init__(self, place: int) -> None:
        self.left = place
        self.waiting = asyncio.Event()  # the caller only waits from here on

    def __enter__(self) -> "Interrupt":
        bridge.run(answer)
        self.portal = bridge._portal
        sys.setprofile(self.trace)
        return self

    def __exit__(self, *_) -> None:
        sys.setprofile(None)

    def trace(self, frame, event, arg):
        if frame.f_code is Future.result.__code__ and frame.f_back.f_code is bridge._result.__code__:
            sys.setprofile(None)
            self.portal.call(self.waiting.set)
        elif frame.f_code is Interrupt.__exit__.__code__ or frame.f_code.co_filename == threading.__file__:
            pass  # its locks are not safe from Ctrl-C, and a living thread passes for a dead one
        elif event in ("call", "c_return"):
            self.left -= 1
            if not self.left:
                sys.setprofile(None)
                self.portal.call(asyncio.sleep, 0)
                raise KeyboardInterrupt


@pytest.mark.parametrize("iterating", [False, True])
def test_ctrl_c_anywhere_ends_the_work(iterating):
    """Before a caller waits, too: what it began has ended when KeyboardInterrupt comes out, and nothing else comes."""
    begun, ended = [], []

    async def work(until):
        begun.append(until)
        try:
            await until.wait()
        finally:
            for _ in range(20):
                await asyncio.sleep(0)
            ended.append(until)

    async def items(until):
        await work(until)
        yield until

    for place in count(1):
        interrupt = Interrupt(place)
        try:
            with interrupt:
                if iterating:
                    list(bridge.iterate(lambda until=interrupt.waiting: items(until)))
                else:
                    bridge.run(lambda until=interrupt.waiting: work(until))
        except KeyboardInterrupt:
            assert ended == begun, f"place {place}"
        if interrupt.left > 0:
            break
    assert len(begun) > 5


def test_a_call_of_the_main_thread_takes_no_lock():
    """Python 3.14 looks for Ctrl-C between taking a lock and the block that gives it back: calls would hang."""
    bridge.run(answer)
    with bridge._lock:
        assert bridge.run(answer) == 42


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this platform")
def test_a_forked_child_starts_its_own_loop():
    """A child of a process that used the bridge can use it too."""
    process = script("""
        import os, sys
        from jina_ocr_loaders import bridge
        async def pid():
            return os.getpid()
        assert bridge.run(pid) == os.getpid()
        child = os.fork()
        if not child:
            os._exit(0 if bridge.run(pid) == os.getpid() else 1)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """)
    out, err = process.communicate(timeout=240)
    assert out.strip() == "0", err


def test_ctrl_c_in_an_iteration_is_what_comes_out():
    """The generator takes its time to end when it is cancelled: KeyboardInterrupt comes all the same, once it has."""
    process = script("""
        import asyncio, signal
        from jina_ocr_loaders import bridge
        signal.signal(signal.SIGINT, signal.default_int_handler)
        async def numbers():
            yield 1
            try:
                print("waiting", flush=True)
                await asyncio.sleep(600)
            finally:
                await asyncio.sleep(0.3)
                print("closed", flush=True)
        try:
            for _ in bridge.iterate(numbers):
                pass
        except KeyboardInterrupt:
            print("interrupted", flush=True)
    """)
    assert process.stdout.readline().strip() == "waiting"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=240)
    assert (out.split(), err) == (["closed", "interrupted"], "")


def test_an_iterator_that_the_loop_itself_drops_is_closed():
    """The garbage collector may find one in the loop's own thread, which cannot wait for itself."""
    closed = threading.Event()

    async def until_closed():
        try:
            while True:
                yield 1
        finally:
            closed.set()

    items = bridge.iterate(until_closed)
    next(items)

    async def drop():
        items.close()

    bridge.run(drop)
    assert closed.wait(60)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this platform")
def test_an_iterator_is_its_own_process_s():
    """A forked child can neither go on with its parent's iterator nor spoil it by dropping it."""
    process = script("""
        import os
        from jina_ocr_loaders import bridge
        async def numbers():
            for n in range(9):
                yield n
        items = bridge.iterate(numbers)
        next(items)
        child = os.fork()
        if not child:
            try:
                next(items)
            except RuntimeError as error:
                print(error, flush=True)
            os._exit(0)
        dropped = os.fork()
        if not dropped:
            del items
            os._exit(0)
        print([os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in (child, dropped)], list(items))
    """)
    out, err = process.communicate(timeout=240)
    assert "another process" in out.splitlines()[0], err
    assert out.splitlines()[1] == "[0, 0] [1, 2, 3, 4, 5, 6, 7, 8]"


def test_threads_that_outlive_the_main_one_are_served():
    """The interpreter waits for threads that nobody joined, and so does the loop: their calls end well."""
    process = script("""
        import asyncio, threading
        from jina_ocr_loaders import bridge
        begun = threading.Event()
        async def wait(n):
            begun.set()
            while threading.main_thread().is_alive():
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.3)
            return n
        def work():
            print(bridge.run(lambda: wait(1)), bridge.run(lambda: wait(2)), flush=True)
        threading.Thread(target=work).start()
        begun.wait()
    """)
    out, err = process.communicate(timeout=240)
    assert (out.split(), err) == (["1", "2"], "")


@pytest.mark.parametrize("work", ["asyncio.sleep(0)", "asyncio.to_thread(int)"])
def test_a_thread_that_first_calls_when_the_main_one_has_ended(work):
    """It is served, or told in one of our errors why not: Python has ended its thread pools, 3.12 starts no thread."""
    process = script(f"""
        import asyncio, threading
        from jina_ocr_loaders import JinaOCRError, bridge
        async def answer():
            await {work}
            return 42
        def call():
            threading.main_thread().join()
            try:
                print(bridge.run(answer))
            except JinaOCRError as error:
                print(error.code, error)
        threading.Thread(target=call).start()
    """)
    out, err = process.communicate(timeout=240)
    if out.strip() == "42":
        assert "to_thread" not in work
    else:
        assert out.startswith("no_thread no thread can be started"), err
        assert "before the main one ends" in out
        assert "to_thread" in work or sys.version_info >= (3, 12)
    assert err == ""


def test_at_exit_it_is_too_late():
    """What runs while the interpreter is taken down gets an error at once and never waits."""
    process = script("""
        import atexit
        from jina_ocr_loaders import EngineNotReadyError, bridge
        async def answer():
            return 42
        def late():
            try:
                bridge.run(answer)
            except EngineNotReadyError as error:
                print(error, flush=True)
        class Late:
            def __del__(self):
                late()
        kept = Late()
        atexit.register(late)
        print(bridge.run(answer))
    """)
    out, err = process.communicate(timeout=240)
    assert out.splitlines()[0] == "42", err
    assert [("taken down" in line) for line in out.splitlines()[1:]] == [True, True]
