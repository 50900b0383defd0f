"""When another attempt is made, and after how long.

Each page has its own attempts (tenacity). What concerns the whole server is shared in a ``Gate``: while a model starts
up (503) or the server refuses connections, one request probes and all others wait, spending neither attempts nor
deadline.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception

from jina_ocr_loaders.errors import (
    CONNECTION_REFUSED,
    NO_END,
    DeadlineExceededError,
    EngineError,
    EngineNotReadyError,
    RateLimitedError,
    TransientError,
    WarmingUpError,
)

T = TypeVar("T")
logger = logging.getLogger("jina_ocr_loaders.retry")

MAX_RETRY_AFTER = 120.0  # seconds; a server that asks for more is not believed
WARMUP_WAIT = 30.0, 60.0  # seconds between probes of a cold server (model card: "retry after 30-60s")
REFUSED_WAIT = 1.0  # seconds between probes of a server that refuses connections, and at least between any two
BACKOFF = 1.0, 30.0  # seconds: full jitter below 1, 2, 4, … up to 30


@dataclass(frozen=True, slots=True)
class Clock:
    """Time as the retries see it; tests inject their own."""

    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    random: Callable[[], float] = random.random


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Limits: attempts after passing failures, and seconds to bear with a server that is not there yet."""

    max_retries: int = 4
    warmup_timeout: float = 600.0
    wait_for_server: float = 10.0
    page_timeout: float = 600.0  # seconds of work on one page, waits not counted


class Gate:
    """Shared by all requests to one server on one event loop: closed while the server is not ready."""

    def __init__(self, policy: RetryPolicy, clock: Clock) -> None:
        self._policy = policy
        self._clock = clock
        self._closed_by: EngineError | None = None
        self._probing = False
        self._since: float | None = None  # when the server was last found not ready, after having been ready
        self._probes = 0
        self._given_up_at: float | None = None
        self._changed = asyncio.Event()

    async def enter(self) -> bool:
        """Return when a request may be sent; True: it is the probe of a server that was not ready.

        Raises:
            WarmingUpError, EngineNotReadyError: the server has not become ready in the time allowed.
        """
        while self._closed_by is not None:
            if self._gave_up():
                raise self._final_error()
            if not self._probing:
                self._probing = True
                try:
                    await self._clock.sleep(self._wait())
                except BaseException:
                    self._release()
                    raise
                return True
            await self._changed.wait()
        return False

    def settle(self, error: EngineError | None, *, probe: bool) -> None:
        """Tell how a request that ``enter`` let through ended; None for an answer."""
        if isinstance(error, WarmingUpError) or (error is not None and error.code == CONNECTION_REFUSED):
            self._close(error, probe)
        else:
            if self._closed_by is not None:
                logger.info("the server answers again")
            self._closed_by, self._since, self._given_up_at, self._probes = None, None, None, 0
            self._release()

    def abandon(self, *, probe: bool) -> None:
        """A request that ``enter`` let through was cancelled: if it was the probe, another may be."""
        if probe:
            self._release()

    def _close(self, error: EngineError, probe: bool) -> None:
        now = self._clock.now()
        if self._since is None:
            self._since = now
        first = self._closed_by is None
        if first or probe:
            self._closed_by = error
            self._probes += 1
        if first:
            logger.warning("%s Waiting up to %.0f s; the next try is in %.0f s.", error, self._budget(), self._wait())
        if now + self._wait() - self._since > self._budget():
            self._given_up_at = now
        if probe:
            self._release()

    def _release(self) -> None:
        self._probing = False
        self._changed.set()
        self._changed = asyncio.Event()

    def _refused(self) -> bool:
        return self._closed_by is not None and self._closed_by.code == CONNECTION_REFUSED

    def _budget(self) -> float:
        return self._policy.wait_for_server if self._refused() else self._policy.warmup_timeout

    def _wait(self) -> float:
        if self._refused():
            return REFUSED_WAIT
        low, high = WARMUP_WAIT
        asked = self._closed_by.retry_after if self._closed_by else None
        if asked is not None:
            return max(REFUSED_WAIT, min(asked, MAX_RETRY_AFTER))
        return min(low + 10 * max(0, self._probes - 1), high)

    def _gave_up(self) -> bool:
        # Later pages may probe again after a while: a document read much later must not inherit the verdict.
        return self._given_up_at is not None and self._clock.now() - self._given_up_at < WARMUP_WAIT[1]

    def _final_error(self) -> EngineError:
        assert self._closed_by is not None
        last = self._closed_by
        if self._refused():
            return EngineNotReadyError(
                f"{last.message} Nothing answered within {self._policy.wait_for_server:.0f} s: check the address, "
                "or pass wait_for_server= for one that is still starting."
            )
        return WarmingUpError(
            f"{last.message} It was still starting after {self._policy.warmup_timeout:.0f} s: try again later, "
            "or pass a longer warmup_timeout=.",
            status=last.status,
        )


class Retrier:
    """Makes attempts at one server until one succeeds or no further one makes sense."""

    def __init__(self, policy: RetryPolicy, clock: Clock) -> None:
        self._policy = policy
        self._clock = clock
        self._gate = Gate(policy, clock)

    async def call(
        self,
        attempt: Callable[[], Awaitable[T]],
        *,
        deadline: float,
        on_wait: Callable[[int, EngineError, float], None] | None = None,
    ) -> T:
        """Await ``attempt()`` until it succeeds.

        Parameters:
            attempt: one request.
            deadline: seconds for each.
            on_wait: told the attempt's number, its error and the seconds until the next.

        Raises:
            EngineError: the last attempt's, when no further one makes sense.
        """
        state = _PageState(self._policy, self._clock)
        retrying = AsyncRetrying(
            sleep=self._clock.sleep,
            retry=retry_if_exception(_may_retry),
            stop=state.stop,
            wait=state.wait,
            before_sleep=(lambda call: on_wait(state.failures, _error(call), _upcoming(call))) if on_wait else None,
            reraise=True,
        )
        async for trial in retrying:
            with trial:
                return await self._once(attempt, deadline, state)
        raise AssertionError("tenacity ends with a result or an error")

    async def _once(self, attempt: Callable[[], Awaitable[T]], deadline: float, state: _PageState) -> T:
        while True:
            probe = await self._gate.enter()
            started = self._clock.now()
            try:
                async with asyncio.timeout(deadline):
                    result = await attempt()
            except TimeoutError:
                error: EngineError = TransientError(f"no complete answer within {deadline:.0f} s.", code="timeout")
                state.spent += deadline
                self._gate.settle(error, probe=probe)
                raise error from None
            except EngineError as caught:
                state.spent += self._clock.now() - started
                self._gate.settle(caught, probe=probe)
                if isinstance(caught, WarmingUpError) or caught.code == CONNECTION_REFUSED:
                    continue  # wait at the gate: this costs the page nothing
                raise
            except BaseException:
                self._gate.abandon(probe=probe)
                raise
            self._gate.settle(None, probe=probe)
            return result


class _PageState:
    """What one page has used up."""

    def __init__(self, policy: RetryPolicy, clock: Clock) -> None:
        self._policy = policy
        self._clock = clock
        self._throttled_since: float | None = None
        self.failures = 0
        self.spent = 0.0

    def stop(self, call: RetryCallState) -> bool:
        error = _error(call)
        if isinstance(error, RateLimitedError):
            if self._throttled_since is None:
                self._throttled_since = self._clock.now()
            # Being asked to slow down is no failure of the page: its bound is time, not a number of attempts.
            return self._clock.now() - self._throttled_since > self._policy.warmup_timeout
        self.failures += 1
        # Whether a stream broke off, or a server never says how one ended, takes one more request to tell.
        allowed = max(self._policy.max_retries, int(error.code == NO_END))
        if self.failures <= allowed and self.spent >= self._policy.page_timeout:
            raise DeadlineExceededError(
                f"{error.message} {self.spent:.0f} s were spent on this page: pass a longer timeout=."
            ) from error
        return self.failures > allowed

    def wait(self, call: RetryCallState) -> float:
        error = _error(call)
        if error.retry_after is not None:
            # A little jitter, so that pages that were turned away together do not come back together.
            return min(error.retry_after, MAX_RETRY_AFTER) + self._clock.random()
        base, limit = BACKOFF
        return self._clock.random() * min(limit, base * 2.0 ** min(call.attempt_number - 1, 10))


def _may_retry(error: BaseException) -> bool:
    return isinstance(error, RateLimitedError | TransientError)


def _error(call: RetryCallState) -> EngineError:
    assert call.outcome is not None
    error = call.outcome.exception()
    assert isinstance(error, EngineError)
    return error


def _upcoming(call: RetryCallState) -> float:
    return call.next_action.sleep if call.next_action else 0.0
