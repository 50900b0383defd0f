"""Retries: classes, waits and the gate, on an injected clock."""

import asyncio

import pytest

from jina_ocr_loaders.errors import (
    CONNECTION_REFUSED,
    NO_END,
    AuthenticationError,
    DeadlineExceededError,
    EngineNotReadyError,
    RateLimitedError,
    RequestRejectedError,
    TransientError,
    WarmingUpError,
)
from jina_ocr_loaders.retry import Clock, Retrier, RetryPolicy
from tests.conftest import FakeTime


def script(*outcomes):
    """An attempt that meets these outcomes in turn, then succeeds; .calls counts."""
    left = list(outcomes)

    async def attempt():
        attempt.calls += 1
        await asyncio.sleep(0)
        if left:
            raise left.pop(0)
        return "text"

    attempt.calls = 0
    return attempt


def call(attempt, policy=None, time=None):
    """Run one page's attempts."""
    time = time or FakeTime()
    return asyncio.run(Retrier(policy or RetryPolicy(), time.clock()).call(attempt, deadline=10))


@pytest.mark.parametrize("error", [AuthenticationError("no"), RequestRejectedError("no")])
def test_what_cannot_get_better_is_asked_once(error):
    """Fatal and permanent errors cost one request."""
    attempt = script(error)
    with pytest.raises(type(error)):
        call(attempt)
    assert attempt.calls == 1


def test_passing_failures_are_tried_again_with_growing_jittered_waits():
    """Full jitter below 1, 2, 4 s (half of it here, by the injected random)."""
    time = FakeTime()
    attempt = script(*[TransientError("500")] * 3)
    assert call(attempt, time=time) == "text"
    assert time.sleeps == [0.5, 1.0, 2.0]


def test_passing_failures_end_after_the_retries():
    """max_retries=4 is five attempts; the last error is raised as it is."""
    attempt = script(*[TransientError(f"no {n}") for n in range(9)])
    with pytest.raises(TransientError, match="no 4"):
        call(attempt)
    assert attempt.calls == 5


def test_a_stream_without_an_end_is_asked_once_more_even_without_retries():
    """max_retries=0: a server that never says how a stream ended still gets its one plain attempt."""
    assert call(script(TransientError("?", code=NO_END)), RetryPolicy(max_retries=0)) == "text"


@pytest.mark.parametrize("error", [RateLimitedError, TransientError])
def test_retry_after_wins_and_is_clamped(error):
    """The server's own wait is kept to (plus jitter), but never more than 120 s."""
    time = FakeTime()
    call(script(error("x", retry_after=7), error("x", retry_after=86400)), time=time)
    assert time.sleeps == [7.5, 120.5]


def test_being_throttled_is_no_failure_of_the_page():
    """429 is bounded by time, not by the number of attempts."""
    attempt = script(*[RateLimitedError("429", retry_after=20)] * 20)
    assert call(attempt) == "text"
    assert attempt.calls == 21
    with pytest.raises(RateLimitedError):
        call(script(*[RateLimitedError("429", retry_after=20)] * 99))


def test_a_cold_start_is_probed_by_one_request_while_the_others_wait(caplog):
    """32 pages meet 503: one probes after 30, 40, 50 s, all succeed, no retry of a page is spent, one line logged."""

    async def main():
        time = FakeTime()
        retrier = Retrier(RetryPolicy(max_retries=0), time.clock())
        sent, ready = [], 1000.0 + 100.0

        async def attempt():
            sent.append(time.now)
            await asyncio.sleep(0)
            if time.now < ready:
                raise WarmingUpError("cold", status=503)
            return "text"

        texts = await asyncio.gather(*(retrier.call(attempt, deadline=10) for _ in range(32)))
        return texts, sent, time.sleeps

    texts, sent, sleeps = asyncio.run(main())
    assert texts == ["text"] * 32
    assert sleeps == [30, 40, 50]
    assert sent == [1000.0] * 32 + [1030.0, 1070.0] + [1120.0] * 32
    assert len([record for record in caplog.records if "cold" in record.message]) == 1


def test_retry_after_of_a_cold_start_sets_the_probe():
    """A 503 with Retry-After is probed when it says."""
    time = FakeTime()
    call(script(WarmingUpError("cold", retry_after=5)), time=time)
    assert time.sleeps == [5]


def test_a_server_that_never_warms_up_fails_the_pages_and_later_ones_at_once():
    """After warmup_timeout every waiting page fails, and a page that comes then sends no request."""

    async def main():
        time = FakeTime()
        retrier = Retrier(RetryPolicy(warmup_timeout=100), time.clock())
        attempt = script(*[WarmingUpError("cold")] * 999)
        first = await asyncio.gather(*(retrier.call(attempt, deadline=10) for _ in range(8)), return_exceptions=True)
        sent = attempt.calls
        with pytest.raises(WarmingUpError, match="after 100 s"):
            await retrier.call(attempt, deadline=10)
        return first, sent, attempt.calls, time.now

    first, sent, after, now = asyncio.run(main())
    assert all(isinstance(error, WarmingUpError) for error in first)
    assert after == sent
    assert now - 1000 <= 100


def test_refused_connections_end_after_ten_seconds():
    """A mistyped port is no cold start: ten probes, then a fatal error that names wait_for_server."""
    time = FakeTime()
    attempt = script(*[TransientError("refused", code=CONNECTION_REFUSED)] * 99)
    with pytest.raises(EngineNotReadyError, match="wait_for_server"):
        call(attempt, time=time)
    assert 5 <= time.now - 1000 <= 10


def test_a_longer_wait_for_server_is_kept_to():
    """wait_for_server=120 sees a server that listens after a minute."""
    attempt = script(*[TransientError("refused", code=CONNECTION_REFUSED)] * 60)
    assert call(attempt, RetryPolicy(wait_for_server=120)) == "text"


def test_a_cancelled_probe_hands_over():
    """When the probing page is cancelled, another one probes: nobody waits for ever."""

    async def main():
        probing, never = asyncio.Event(), asyncio.Event()

        async def sleep(seconds):
            if not probing.is_set():
                probing.set()
                await never.wait()

        retrier = Retrier(RetryPolicy(), Clock(now=lambda: 0.0, sleep=sleep, random=lambda: 0.5))
        attempt = script(WarmingUpError("cold"), WarmingUpError("cold"))
        tasks = [asyncio.create_task(retrier.call(attempt, deadline=10)) for _ in range(2)]
        await probing.wait()
        await asyncio.sleep(0.01)
        tasks[0].cancel()
        return await asyncio.wait_for(tasks[1], 5)

    assert asyncio.run(main()) == "text"


def test_an_attempt_that_outlasts_its_deadline_is_cut_and_tried_again():
    """A stalled answer is a passing failure; the page as a whole has a bound of its own."""

    async def stall():
        stall.calls += 1
        await asyncio.sleep(60)

    async def main(policy):
        stall.calls = 0
        await Retrier(policy, FakeTime().clock()).call(stall, deadline=0.01)

    with pytest.raises(TransientError, match="no complete answer"):
        asyncio.run(main(RetryPolicy(max_retries=1)))
    assert stall.calls == 2
    with pytest.raises(DeadlineExceededError, match="timeout="):
        asyncio.run(main(RetryPolicy(max_retries=9, page_timeout=0.02)))
    assert stall.calls == 2


def test_a_cold_server_is_not_stormed():
    """503 with "Retry-After: 0" is probed once a second, not as fast as the network goes."""
    time = FakeTime()
    call(script(*[WarmingUpError("503", retry_after=0)] * 5), time=time)
    assert time.sleeps == [1.0] * 5
