"""What a running engine reports about itself: speed, draft acceptance, queue and cache, from vLLM's own statistics."""

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

logger = logging.getLogger("local_engine")

LOG_EVERY = 10.0  # seconds; vLLM's own interval (VLLM_LOG_STATS_INTERVAL)


@dataclass(frozen=True)
class EngineMetrics:
    """Counters since the engine started, and its state at the last step.

    Attributes:
        seconds: time in which at least one page was in work.
        pages: pages finished; cancelled ones do not count.
        prompt_tokens: tokens of the finished pages' prompts, image tokens included.
        output_tokens: tokens generated.
        drafts: verification steps, one draft of K tokens each; 0 when drafting is off.
        draft_tokens: tokens drafted.
        accepted: how often the draft's token at position 1, 2, ... K was accepted.
        running: pages being read.
        waiting: pages in vLLM's queue.
        cache_usage: share of the key-value cache in use, 0 to 1.
    """

    seconds: float = 0.0
    pages: int = 0
    prompt_tokens: int = 0
    output_tokens: int = 0
    drafts: int = 0
    draft_tokens: int = 0
    accepted: tuple[int, ...] = ()
    running: int = 0
    waiting: int = 0
    cache_usage: float = 0.0

    @property
    def acceptance(self) -> tuple[float, ...]:
        """Share of the drafts accepted up to position 1, 2, ... K."""
        return tuple(count / self.drafts for count in self.accepted) if self.drafts else ()

    @property
    def mean_accepted_length(self) -> float:
        """Tokens that a verification step gives on average, its own included: 1 to K + 1."""
        return 1 + sum(self.accepted) / self.drafts if self.drafts else 1.0

    @property
    def tokens_per_second(self) -> float:
        """Generated tokens per second of work."""
        return self.output_tokens / self.seconds if self.seconds else 0.0

    @property
    def pages_per_second(self) -> float:
        """Finished pages per second of work."""
        return self.pages / self.seconds if self.seconds else 0.0

    def since(self, earlier: "EngineMetrics") -> "EngineMetrics":
        """What was counted after `earlier`; the state stays the present one."""
        before = earlier.accepted or (0,) * len(self.accepted)
        return replace(
            self,
            seconds=self.seconds - earlier.seconds,
            pages=self.pages - earlier.pages,
            prompt_tokens=self.prompt_tokens - earlier.prompt_tokens,
            output_tokens=self.output_tokens - earlier.output_tokens,
            drafts=self.drafts - earlier.drafts,
            draft_tokens=self.draft_tokens - earlier.draft_tokens,
            accepted=tuple(now - then for now, then in zip(self.accepted, before, strict=True)),
        )

    def __str__(self) -> str:
        drafts = ""
        if self.drafts:
            rates = "/".join(f"{rate:.2f}" for rate in self.acceptance)
            drafts = f"; drafts accepted {rates}, {self.mean_accepted_length:.2f} tokens a step"
        return (
            f"{self.pages} pages, {self.pages_per_second:.2f} pages/s, {self.tokens_per_second:.0f} tokens/s; "
            f"{self.running} running, {self.waiting} waiting, cache {self.cache_usage:.0%} used{drafts}"
        )


class MetricsCollector:
    """Adds up what vLLM reports at each step, over restarts of the engine; may be read from any thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._now = EngineMetrics()
        self._in_work = 0
        self._since = 0.0  # when the pages now in work began
        self._logged = (clock(), self._now)

    def read(self) -> EngineMetrics:
        """The metrics up to now."""
        with self._lock:
            return self._read(self._clock())

    @contextlib.contextmanager
    def page(self) -> Iterator[None]:
        """A page is in work while the block runs. (vLLM reports nothing after its last page was cancelled.)"""
        with self._lock:
            if self._in_work == 0:
                self._since = self._clock()
                self._logged = (self._since, self._now)
            self._in_work += 1
        try:
            yield
        finally:
            with self._lock:
                if self._in_work == 1:
                    self._now = replace(self._read(self._clock()), running=0, waiting=0, cache_usage=0.0)
                self._in_work -= 1

    def finished(self, prompt_tokens: int) -> None:
        """A page is finished. (One that our guard stops is cancelled in vLLM, whose count would miss it.)"""
        with self._lock:
            now = self._now
            self._now = replace(now, pages=now.pages + 1, prompt_tokens=now.prompt_tokens + prompt_tokens)

    def stat_logger(self, vllm_config: Any, engine_index: int = 0) -> Any:
        """Make the stat logger that vLLM calls at each step (a `StatLoggerFactory`)."""
        from vllm.v1.metrics.loggers import StatLoggerBase

        collector = self

        class CollectorStatLogger(StatLoggerBase):  # type: ignore[misc]  # vLLM is not typed here
            def __init__(self) -> None:
                """Nothing of the configuration is needed."""

            def record(
                self, scheduler_stats: Any, iteration_stats: Any, mm_cache_stats: Any = None, engine_idx: int = 0
            ) -> None:
                collector.record(scheduler_stats, iteration_stats)

            def log_engine_initialized(self) -> None:
                """vLLM's own start-up log says it."""

        return CollectorStatLogger()

    def record(self, scheduler: Any, iteration: Any) -> None:
        """Add one step: vLLM's `SchedulerStats` and `IterationStats`, either of which may be None."""
        with self._lock:
            metrics = self._now
            if iteration is not None:
                metrics = replace(metrics, output_tokens=metrics.output_tokens + iteration.num_generation_tokens)
            if scheduler is not None:
                metrics = replace(
                    metrics,
                    running=scheduler.num_running_reqs,
                    waiting=scheduler.num_waiting_reqs,
                    cache_usage=scheduler.kv_cache_usage,
                )
                if (drafting := scheduler.spec_decoding_stats) is not None:
                    before = metrics.accepted or (0,) * len(drafting.num_accepted_tokens_per_pos)
                    metrics = replace(
                        metrics,
                        drafts=metrics.drafts + drafting.num_drafts,
                        draft_tokens=metrics.draft_tokens + drafting.num_draft_tokens,
                        accepted=tuple(map(sum, zip(before, drafting.num_accepted_tokens_per_pos, strict=True))),
                    )
            self._now = metrics
            now, (logged_at, logged) = self._clock(), self._logged
            if now - logged_at >= LOG_EVERY:
                read = self._read(now)
                logger.info("local engine: %s", read.since(logged))
                self._logged = (now, read)

    def _read(self, now: float) -> EngineMetrics:
        return replace(self._now, seconds=self._now.seconds + now - self._since) if self._in_work else self._now
