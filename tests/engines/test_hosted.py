"""The hosted engine against a real server that behaves well, badly, and worse."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
import traceback
from contextlib import aclosing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest
from anyio._backends._asyncio import CancelScope
from pydantic import SecretStr

from jina_ocr_loaders.engines import endpoint, hosted
from jina_ocr_loaders.engines.base import OCRRequest, Sampling, Transcription, transcribe
from jina_ocr_loaders.engines.hosted import HostedEngine
from jina_ocr_loaders.engines.http_errors import detail, retry_after
from jina_ocr_loaders.errors import (
    AuthenticationError,
    EngineError,
    EngineNotReadyError,
    ModelNotFoundError,
    QuotaError,
    RateLimitedError,
    RequestRejectedError,
    TransientError,
    WarmingUpError,
)
from jina_ocr_loaders.pages import PageImage
from jina_ocr_loaders.results import Usage
from jina_ocr_loaders.settings import OCRSettings
from tests.servers.hosted import (
    ABSENT,
    Exchange,
    HostedServer,
    cut,
    empty_choices,
    garbage,
    half_json,
    loop,
    marked_jpeg,
    null_content,
    ok,
    page_text,
    raw,
    refused_port,
    reset_after,
    reset_before,
    reset_during,
    stall,
    status,
    stream_error,
)

KEY = "jina_0123456789abcdef"
REQUEST = OCRRequest(prompt="Transcribe.", deadline=20)
OPENAI_VARIABLES = {
    "OPENAI_API_KEY": "sk-openai-secret",
    "OPENAI_ADMIN_KEY": "sk-admin-secret",
    "OPENAI_ORG_ID": "org-secret",
    "OPENAI_PROJECT_ID": "proj-secret",
    "OPENAI_BASE_URL": "http://openai.invalid/v1",
    "OPENAI_CUSTOM_HEADERS": "X-Custom: custom-secret\nauthorization: Bearer header-secret",
}


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [*OPENAI_VARIABLES, "JINA_API_KEY", "JINA_OCR_BASE_URL"]:
        monkeypatch.delenv(name, raising=False)
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


def engine_for(server: HostedServer, **options: Any) -> HostedEngine:
    return HostedEngine(OCRSettings(**{"base_url": server.base_url, **options}))


def page(number: int = 1) -> PageImage:
    return PageImage(number, str(number), 320, 452, marked_jpeg(number))


def read(engine: HostedEngine, image: PageImage | None = None, request: OCRRequest = REQUEST) -> Transcription:
    """One page, on an event loop of its own."""

    async def main() -> Transcription:
        try:
            return await transcribe(engine, image or page(), request)
        finally:
            await engine.aclose()

    return asyncio.run(main())


def test_a_request_is_cancelled_as_it_gets_its_connection(
    server: HostedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the very step in which anyio ends its other attempts to connect: before 4.16 it took the one for the other."""
    server.otherwise = stall()
    cancel = CancelScope.cancel

    async def main() -> bool:
        def and_the_request(scope: CancelScope, *arguments: Any, **options: Any) -> None:
            monkeypatch.setattr(CancelScope, "cancel", cancel)  # this once
            cancel(scope, *arguments, **options)
            task.cancel()

        engine = engine_for(server)
        task = asyncio.create_task(transcribe(engine, page(), REQUEST))
        monkeypatch.setattr(CancelScope, "cancel", and_the_request)
        await asyncio.wait([task], timeout=5)
        cancelled = task.cancelled()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await engine.aclose()
        return cancelled

    assert asyncio.run(main())


def fail(engine: HostedEngine, request: OCRRequest = REQUEST) -> EngineError:
    """The error that one attempt at a page ends with."""
    with pytest.raises(EngineError) as caught:
        read(engine, request=request)
    return caught.value


# What is sent, and what comes back.


def test_a_page_is_read_with_its_finish_reason_usage_and_model(server: HostedServer) -> None:
    """Text, end, tokens and the model's name come from the stream."""
    answer = read(engine_for(server), page(7))
    assert answer == Transcription(page_text(7), "stop", Usage(903, 7), "jina-ocr-v1")


def test_the_request_holds_the_agreed_fields_and_nothing_else(server: HostedServer) -> None:
    """Model, messages (image before prompt), stream with usage, max_tokens, temperature; the JPEG as it was given."""
    image = page(3)
    read(engine_for(server), image, replace(REQUEST, max_tokens=77, sampling=Sampling(temperature=0.2)))
    (request,) = server.requests
    assert {name: value for name, value in request.body.items() if name != "messages"} == {
        "model": "jina-ocr-v1",
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_tokens": 77,
        "temperature": 0.2,
    }
    assert [part["type"] for part in request.content] == ["image_url", "text"]
    assert request.prompt == "Transcribe."
    assert request.image == image.jpeg()


def test_more_fields_go_through_extra_body_and_win(server: HostedServer) -> None:
    """``extra_body`` adds fields and replaces those that the engine sends."""
    read(engine_for(server, extra_body={"repetition_penalty": 1.05, "temperature": 0.5}))
    body = server.requests[0].body
    assert (body["repetition_penalty"], body["temperature"]) == (1.05, 0.5)


def test_an_image_address_is_handed_on_as_it_is(server: HostedServer) -> None:
    """With ``pass_urls`` a page is an address, and that is what the server gets."""
    url = "https://example.com/a.png?x=1&y=%20"
    server.otherwise = ok("remote")
    assert read(engine_for(server), PageImage(1, url=url)).text == "remote"
    assert server.requests[0].image_url == url


def test_text_comes_piece_by_piece(server: HostedServer) -> None:
    """The first piece is there while the server still holds the rest back."""
    release = threading.Event()

    async def two_parts(exchange: Exchange) -> None:
        await exchange.open_stream()
        await exchange.pieces("first")
        await asyncio.to_thread(release.wait, 60)
        await exchange.pieces(" second")
        await exchange.event(exchange.chunk(finish="stop"))
        await exchange.end()

    server.script(two_parts)

    async def main() -> list[str]:
        engine = engine_for(server)
        texts = []
        async for delta in engine.stream(page(), REQUEST):
            texts.append(delta.text)
            if delta.text:
                release.set()
        await engine.aclose()
        return texts

    assert asyncio.run(main()) == ["", "first", " second", ""]


def test_a_consumer_that_stops_stops_the_server(server: HostedServer) -> None:
    """Closing the stream closes the connection: a loop that was found costs no more tokens."""
    server.otherwise = loop(5, pace=0.005)

    async def main() -> None:
        engine = engine_for(server)
        async with aclosing(engine.stream(page(), REQUEST)) as deltas:
            async for _ in deltas:
                break
        assert await asyncio.to_thread(server.requests[0].done.wait, 60)
        await engine.aclose()

    asyncio.run(main())
    assert server.requests[0].disconnected
    assert server.requests[0].sent < REQUEST.max_tokens / 2


def test_cancelling_stops_the_server_too(server: HostedServer) -> None:
    """A cancelled read leaves no request behind."""
    server.otherwise = stall()

    async def main() -> None:
        engine = engine_for(server)
        task = asyncio.create_task(transcribe(engine, page(), REQUEST))
        assert await asyncio.to_thread(server.received.wait, 60)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await asyncio.to_thread(server.requests[0].done.wait, 60)
        await engine.aclose()

    asyncio.run(main())
    assert server.requests[0].disconnected


# Refusals.


@pytest.mark.parametrize(
    ("code", "kind", "fatal"),
    [
        (400, RequestRejectedError, False),
        (401, AuthenticationError, True),
        (402, QuotaError, True),
        (403, AuthenticationError, True),
        (404, EngineNotReadyError, True),
        (405, RequestRejectedError, False),
        (408, TransientError, False),
        (409, TransientError, False),
        (413, RequestRejectedError, False),
        (422, RequestRejectedError, False),
        (425, TransientError, False),
        (429, RateLimitedError, False),
        (500, TransientError, False),
        (502, TransientError, False),
        (503, WarmingUpError, False),
        (504, TransientError, False),
        (529, TransientError, False),
    ],
)
def test_each_status_has_its_class(server: HostedServer, code: int, kind: type[EngineError], fatal: bool) -> None:
    """One request, one error of the right class, with the status and the server's words."""
    server.otherwise = status(code, {"detail": "because of that"})
    error = fail(engine_for(server, api_key=KEY))
    assert type(error) is kind
    assert (error.status, error.fatal) == (code, fatal)
    assert "because of that" in str(error)
    assert f"127.0.0.1:{server.port}" in str(error)
    assert len(server.requests) == 1


@pytest.mark.parametrize("code", [429, 503, 500, 408])
def test_retry_after_is_told(server: HostedServer, code: int) -> None:
    """What the server asks for is in ``retry_after``; without a wish it is None."""
    server.script(status(code, headers={"Retry-After": "7"}), status(code))
    engine = engine_for(server)
    assert fail(engine).retry_after == 7
    assert fail(engine).retry_after is None


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "30"}, 30),
        ({"retry-after": "1.5"}, 1.5),
        ({"retry-after": "-3"}, 0),
        ({"retry-after": "0"}, 0),
        ({}, None),
        ({"retry-after": ""}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "Mon, 30 Nov 2026 10:00:45 GMT", "date": "Mon, 30 Nov 2026 10:00:00 GMT"}, 45),
        ({"retry-after": "Mon, 30 Nov 2026 09:00:00 GMT", "date": "Mon, 30 Nov 2026 10:00:00 GMT"}, 0),
        ({"retry-after": "Mon, 30 Nov 2026 10:00:45", "date": "Mon, 30 Nov 2026 10:00:00 GMT"}, None),
        ({"retry-after": "Mon, 30 Nov 9999999 10:00:45 GMT"}, None),
    ],
)
def test_retry_after_is_seconds_or_a_date(headers: dict[str, str], seconds: float | None) -> None:
    """Both forms of the header are read, and nonsense is no wish."""
    assert retry_after(headers) == seconds


def test_a_date_counts_from_now_where_the_server_tells_no_time() -> None:
    """Without a Date header the local clock is the measure."""
    then = format_datetime(datetime.now(UTC) + timedelta(seconds=60), usegmt=True)
    seconds = retry_after({"retry-after": then})
    assert seconds is not None
    assert 50 < seconds <= 60


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"detail": "Unauthorized"}, "Unauthorized"),
        (
            {"detail": [{"loc": ["body", "model"], "msg": "field required"}, {"msg": "too long"}]},
            "field required; too long",
        ),
        ({"error": {"message": "no such model", "code": 404}}, "no such model"),
        ({"error": "plain"}, "plain"),
        ({"message": "inner", "type": "x"}, "inner"),
        ({"code": 402, "readableMessage": "Insufficient balance", "message": "x"}, "Insufficient balance"),
        ("two\n lines", "two lines"),
        ("<html><head><title>502 Bad\nGateway</title></head><body>x</body></html>", "502 Bad Gateway"),
        ("<html>nothing</html>", ""),
        (None, ""),
        ({"detail": None}, ""),
        (17, ""),
        ("x" * 1000, "x" * 299 + "…"),
    ],
)
def test_the_server_s_words_are_found(body: object, words: str) -> None:
    """Whatever shape an error body has, its message is one short line."""
    assert detail(body) == words


def test_a_redirect_is_not_followed(server: HostedServer) -> None:
    """Pages go to the address that was named; another host gets nothing."""
    with HostedServer() as elsewhere:
        server.otherwise = status(307, "", {"Location": f"{elsewhere.base_url}/chat/completions"})
        error = fail(engine_for(server, api_key=KEY))
        assert isinstance(error, EngineNotReadyError)
        assert error.code == "redirect"
        assert not elsewhere.requests


# Connections that cannot be made or break.


def test_a_refused_connection_has_its_own_code() -> None:
    """The pipeline waits a little for a server that is starting; it knows the case by this code."""
    port = refused_port()
    for host in ("127.0.0.1", "localhost"):
        error = fail(HostedEngine(OCRSettings(base_url=f"http://{host}:{port}")))
        assert type(error) is TransientError
        assert error.code == "connection_refused"
        assert f"{host}:{port}" in str(error)


def test_an_unknown_host_is_no_cold_start() -> None:
    """A name that does not resolve is told as such, and treated like a refused connection."""
    error = fail(HostedEngine(OCRSettings(base_url="http://nothing.invalid/v1")))
    assert error.code == "connection_refused"
    assert "nothing.invalid" in str(error)
    assert "name" in str(error)


@pytest.mark.parametrize("behaviour", [reset_before, reset_during])
def test_a_reset_is_a_passing_failure(server: HostedServer, behaviour: Any) -> None:
    """A connection that breaks before or during the answer: one request, one TransientError."""
    server.otherwise = behaviour()
    error = fail(engine_for(server))
    assert type(error) is TransientError
    assert error.code == "disconnect"
    assert len(server.requests) == 1


def test_a_reset_after_the_answer_changes_nothing(server: HostedServer) -> None:
    """The text is whole, with its usage."""
    server.otherwise = reset_after()
    answer = read(engine_for(server), page(4))
    assert (answer.text, answer.finish_reason, answer.usage) == (page_text(4), "stop", Usage(903, 7))


def test_a_stalled_stream_ends_with_the_read_time_out(server: HostedServer) -> None:
    """No byte for as long as the request's deadline: a TransientError."""
    server.otherwise = stall()
    error = fail(engine_for(server), replace(REQUEST, deadline=0.3))
    assert type(error) is TransientError
    assert error.code == "read_timeout"


def test_a_silent_server_ends_with_the_read_time_out(server: HostedServer) -> None:
    """The same before the first byte."""
    server.otherwise = ok(delay=60)
    assert fail(engine_for(server), replace(REQUEST, deadline=0.3)).code == "read_timeout"


def test_a_slow_drip_is_read_to_its_end(server: HostedServer) -> None:
    """Each piece is in time, though all together take longer than the deadline: that is the pipeline's to judge."""
    server.otherwise = ok("a b c d", pace=1)
    assert read(engine_for(server), page(2), replace(REQUEST, deadline=3)).text == "a b c d"


# The end of a stream.


@pytest.mark.parametrize(
    ("behaviour", "finish_reason", "usage"),
    [
        (ok("text"), "stop", Usage(903, 1)),
        (ok("text", finish_reason="length"), "length", Usage(903, 1)),
        (ok("text", finish_reason="max_tokens"), "length", Usage(903, 1)),
        (ok("text", finish_reason="repetition"), "repetition", Usage(903, 1)),
        (ok("text", usage=False), "stop", Usage()),
        (ok("text", finish_reason=None), None, Usage(903, 1)),
        (ok("text", finish_reason=ABSENT), None, Usage(903, 1)),
        (stall("text", finish_reason="stop"), "stop", Usage()),
    ],
    ids=["both", "length", "max_tokens", "repetition", "no usage", "null", "absent", "no end after the finish"],
)
def test_a_finish_reason_or_the_final_usage_ends_a_page(
    server: HostedServer, monkeypatch: pytest.MonkeyPatch, behaviour: Any, finish_reason: str | None, usage: Usage
) -> None:
    """Either of them shows that the text is whole."""
    monkeypatch.setattr(hosted, "GRACE", 0.2)
    server.otherwise = behaviour
    answer = read(engine_for(server))
    assert (answer.text, answer.finish_reason, answer.usage) == ("text", finish_reason, usage)


@pytest.mark.parametrize("after", ["text", "broken JSON", "an error", "a reset", "silence"])
def test_what_follows_the_finish_reason_cannot_spoil_the_page(
    server: HostedServer, monkeypatch: pytest.MonkeyPatch, after: str
) -> None:
    """The text is whole by then: more of it is taken, anything else is let go."""
    monkeypatch.setattr(hosted, "GRACE", 0.2)

    async def behave(exchange: Exchange) -> None:
        await exchange.open_stream()
        await exchange.pieces("all of it")
        await exchange.event(exchange.chunk(finish="stop"))
        match after:
            case "text":
                await exchange.event(exchange.chunk(" and more"))
                await exchange.end()
            case "broken JSON":
                await exchange.event('{"id": ')
                await exchange.end()
            case "an error":
                await exchange.event({"error": {"message": "oops", "code": 500}})
                await exchange.end()
            case "a reset":
                await exchange.reset()
            case _:
                await exchange.wait()

    server.otherwise = behave
    answer = read(engine_for(server))
    assert answer.text == "all of it" + " and more" * (after == "text")
    assert answer.finish_reason == "stop"


@pytest.mark.parametrize(
    "behaviour",
    [
        cut(),
        cut(done=True),
        cut(""),
        ok("text", finish_reason=None, usage=False),
        garbage(),
        raw('{"choices": []}'),
        raw(""),
    ],
    ids=["cut", "cut after [DONE]", "nothing", "no end", "HTML", "JSON", "empty body"],
)
def test_a_stream_without_an_end_is_a_disconnect(server: HostedServer, behaviour: Any) -> None:
    """openai reports success; here it is a TransientError, after one request."""
    server.otherwise = behaviour
    error = fail(engine_for(server))
    assert type(error) is TransientError
    assert error.code == "no_end"
    assert len(server.requests) == 1


def test_a_running_count_of_usage_is_no_end(server: HostedServer) -> None:
    """Usage in every chunk, as vLLM can send it, says nothing about the end; a cut stream stays a disconnect."""

    async def counted(exchange: Exchange) -> None:
        await exchange.open_stream()
        await exchange.event(exchange.chunk("text", usage=exchange.usage("text")))
        await exchange.end()

    server.otherwise = counted
    assert fail(engine_for(server)).code == "no_end"


def test_a_server_that_never_ends_a_stream_is_asked_for_whole_answers(server: HostedServer) -> None:
    """The attempt after the first such stream is a plain one; after a second stream, all are."""
    server.otherwise = ok(finish_reason=None, usage=False)
    engine = engine_for(server)
    assert fail(engine).code == "no_end"
    for number in range(1, 9):
        answer = read(engine, page(number))
        assert (answer.text, answer.finish_reason) == (page_text(number), None)
    assert fail(engine).code == "no_end"
    for number in range(1, 12):
        assert read(engine, page(number)).text == page_text(number)
    assert [request.streams for request in server.requests] == [True] + [False] * 8 + [True] + [False] * 11


def test_one_broken_stream_does_not_end_streaming(server: HostedServer) -> None:
    """After some whole answers a stream is tried again, and if it ends well streams stay, whatever breaks later."""
    server.script(cut(), *[ok()] * 8, ok(), cut())
    engine = engine_for(server)
    assert fail(engine).code == "no_end"
    assert [read(engine, page(n)).text for n in range(1, 10)] == [page_text(n) for n in range(1, 10)]
    assert fail(engine).code == "no_end"
    assert read(engine, page(5)).text == page_text(5)
    assert [request.streams for request in server.requests] == [True] + [False] * 8 + [True, True, True]


def test_a_proven_server_keeps_its_streams(server: HostedServer) -> None:
    """A stream that broke off on a server that has ended one before is only tried again."""
    server.script(ok(), cut())
    engine = engine_for(server)
    read(engine)
    assert fail(engine).code == "no_end"
    read(engine)
    assert all(request.streams for request in server.requests)


# Answers that are none.


@pytest.mark.parametrize(
    ("behaviour", "kind", "code"),
    [
        (half_json(), TransientError, "bad_answer"),
        (empty_choices(), TransientError, "no_content"),
        (null_content(), TransientError, "no_content"),
        (null_content("content_filter"), RequestRejectedError, "content_filter"),
        (ok("text", finish_reason="content_filter"), RequestRejectedError, "content_filter"),
        (ok("text", finish_reason="abort"), TransientError, "given_up"),
        (stream_error({"message": "too long", "code": 400}), RequestRejectedError, "request_rejected"),
        (stream_error({"message": "wait", "code": "429"}), RateLimitedError, "rate_limited"),
        (stream_error({"message": "oops", "code": "weird"}), TransientError, "transient"),
        (stream_error("oops"), TransientError, "transient"),
    ],
)
def test_a_stream_that_is_no_answer(server: HostedServer, behaviour: Any, kind: type[EngineError], code: str) -> None:
    """Each kind of broken stream has its class and code; none passes for an empty page."""
    server.otherwise = behaviour
    error = fail(engine_for(server))
    assert (type(error), error.code) == (kind, code)
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("behaviour", "kind", "code"),
    [
        (garbage(), TransientError, "bad_answer"),
        (half_json(), TransientError, "bad_answer"),
        (empty_choices(), TransientError, "bad_answer"),
        (null_content(), TransientError, "no_content"),
        (null_content("content_filter"), RequestRejectedError, "content_filter"),
        (raw("[]"), TransientError, "bad_answer"),
        (raw("17"), TransientError, "bad_answer"),
        (raw("null"), TransientError, "bad_answer"),
        (raw(""), TransientError, "bad_answer"),
        (raw('{"choices": "abc"}'), TransientError, "bad_answer"),
        (raw('{"choices": [null]}'), TransientError, "bad_answer"),
        (raw('{"choices": [{"message": {"content": 5}}]}'), TransientError, "no_content"),
        (raw(b"\xff\xfe"), TransientError, "bad_answer"),
        (reset_before(), TransientError, "disconnect"),
        (reset_during(), TransientError, "disconnect"),
        (status(503), WarmingUpError, "warming_up"),
    ],
)
def test_a_whole_answer_that_is_none(server: HostedServer, behaviour: Any, kind: type[EngineError], code: str) -> None:
    """The same where the answer was asked for whole."""
    server.script(cut(), behaviour)
    engine = engine_for(server)
    fail(engine)
    error = fail(engine)
    assert (type(error), error.code) == (kind, code)
    assert [request.streams for request in server.requests] == [True, False]


@pytest.mark.parametrize("first", [[], [cut()]], ids=["stream", "whole"])
def test_an_empty_text_is_an_answer(server: HostedServer, first: list[Any]) -> None:
    """A model that says nothing has answered: what that means is the pipeline's to say."""
    server.script(*first, ok(""))
    engine = engine_for(server)
    for _ in first:
        fail(engine)
    assert (read(engine).text, server.requests[-1].streams) == ("", not first)


# Models.


def test_an_unknown_model_lists_what_there_is() -> None:
    """One chat request, one look at the list, one fatal error that names the models."""
    with HostedServer(models=["llava", "qwen-vl"]) as server:
        error = fail(engine_for(server))
        assert type(error) is ModelNotFoundError
        assert error.fatal
        assert "'jina-ocr-v1'" in str(error)
        assert "llava, qwen-vl" in str(error)
        assert (len(server.requests), len(server.other_requests)) == (1, 1)


def test_a_long_list_of_models_is_cut_short() -> None:
    """An error message stays readable where a server offers hundreds."""
    with HostedServer(models=[f"model-{i}" for i in range(400)]) as server:
        message = str(fail(engine_for(server)))
        assert "model-19, …" in message
        assert "model-20" not in message


@pytest.mark.parametrize("asked", hosted.SPELLINGS)
@pytest.mark.parametrize("served", hosted.SPELLINGS)
def test_the_model_is_known_by_all_its_names(asked: str, served: str) -> None:
    """A server that has it under another of its names is asked by that one, from then on at once."""
    with HostedServer(models=["other", served]) as server:
        engine = engine_for(server, model=asked)
        for number in (1, 2):
            assert read(engine, page(number)).text == page_text(number)
        names = [request.body["model"] for request in server.requests]
        assert names == ([asked, served, served] if asked != served else [served, served])


@pytest.mark.parametrize("spelling", hosted.SPELLINGS)
def test_jina_gets_the_name_of_its_api(spelling: str) -> None:
    """At Jina's own host every spelling is the API's; other models keep their names."""
    assert HostedEngine(OCRSettings(model=spelling, api_key=SecretStr(KEY))).model == "jina-ocr-v1"
    assert HostedEngine(OCRSettings(model="jina-vlm", api_key=SecretStr(KEY))).model == "jina-vlm"


@pytest.mark.parametrize(
    "words",
    [
        "The model `x` does not exist.",
        "Model not found: x",
        "model x is not supported",
        "Unknown model: x",
        "Invalid model x",
    ],
)
def test_a_complaint_about_the_model_is_looked_into(server: HostedServer, words: str) -> None:
    """Servers that answer 400 or 422 to an unknown model are asked for their list as well."""
    server.models = ("jina-ocr-v1", "x")
    server.otherwise = status(422, {"detail": words})
    engine = engine_for(server, model="x")
    assert type(fail(engine)) is RequestRejectedError  # it is on the list, so the page is to blame
    server.models_behaviour = raw('{"data": [{"id": "jina-ocr-v1"}]}')
    assert type(fail(engine)) is ModelNotFoundError


def test_other_complaints_are_not(server: HostedServer) -> None:
    """A 422 about anything else costs no look at the list."""
    server.otherwise = status(422, {"detail": "image too small for this model"})
    assert type(fail(engine_for(server))) is RequestRejectedError
    assert not server.other_requests


@pytest.mark.parametrize("behaviour", [garbage(), half_json(), status(401), status(500), reset_before(), raw("[]")])
def test_a_broken_list_hides_nothing(server: HostedServer, behaviour: Any) -> None:
    """Where the list cannot be had, the first error stands."""
    server.models_behaviour = behaviour
    server.otherwise = status(404, {"detail": "nothing here"})
    error = fail(engine_for(server))
    assert type(error) is EngineNotReadyError
    assert "nothing here" in str(error)
    assert "base_url" in str(error)


def test_a_wrong_path_is_told_from_a_wrong_model(server: HostedServer) -> None:
    """A base_url that leads nowhere: the message is about the address."""
    error = fail(HostedEngine(OCRSettings(base_url=f"http://127.0.0.1:{server.port}/api")))
    assert type(error) is EngineNotReadyError
    assert "base_url" in str(error)


# Addresses.


@pytest.mark.parametrize(
    ("given", "used"),
    [
        ("http://host:8000", "http://host:8000/v1"),
        ("http://host:8000/", "http://host:8000/v1"),
        ("http://host:8000/v1", "http://host:8000/v1"),
        ("http://host:8000/v1/", "http://host:8000/v1"),
        (" http://host:8000/v1\n", "http://host:8000/v1"),
        ("http://host:8000/v1/chat/completions", "http://host:8000/v1"),
        ("http://host:8000/v1/chat/completions/", "http://host:8000/v1"),
        ("http://host:8000/chat/completions", "http://host:8000"),
        ("https://host/openai/deployment", "https://host/openai/deployment"),
        ("https://api.jina.ai", "https://api.jina.ai/v1"),
        (None, "https://api.jina.ai/v1"),
        ("", "https://api.jina.ai/v1"),
    ],
)
def test_base_url_is_taken_in_every_form(given: str | None, used: str) -> None:
    """With and without /v1, a slash at the end, or the whole endpoint."""
    assert HostedEngine(OCRSettings(base_url=given, api_key=SecretStr(KEY))).base_url == used


@pytest.mark.parametrize(
    "given",
    [
        "localhost:8000",
        "ftp://host/v1",
        "http://",
        "http://host:port/v1",
        "http://[::1",
        "v1",
        "http://a b/v1",
        "file:///x",
    ],
)
def test_a_base_url_that_is_no_address_is_refused(given: str) -> None:
    """At once, with an example of a right one."""
    with pytest.raises(EngineNotReadyError, match="http://localhost:8000/v1"):
        HostedEngine(OCRSettings(base_url=given))


@pytest.mark.parametrize("suffix", ["", "/", "/v1", "/v1/", "/v1/chat/completions"])
def test_every_form_reaches_the_endpoint(server: HostedServer, suffix: str) -> None:
    """The request arrives at /v1/chat/completions, whatever was left out or added."""
    read(HostedEngine(OCRSettings(base_url=f"http://127.0.0.1:{server.port}{suffix}")))
    assert server.requests[0].path == "/v1/chat/completions"


def test_pages_for_this_machine_do_not_leave_it() -> None:
    """A server on loopback is no upload; any other is."""
    local = ["http://localhost:8000", "http://127.0.0.1:1", "http://[::1]:8000/v1"]
    remote = ["http://10.0.0.1:8000", "http://vllm:8000", None]
    assert not any(HostedEngine(OCRSettings(base_url=url)).leaves_machine for url in local)
    assert all(HostedEngine(OCRSettings(base_url=url)).leaves_machine for url in remote)


def test_only_jina_has_jina_s_prices() -> None:
    """What another server charges is not known."""
    assert HostedEngine(OCRSettings()).prices == (0.5, 2.0)
    assert HostedEngine(OCRSettings(base_url="http://vllm:8000")).prices is None


@pytest.mark.parametrize(
    ("pricing", "prices"),
    [
        ({"prompt": "0.0000005", "completion": "0.000002"}, (0.5, 2.0)),
        ({"prompt": "0.00000033", "completion": "0"}, (0.33, 0.0)),
        ({"prompt": "free", "completion": "0"}, None),
        ({"input": "1"}, None),
        (None, None),
        ("0.5", None),
    ],
)
def test_prices_come_from_the_list_of_models(server: HostedServer, pricing: object, prices: object) -> None:
    """Strings of dollars a token become dollars per million; what is not understood is no price."""
    entry = {"id": "jinaai/jina-ocr-v1", "object": "model", "pricing": pricing}
    server.models_behaviour = raw(json.dumps({"object": "list", "data": [{"id": "other"}, entry]}))
    assert prices_of(engine_for(server)) == prices


@pytest.mark.parametrize("behaviour", [status(500), garbage(), raw('{"data": []}'), reset_before()])
def test_the_dated_price_stands_in(server: HostedServer, behaviour: Any) -> None:
    """Where the list cannot be had or lacks the model, the engine's own figure is used."""
    server.models_behaviour = behaviour
    engine = engine_for(server)
    engine.prices = (0.5, 2.0)
    assert prices_of(engine) == (0.5, 2.0)


def prices_of(engine: HostedEngine) -> tuple[float, float] | None:
    async def main() -> tuple[float, float] | None:
        prices = await engine.fetch_prices()
        await engine.aclose()
        return prices

    return asyncio.run(main())


# Keys.


@pytest.mark.parametrize(
    ("url", "sent"),
    [
        ("https://api.jina.ai/v1", True),
        ("https://r.jina.ai", True),
        ("https://jina.ai/v1", True),
        ("https://API.JINA.AI/v1", True),
        ("https://user@api.jina.ai/v1", True),
        ("http://api.jina.ai/v1", False),
        ("https://jina.ai.example.com/v1", False),
        ("https://notjina.ai/v1", False),
        ("https://api.jina.ai@example.com/v1", False),
        ("https://example.com/api.jina.ai/v1", False),
        ("https://own.example.com:8443/v1", True),
        ("https://own.example.com:8443/other", True),
        ("https://own.example.com/v1", False),
        ("http://own.example.com:8443/v1", False),
    ],
)
def test_the_environment_s_key_goes_to_known_hosts_only(monkeypatch: pytest.MonkeyPatch, url: str, sent: bool) -> None:
    """Jina's hosts over https, and the origin of JINA_OCR_BASE_URL; look-alikes get nothing."""
    monkeypatch.setenv("JINA_API_KEY", KEY)
    monkeypatch.setenv("JINA_OCR_BASE_URL", "https://own.example.com:8443/v1")
    assert endpoint.api_key(url, None) == (KEY if sent else None)
    assert endpoint.api_key(url, SecretStr("given")) == "given"


def test_no_key_goes_to_another_host(server: HostedServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A base_url argument gets neither the environment's key nor anything that is meant for OpenAI."""
    monkeypatch.setenv("JINA_API_KEY", KEY)
    for name, value in OPENAI_VARIABLES.items():
        monkeypatch.setenv(name, value)
    read(engine_for(server))
    headers = server.requests[0].headers
    assert "authorization" not in headers
    assert not [value for value in headers.values() if "secret" in value or KEY in value]


def test_the_environment_s_key_goes_to_the_environment_s_server(
    server: HostedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """JINA_API_KEY belongs to JINA_OCR_BASE_URL, and OpenAI's variables change nothing about it."""
    monkeypatch.setenv("JINA_API_KEY", f" {KEY}\n")
    monkeypatch.setenv("JINA_OCR_BASE_URL", server.base_url)
    for name, value in OPENAI_VARIABLES.items():
        monkeypatch.setenv(name, value)
    read(HostedEngine(OCRSettings()))
    headers = server.requests[0].headers
    assert headers["authorization"] == f"Bearer {KEY}"
    assert not [value for value in headers.values() if "secret" in value]


def test_a_given_key_goes_where_it_is_told(server: HostedServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """``api_key=`` wins over the environment and is sent to any base_url."""
    monkeypatch.setenv("JINA_API_KEY", "from the environment")
    read(engine_for(server, api_key=KEY))
    assert server.requests[0].headers["authorization"] == f"Bearer {KEY}"


def test_jina_without_a_key_fails_before_a_request() -> None:
    """A fatal error that says how to set one."""
    engine = HostedEngine(OCRSettings())
    error = fail(engine)
    assert type(error) is AuthenticationError
    assert "JINA_API_KEY" in str(error)
    with pytest.raises(AuthenticationError):
        asyncio.run(engine.prepare())


@pytest.mark.parametrize("key", ["clé", "a\nb", "a\x00b"])
def test_a_key_that_is_none_is_refused_unshown(key: str) -> None:
    """Characters that cannot go into a header are found at once, and the key is not repeated."""
    with pytest.raises(AuthenticationError) as caught:
        HostedEngine(OCRSettings(api_key=SecretStr(key)))
    assert key not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize(
    "behaviour",
    [
        status(401, {"detail": f"The key {KEY} is wrong"}),
        status(400, {"error": {"message": f"Incorrect API key provided: {KEY}"}}),
        status(500, f"Authorization: Bearer {KEY}"),
        status(404, {"detail": f"key {KEY}"}),
        stream_error({"message": f"Bearer {KEY}", "code": 400}),
        reset_before(),
        half_json(),
    ],
)
def test_the_key_shows_nowhere(server: HostedServer, behaviour: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Not in the error, its traceback, the engine's repr or any log, even where the server repeats it."""
    caplog.set_level("DEBUG")
    server.otherwise = behaviour
    engine = engine_for(server, api_key=KEY)
    error = fail(engine)
    shown = "".join(traceback.format_exception(error)) + repr(error) + repr(vars(error)) + repr(engine) + caplog.text
    assert KEY not in shown


def test_a_refusal_without_a_key_says_so(server: HostedServer) -> None:
    """Who relied on JINA_API_KEY for another host learns why it was not sent."""
    server.otherwise = status(401)
    assert "No key was sent" in str(fail(engine_for(server)))
    assert "Is the API key right?" in str(fail(engine_for(server, api_key=KEY)))


def test_credentials_in_the_address_are_not_shown(server: HostedServer) -> None:
    """Userinfo of base_url reaches the server and no message."""
    server.otherwise = status(500)
    engine = HostedEngine(OCRSettings(base_url=f"http://user:hidden@127.0.0.1:{server.port}/v1"))
    error = fail(engine)
    assert "hidden" not in str(error) + repr(engine)
    assert server.requests[0].headers["authorization"].startswith("Basic ")
    with pytest.raises(EngineNotReadyError) as caught:
        HostedEngine(OCRSettings(base_url="ftp://user:hidden@host/"))
    assert "hidden" not in str(caught.value)


# Clients, proxies, certificates.


def test_one_engine_serves_several_loops_at_once(server: HostedServer) -> None:
    """Threads with loops of their own read at the same time; each has its own connections, one call closes all."""
    engine = engine_for(server)
    texts: dict[int, str] = {}
    together = threading.Barrier(4)

    async def work(number: int) -> None:
        together.wait(timeout=60)
        texts[number] = (await transcribe(engine, page(number), REQUEST)).text
        together.wait(timeout=60)
        await engine.aclose()

    threads = [threading.Thread(target=asyncio.run, args=(work(number),)) for number in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert texts == {number: page_text(number) for number in range(1, 5)}


def test_it_works_under_uvloop(server: HostedServer) -> None:
    """Another event loop, the same answers."""
    uvloop = pytest.importorskip("uvloop", reason="uvloop is not made for Windows")
    engine = engine_for(server)

    async def main() -> list[str]:
        answers = await asyncio.gather(*(transcribe(engine, page(n), REQUEST) for n in range(1, 4)))
        await engine.aclose()
        return [answer.text for answer in answers]

    assert uvloop.run(main()) == [page_text(n) for n in range(1, 4)]


def test_closing_twice_and_reading_again_works(server: HostedServer) -> None:
    """A closed engine opens new connections when it is asked again."""

    async def main() -> list[str]:
        engine = engine_for(server)
        texts = []
        for number in (1, 2):
            texts.append((await transcribe(engine, page(number), REQUEST)).text)
            await engine.aclose()
            await engine.aclose()
        return texts

    assert asyncio.run(main()) == [page_text(1), page_text(2)]


@pytest.mark.parametrize("library", ["openai", "httpx"])
def test_a_client_of_the_caller_is_used_and_left_open(server: HostedServer, library: str) -> None:
    """``http_client`` carries the requests; closing it is its owner's business. httpx's own serves openai 3 as well."""
    import httpx
    import openai

    make = openai.DefaultAsyncHttpxClient if library == "openai" else httpx.AsyncClient

    async def main() -> None:
        async with make(headers={"X-Mine": "yes"}) as client:
            engine = engine_for(server, http_client=client)
            assert (await transcribe(engine, page(6), REQUEST)).text == page_text(6)
            await engine.aclose()
            assert not client.is_closed

    asyncio.run(main())
    assert server.requests[0].headers["x-mine"] == "yes"


def test_a_proxy_carries_the_requests(server: HostedServer) -> None:
    """With ``proxy=`` the connection goes to the proxy, which sees the whole address."""
    lines: list[bytes] = []

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        line, _, rest = head.partition(b"\r\n")
        lines.append(line)
        up_reader, up_writer = await asyncio.open_connection("127.0.0.1", server.port)
        up_writer.write(line.replace(server.base_url.removesuffix("/v1").encode(), b"") + b"\r\n" + rest)

        async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
            while data := await source.read(65536):
                sink.write(data)
            sink.close()

        await asyncio.gather(pump(reader, up_writer), pump(up_reader, writer))

    async def main() -> str:
        async with await asyncio.start_server(relay, "127.0.0.1", 0) as proxy:
            port = proxy.sockets[0].getsockname()[1]
            engine = engine_for(server, proxy=f"http://127.0.0.1:{port}")
            text = (await transcribe(engine, page(8), REQUEST)).text
            await engine.aclose()
            return text

    assert asyncio.run(main()) == page_text(8)
    assert lines == [f"POST {server.base_url}/chat/completions HTTP/1.1".encode()]


def test_a_ca_bundle_makes_a_private_authority_trusted(tmp_path: Path) -> None:
    """Without it the error says what to pass; plain http spoken to a TLS client is told apart."""
    certificate, key = _certificate(tmp_path)
    with HostedServer(tls=(certificate, key)) as server:
        error = fail(engine_for(server))
        assert type(error) is EngineNotReadyError
        assert error.code == "certificate"
        assert "ca_bundle=" in str(error)
        assert read(engine_for(server, ca_bundle=certificate), page(9)).text == page_text(9)
    with HostedServer() as plain:
        error = fail(HostedEngine(OCRSettings(base_url=f"https://127.0.0.1:{plain.port}/v1")))
        assert type(error) is EngineNotReadyError
        assert error.code == "tls"


@pytest.mark.parametrize(
    "options",
    [
        {"proxy": "host:3128"},
        {"proxy": "http://user:hidden@host:99999"},
        {"proxy": "ftp://user:hidden@host"},
        {"proxy": "http://[::1"},
        {"proxy": ""},
        {"ca_bundle": "/no/such/file.pem"},
        {"ca_bundle": __file__},
    ],
)
def test_a_proxy_or_a_bundle_that_cannot_be_used_is_told(server: HostedServer, options: dict[str, Any]) -> None:
    """A fatal error that names the option and shows no password."""
    error = fail(engine_for(server, **options))
    assert type(error) is EngineNotReadyError
    assert next(iter(options)) in str(error)
    assert "hidden" not in "".join(traceback.format_exception(error))


def test_a_proxy_that_is_not_there_is_a_refused_connection(server: HostedServer) -> None:
    """Neither the server nor its proxy answers: waited for a little, then told."""
    error = fail(engine_for(server, proxy=f"http://127.0.0.1:{refused_port()}"))
    assert error.code == "connection_refused"


def _certificate(folder: Path) -> tuple[str, str]:
    """A certificate for 127.0.0.1 that signs itself, and its key."""
    import ipaddress

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "loopback")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), True)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    unencrypted = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    (folder / "cert.pem").write_bytes(certificate.public_bytes(pem))
    (folder / "key.pem").write_bytes(key.private_bytes(pem, *unencrypted))
    return str(folder / "cert.pem"), str(folder / "key.pem")


def test_the_client_is_imported_late() -> None:
    """Making an engine imports no HTTP client; ``warm`` does."""
    code = """
import sys
from jina_ocr_loaders.engines.hosted import HostedEngine
from jina_ocr_loaders.settings import OCRSettings
engine = HostedEngine(OCRSettings(base_url="http://localhost:8000"))
assert not {"openai", "httpx", "httpx2"} & set(sys.modules), "imported early"
engine.warm()
assert "openai" in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
