"""The figures of an engine: sums, rates and the log, from the steps that vLLM reports."""

import logging
from types import SimpleNamespace

import pytest

from local_engine.metrics import LOG_EVERY, EngineMetrics, MetricsCollector


class Clock:
    """Time that passes when told to."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def step(tokens, running=1, waiting=0, cache=0.1, accepted=None, drafts=0):
    """A step as vLLM reports it: `SchedulerStats` and `IterationStats`, of which these fields are read."""
    spec = None
    if accepted is not None:
        spec = SimpleNamespace(
            num_drafts=drafts, num_draft_tokens=drafts * len(accepted), num_accepted_tokens_per_pos=accepted
        )
    scheduler = SimpleNamespace(
        num_running_reqs=running, num_waiting_reqs=waiting, kv_cache_usage=cache, spec_decoding_stats=spec
    )
    return scheduler, SimpleNamespace(num_generation_tokens=tokens)


def test_rates_follow_from_the_counts():
    """Acceptance, mean length and speeds are the quotients that their docstrings say."""
    metrics = EngineMetrics(seconds=4.0, pages=2, output_tokens=100, drafts=10, draft_tokens=30, accepted=(8, 6, 5))
    assert metrics.acceptance == (0.8, 0.6, 0.5)
    assert metrics.mean_accepted_length == pytest.approx(2.9)
    assert metrics.tokens_per_second == 25
    assert metrics.pages_per_second == 0.5


def test_an_engine_that_did_nothing_divides_by_nothing():
    """Before the first page all rates are 0, and a step gives one token."""
    metrics = MetricsCollector(Clock()).read()
    assert (metrics.acceptance, metrics.mean_accepted_length) == ((), 1.0)
    assert (metrics.tokens_per_second, metrics.pages_per_second) == (0, 0)


def test_time_counts_only_while_pages_are_in_work():
    """Two pages that overlap, then an idle minute: seconds are those in which something was read."""
    clock = Clock()
    collector = MetricsCollector(clock)
    with collector.page():
        clock.now += 2
        with collector.page():
            clock.now += 3
            assert collector.read().seconds == 5
    clock.now += 60
    assert collector.read().seconds == 5
    with collector.page():
        clock.now += 1
    assert collector.read().seconds == 6


def test_steps_add_up_and_the_state_is_the_last_ones():
    """Tokens and drafts are summed over steps, with and without drafts; queue and cache are the last step's."""
    collector = MetricsCollector(Clock())
    with collector.page():
        collector.record(*step(1))
        collector.record(*step(4, running=2, waiting=1, cache=0.2, accepted=[1, 1, 1], drafts=1))
        collector.record(*step(3, running=3, waiting=5, cache=0.3, accepted=[2, 1, 0], drafts=2))
        collector.record(None, SimpleNamespace(num_generation_tokens=2))
        collector.finished(prompt_tokens=273)
        seen = collector.read()
    assert (seen.output_tokens, seen.drafts, seen.draft_tokens, seen.accepted) == (10, 3, 9, (3, 2, 1))
    assert (seen.running, seen.waiting, seen.cache_usage) == (3, 5, 0.3)
    assert (seen.pages, seen.prompt_tokens) == (1, 273)


def test_nothing_runs_after_the_last_page_though_vllm_reports_no_more():
    """vLLM takes no step after its last page was cancelled: what ran then does not run for ever."""
    collector = MetricsCollector(Clock())
    with collector.page():
        collector.record(*step(1, running=1, waiting=1))
    assert (collector.read().running, collector.read().waiting, collector.read().cache_usage) == (0, 0, 0)


def test_the_difference_of_two_readings_covers_what_lies_between():
    """`since` subtracts every counter, also from a reading before the first draft, and keeps the present state."""
    early = EngineMetrics(seconds=1, pages=1, prompt_tokens=5, output_tokens=7)
    late = EngineMetrics(3, 4, 20, 30, 6, 18, (5, 4, 3), running=2, waiting=1, cache_usage=0.5)
    assert late.since(early) == EngineMetrics(2, 3, 15, 23, 6, 18, (5, 4, 3), 2, 1, 0.5)
    assert late.since(late) == EngineMetrics(accepted=(0, 0, 0), running=2, waiting=1, cache_usage=0.5)


def test_the_log_has_a_line_per_interval_of_work(caplog):
    """Every ten seconds of work one line tells of that interval; an idle engine is silent."""
    clock = Clock()
    collector = MetricsCollector(clock)
    clock.now += 1000
    with caplog.at_level(logging.INFO, "local_engine"), collector.page():
        collector.record(*step(1, accepted=[0, 0], drafts=1))
        assert not caplog.messages
        clock.now += LOG_EVERY
        collector.finished(273)
        collector.record(*step(99, running=3, waiting=2, cache=0.25, accepted=[3, 1], drafts=3))
    (line,) = caplog.messages
    for part in ("1 pages", "0.10 pages/s", "10 tokens/s", "3 running", "2 waiting", "cache 25%", "0.75/0.25", "2.00"):
        assert part in line
