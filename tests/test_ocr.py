"""JinaOCR from a document to results, against a real server that behaves and misbehaves."""

import asyncio
import gc
import inspect
import io
import itertools
import json
import logging
import pickle
import threading
import time
import weakref

import pytest

from jina_ocr_loaders import (
    AuthenticationError,
    BudgetExceededError,
    Delta,
    DownloadError,
    EngineNotReadyError,
    JinaOCR,
    ModelNotFoundError,
    PageRangeError,
    PagesFailedError,
    PageStatus,
    QuotaError,
    RequestRejectedError,
    TransientError,
    Usage,
)
from jina_ocr_loaders.engines.base import Render, Transcription
from jina_ocr_loaders.engines.hosted import HostedEngine
from jina_ocr_loaders.ocr import OPEN_DOCUMENTS
from jina_ocr_loaders.pages import open_document
from tests.servers import hosted
from tests.servers.hosted import marked_pdf, page_text

THREE = marked_pdf(3)
GOOD = [page_text(n) for n in (1, 2, 3)]


def wait_until(condition):
    """Return as soon as it holds."""
    while not condition():
        time.sleep(0.01)


def statuses(result):
    """The page statuses, as text."""
    return [str(page.status) for page in result.pages]


def test_every_page_is_read_in_order(make_ocr, server):
    """Three pages: three results, each with its own text, number, usage and size, from one request each."""
    result = make_ocr().read(THREE)
    assert [page.markdown for page in result] == GOOD
    assert [page.number for page in result] == [1, 2, 3]
    assert statuses(result) == ["ok"] * 3
    assert sorted(server.pages()) == [1, 2, 3]
    assert all(page.usage.total_tokens and page.attempts[0].outcome == "stop" for page in result)
    assert all(max(page.width, page.height) == 1920 for page in result)
    assert result.markdown == "\n\n".join(GOOD)
    assert result.usage == sum((page.usage for page in result), Usage())
    assert {page.engine for page in result} == {"hosted"}
    assert result.page_count == 3


def test_pages_that_finish_out_of_order_come_in_order(make_ocr, server):
    """Page 1 is the slowest; the results are in page order all the same."""
    server.script_page(1, hosted.ok(delay=0.3))
    assert [page.number for page in make_ocr().read(THREE)] == [1, 2, 3]


@pytest.mark.parametrize(("selection", "numbers"), [("2-", [2, 3]), (-1, [3]), ([3, 1], [1, 3]), ("1,3", [1, 3])])
def test_selected_pages_alone_are_read(make_ocr, server, selection, numbers):
    """Pages are named from 1; only those are sent, with their own numbers."""
    result = make_ocr().read(THREE, pages=selection)
    assert [page.number for page in result] == numbers
    assert sorted(server.pages()) == numbers
    assert result.page_count == 3


@pytest.mark.parametrize("selection", ["4", "0", "x", [9], 1.5])
def test_a_wrong_selection_sends_nothing(make_ocr, server, selection):
    """A page that does not exist is a PageRangeError, before any request."""
    with pytest.raises(PageRangeError):
        make_ocr().read(THREE, pages=selection)
    with pytest.raises(PageRangeError, match=r"^three.pdf: pages 7: there is no page 7; the document has 3 pages"):
        make_ocr().read(THREE, pages=7, name="three.pdf")
    assert not server.requests


RECOVERED = {
    "429": [hosted.status(429)],
    "429 with Retry-After": [hosted.status(429, headers={"Retry-After": "3"})],
    "503 then fine": [hosted.status(503)] * 3,
    "500": [hosted.status(500)] * 2,
    "502": [hosted.status(502, b"<html>bad gateway</html>")],
    "408": [hosted.status(408)],
    "reset before": [hosted.reset_before()],
    "reset during": [hosted.reset_during()],
    "half a JSON": [hosted.half_json()],
    "garbage": [hosted.garbage()],
    "empty choices": [hosted.empty_choices()],
    "a stream that ends without a finish": [hosted.cut()],
    "a stream that says only [DONE]": [hosted.cut(done=True)],
    "an error in the stream": [hosted.stream_error({"message": "overloaded", "code": 500})],
}


@pytest.mark.parametrize("fault", RECOVERED.values(), ids=RECOVERED)
def test_a_passing_failure_of_a_page_is_got_over(make_ocr, server, fault):
    """Page 2 fails for a while: one more request for each failure, and all pages are there, once, in order."""
    server.script_page(2, *fault)
    result = make_ocr().read(THREE)
    assert [page.markdown for page in result] == GOOD
    assert sorted(server.pages()) == sorted([1, 3] + [2] * (len(fault) + 1))
    assert result.pages[1].attempts[-1].outcome == "stop"
    assert len(result.pages[1].attempts) == len(fault) + 1


def test_a_stalled_stream_is_given_up_after_the_timeout_and_tried_again(make_ocr, server):
    """Nothing comes any more: the attempt ends after timeout seconds, the next one succeeds."""
    server.script_page(2, hosted.stall())
    result = make_ocr(timeout=5.0).read(THREE)
    assert [page.markdown for page in result] == GOOD
    assert server.pages().count(2) == 2


def test_a_slow_drip_is_no_failure(make_ocr, server):
    """Pieces that come slowly but steadily are a page."""
    server.script_page(2, hosted.ok(pace=0.02))
    assert [page.markdown for page in make_ocr().read(THREE)] == GOOD


@pytest.mark.parametrize("finish", [hosted.ABSENT, None])
def test_a_missing_finish_reason_with_usage_is_no_failure(make_ocr, server, finish):
    """finish_reason absent or null, but the usage came: the page is whole."""
    server.script_page(2, hosted.ok(finish_reason=finish))
    result = make_ocr().read(THREE)
    assert statuses(result) == ["ok"] * 3
    assert len(server.requests) == 3


def test_null_content_with_a_proper_end_is_an_empty_page(make_ocr, server):
    """The model said nothing at all: no text, no invention."""
    server.script_page(2, *[hosted.null_content()] * 9)
    page = make_ocr(on_error="mark").read(THREE).pages[1]
    assert page.markdown == ""
    assert page.status in (PageStatus.EMPTY, PageStatus.FAILED)


@pytest.mark.parametrize("status", [400, 413, 422])
def test_a_refused_page_keeps_its_slot(make_ocr, server, status):
    """Page 2 of 3 fails for good: three results, in order, the second says why, the others are untouched."""
    server.script_page(2, hosted.status(status))
    result = make_ocr(on_error="mark").read(THREE)
    assert statuses(result) == ["ok", "failed", "ok"]
    assert isinstance(result.pages[1].error, RequestRejectedError)
    assert (result.pages[1].error.page, result.pages[1].error.status) == (2, status)
    assert result.pages[1].markdown == ""
    assert server.pages().count(2) == 1


def test_failed_pages_raise_at_the_end_with_all_results(make_ocr, server, caplog):
    """on_error="raise": all is read first; the error names the pages and holds every result; one ERROR line."""
    server.script_page(2, hosted.status(422))
    with pytest.raises(PagesFailedError, match=r"1 of 3 pages failed: 2 .*422") as caught:
        make_ocr().read(THREE, name="three.pdf")
    assert [page.markdown for page in caught.value.result] == [GOOD[0], "", GOOD[2]]
    assert len([record for record in caplog.records if record.levelno == logging.ERROR]) == 1
    assert pickle.loads(pickle.dumps(caught.value)).result.pages[0].markdown == GOOD[0]


def test_pages_yields_the_failed_one_too_and_raises_after_the_last(make_ocr, server):
    """Lazily: every page in order, then PagesFailedError."""
    server.script_page(2, hosted.status(422))
    pages = make_ocr().pages(THREE)
    assert [str(next(pages).status) for _ in range(3)] == ["ok", "failed", "ok"]
    with pytest.raises(PagesFailedError):
        next(pages)


def test_skip_leaves_failed_pages_out(make_ocr, server):
    """on_error="skip": the others keep their numbers."""
    server.script_page(2, hosted.status(422))
    assert [page.number for page in make_ocr(on_error="skip").read(THREE)] == [1, 3]


@pytest.mark.parametrize("mode", ["raise", "mark", "skip"])
@pytest.mark.parametrize(
    ("code", "error"),
    [(401, AuthenticationError), (402, QuotaError), (403, AuthenticationError), (404, EngineNotReadyError)],
)
def test_a_fatal_answer_ends_the_document_after_one_request(make_ocr, server, mode, code, error, monkeypatch):
    """Wrong key, no credit, wrong address: one request for 40 pages, one error, whatever on_error says."""
    monkeypatch.setattr(HostedEngine, "head_start", 60)  # this machine may be slow; the first answer ends the wait
    server.otherwise = hosted.status(code)
    with pytest.raises(error):
        make_ocr(on_error=mode).read(marked_pdf(40))
    assert len(server.requests) == 1


@pytest.mark.parametrize("mode", ["raise", "mark"])
def test_what_was_read_before_a_fatal_answer_is_kept(make_ocr, server, mode):
    """Credit that ends on page 3 costs page 3 and those after it: the error holds the pages that were paid."""
    server.script_page(3, hosted.status(402))
    with pytest.raises(QuotaError) as caught:
        make_ocr(on_error=mode, concurrency=1).read(THREE)
    assert [page.markdown for page in caught.value.result] == GOOD[:2]
    assert "page 3" in str(caught.value)


def test_the_first_request_is_alone_until_the_server_takes_it_on(make_ocr, server, monkeypatch):
    """The others follow as soon as its answer begins, before there is any text."""
    monkeypatch.setattr(HostedEngine, "head_start", 600)
    together = threading.Event()

    async def behave(exchange):
        await exchange.open_stream()
        if len(server.requests) == 3:
            together.set()
        await asyncio.to_thread(together.wait, 20)
        await exchange.pieces(page_text(exchange.request.page))
        await exchange.event(exchange.chunk(finish="stop"))
        await exchange.end()

    server.otherwise = behave
    assert [page.markdown for page in make_ocr(max_retries=0, timeout=60).read(THREE)] == GOOD
    assert together.is_set()


def test_an_unknown_model_names_those_that_there_are(make_ocr, server, monkeypatch):
    """One request, and the message lists what /v1/models offers."""
    monkeypatch.setattr(HostedEngine, "head_start", 60)
    with pytest.raises(ModelNotFoundError, match="jina-ocr-v1"):
        make_ocr(model="no-such-model").read(marked_pdf(40))
    assert len(server.requests) == 1


def test_a_mistyped_port_fails_within_ten_seconds_of_waiting(make_ocr, fake_time):
    """Connection refused: ten seconds by the clock, then EngineNotReadyError."""
    with pytest.raises(EngineNotReadyError, match="check the address"):
        make_ocr(base_url=f"http://127.0.0.1:{hosted.refused_port()}/v1").read(THREE)
    assert fake_time.now - 1000 <= 10


def test_a_cold_start_costs_no_page_and_is_said_once(make_ocr, server, fake_time, caplog):
    """The server answers 503 for 100 s by the clock: 20 pages wait, all are read, one line is logged."""

    async def cold(exchange):
        behaviour = hosted.ok() if fake_time.now >= 1100 else hosted.status(503)
        await behaviour(exchange)

    server.otherwise = cold
    result = make_ocr(max_retries=0).read(marked_pdf(20))
    assert [page.markdown for page in result] == [page_text(n) for n in range(1, 21)]
    assert (
        len([record for record in caplog.records if record.name == "jina_ocr_loaders.retry" and record.levelno >= 30])
        == 1
    )
    assert sum(fake_time.sleeps) <= 150


def test_a_cut_page_is_asked_again_with_more_tokens_and_the_longer_text_kept(make_ocr, server):
    """finish_reason length: once more with twice the tokens; a text that is then whole is ok."""
    server.script_page(2, hosted.ok("The beginning", finish_reason="length"))
    result = make_ocr(max_tokens=4096).read(THREE)
    assert statuses(result) == ["ok"] * 3
    assert [request.body["max_tokens"] for request in server.requests if request.page == 2] == [4096, 8192]
    assert result.pages[1].usage == sum((attempt.usage for attempt in result.pages[1].attempts), Usage())
    assert len(result.pages[1].attempts) == 2


def test_a_page_that_stays_cut_says_so(make_ocr, server):
    """Truncated is a status of its own; open tables are closed."""
    text = "<table><tr><td>1</td><td>2"
    server.script_page(2, *[hosted.ok(text, finish_reason="length")] * 2)
    page = make_ocr().read(THREE).pages[1]
    assert page.status is PageStatus.TRUNCATED
    assert page.markdown == text + "</td></tr></table>"
    assert page.finish_reason == "length"


@pytest.mark.parametrize("period", [1, 2, 3, 7, 35, 36, 70])
def test_a_loop_of_any_period_is_cut_while_it_streams(make_ocr, server, period):
    """The stream is ended long before max_tokens, tried again at another temperature, and one round is kept."""
    server.script_page(2, *[hosted.loop(period, before="# Heading\n\nhonest text\n\n")] * 2)
    page = make_ocr().read(THREE).pages[1]
    assert page.status is PageStatus.REPETITION
    assert page.markdown.startswith("# Heading")
    assert page.markdown.count("word0") <= 2
    tries = [request for request in server.requests if request.page == 2]
    assert [request.body["temperature"] for request in tries] == [0.0, 0.2]
    assert all(request.sent < 3000 for request in tries)


def test_a_loop_that_does_not_come_back_leaves_a_good_page(make_ocr, server):
    """The second attempt is whole: the page is ok."""
    server.script_page(2, hosted.loop(5))
    assert [page.markdown for page in make_ocr().read(THREE)] == GOOD


def test_a_failure_of_the_second_attempt_leaves_the_first_ones_text(make_ocr, server):
    """The text was cut, and asking again fails for good: the cut text is better than none."""
    server.script_page(2, hosted.ok("The beginning", finish_reason="length"), hosted.status(422))
    page = make_ocr().read(THREE).pages[1]
    assert (page.status, page.markdown) == (PageStatus.TRUNCATED, "The beginning")


def test_content_retries_can_be_turned_off(make_ocr, server):
    """content_retries=0: one request, and what came is what there is."""
    server.script_page(2, hosted.ok("The beginning", finish_reason="length"))
    assert make_ocr(content_retries=0).read(THREE).pages[1].status is PageStatus.TRUNCATED
    assert server.pages().count(2) == 1


def test_raw_leaves_the_text_as_it_came(make_ocr, server):
    """raw=True: nothing is mended."""
    text = " <table><tr><th>a</th></tr><tr><th>1</th></tr></table>\n"
    server.otherwise = hosted.ok(text)
    assert make_ocr(raw=True).read(THREE, pages=1).markdown == text
    assert make_ocr().read(THREE, pages=1).markdown == text.strip().replace("<th>1</th>", "<td>1</td>")


@pytest.mark.parametrize("raw", [True, False])
def test_half_characters_are_put_together_or_replaced(make_ocr, server, tmp_path, raw):
    """Servers that cut a stream between the halves of an emoji, or send one half: the text can be written and kept."""

    async def behave(exchange):
        await exchange.open_stream()
        for half in (r"\ud83d", r"\ude00", r" and \ud83d."):
            await exchange.event(json.dumps(exchange.chunk("HERE")).replace("HERE", half))
        await exchange.event(exchange.chunk(finish="stop"))
        await exchange.end()

    server.script_page(1, behave)
    ocr = make_ocr(raw=raw, cache=tmp_path)
    for cached in (False, True):
        (page,) = ocr.read(THREE, pages=1)
        assert (page.markdown, page.cached) == ("\U0001f600 and \ufffd.", cached)


def test_the_literal_null_is_an_empty_page(make_ocr, server):
    """The benchmark prompt's null: no text, status empty."""
    server.script_page(2, hosted.ok("null"))
    page = make_ocr(prompt="benchmark").read(THREE).pages[1]
    assert (page.status, page.markdown) == (PageStatus.EMPTY, "")
    assert "LaTeX" in server.requests[0].prompt


def test_concurrency_is_kept_to(make_ocr, server):
    """No more requests are in flight than concurrency says, over two documents at once too."""
    server.otherwise = hosted.ok(delay=0.2)
    ocr = make_ocr(concurrency=3)

    async def both():
        return await asyncio.gather(ocr.aread(marked_pdf(9)), ocr.aread(marked_pdf(9)))

    assert [len(result) for result in asyncio.run(both())] == [9, 9]
    assert server.peak == 3


def test_small_documents_fill_the_slots_and_few_are_open(make_ocr, server, monkeypatch):
    """Forty of one page and of two: twelve pages are in flight, from no more open documents than have a worker each."""
    together = threading.Event()
    is_open, most = 0, 0

    async def counted(*args, **kwargs):
        nonlocal is_open, most
        document = await open_document(*args, **kwargs)
        is_open += 1
        most = max(most, is_open)
        close = document.aclose

        async def aclose():
            nonlocal is_open
            await close()
            is_open -= 1

        document.aclose = aclose
        return document

    async def when_there_are_enough(exchange):
        if server.in_flight == 12:
            together.set()
        await asyncio.to_thread(together.wait, 120)
        await hosted.ok("text")(exchange)

    server.otherwise = when_there_are_enough
    monkeypatch.setattr("jina_ocr_loaders.ocr.open_document", counted)
    ocr = make_ocr(concurrency=12)

    async def all_of_them():
        return await asyncio.gather(*(ocr.aread(marked_pdf(1 + number % 2)) for number in range(40)))

    assert [len(result) for result in asyncio.run(all_of_them())] == [1, 2] * 20
    assert (server.peak, is_open) == (12, 0)
    assert most <= OPEN_DOCUMENTS


def test_documents_that_wait_for_the_engine_are_few(make_ocr, server, monkeypatch):
    """Of forty documents that a slow server keeps waiting no more than twice the concurrency have been opened."""
    opened, done, most = 0, 0, 0

    async def counted(*args, **kwargs):
        nonlocal opened, most
        opened += 1
        most = max(most, opened - done)
        return await open_document(*args, **kwargs)

    monkeypatch.setattr("jina_ocr_loaders.ocr.open_document", counted)
    server.otherwise = hosted.ok(delay=0.05)
    ocr = make_ocr(concurrency=2)

    async def read():
        nonlocal done
        await ocr.aread(marked_pdf(1))
        done += 1

    async def all_of_them():
        await asyncio.gather(*(read() for _ in range(40)))

    asyncio.run(all_of_them())
    assert (done, most) == (40, 4)


def test_by_default_a_server_is_asked_for_32_pages_at_once(make_ocr, server):
    """A server does not say how many it can take: 32 of 36 pages are in flight, and no more while these last."""
    together = threading.Event()

    async def when_there_are_enough(exchange):
        if server.in_flight == 32:
            together.set()
        await asyncio.to_thread(together.wait, 120)
        await hosted.ok("text", delay=0.2)(exchange)

    server.otherwise = when_there_are_enough
    assert len(make_ocr().read(marked_pdf(36))) == 36
    assert server.peak == 32


def test_a_dropped_iterator_stops_the_work(make_ocr, server):
    """After two pages of 40 the consumer leaves: requests in flight are cancelled and no new ones are sent."""
    server.otherwise = hosted.ok(delay=0.02)
    pages = make_ocr(concurrency=2).pages(marked_pdf(40))
    assert [next(pages).number, next(pages).number] == [1, 2]
    del pages
    gc.collect()
    sent = len(server.requests)
    assert sent < 40
    make_ocr().read(THREE)
    assert len(server.requests) == sent + 3


def test_an_iterator_runs_ahead_by_a_bound(make_ocr, server):
    """A consumer that takes one page and then thinks holds the work back."""
    with make_ocr(concurrency=1) as ocr:
        pages = ocr.pages(marked_pdf(60))
        next(pages)
        for _ in range(50):
            asyncio.run(asyncio.sleep(0.02))
        assert len(server.requests) < 30
        assert len(list(pages)) == 59


def test_two_iterators_interleave(make_ocr):
    """Two documents read lazily in turn do not wait for each other, however many slots there are."""
    ocr = make_ocr(concurrency=1)
    a, b = ocr.pages(THREE), ocr.pages(THREE)
    assert [(x.number, y.number) for x, y in zip(a, b, strict=True)] == [(1, 1), (2, 2), (3, 3)]


def test_one_object_serves_loops_and_threads(make_ocr):
    """Two event loops in turn, a sync call inside a running one, and four threads at once."""
    ocr = make_ocr()

    async def main():
        assert len(ocr.read(THREE)) == 3
        return await ocr.aread(THREE)

    assert [len(asyncio.run(main())) for _ in range(2)] == [3, 3]
    lengths = []
    threads = [threading.Thread(target=lambda: lengths.append(len(ocr.read(THREE)))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert lengths == [3] * 4


def test_loops_do_not_add_up(make_ocr, server):
    """``asyncio.run`` in a row: a closed loop, its connections and its slots go, although nobody closed the engine."""
    ocr, loops = make_ocr(concurrency=1), []

    async def main():
        loops.append(weakref.ref(asyncio.get_running_loop()))
        await ocr.aread(THREE)

    for _ in range(3):
        asyncio.run(main())
    gc.collect()
    assert [loop() is None for loop in loops] == [True, True, False]


def test_a_cancelled_reading_leaves_nothing_running(make_ocr, server):
    """Cancelling aread cancels its requests; no task is left behind."""
    server.otherwise = hosted.stall()

    async def main():
        ocr = make_ocr()
        reading = asyncio.create_task(ocr.aread(THREE))
        await asyncio.to_thread(wait_until, lambda: server.requests)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        await ocr.aclose()
        await asyncio.sleep(0.05)
        return [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]

    assert asyncio.run(main()) == []


def test_it_can_be_pickled_with_its_key(make_ocr):
    """Another process gets the same settings, the key among them; no text form shows it."""
    ocr = pickle.loads(pickle.dumps(make_ocr(api_key="jina_secret")))
    assert ocr.settings.api_key.get_secret_value() == "jina_secret"
    assert "jina_secret" not in repr(ocr) + str(ocr) + repr(ocr.settings) + str(ocr.settings.model_dump())
    assert len(ocr.read(THREE)) == 3


def test_the_callbacks_hear_of_pages_and_waits(make_ocr, server):
    """on_page gets each page in order with the total, on_retry each wait with its code."""
    server.script_page(2, hosted.status(500))
    pages, waits = [], []
    make_ocr(on_page=lambda page, total: pages.append((page.number, total)), on_retry=waits.append).read(THREE)
    assert pages == [(1, 3), (2, 3), (3, 3)]
    assert [(wait.page, wait.attempt, wait.code, wait.wait) for wait in waits] == [(2, 1, "transient", 0.5)]


def test_a_cached_document_makes_no_request(make_ocr, server, tmp_path):
    """A second reading of the same content comes out of the cache, under another id too; with another prompt not."""
    ocr = make_ocr(cache=tmp_path)
    first = ocr.read(THREE)
    again = ocr.read(THREE, source_id="elsewhere")
    assert [page.markdown for page in again] == [page.markdown for page in first]
    assert all(page.cached and page.usage == Usage() and not page.attempts for page in again)
    assert [(page.width, page.label) for page in again] == [(page.width, page.label) for page in first]
    assert len(server.requests) == 3
    make_ocr(cache=tmp_path, prompt="other").read(THREE)
    assert len(server.requests) == 6
    make_ocr(cache=tmp_path, refresh=True).read(THREE)
    assert len(server.requests) == 9


def test_failed_and_imperfect_pages_are_never_cached(make_ocr, server, tmp_path):
    """Only ok and empty pages are kept: the next reading asks for the others again."""
    server.script_page(1, *[hosted.ok("cut", finish_reason="length")] * 2)
    server.script_page(2, hosted.status(422))
    ocr = make_ocr(cache=tmp_path, on_error="mark")
    assert statuses(ocr.read(THREE)) == ["truncated", "failed", "ok"]
    server.clear()
    assert statuses(ocr.read(THREE)) == ["ok"] * 3
    assert sorted(server.pages()) == [1, 2]


def test_the_budget_is_checked_before_anything_is_sent(make_ocr, server):
    """max_pages and max_cost refuse the document with BudgetExceededError; no request goes out."""
    with pytest.raises(BudgetExceededError, match="max_pages is 2"):
        make_ocr(max_pages=2).read(THREE)
    assert len(make_ocr(max_pages=2).read(THREE, pages="1-2")) == 2
    server.clear()
    with pytest.raises(BudgetExceededError, match=r"3 pages are expected to cost \$0\.0\d+, max_cost is \$0\.0001"):
        make_ocr(max_cost=0.0001).read(THREE)
    assert not server.requests
    assert len(make_ocr(max_cost=1.0).read(THREE)) == 3


@pytest.mark.parametrize(("address", "handed_on"), [("scan.png?x=1", True), ("scan.pdf", False), ("scan", False)])
def test_an_image_address_can_be_handed_on(make_ocr, server, address, handed_on):
    """pass_urls=True: the address of an image goes to the server as it is, and nothing is fetched here; others are."""
    url = f"{server.base_url}/{address}"
    ocr = make_ocr(pass_urls=True, allow_private_networks=True)
    if handed_on:
        (page,) = ocr.read(url)
        assert server.requests[0].image_url == url
        assert (page.status, page.width) == (PageStatus.OK, 0)
    else:
        with pytest.raises(DownloadError):
            ocr.read(url)
    assert len(server.other_requests) == (not handed_on)


async def endless(exchange):
    """A behaviour: text that never ends and never repeats itself."""
    await exchange.open_stream()
    for n in itertools.count():
        await exchange.event(exchange.chunk("".join(f" {n * 1000 + k:x}" for k in range(1000))))
        await exchange.wait(0.001)


@pytest.mark.parametrize("callback", ["on_page", "on_retry"])
@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()])
def test_a_callback_may_end_the_program(make_ocr, server, callback, error):
    """sys.exit() in one reaches the caller as itself, from whole reading and from lazy; what others read goes on."""

    def leave(*_):
        raise error

    leaving = make_ocr(**{callback: leave})
    other = JinaOCR(SaysInPieces("stop")).pages(THREE)
    assert next(other).number == 1
    for read in (leaving.read, lambda source: list(leaving.pages(source))):
        server.script_page(2, hosted.status(500))
        with pytest.raises(type(error)) as caught:
            read(THREE)
        assert caught.value is error
    assert [page.number for page in other] == [2, 3]


def test_streaming_yields_the_text_as_it_comes(make_ocr, server):
    """The pieces of one page, in order, adding up to its text; failures before the first piece are tried again."""
    server.script_page(2, hosted.status(500))
    pieces = list(make_ocr().stream(THREE, page=2))
    assert len(pieces) > 2
    assert "".join(pieces) == page_text(2)


def test_a_stream_that_breaks_off_raises(make_ocr, server):
    """Text that was handed out cannot be taken back: a break in the middle is an error, not an end."""
    server.script_page(2, hosted.reset_during())
    with pytest.raises(TransientError) as caught:
        list(make_ocr().stream(THREE, page=2))
    assert (caught.value.source, caught.value.page) == (make_ocr().read(THREE, pages=1).source, 2)


@pytest.mark.parametrize("text", ["", "The beginning"])
def test_a_stream_that_the_token_limit_cuts_says_so(make_ocr, server, caplog, text):
    """One warning with the page, however little came."""
    server.script_page(2, hosted.ok(text, finish_reason="length"))
    assert "".join(make_ocr().stream(THREE, page=2)) == text
    (record,) = caplog.records
    assert record.getMessage().endswith("page 2: the token limit cut the text")


def test_a_stream_that_never_ends_is_left(make_ocr, server):
    """Text of which no end comes, and that never repeats itself, is cut as it is where pages are read whole."""
    server.script_page(2, endless)
    statuses = []
    with make_ocr(max_tokens=64).open(THREE) as document:
        text = "".join(document.stream(2, on_cut=statuses.append))
    assert statuses == [PageStatus.TRUNCATED]
    assert 64 * 128 < len(text) < 100_000


class Whole:
    """An engine of the user's own that reads documents, but not this page."""

    name, model, leaves_machine, max_concurrency, prices = "whole", "m", False, None, None

    async def page_count(self, source, password, retry):
        return 3

    async def read_page(self, source, number, request):
        raise RequestRejectedError("no")

    async def aclose(self):
        pass


def test_a_stream_of_a_page_that_failed_raises():
    """Where an engine reads documents by itself, a failed page is an error too, and not an empty text."""
    with pytest.raises(RequestRejectedError, match="page 2: no"):
        list(JinaOCR(Whole()).stream(THREE, page=2))


class Counts(Whole):
    """Notes how many pages are asked for at once."""

    running = most = 0

    def __init__(self, max_concurrency):
        self.max_concurrency = max_concurrency

    async def page_count(self, source, password, retry):
        return 150

    async def read_page(self, source, number, request):
        self.running += 1
        self.most = max(self.most, self.running)
        await asyncio.sleep(0.1)
        self.running -= 1
        return Transcription("text", "stop")


@pytest.mark.parametrize(
    ("asked", "at_most", "most"), [(None, None, 32), (None, 100, 100), (None, 1, 1), (3, 100, 3), (100, 40, 40)]
)
def test_an_engine_that_says_how_many_pages_it_can_take_gets_them(asked, at_most, most):
    """Its number is the default and the limit; without one the default is 32. A number of the user's is kept to."""
    engine = Counts(at_most)
    JinaOCR(engine, concurrency=asked).read(THREE, f"1-{most + 5}")
    assert engine.most == most


def test_documents_that_the_engine_fetches_fill_the_slots():
    """Of forty of one page, of which nothing is drawn here, as many are read at once as pages may be in flight."""
    engine = Counts(20)
    ocr = JinaOCR(engine)

    async def all_of_them():
        return await asyncio.gather(*(ocr.aread(THREE, 1) for _ in range(40)))

    assert all(result.pages[0].ok for result in asyncio.run(all_of_them()))
    assert engine.most == 20


class Upper:
    """An engine of the user's own: it says the page's size."""

    name, model, leaves_machine, render, max_concurrency, prices = "upper", "m", False, Render(long_side=200), 1, None

    async def stream(self, page, request):
        yield Delta(f"{page.width}x{page.height} ")
        yield Delta(request.prompt, finish_reason="stop")

    async def aclose(self):
        pass


class Says(Whole):
    """Reads every page to an end of this kind."""

    def __init__(self, finish_reason):
        self.finish_reason = finish_reason

    async def read_page(self, source, number, request):
        return Transcription("text", self.finish_reason)


class SaysInPieces(Upper):
    """The same for images of pages."""

    def __init__(self, finish_reason):
        self.finish_reason = finish_reason

    async def stream(self, page, request):
        yield Delta("text")
        yield Delta(finish_reason=self.finish_reason)


@pytest.mark.parametrize("engine", [Says, SaysInPieces])
@pytest.mark.parametrize(("reason", "told"), [("stop", []), ("length", ["truncated"]), ("repetition", ["repetition"])])
def test_how_a_stream_ended_can_be_known(engine, reason, told, caplog):
    """A text that is not whole is told to ``on_cut`` by the page's status, and logged; a whole one is not."""
    statuses = []
    with JinaOCR(engine(reason)).open(THREE) as document:
        assert "".join(document.stream(2, on_cut=statuses.append)) == "text"
    assert statuses == told
    assert len(caplog.records) == len(told)


class SaysText(SaysInPieces):
    """Says any text in one piece."""

    def __init__(self, text, finish_reason="stop"):
        super().__init__(finish_reason)
        self.text = text

    async def stream(self, page, request):
        yield Delta(self.text, finish_reason=self.finish_reason)


class SaysTextInPieces(SaysText):
    """The same, letter by letter."""

    async def stream(self, page, request):
        for letter in self.text:
            yield Delta(letter)
        yield Delta(finish_reason=self.finish_reason)


@pytest.mark.parametrize("engine", [SaysText, SaysTextInPieces])
def test_a_loop_that_ends_soon_after_it_began_is_told(engine):
    """A text that has become a loop only in its last letters, and then ends as if it were whole, is not whole."""
    statuses = []
    engine = engine("once " + "a b " * 160)
    with JinaOCR(engine, content_retries=0).open(THREE) as document:
        list(document.stream(2, on_cut=statuses.append))
    assert statuses == ["repetition"]
    page = JinaOCR(engine, content_retries=0).read(THREE).pages[1]
    assert (page.status, page.markdown) == (PageStatus.REPETITION, "once a b")


@pytest.mark.parametrize("engine", [SaysText, SaysTextInPieces])
def test_a_loop_that_is_too_long_as_well_is_a_loop(engine):
    """A text that goes in circles beyond what max_tokens allows is told as a loop, streamed or not."""
    statuses = []
    engine = engine("a b " * 3000)
    with JinaOCR(engine, max_tokens=64, content_retries=0).open(THREE) as document:
        list(document.stream(2, on_cut=statuses.append))
        assert [page.status for page in document] == [PageStatus.REPETITION] * 3
    assert statuses == ["repetition"]


def test_the_longer_loop_is_cut_where_a_short_one_lies_in_it():
    """A server stops a loop of lines at a ruling within one of them: one line is kept, not a shorter ruling."""
    line = "".join(f"word{number} " for number in range(40)) + "- " * 12
    page = JinaOCR(SaysText(line * 11, "repetition"), content_retries=0).read(THREE).pages[1]
    assert (page.status, page.markdown) == (PageStatus.REPETITION, line.strip())


def test_a_server_that_never_ends_is_left(make_ocr, server):
    """It streams more than max_tokens can be, of text that never repeats itself: cut there, and said."""
    server.script_page(2, endless)
    page = make_ocr(max_tokens=64, content_retries=0).read(THREE).pages[1]
    assert (page.status, page.finish_reason) == (PageStatus.TRUNCATED, "length")
    assert 64 * 128 < len(page.markdown) < 100_000


def test_an_engine_of_ones_own_is_all_it_takes():
    """Any object with the protocol's members reads, and is given images of the size it asks for."""
    result = JinaOCR(Upper(), prompt="hello").read(THREE)
    assert [max(page.width, page.height) for page in result] == [200] * 3
    assert result.pages[0].markdown.endswith("hello")
    assert result.pages[0].engine == "upper"


class NoMoreCredit(Upper):
    """Reads three pages."""

    def __init__(self):
        self.over = asyncio.Event()

    async def stream(self, page, request):
        if page.number > 3:
            self.over.set()
            raise QuotaError("no more")
        yield Delta("text", finish_reason="stop")


def test_pages_read_ahead_are_given_before_the_error():
    """A consumer that takes its time gets all pages that were read, and paid, before the one that ends the reading."""

    numbers = []

    async def read():
        engine = NoMoreCredit()
        async for page in JinaOCR(engine).apages(marked_pdf(9)):
            numbers.append(page.number)
            await engine.over.wait()

    with pytest.raises(QuotaError, match="page 4: no more"):
        asyncio.run(read())
    assert numbers == [1, 2, 3]


class CancelsItself(Upper):
    """Lets a cancellation of its own out, on page 2."""

    async def stream(self, page, request):
        if page.number == 2:
            raise asyncio.CancelledError
        yield Delta("text", finish_reason="stop")


def test_an_engine_that_cancels_itself_ends_the_reading():
    """However many pages are left: nobody waits for ever."""
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(JinaOCR(CancelsItself()).aread(marked_pdf(40)))


class OneStripFails(Upper):
    """Refuses the first strip of a page once all are asked for; the others never end by themselves."""

    render, max_concurrency = Render(), None

    def __init__(self):
        self.begun = self.cancelled = 0
        self.second = asyncio.Event()

    async def stream(self, page, request):
        self.begun += 1
        if self.begun == 1:
            await self.second.wait()
            raise RequestRejectedError("no")
        self.second.set()
        try:
            await asyncio.sleep(600)
        finally:
            self.cancelled += 1
        yield Delta("never")


def test_a_strip_that_fails_ends_those_beside_it():
    """A very long page is read in strips at once: one is refused, so the page has failed, and none is left running."""
    engine = OneStripFails()
    out = io.BytesIO()
    hosted.marked_image(1, (400, 6000)).save(out, "PNG")
    (page,) = JinaOCR(engine, on_error="mark").read(out.getvalue())
    assert (page.status, page.error.code) == (PageStatus.FAILED, "request_rejected")
    assert engine.begun == engine.cancelled + 1 >= 2


def test_unknown_options_and_values_are_type_errors():
    """A mistyped option is said at once, by its name."""
    with pytest.raises(TypeError, match="concurency"):
        JinaOCR(concurency=3)
    with pytest.raises(TypeError, match="concurrency"):
        JinaOCR(concurrency=0)
    with pytest.raises(EngineNotReadyError, match="no engine 'nope'"):
        JinaOCR("nope").read(THREE)


def test_every_sync_method_has_an_async_twin():
    """x and ax take the same arguments."""
    for name in ("read", "pages", "open", "stream", "estimate", "close"):
        twin = inspect.signature(getattr(JinaOCR, f"a{name}")).parameters
        assert list(inspect.signature(getattr(JinaOCR, name)).parameters) == list(twin)
