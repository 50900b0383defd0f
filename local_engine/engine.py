"""An embedded vLLM engine: pages in, Markdown out, many pages at once, one engine for everything in the process.

    async with LocalEngine() as engine:
        page = await engine.transcribe(Image.open("page.png"))
        async for piece in engine.stream(image): ...

A `LocalEngine` is a cheap handle. All handles of one model share one vLLM engine, which starts with the first page,
lives in a thread with an event loop of its own, and ends when the last handle is closed. Handles may be used from any
thread and loop.
"""

import asyncio
import atexit
import contextlib
import logging
import math
import multiprocessing.spawn
import os
import tempfile
import threading
import time
import uuid
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from textwrap import shorten
from types import TracebackType
from typing import Any, Self, TypeVar

from PIL import Image

from local_engine import plugin
from local_engine.errors import (
    EngineClosedError,
    EngineDiedError,
    EngineSetupError,
    LocalEngineError,
    PageRejectedError,
)
from local_engine.hardware import check_device, list_gpus, on_cpu, pages_in_cache
from local_engine.loops import LoopGuard
from local_engine.metrics import EngineMetrics, MetricsCollector
from local_engine.preprocess import DEFAULT_OCR_PROMPT, engine_prompt
from local_engine.settings import GPU_MEMORY_UTILIZATION, MAX_NUM_SEQS, EngineSettings, default_environment
from local_engine.snapshot import REPOSITORY, resolve, tensor_files

logger = logging.getLogger("local_engine")
_T = TypeVar("_T")

AHEAD = 8  # pages prepared beyond those being read; more would only hold their pixels
WARM_UP_PAGE = (1280, 1920)  # pixels; an upright page, the commonest grid of tiles
EXIT_WAIT = 0.5  # seconds that processes are given to end when the interpreter does and never closed its engines


@dataclass(frozen=True)
class Piece:
    """A piece of a page's text. The last one has a finish reason and the token counts.

    Attributes:
        text: the new text.
        finish_reason: "stop", "length" (cut at `max_tokens`) or "repetition" (a loop was stopped); None before the end.
        prompt_tokens: tokens of the prompt, image tokens included.
        output_tokens: tokens generated.
        keep: where a loop was stopped, letters of the page's text up to the end of the first copy of what repeats.
    """

    text: str
    finish_reason: str | None = None
    prompt_tokens: int = 0
    output_tokens: int = 0
    keep: int | None = None


@dataclass(frozen=True)
class Transcript:
    """A page's whole text; where a loop was stopped, one copy of what repeated is kept. Counts as in `Piece`."""

    text: str
    finish_reason: str
    prompt_tokens: int
    output_tokens: int


class LocalEngine:
    """A handle on this process's engine for one model.

    Args:
        model: folder of a snapshot, or the model's name on Hugging Face.
        num_speculative_tokens: K, tokens that FastMTP drafts per step; 0 turns drafting off. Which K helps, if any,
            depends on GPU and load: None takes what `jina-ocr engine tune` found for this model on this GPU, or 3.
        max_num_seqs: pages read at once; further ones wait, `AHEAD` of them already prepared.
        gpu_memory_utilization: share of the GPU's memory that vLLM takes, 0 to 1.
        engine_args: further arguments of vLLM's `AsyncEngineArgs`, which win over ours.

    Raises:
        EngineSetupError: an engine for this model already runs in this process with other settings.
    """

    def __init__(
        self,
        model: str | os.PathLike[str] = REPOSITORY,
        *,
        num_speculative_tokens: int | None = None,
        max_num_seqs: int = MAX_NUM_SEQS,
        gpu_memory_utilization: float = GPU_MEMORY_UTILIZATION,
        engine_args: Mapping[str, Any] | None = None,
    ) -> None:
        self.model = os.fspath(model)
        settings = EngineSettings.of(model, num_speculative_tokens, max_num_seqs, gpu_memory_utilization, engine_args)
        self._runtime: _Runtime | None = _acquire(settings)

    async def stream(
        self,
        image: Image.Image,
        *,
        prompt: str = DEFAULT_OCR_PROMPT,
        max_tokens: int = 4096,
        temperature: float = 0.0,
        repetition_penalty: float = 1.05,
    ) -> AsyncGenerator[Piece]:
        """Read one page, giving its text as it comes. Closing the iterator early aborts the page in vLLM.

        Args:
            image: the page.
            prompt: the instruction; the model was trained on the default and mostly ignores others.
            max_tokens: output tokens at most.
            temperature: 0 is greedy.
            repetition_penalty: the card's 1.05; 1 turns it off.

        Raises:
            EngineSetupError: the engine cannot run here, or was started again and died before it had read a page.
            EngineDiedError: its process died; another attempt starts it again.
            PageRejectedError: this page cannot be read.
            EngineClosedError: the engine was closed meanwhile.
        """
        loop = asyncio.get_running_loop()
        pieces: asyncio.Queue[Piece | LocalEngineError] = asyncio.Queue()

        def put(item: Piece | LocalEngineError) -> None:
            with contextlib.suppress(RuntimeError):  # the caller's loop is gone, and with it who asked
                loop.call_soon_threadsafe(pieces.put_nowait, item)

        sampling = {"max_tokens": max_tokens, "temperature": temperature, "repetition_penalty": repetition_penalty}
        page = self._running.submit(lambda runtime: runtime.read(image, prompt, sampling, put))
        try:
            while True:
                item = await pieces.get()
                if isinstance(item, LocalEngineError):
                    raise item
                yield item
                if item.finish_reason is not None:
                    return
        finally:
            page.cancel()

    async def transcribe(self, image: Image.Image, **options: Any) -> Transcript:
        """Read one page; options and errors as for `stream`."""
        return await collect(self.stream(image, **options))

    async def start(self) -> None:
        """Start the engine now instead of with the first page: on a GPU it takes one to two minutes.

        Raises:
            EngineSetupError: the engine cannot run here.
        """
        await asyncio.wrap_future(self._running.submit(lambda runtime: runtime.ready()))

    @property
    def capacity(self) -> int:
        """Pages taken on at once, by all handles together: those being read and those prepared; further ones wait."""
        return self._running.capacity

    @property
    def metrics(self) -> EngineMetrics:
        """What the engine has done since it started, for all handles together."""
        return self._running.metrics.read()

    def close(self) -> None:
        """Give up this handle. With the last one the engine ends and its memory is free when this returns."""
        runtime, self._runtime = self._runtime, None
        if runtime is not None:
            _release(runtime)

    async def aclose(self) -> None:
        """As `close`, without blocking the loop."""
        await asyncio.to_thread(self.close)

    @property
    def _running(self) -> "_Runtime":
        if self._runtime is None:
            raise EngineClosedError("This LocalEngine was closed; make a new one.")
        if self._runtime.process != os.getpid():
            self._runtime = _acquire(self._runtime.settings)
        return self._runtime

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


async def collect(pieces: AsyncGenerator[Piece]) -> Transcript:
    """The transcript of a page's pieces."""
    async with contextlib.aclosing(pieces):
        parts = [piece async for piece in pieces]
    last = parts[-1]
    text = "".join(piece.text for piece in parts)
    return Transcript(text[: last.keep], last.finish_reason or "", last.prompt_tokens, last.output_tokens)


class _Runtime:
    """The one engine of a model: a thread with an event loop, and vLLM in it."""

    def __init__(self, settings: EngineSettings) -> None:
        self.settings = settings
        self.handles = 0
        self.process = os.getpid()
        self.metrics = MetricsCollector()
        self.capacity = _capacity(settings)  # pages taken on at once
        self._loop = asyncio.new_event_loop()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="local-engine", daemon=True)
        self._pages: set[asyncio.Task[Any]] = set()
        self._starts = 0
        self._read_before = 0  # pages, when the engine was started last
        self._starting: set[BaseProcess] | None = None  # while vLLM starts: the processes that were there before
        self._llm: Any = None
        self._failure: EngineSetupError | None = None
        self._errors: Path | None = None  # see plugin.ERROR_FILE
        self._closing = False

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._slots = asyncio.Semaphore(self.capacity)
        self._loop.run_forever()
        self._loop.close()

    def submit(self, job: Callable[["_Runtime"], Coroutine[Any, Any, _T]]) -> "Future[_T]":
        """Run a coroutine in the engine's loop, from any thread; cancelling the future cancels it."""
        with self._lock:
            if self._closing:
                raise EngineClosedError("The local engine was closed while it was in use.")
            if self._thread.ident is None:
                self._thread.start()
            return asyncio.run_coroutine_threadsafe(job(self), self._loop)

    async def read(
        self, image: Image.Image, prompt: str, sampling: dict[str, Any], put: Callable[[Piece | LocalEngineError], None]
    ) -> None:
        """Read one page and hand out its pieces, or the error, through `put`."""
        task = asyncio.current_task()
        assert task is not None
        self._pages.add(task)
        try:
            async with self._slots:
                llm = await self.ready()
                with self.metrics.page():
                    last = await self._read(llm, image, prompt, sampling, put)
            # Only now: whoever has the last piece may cancel what is left, and vLLM must have been told by then.
            self.metrics.finished(last.prompt_tokens)
            put(last)
        except asyncio.CancelledError:
            put(EngineClosedError("The local engine was closed while it read this page."))
            raise
        except LocalEngineError as error:
            put(error)
        except Exception as error:
            put(_ours(error))
        finally:
            self._pages.discard(task)

    async def _read(
        self,
        llm: Any,
        image: Image.Image,
        prompt: str,
        sampling: dict[str, Any],
        put: Callable[[Piece | LocalEngineError], None],
    ) -> Piece:
        from vllm.sampling_params import RequestOutputKind

        from local_engine.sampling import vllm_sampling_params

        # Not the card's detection: what it stops can be a table, and what it misses our guard stops.
        params = vllm_sampling_params(**sampling, repetition_detection=None, output_kind=RequestOutputKind.DELTA)
        guard = LoopGuard(llm.tokenizer.decode)
        page = await _hand_over(llm, image, prompt)
        async with contextlib.aclosing(llm.generate(page, params, uuid.uuid4().hex)) as outputs:  # closing aborts
            async for output in outputs:
                (completion,) = output.outputs
                reason = completion.finish_reason
                if reason in ("abort", "error"):
                    raise EngineDiedError(f"vLLM gave up on this page ({reason}); read it again.")
                loop = guard.push(completion.token_ids)
                keep = None
                if loop is not None and reason != "stop":
                    reason = "repetition"
                    keep = len(llm.tokenizer.decode(guard.seen[: loop.start + loop.period], skip_special_tokens=True))
                piece = Piece(completion.text, reason, len(output.prompt_token_ids or ()), len(guard.seen), keep)
                if reason is not None:
                    return piece
                put(piece)
        raise EngineDiedError("vLLM ended this page without a word; read it again.")

    async def ready(self) -> Any:
        """Give the running vLLM engine; start it, or start it again if it died."""
        if self._failure is not None:
            raise self._failure
        if self._llm is not None and self._llm.errored:
            self._llm.shutdown()
            self._llm = None
            logger.warning("local engine: the process that reads %s died", self.settings.model)
            if self._starts > 1 and self.metrics.read().pages == self._read_before:
                self._failure = EngineSetupError(
                    f"The engine for {self.settings.model} died, was started again, and died again before a page was "
                    f"read: {self._last_words() or 'it was killed, or crashed, without a word'}. "
                    "`jina-ocr engine selftest` tries this machine with a small synthetic model."
                )
                raise self._failure
        if self._llm is None:
            self._starts += 1
            self._read_before = self.metrics.read().pages
            try:
                # Blocks this loop, as in vLLM's own server: nothing else can happen here until the engine runs.
                self._llm = self._start()
                if not on_cpu():
                    await self._warm_up(self._llm)
            except EngineSetupError as error:
                self._failure = error  # the pages that wait need not each find out by themselves
                raise
        return self._llm

    async def _warm_up(self, llm: Any) -> None:
        """Read a blank page: vLLM itself does not compile and capture the vision path at its start."""
        from local_engine.sampling import vllm_sampling_params

        try:
            page = await _hand_over(llm, Image.new("RGB", WARM_UP_PAGE, "white"), DEFAULT_OCR_PROMPT)
            async for _ in llm.generate(page, vllm_sampling_params(1), uuid.uuid4().hex):
                pass
        except Exception as error:
            raise EngineSetupError(
                f"The engine for {self.settings.model} started, but could not read a blank page: "
                f"{_brief(error.__cause__ or error)}. Where memory ran out, lower gpu_memory_utilization."
            ) from error

    def _start(self) -> Any:
        snapshot = resolve(self.settings.model)
        weights = sum((snapshot / file).stat().st_size for file in set(tensor_files(snapshot).values()))
        check_device(weights, self.settings.gpu_memory_utilization)
        logger.info(
            "local engine: starting for %s with K = %d (%s); on a GPU this takes one to two minutes",
            *(self.settings.model, self.settings.num_speculative_tokens, self.settings.drafts_from),
        )
        self._forget_words()
        handle, name = tempfile.mkstemp(prefix="jina-ocr-engine-")
        os.close(handle)
        self._errors = Path(name)
        variables = self.settings.environment() | {plugin.ERROR_FILE: f"{os.getpid()} {name}"}
        with _start_lock, default_environment(variables), _spawn_without_main():
            try:
                from vllm.engine.arg_utils import AsyncEngineArgs
                from vllm.v1.engine.async_llm import AsyncLLM

                arguments = AsyncEngineArgs(**self.settings.arguments(snapshot))
                if self._closing:  # while vLLM was imported, or another engine started
                    raise EngineClosedError("The local engine was closed while it started.")
                self._starting = set(multiprocessing.active_children())
                return AsyncLLM.from_engine_args(arguments, stat_loggers=[self.metrics.stat_logger])
            except LocalEngineError:
                raise
            except Exception as error:
                if self._closing:
                    raise EngineClosedError("The local engine was closed while it started.") from None
                raise EngineSetupError(
                    f"vLLM could not start with {self.settings.model}: {self._last_words() or _brief(error)}. Where "
                    "memory ran out, lower max_num_seqs, or max_model_len in engine_args; its log above has more."
                ) from error
            finally:
                self._starting = None

    def _last_words(self) -> str:
        """The first exception in the engine's processes since it started: the others follow from it."""
        lines = self._errors.read_text(encoding="utf-8").splitlines() if self._errors else []
        return shorten(lines[0], 600).rstrip(".") if lines else ""

    def _forget_words(self) -> None:
        if self._errors:
            self._errors.unlink(missing_ok=True)
            self._errors = None

    def shutdown(self, timeout: float | None = None) -> None:
        """End the engine and its thread, also while it starts; pages in work fail with `EngineClosedError`.

        Args:
            timeout: seconds after which vLLM's processes are killed and this returns; None: vLLM's own, five.
        """
        with self._lock:
            self._closing = True
            if self._thread.ident is None:
                self._loop.close()
                return
        asyncio.run_coroutine_threadsafe(self._stop(timeout), self._loop)
        end = time.monotonic() + 2 * timeout if timeout else math.inf
        while self._thread.is_alive() and time.monotonic() < end:
            self._cut_start_short()
            self._thread.join(0.1)

    def _cut_start_short(self) -> None:
        """Kill the process whose start the engine's thread waits for, if any: it takes minutes, and nobody wants it."""
        if (before := self._starting) is not None:
            for process in set(multiprocessing.active_children()) - before:
                if process.name.startswith("EngineCore"):
                    process.kill()

    async def _stop(self, timeout: float | None) -> None:
        pages = list(self._pages)
        for page in pages:
            page.cancel()
        await asyncio.gather(*pages, return_exceptions=True)
        if self._llm is not None:
            self._llm.shutdown(timeout)
            self._llm = None
        self._forget_words()
        if rest := asyncio.all_tasks() - {asyncio.current_task()}:
            await asyncio.wait(rest, timeout=1)  # vLLM's own, cancelled by its shutdown
        self._loop.stop()


def _capacity(settings: EngineSettings) -> int:
    """Pages that keep the engine busy: beyond what a small GPU's cache holds they would only wait, and time out."""
    pages = settings.max_num_seqs
    if not on_cpu() and (gpus := list_gpus()):
        pages = min(pages, 2 * pages_in_cache(gpus[0], settings.gpu_memory_utilization))  # most are half as long
    return pages + AHEAD


_runtimes: dict[str, _Runtime] = {}
_runtimes_lock = threading.Lock()
_start_lock = threading.Lock()  # starting changes the environment


def _acquire(settings: EngineSettings) -> _Runtime:
    with _runtimes_lock:
        runtime = _runtimes.get(settings.model)
        if runtime is None:
            runtime = _runtimes[settings.model] = _Runtime(settings)
        elif runtime.settings != settings:
            raise EngineSetupError(
                f"An engine for {settings.model} already runs in this process, with {runtime.settings}; asked for was "
                f"{settings}. There is one engine per process and model: use the same settings, or close the first."
            )
        runtime.handles += 1
        return runtime


def _release(runtime: _Runtime) -> None:
    with _runtimes_lock:
        runtime.handles -= 1
        if runtime.handles == 0 and runtime.process == os.getpid() and _runtimes.get(runtime.settings.model) is runtime:
            del _runtimes[runtime.settings.model]
            runtime.shutdown()  # under the lock: the next engine finds the memory free


@atexit.register  # after multiprocessing's own, which is imported above, and so called before it
def _close_all() -> None:
    if _runtimes:
        logging.getLogger("vllm").setLevel(logging.CRITICAL)  # it warns of what is killed, and that is meant here
    for runtime in list(_runtimes.values()):
        runtime.shutdown(EXIT_WAIT)


def _forget_all() -> None:
    """Threads do not survive a fork: the child starts engines of its own."""
    global _runtimes_lock, _start_lock
    _runtimes_lock, _start_lock = threading.Lock(), threading.Lock()
    _runtimes.clear()


os.register_at_fork(after_in_child=_forget_all)


async def _hand_over(llm: Any, image: Image.Image, prompt: str) -> Any:
    """A page as vLLM takes it. What happens to an image on this side happens here, in threads."""
    page = await asyncio.to_thread(engine_prompt, llm.tokenizer, image, prompt)
    (rendered,) = await llm.renderer.render_cmpl_async([page])
    return rendered


def _ours(error: Exception) -> LocalEngineError:
    """The error of ours that stands for one of vLLM's."""
    from vllm.v1.engine.exceptions import EngineDeadError, EngineGenerateError

    if isinstance(error, EngineDeadError):
        return EngineDiedError("The engine's process died while it read this page; read it again.")
    if isinstance(error, EngineGenerateError) and error.__cause__ is not None:
        return PageRejectedError(f"vLLM cannot read this page: {_brief(error.__cause__)}")
    return PageRejectedError(f"vLLM cannot read this page: {_brief(error)}")


def _brief(error: BaseException) -> str:
    """Kind and message of an error on one line; vLLM's can list every model it knows."""
    return f"{type(error).__name__}: {shorten(str(error), 400)}"


@contextlib.contextmanager
def _spawn_without_main() -> Iterator[None]:
    """Keep processes spawned here from running the user's script again, so that it needs no `__main__` guard."""
    prepare = multiprocessing.spawn.get_preparation_data
    thread = threading.get_ident()

    def without_main(name: str) -> dict[str, Any]:
        data = dict(prepare(name))
        if threading.get_ident() == thread:
            data.pop("init_main_from_path", None)
            data.pop("init_main_from_name", None)
        return data

    multiprocessing.spawn.get_preparation_data = without_main
    try:
        yield
    finally:
        multiprocessing.spawn.get_preparation_data = prepare
