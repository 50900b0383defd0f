"""LocalEngine on real vLLM on the CPU: text, streaming, sharing, back-pressure, abort, loops, death, end."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import aclosing
from pathlib import Path

import pytest

from local_engine.engine import AHEAD, LocalEngine, Piece
from local_engine.errors import EngineClosedError, EngineDiedError, EngineSetupError, PageRejectedError
from local_engine.loops import CHECK_EVERY, MIN_SPAN

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]

K = 3
SMALL = {"dtype": "float32", "enforce_eager": True, "max_model_len": 2048}
LOOP = 7  # tokens, not a divisor of the card's 35


def engine_processes() -> list[int]:
    """Live processes that this one started, its own helpers for shared resources apart."""
    import psutil

    children = psutil.Process().children(recursive=True)
    return [
        child.pid
        for child in children
        if child.status() != psutil.STATUS_ZOMBIE and "resource_tracker" not in " ".join(child.cmdline())
    ]


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """The engines of these tests compute in one thread: with two, each waits for the other where cores are shared."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VLLM_CPU_OMP_THREADS_BIND", "0")
        yield


@pytest.fixture(scope="module")
def cycle(snapshots):
    return snapshots(kind="cycle")


@pytest.fixture(scope="module")
def engine(cycle):
    """One engine that reads two pages at a time, shared by the tests that leave it as it was."""
    with LocalEngine(cycle.path, num_speculative_tokens=K, max_num_seqs=2, engine_args=SMALL) as engine:
        yield engine


@pytest.fixture(scope="module")
def looping(snapshots):
    return snapshots(kind="cycle", loop=LOOP)


@pytest.fixture(scope="module")
def looping_engine(looping):
    """An engine whose pages never end by themselves."""
    with LocalEngine(looping.path, num_speculative_tokens=K, max_num_seqs=2, engine_args=SMALL) as engine:
        yield engine


def test_pages_come_out_as_known_with_their_counts(engine, cycle, page):
    """A small page and a tiled one give the known text, its end, and tokens counted by hand."""

    async def both():
        return await asyncio.gather(engine.transcribe(page(300, 200)), engine.transcribe(page(1000, 1400)))

    small, tiled = asyncio.run(both())
    assert (small.text, small.finish_reason, small.output_tokens) == (cycle.text, "stop", len(cycle.tokens) + 1)
    assert (tiled.text, tiled.finish_reason, tiled.output_tokens) == (cycle.text, "stop", len(cycle.tokens) + 1)
    # 16 rows of 16 and a line end each, and the separator; with 2 x 3 tiles, 30 rows of 20 and a line end more.
    assert tiled.prompt_tokens - small.prompt_tokens == 30 * (20 + 1)
    assert small.prompt_tokens > 16 * 17 + 1


def test_metrics_show_the_acceptance_as_built(engine, cycle, page):
    """Drafts are accepted at each position exactly as often as the snapshot was built for."""
    before = engine.metrics
    asyncio.run(engine.transcribe(page(300, 200)))
    seen = engine.metrics.since(before)
    assert list(seen.accepted) == cycle.accepted(K, len(cycle.tokens) + 1)
    assert seen.drafts * K == seen.draft_tokens
    assert seen.mean_accepted_length == pytest.approx(1 + sum(seen.accepted) / seen.drafts)
    assert (seen.pages, seen.output_tokens) == (1, len(cycle.tokens) + 1)
    assert seen.prompt_tokens > 273
    assert seen.seconds > 0
    assert (seen.running, seen.waiting) == (0, 0)


def test_text_comes_in_pieces_and_the_last_one_says_why_it_ended(engine, cycle, page):
    """A stream gives several pieces, in order, and a page cut at its token limit says `length`."""

    async def pieces(**options):
        return [piece async for piece in engine.stream(page(300, 200), **options)]

    whole = asyncio.run(pieces())
    assert len(whole) > 5
    assert "".join(piece.text for piece in whole) == cycle.text
    assert [piece.finish_reason for piece in whole[:-1]] == [None] * (len(whole) - 1)
    cut = asyncio.run(pieces(max_tokens=20))
    assert (cut[-1].finish_reason, cut[-1].output_tokens) == ("length", 20)
    assert cycle.text.startswith("".join(piece.text for piece in cut))


def test_handles_of_all_threads_share_one_engine(engine, cycle, page):
    """Four threads with handles and loops of their own read through one engine; closing theirs does not end it."""
    processes = engine_processes()
    texts = []

    def work(number):
        async def read():
            async with LocalEngine(cycle.path, num_speculative_tokens=K, max_num_seqs=2, engine_args=SMALL) as own:
                texts.append((await own.transcribe(page(300, 200, number))).text)

        asyncio.run(read())

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert texts == [cycle.text] * 4
    assert engine_processes() == processes
    assert asyncio.run(engine.transcribe(page(300, 200))).text == cycle.text


def test_other_settings_for_a_running_engine_are_refused(cycle, engine):
    """A second handle that asks for another K is told so instead of getting the wrong engine or a second one."""
    with pytest.raises(EngineSetupError, match=r"num_speculative_tokens=3.*num_speculative_tokens=1.*close the first"):
        LocalEngine(cycle.path, num_speculative_tokens=1, max_num_seqs=2, engine_args=SMALL)


def test_many_pages_wait_outside_of_vllm(engine, cycle, page):
    """Of many pages asked for at once, vLLM is given a few more than it reads, and reads no more than it may."""
    seen = []

    async def read(number):
        async for _ in engine.stream(page(300, 200, number), max_tokens=24):
            seen.append((engine.metrics.running, engine.metrics.waiting))

    async def all_pages():
        await asyncio.gather(*(read(number) for number in range(2 + AHEAD + 6)))

    assert engine.capacity == 2 + AHEAD
    before = engine.metrics
    asyncio.run(all_pages())
    assert engine.metrics.since(before).pages == 2 + AHEAD + 6
    assert max(running for running, _ in seen) == 2
    assert AHEAD - 2 <= max(waiting for _, waiting in seen) <= AHEAD


def test_a_page_that_cannot_be_read_fails_alone(engine, cycle, page):
    """A prompt that does not fit is the page's own error, says why, and the next page is read."""

    async def read():
        with pytest.raises(PageRejectedError, match="2048"):
            await engine.transcribe(page(300, 200), prompt="x" * 4000)
        return await engine.transcribe(page(300, 200))

    assert asyncio.run(read()).text == cycle.text


def test_a_loop_is_stopped_and_one_copy_of_it_kept(looping_engine, looping, page):
    """With drafting on, text that never ends stops soon after it became a loop; the transcript keeps the first copy."""
    assert looping.loop == LOOP
    result = asyncio.run(looping_engine.transcribe(page(300, 200), max_tokens=1500, repetition_penalty=1.0))
    assert result.finish_reason == "repetition"
    assert result.text == looping.text
    late = result.output_tokens - (len(looping.tokens) - LOOP) - MIN_SPAN
    assert 0 <= late < CHECK_EVERY + 2 * 8  # 8: tokens of a piece


def test_leaving_a_stream_or_cancelling_it_aborts_the_page_in_vllm(looping_engine, page):
    """After one page was left half way and one cancelled, the next page is the only one that vLLM has."""

    async def read():
        async with aclosing(looping_engine.stream(page(300, 200))) as pieces:
            await anext(pieces)
        first = asyncio.Event()

        async def watch():
            async for _ in looping_engine.stream(page(300, 200)):
                first.set()

        task = asyncio.create_task(watch())
        await first.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        seen = []
        async for _ in looping_engine.stream(page(300, 200), max_tokens=100):
            seen.append((looping_engine.metrics.running, looping_engine.metrics.waiting))
        return seen

    seen = asyncio.run(read())
    assert max(seen[1:-1]) == (1, 0)


def test_closing_the_last_handle_ends_the_engine(looping_engine, looping, page):
    """Closing one of two handles ends nothing; the last fails the page in work, ends the processes, and says so."""

    async def read():
        await looping_engine.start()
        running = set(engine_processes())
        other = LocalEngine(looping.path, num_speculative_tokens=K, max_num_seqs=2, engine_args=SMALL)
        looping_engine.close()
        pieces = other.stream(page(300, 200))
        assert isinstance(await anext(pieces), Piece)
        await other.aclose()
        with pytest.raises(EngineClosedError):
            async for _ in pieces:
                pass
        await other.aclose()
        with pytest.raises(EngineClosedError):
            await other.transcribe(page(300, 200))
        assert set(engine_processes()) < running

    asyncio.run(read())


def test_a_killed_engine_is_started_again_while_it_reads_pages(snapshots, page):
    """Pages in flight fail as transient, the next are read by a new engine; one that dies before any is given up."""
    looping = snapshots(kind="cycle", loop=LOOP, seed=1)
    looping_engine = LocalEngine(looping.path, num_speculative_tokens=K, max_num_seqs=2, engine_args=SMALL)
    others = set(engine_processes())

    async def die_reading():
        pages = [asyncio.ensure_future(looping_engine.transcribe(page(300, 200, seed))) for seed in range(3)]
        await die()
        return await asyncio.gather(*pages, return_exceptions=True)

    async def die():
        async with aclosing(looping_engine.stream(page(300, 200))) as pieces:
            await anext(pieces)
            for process in set(engine_processes()) - others:
                os.kill(process, signal.SIGKILL)
            with pytest.raises(EngineDiedError, match="read it again"):
                async for _ in pieces:
                    pass

    async def read():
        results = await die_reading()
        # Those that vLLM had died with it; one that still waited outside was read by the new engine.
        assert any(isinstance(result, EngineDiedError) for result in results)
        for result in results:
            assert isinstance(result, EngineDiedError) or result.text == looping.text
        assert (await looping_engine.transcribe(page(300, 200))).text == looping.text
        await die()  # the second engine, which has read a page
        await die()  # the third, which has not
        with pytest.raises(EngineSetupError, match="died again before a page was read"):
            await looping_engine.transcribe(page(300, 200))

    with looping_engine:
        asyncio.run(read())
    assert set(engine_processes()) == others


INTERRUPTED = """
import asyncio, signal, sys
from PIL import Image
from local_engine.engine import LocalEngine

signal.signal(signal.SIGINT, signal.default_int_handler)  # it is ignored where the tests run in the background

async def read(model, told):
    async with LocalEngine(model, num_speculative_tokens=0, engine_args={"max_model_len": 2048}) as engine:
        if told == "reading":
            await engine.start()
        print("told", flush=True)
        async for _ in engine.stream(Image.new("RGB", (300, 200)), max_tokens=1900):
            print("reading", flush=True)

asyncio.run(read(*sys.argv[1:]))
"""


def when_processes_run(process):
    """Wait until a process has started an engine's process, and give all that it started."""
    import psutil

    while process.is_running():
        started = process.children(recursive=True)
        with contextlib.suppress(psutil.NoSuchProcess):  # some are helpers that come and go
            if any(child.name().startswith("VLLM") or "spawn_main" in " ".join(child.cmdline()) for child in started):
                return started
        time.sleep(0.1)
    pytest.fail("it ended by itself")


@pytest.mark.parametrize(
    ("when", "how"),
    [
        pytest.param("starting", signal.SIGINT, id="Ctrl-C while it starts"),
        pytest.param("reading", signal.SIGINT, id="Ctrl-C"),
        pytest.param("reading", signal.SIGKILL, id="killed"),
    ],
)
def test_nothing_is_left_of_a_program_that_is_ended(looping, when, how):
    """Ctrl-C, also while the engine starts, ends a program; its engine's processes end with it even if it is killed."""
    import psutil

    command = [sys.executable, "-c", INTERRUPTED, looping.path, when]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=script_environment(), start_new_session=True) as program:
        process = psutil.Process(program.pid)
        assert program.stdout.readline() == b"told\n"
        if when == "reading":
            assert program.stdout.readline() == b"reading\n"
        started = when_processes_run(process)
        os.killpg(program.pid, how) if how is signal.SIGINT else program.send_signal(how)
        assert program.wait(120) != 0
    _, alive = psutil.wait_procs(started, timeout=60)
    assert not alive


SCRIPT = """
import asyncio, sys
from PIL import Image
from local_engine.engine import LocalEngine

print("top level", flush=True)
engine = LocalEngine(sys.argv[1], num_speculative_tokens=0,
                     engine_args={"dtype": "float32", "enforce_eager": True, "max_model_len": 2048})
page = asyncio.run(engine.transcribe(Image.new("RGB", (300, 200), "white")))
print(page.text, flush=True)
import psutil
print("children", *(child.pid for child in psutil.Process().children(recursive=True)), file=sys.stderr)
"""


def test_a_script_needs_no_main_guard_and_no_close(cycle, tmp_path):
    """A bare script is run once, prints only its own lines, ends by itself, and leaves no process behind."""
    import psutil

    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, script, cycle.path], capture_output=True, text=True, cwd=Path.cwd(), env=script_environment()
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"top level\n{cycle.text}\n"
    children = [int(pid) for pid in done.stderr.partition("children ")[2].splitlines()[0].split()]
    assert children
    _, alive = psutil.wait_procs([psutil.Process(pid) for pid in children if psutil.pid_exists(pid)], timeout=10)
    assert not alive


def script_environment():
    return os.environ | {"PYTHONPATH": os.pathsep.join([str(Path.cwd()), os.environ.get("PYTHONPATH", "")])}


def test_what_cannot_start_says_so_once_for_all_pages(snapshots, page, tmp_path):
    """No draft head for K = 3, or no weights at all: a readable error for every page, and no process is started."""
    before = engine_processes()
    plain = snapshots(kind="cycle", draft=None)

    async def read(model):
        async with LocalEngine(model, num_speculative_tokens=K, engine_args=SMALL) as engine:
            return await asyncio.gather(*(engine.transcribe(page(300, 200)) for _ in range(3)), return_exceptions=True)

    for error in asyncio.run(read(plain.path)):
        assert isinstance(error, EngineSetupError)
        assert "num_speculative_tokens=0" in str(error)
    for error in asyncio.run(read(tmp_path)):
        assert isinstance(error, EngineSetupError)
        assert str(tmp_path) in str(error)
    assert engine_processes() == before


def damaged(source, folder):
    """A copy of a snapshot in which one tensor has another shape."""
    from safetensors.torch import load_file, save_file

    for path in source.iterdir():
        (folder / path.name).symlink_to(path)
    name = "model.norm.weight"
    shard = folder / json.loads((source / "model.safetensors.index.json").read_text())["weight_map"][name]
    tensors = load_file(shard)
    tensors[name] = tensors[name][:-8].clone()
    shard.unlink()
    save_file(tensors, shard, metadata={"format": "pt"})
    return folder


@pytest.mark.parametrize("fault", ["a tensor of another shape", "too little memory for one page"])
def test_an_engine_that_cannot_start_gives_its_own_last_words(snapshots, page, tmp_path, monkeypatch, fault):
    """What vLLM only logs, in a process of its own, is in the error: which sizes differ, or what memory would do."""
    monkeypatch.delenv("VLLM_CPU_KVCACHE_SPACE", raising=False)
    fresh = snapshots(kind="cycle", seed=2).path  # that of `cycle` has an engine already
    if fault == "a tensor of another shape":
        model, arguments, words = damaged(fresh, tmp_path), {}, r"Error: .*(248.*256|256.*248)"
    else:
        model, arguments, words = fresh, {"kv_cache_memory_bytes": 4_000_000}, r"ValueError: .*KV cache"

    async def read():
        async with LocalEngine(model, num_speculative_tokens=0, engine_args=SMALL | arguments) as engine:
            await engine.transcribe(page(300, 200))

    before = engine_processes()
    with pytest.raises(EngineSetupError, match=words) as refusal:
        asyncio.run(read())
    assert "\n" not in str(refusal.value)
    assert engine_processes() == before


FORK = """
import asyncio, os, sys
from PIL import Image
from local_engine.engine import LocalEngine
from local_engine.errors import EngineSetupError

engine = LocalEngine(sys.argv[1])

def read():
    try:
        asyncio.run(engine.transcribe(Image.new("RGB", (9, 9))))
    except EngineSetupError:
        print(os.getpid(), flush=True)

read()
child = os.fork()
read()
if child:
    os.waitpid(child, 0)
"""


def test_a_forked_child_starts_an_engine_of_its_own(tmp_path):
    """A handle that was in use before a fork does not wait in the child for a thread that is not there."""
    done = subprocess.run(
        [sys.executable, "-c", FORK, tmp_path], capture_output=True, text=True, env=script_environment(), timeout=60
    )
    assert done.returncode == 0, done.stderr
    parent, *others = done.stdout.split()
    assert parent in others
    assert len(set(others)) == len(others) == 2
