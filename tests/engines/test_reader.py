"""The Reader engine against a real server that behaves as Reader does, faults included."""

from __future__ import annotations

import asyncio
import io
import logging
import traceback
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from jina_ocr_loaders.engines.base import DocumentEngine, OCRRequest, Transcription
from jina_ocr_loaders.engines.reader import TOKENS_PER_PAGE, ReaderEngine
from jina_ocr_loaders.errors import (
    AuthenticationError,
    BudgetExceededError,
    DownloadError,
    EngineNotReadyError,
    ForbiddenURLError,
    JinaOCRError,
    QuotaError,
    RateLimitedError,
    RequestRejectedError,
    SourceError,
    TransientError,
    UnsupportedEncryptionError,
    UnsupportedSourceError,
)
from jina_ocr_loaders.ocr import JinaOCR
from jina_ocr_loaders.results import PageStatus, Usage
from jina_ocr_loaders.settings import OCRSettings
from jina_ocr_loaders.sources import Source
from tests.conftest import FakeTime
from tests.servers.files import FileServer
from tests.servers.hosted import marked_jpeg, marked_pdf, page_text
from tests.servers.loopback import garbage, raw, refused_port, reset_before, status
from tests.servers.reader import Exchange, ReaderServer, refusal, says

URL = "https://example.com/papers/report.pdf"
REQUEST = OCRRequest(prompt="Transcribe.", deadline=120)


@pytest.fixture
def reader() -> Iterator[ReaderServer]:
    with ReaderServer() as server:
        server.documents[URL] = marked_pdf(3)
        yield server


def engine_for(server: ReaderServer, **options: Any) -> ReaderEngine:
    return ReaderEngine(OCRSettings(**{"base_url": server.url, "api_key": server.key, **options}))


def read(engine: ReaderEngine, source: Any = URL, number: int = 1, request: OCRRequest = REQUEST) -> Transcription:
    """One page, on an event loop of its own."""

    async def main() -> Transcription:
        try:
            return await engine.read_page(Source.of(source), number, request)
        finally:
            await engine.aclose()

    return asyncio.run(main())


async def once(ask: Callable[[], Awaitable[Transcription]]) -> Transcription:
    """No retry."""
    return await ask()


def count(engine: ReaderEngine, source: Any = URL, password: str | None = None) -> int:
    """The page count, on an event loop of its own."""

    async def main() -> int:
        try:
            return await engine.page_count(Source.of(source), password, once)
        finally:
            await engine.aclose()

    return asyncio.run(main())


def fail(engine: ReaderEngine, source: Any = URL, request: OCRRequest = REQUEST) -> Any:
    """The error that one attempt at page 1 ends with."""
    with pytest.raises(JinaOCRError) as caught:
        read(engine, source, request=request)
    return caught.value


# What is sent, and what comes back.


def test_a_page_of_a_url_is_read(reader: ReaderServer) -> None:
    """GET with the URL as it stands, the model, the page and the key; text and usage come back."""
    answer = read(engine_for(reader), number=2)
    assert answer == Transcription(page_text(2), usage=Usage(40 * (903 + 7)), model="jina-ocr-v1")
    (request,) = reader.requests
    assert (request.method, request.path) == ("GET", f"/{URL}")
    assert request.headers["x-respond-with"] == "jina-ocr-v1"
    assert request.headers["x-page"] == "2"
    assert request.headers["accept"] == "application/json"
    assert request.headers["authorization"] == f"Bearer {reader.key}"


def test_plain_answers_lose_their_head(reader: ReaderServer) -> None:
    """Asked for text, Reader puts title and address before it: they are no part of the page; usage is in a header."""
    answer = read(engine_for(reader, engine_options={"json_answers": False}))
    assert (answer.text, answer.usage) == (page_text(1), Usage(40 * (903 + 7)))
    assert reader.requests[0].headers["accept"] == "text/plain"


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("Title: T\n\nURL Source: u\n\nMarkdown Content:\nText", "Text"),
        (
            "Title: T\n\nURL Source: u\n\nPublished Time: x\n\nNumber of Pages: 3\n\nMarkdown Content:\n# A\n\nB: c\n",
            "# A\n\nB: c\n",
        ),
        (
            "Title: a page that begins so\n\nMarkdown Content:\nText",
            "Title: a page that begins so\n\nMarkdown Content:\nText",
        ),
        ("Text\n\nMarkdown Content:\nmore", "Text\n\nMarkdown Content:\nmore"),
        ("", ""),
    ],
)
def test_only_reader_s_own_head_is_taken_off(reader: ReaderServer, body: str, text: str) -> None:
    """A page that only looks a little like it stays whole."""
    reader.script(raw(body, "text/plain; charset=utf-8"))
    assert read(engine_for(reader)).text == text


def test_options_become_headers(reader: ReaderServer) -> None:
    """Cache, time-out and budgets are sent as Reader names them, and only those that were given."""
    options = {"no_cache": True, "cache_tolerance": 60, "timeout": 120, "token_budget": 99_000, "max_tokens": 5000}
    read(engine_for(reader, engine_options=options))
    read(engine_for(reader))
    names = ["x-no-cache", "x-cache-tolerance", "x-timeout", "x-token-budget", "x-max-tokens"]
    first, second = ([request.headers.get(name) for name in names] for request in reader.requests)
    assert first == ["true", "60", "120", "99000", "5000"]
    assert second == [None] * 5


@pytest.mark.parametrize("options", [{"probee": True}, {"timeout": 181}, {"token_budget": 0}, {"probe": "perhaps"}])
def test_a_wrong_option_is_named(options: dict[str, Any]) -> None:
    """Spelling and ranges are checked at once."""
    with pytest.raises(TypeError, match=f"engine reader: {next(iter(options))}"):
        ReaderEngine(OCRSettings(engine_options=options))


@pytest.mark.parametrize(
    "url",
    [
        "https://example.com/a.pdf#page=2",
        "https://example.com/get?id=1&sig=secret",
        "https://user:secret@example.com/a.pdf",
        "https://example.com/ä.pdf",
        "https://example.com/with space.pdf",
    ],
)
def test_addresses_that_a_path_cannot_carry_go_into_the_body(
    reader: ReaderServer, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Fragments arrive, and what a query or userinfo may hold is in no log."""
    caplog.set_level("DEBUG")
    reader.script(says("text"))
    assert read(engine_for(reader), url).text == "text"
    (request,) = reader.requests
    assert (request.method, request.path, request.target) == ("POST", "/", url)
    assert "secret" not in caplog.text


@pytest.mark.parametrize(
    "url", [URL, "https://example.com/a%20b%2Fc.pdf", "http://example.com//a//b.pdf", "https://example.com"]
)
def test_plain_addresses_arrive_byte_for_byte(reader: ReaderServer, url: str) -> None:
    """Nothing is decoded, joined or completed on the way."""
    reader.script(says("text"))
    read(engine_for(reader), url)
    assert reader.requests[0].path == f"/{url}"


@pytest.mark.parametrize("kind", ["path", "bytes", "stream"])
def test_a_local_pdf_goes_up_whole(reader: ReaderServer, tmp_path: Path, kind: str) -> None:
    """POST with the file's bytes, for each page anew; its name and place are not told."""
    pdf = marked_pdf(2)
    path = tmp_path / "private-name.pdf"
    path.write_bytes(pdf)
    source: Any = {"path": path, "bytes": pdf, "stream": io.BytesIO(pdf)}[kind]
    engine = engine_for(reader)
    assert count(engine, source) == 2
    assert [read(engine, source, number).text for number in (1, 2)] == [page_text(1), page_text(2)]
    assert [request.upload for request in reader.requests] == [("pdf", pdf), ("pdf", pdf)]
    assert all(request.method == "POST" and request.path == "/" for request in reader.requests)
    assert not any(b"private-name" in request.raw for request in reader.requests)


def test_a_local_image_goes_up_as_a_file(reader: ReaderServer) -> None:
    """An image is one page."""
    jpeg = marked_jpeg(9)
    engine = engine_for(reader)
    assert count(engine, jpeg) == 1
    assert read(engine, jpeg).text == page_text(9)
    assert reader.requests[0].upload == ("file", jpeg)


# Refusals and faults.


@pytest.mark.parametrize(
    ("behaviour", "kind", "code", "fatal"),
    [
        (refusal(401, "AuthenticationFailedError"), AuthenticationError, "authentication", True),
        (refusal(402, "InsufficientBalanceError", status=40203), QuotaError, "quota", True),
        (refusal(403, "Forbidden"), AuthenticationError, "authentication", True),
        (refusal(409, "BudgetExceededError", status=40904), BudgetExceededError, "budget_exceeded", True),
        (refusal(409, "LockConflictError", status=40903), TransientError, "transient", False),
        (refusal(451, "SecurityCompromiseError", status=45102), ForbiddenURLError, "refused_for_safety", True),
        (refusal(400, "ParamValidationError"), RequestRejectedError, "request_rejected", False),
        (refusal(413, "TargetFileTooLargeError", status=41302), RequestRejectedError, "request_rejected", False),
        (refusal(422, "AssertionFailureError"), RequestRejectedError, "request_rejected", False),
        (
            refusal(429, "RateLimitTriggeredError", headers={"Retry-After": "9"}),
            RateLimitedError,
            "rate_limited",
            False,
        ),
        (refusal(503, "ServiceNodeResourceDrainError", status=50303), RateLimitedError, "rate_limited", False),
        (refusal(408, "Timeout"), TransientError, "transient", False),
        (refusal(500, "Oops"), TransientError, "transient", False),
        (refusal(524, "TimeoutError"), TransientError, "transient", False),
        (status(502, "<html><title>Bad Gateway</title></html>"), TransientError, "transient", False),
        (status(307, "", {"Location": "https://elsewhere.example"}), EngineNotReadyError, "engine_not_ready", True),
        (raw('{"code": 402, "status": 40203, "data": null, "message": "x"}'), QuotaError, "quota", True),
        (says("# Sorry", httpStatus=404), DownloadError, "download", True),
        (says("# Sorry", warning="Target URL returned error 403: Forbidden"), DownloadError, "download", True),
        (says("# Sorry", httpStatus=503), TransientError, "site_error", False),
        (says("# Sorry", httpStatus=429), TransientError, "site_error", False),
        (garbage(), TransientError, "bad_answer", False),
        (raw('{"code": 200, "data": {"con'), TransientError, "bad_answer", False),
        (raw('{"code": 200, "data": null}'), TransientError, "bad_answer", False),
        (raw('{"code": 200, "data": {"content": null}}'), TransientError, "bad_answer", False),
        (raw("[1]"), TransientError, "bad_answer", False),
        (raw(""), TransientError, "bad_answer", False),
        (raw(b"\x1f\x8b broken", "text/plain"), None, None, False),
        (reset_before(), TransientError, "disconnect", False),
    ],
)
def test_each_fault_has_its_class(
    reader: ReaderServer, behaviour: Any, kind: type[JinaOCRError] | None, code: str | None, fatal: bool
) -> None:
    """One request, one error of the right class; bytes that are text in no encoding are still no crash."""
    reader.script(behaviour)
    if kind is None:
        assert "broken" in read(engine_for(reader)).text
        return
    error = fail(engine_for(reader))
    assert (type(error), error.code, error.fatal) == (kind, code, fatal)
    assert len(reader.requests) == 1


def test_a_plain_answer_tells_the_site_s_refusal_too(reader: ReaderServer) -> None:
    """In plain text the warning is in the head."""
    head = "Title: T\n\nURL Source: u\n\nWarning: Target URL returned error 404: Not Found\n\nMarkdown Content:\n"
    reader.script(raw(head + "# Not found", "text/plain"))
    assert type(fail(engine_for(reader))) is DownloadError


def test_other_warnings_are_kept(reader: ReaderServer, caplog: pytest.LogCaptureFixture) -> None:
    """The page is read, the warning is in the log and marks the page."""
    reader.script(says("text", warning="This is a cached snapshot"))
    answer = read(engine_for(reader))
    assert (answer.text, answer.warnings) == ("text", ("reader_warning",))
    assert "cached snapshot" in caplog.text


def test_retry_after_is_told(reader: ReaderServer) -> None:
    """A 429 says how long to wait."""
    reader.script(refusal(429, "RateLimitTriggeredError", headers={"Retry-After": "9"}))
    assert fail(engine_for(reader)).retry_after == 9


def test_the_budget_of_a_page_is_kept(reader: ReaderServer) -> None:
    """Over the budget Reader refuses, and the error says which option it is."""
    error = fail(engine_for(reader, engine_options={"token_budget": 1000}))
    assert type(error) is BudgetExceededError
    assert "token_budget" in str(error)


def test_an_empty_account_is_fatal(reader: ReaderServer) -> None:
    """402 after the credit is used up."""
    reader.credit = 40_000
    engine = engine_for(reader)
    read(engine)
    assert type(fail(engine)) is QuotaError


def test_a_file_that_is_too_large_is_told(reader: ReaderServer) -> None:
    """413 concerns the file, and is not tried again."""
    reader.max_bytes = 10
    assert type(fail(engine_for(reader), marked_pdf(1))) is RequestRejectedError


def test_without_a_key_reader_decides(reader: ReaderServer) -> None:
    """No key, no header; OCR is refused then, and the error says what to set. A Reader that needs none works."""
    error = fail(engine_for(reader, api_key=None))
    assert type(error) is AuthenticationError
    assert "JINA_API_KEY" in str(error)
    assert "authorization" not in reader.requests[0].headers
    reader.key = None
    assert read(engine_for(reader, api_key=None)).text == page_text(1)


def test_the_environment_s_key_goes_to_jina_only(reader: ReaderServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A base_url on another host gets none, and JINA_OCR_BASE_URL is another service's address."""
    monkeypatch.setenv("JINA_API_KEY", "jina_secret")
    monkeypatch.setenv("JINA_OCR_BASE_URL", "http://vllm.example:8000/v1")
    fail(engine_for(reader, api_key=None))
    assert "authorization" not in reader.requests[0].headers
    assert repr(ReaderEngine(OCRSettings())) == "ReaderEngine('r.jina.ai')"


def test_the_key_shows_nowhere(reader: ReaderServer, caplog: pytest.LogCaptureFixture) -> None:
    """Not in errors, tracebacks or logs, even where the server repeats it."""
    caplog.set_level("DEBUG")
    assert reader.key
    reader.script(refusal(401, "AuthenticationFailedError", f"The key {reader.key} is wrong"))
    engine = engine_for(reader)
    error = fail(engine)
    assert reader.key not in "".join(traceback.format_exception(error)) + repr(engine) + caplog.text


def test_connections_that_cannot_be_made() -> None:
    """Refused and unknown hosts have the code that the pipeline waits a little for."""
    for url in (f"http://127.0.0.1:{refused_port()}", "http://nothing.invalid"):
        assert fail(ReaderEngine(OCRSettings(base_url=url))).code == "connection_refused"


def test_silence_ends_with_the_deadline(reader: ReaderServer) -> None:
    """A server that never answers: a TransientError."""

    async def silent(exchange: Exchange) -> None:
        await exchange.wait()

    reader.script(silent)
    error = fail(engine_for(reader), request=OCRRequest(prompt="", deadline=3))
    assert (type(error), error.code) == (TransientError, "read_timeout")


# Page counts.


def test_the_count_of_a_url_comes_from_fetching_it(reader: ReaderServer) -> None:
    """Fetched here once, bounded; Reader is not asked, so nothing is spent."""
    with FileServer() as files:
        url = files.add("/a.pdf", marked_pdf(4))
        assert count(engine_for(reader, allow_private_networks=True), url) == 4
        assert len(files.requests) == 1
        with pytest.raises(JinaOCRError, match="max_bytes"):
            count(engine_for(reader, allow_private_networks=True, max_bytes=100), url)
        with pytest.raises(ForbiddenURLError):
            count(engine_for(reader), url)
    assert not reader.requests


def test_a_web_page_is_no_document(reader: ReaderServer) -> None:
    """OCR reads a web page as one picture and invents the rest: it is refused before anything is spent."""
    engine = engine_for(reader, allow_private_networks=True)
    with FileServer() as files:
        url = files.add("/page", b"<!doctype html><html><body>Hello</body></html>")
        with pytest.raises(UnsupportedSourceError):
            count(engine, url)
    assert not reader.requests


def test_an_encrypted_file_is_refused_with_the_reason(reader: ReaderServer, encrypted_pdf: bytes) -> None:
    """Reader takes no password: with or without one, the error says to use another engine."""
    for password in (None, "secret"):
        with pytest.raises(UnsupportedEncryptionError, match="another engine"):
            count(engine_for(reader), encrypted_pdf, password)
    assert not reader.requests


@pytest.fixture
def encrypted_pdf() -> bytes:
    from fpdf import FPDF

    pdf = FPDF()
    pdf.add_page()
    pdf.set_encryption(owner_password="owner", user_password="secret")
    return bytes(pdf.output())


@pytest.mark.parametrize("past_end", ["first", "error"])
@pytest.mark.parametrize("pages", [[1], [1, 2, 3], [1, 2, 1, 3], [1, 1, 2], [1, 2, 2, 2, 3], [1, 2, 3, 1, 4, 1, 5]])
def test_probing_finds_the_end_and_keeps_the_pages(reader: ReaderServer, pages: list[int], past_end: str) -> None:
    """Whether Reader refuses a page past the end or repeats the first one; duplicates inside are no end."""
    reader.documents[URL] = marked_pdf(pages)
    reader.past_end = past_end
    engine = engine_for(reader, engine_options={"probe": True})
    assert count(engine) == len(pages)
    asked = len(reader.requests)
    assert asked == len(pages) + 2
    answers = [read(engine, number=number) for number in range(1, len(pages) + 1)]
    assert [answer.text for answer in answers] == [page_text(page) for page in pages]
    assert len(reader.requests) == asked, "a page that was read already is not asked for again"
    billed = asked if past_end == "first" else len(pages)
    assert sum((answer.usage for answer in answers), Usage()) == Usage(billed * 40 * (903 + 7))
    assert read(engine, number=1).text == page_text(1)
    assert len(reader.requests) == asked + 1, "the second time, it is"


@pytest.mark.parametrize(("pages", "found"), [([1, 2, 1], 3), ([1, 1], 2), ([1, 2, 1, 1], 2)])
def test_duplicates_at_the_very_end(
    reader: ReaderServer, caplog: pytest.LogCaptureFixture, pages: list[int], found: int
) -> None:
    """One duplicate before a refused end is a page; two cannot be told from the end, and a warning says so."""
    reader.documents[URL] = marked_pdf(pages)
    reader.past_end = "error"
    assert count(engine_for(reader, engine_options={"probe": True})) == found
    assert ("leave probe out" in caplog.text) == (found < len(pages))


def test_a_refused_page_inside_is_no_end(reader: ReaderServer) -> None:
    """A page that Reader cannot read is counted, and asked for again when it is wanted."""
    answers: list[Any] = [says("one"), refusal(422, "AssertionFailureError", "No content available"), says("three")]
    reader.script(*answers, says("one"), says("one"), refusal(422, "AssertionFailureError"))
    engine = engine_for(reader, engine_options={"probe": True})
    assert count(engine) == 3
    assert read(engine, number=3).text == "three"
    with pytest.raises(RequestRejectedError):
        read(engine, number=2)


def test_probing_goes_on_where_it_was_interrupted(reader: ReaderServer) -> None:
    """After a passing failure no page is paid twice."""
    reader.script(says("one"), says("two"), refusal(500, "Oops"))
    engine = engine_for(reader, engine_options={"probe": True})
    with pytest.raises(TransientError):
        count(engine)
    reader.script(says("three"), says("one"), says("one"))
    assert count(engine) == 3
    assert reader.pages() == [1, 2, 3, 3, 4, 5]


def test_a_probed_document_that_is_read_in_parts_is_paid_once(
    reader: ReaderServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While pages wait the count is known: an estimate before, or an agent that goes on, costs no second probing."""
    engine = engine_for(reader, engine_options={"probe": True})
    for number in (1, 2, 3):
        assert count(engine) == 3
        assert read(engine, number=number).text == page_text(number)
    assert len(reader.requests) == 5
    assert count(engine) == 3
    assert len(reader.requests) == 10, "all were given out: it is read anew"
    monkeypatch.setattr("jina_ocr_loaders.engines.reader.PROBE_AGE", 0)
    assert count(engine) == 3
    assert len(reader.requests) == 15, "what is old is read anew"
    fresh = engine_for(reader, engine_options={"probe": True, "no_cache": True})
    assert count(fresh) + count(fresh) == 6
    assert len(reader.requests) == 25


def test_two_that_probe_the_same_document_at_once(reader: ReaderServer) -> None:
    """Each finds the document's own end, and every page is the one that it is."""
    engine = engine_for(reader, engine_options={"probe": True})
    source = Source.of(URL)

    async def main() -> tuple[list[int], list[str]]:
        try:
            counts = await asyncio.gather(*(engine.page_count(source, None, once) for _ in range(3)))
            pages = [await engine.read_page(source, number, REQUEST) for number in (1, 2, 3)]
            return counts, [page.text for page in pages]
        finally:
            await engine.aclose()

    assert asyncio.run(main()) == ([3] * 3, [page_text(number) for number in (1, 2, 3)])


def test_probing_is_bounded(reader: ReaderServer) -> None:
    """A server that always has another page costs no more than max_pages and two looks."""
    reader.read_page = lambda document, number: f"page {len(reader.requests)}"
    with pytest.raises(BudgetExceededError, match="max_pages"):
        count(engine_for(reader, engine_options={"probe": True}, max_pages=5))
    assert len(reader.requests) == 7


def test_a_first_page_that_is_refused_is_an_error(reader: ReaderServer) -> None:
    """There is no document without a first page."""
    reader.script(refusal(422, "AssertionFailureError"))
    with pytest.raises(RequestRejectedError):
        count(engine_for(reader, engine_options={"probe": True}))


# In the pipeline.


@pytest.fixture
def ocr(reader: ReaderServer) -> Iterator[Callable[..., JinaOCR]]:
    made: list[JinaOCR] = []

    def make(**options: Any) -> JinaOCR:
        options = {"base_url": reader.url, "api_key": reader.key, "max_retries": 0, **options}
        made.append(JinaOCR("reader", **options))
        return made[-1]

    yield make
    for one in made:
        one.close()


def test_every_page_comes_in_order_and_none_is_missing(reader: ReaderServer, ocr: Callable[..., JinaOCR]) -> None:
    """Twelve pages, several at a time, each asked for by its number; the first page alone is never all there is."""
    arrived: list[int | None] = []
    together = asyncio.Event()

    async def wait_for_others(exchange: Exchange) -> None:
        arrived.append(exchange.request.page)
        if len(arrived) == 4:
            together.set()
        await asyncio.wait_for(together.wait(), 120)
        await reader.read(exchange)

    reader.script(reader.read, *[wait_for_others] * 4)
    result = ocr(concurrency=4).read(marked_pdf(12))
    assert [page.markdown for page in result.pages] == [page_text(number) for number in range(1, 13)]
    assert sorted(page or 0 for page in reader.pages()) == list(range(1, 13))
    assert len(arrived) == reader.peak == 4
    assert result.usage == Usage(12 * 40 * (903 + 7))


def test_a_probed_document_is_read_whole(reader: ReaderServer, ocr: Callable[..., JinaOCR]) -> None:
    """With ``probe`` nothing is fetched here, and no page is missing."""
    result = ocr(engine_options={"probe": True}).read(URL)
    assert [page.markdown for page in result.pages] == [page_text(number) for number in (1, 2, 3)]


def test_each_probed_page_has_its_own_retries(reader: ReaderServer, fake_time: FakeTime) -> None:
    """Every page fails once in passing, and each is tried again by itself: failures, and time, do not add up."""
    reader.documents[URL] = marked_pdf(5)
    reader.script(*[refusal(500, "Oops"), reader.read] * 7)
    options = {"base_url": reader.url, "api_key": reader.key, "max_retries": 1, "engine_options": {"probe": True}}
    with JinaOCR.from_settings(OCRSettings(engine="reader", **options), clock=fake_time.clock()) as ocr:
        result = ocr.read(URL)
    assert [page.markdown for page in result.pages] == [page_text(number) for number in range(1, 6)]
    assert reader.pages() == [number for number in range(1, 8) for _ in (1, 2)]


def test_a_failed_page_keeps_its_slot(reader: ReaderServer, ocr: Callable[..., JinaOCR]) -> None:
    """Page 2 fails for good: three results, in order, the others untouched."""

    async def refuse_second(exchange: Exchange) -> None:
        if exchange.request.page == 2:
            await exchange.refuse(422, "AssertionFailureError", "Screenshot of the page is not available")
        else:
            await reader.read(exchange)

    reader.script(*[refuse_second] * 3)
    result = ocr(on_error="mark").read(marked_pdf(3))
    assert [page.status for page in result.pages] == [PageStatus.OK, PageStatus.FAILED, PageStatus.OK]
    assert "Screenshot" in str(result.pages[1].error)


def test_the_cost_is_told_before_it_is_spent(
    reader: ReaderServer, ocr: Callable[..., JinaOCR], caplog: pytest.LogCaptureFixture
) -> None:
    """One warning, before the first request; the estimate counts 60,000 tokens a page and spends nothing."""
    engine = ocr()
    with caplog.at_level(logging.WARNING):
        assert engine.estimate(marked_pdf(3)).input_tokens == 3 * TOKENS_PER_PAGE
        assert not reader.requests
        engine.read(marked_pdf(3))
    assert [record.getMessage().count("60,000 tokens a page") for record in caplog.records].count(1) == 1


def test_it_is_a_document_engine() -> None:
    """What the pipeline asks for is there."""
    assert isinstance(ReaderEngine(OCRSettings()), DocumentEngine)


def test_a_stream_that_cannot_be_rewound_is_refused(reader: ReaderServer, ocr: Callable[..., JinaOCR]) -> None:
    """It is needed once to count and once for each page: a fatal error says what to pass, and nothing is sent."""

    class Pipe(io.BytesIO):
        def seekable(self) -> bool:
            return False

    with pytest.raises(SourceError, match="pass its bytes"):
        ocr().read(Pipe(marked_pdf(2)))
    assert not reader.requests
