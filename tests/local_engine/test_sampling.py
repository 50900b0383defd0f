"""Sampling and vLLM's own stop of loops, also where a server's client does not ask for it."""

import json

import httpx
import pytest

from local_engine import sampling
from local_engine.loops import ROW_REPEATS
from local_engine.serving import LoopStop

from .conftest import accepted, read, start_llm


async def what_the_app_gets(body: bytes, path: str = "/v1/chat/completions") -> tuple[bytes, int]:
    """Send a request through the middleware; return the body and the length that the application behind it gets."""

    async def app(scope, receive, send):
        received, more = b"", True
        while more:
            message = await receive()
            received += message["body"]
            more = message.get("more_body", False)
        length = dict(scope["headers"])[b"content-length"]
        await send({"type": "http.response.start", "status": 200, "headers": [(b"x-length", length)]})
        await send({"type": "http.response.body", "body": received})

    transport = httpx.ASGITransport(LoopStop(app))
    async with httpx.AsyncClient(transport=transport, base_url="http://server") as client:
        response = await client.post(path, content=body)
    return response.content, int(response.headers["x-length"])


@pytest.mark.anyio
@pytest.mark.parametrize(
    "body", ['{"model": "m", "stream": true}', '{"model": "m"}  \n', '{"messages": [{"a": "}"}]}', "{}"]
)
async def test_a_request_that_says_nothing_of_loops_gets_the_stop(body):
    """The field is added, every other stays, and the length is the new one."""
    received, length = await what_the_app_gets(body.encode())
    assert json.loads(received) == json.loads(body) | {"repetition_detection": sampling.SERVE_REPETITION}
    assert length == len(received)


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("body", "path"),
    [
        pytest.param('{"repetition_detection": null}', "/v1/chat/completions", id="turned off by the client"),
        pytest.param('{"repetition_detection": {"min_count": 3}}', "/v1/chat/completions", id="the client's own"),
        pytest.param('{"model": "m"', "/v1/chat/completions", id="broken JSON"),
        pytest.param("[1]", "/v1/chat/completions", id="not an object"),
        pytest.param('{"prompt": "a"}', "/tokenize", id="another path"),
    ],
)
async def test_other_requests_go_through_untouched(body, path):
    """What the client says itself, what asks for no text, and what is no JSON reaches the server byte for byte."""
    received, length = await what_the_app_gets(body.encode(), path)
    assert received == body.encode()
    assert length == len(received)


def test_the_stop_of_a_server_spares_the_rows_of_a_table():
    """It counts as many copies as `loops` lets an honest table have: vLLM cannot tell a row from other patterns."""
    assert sampling.SERVE_REPETITION["min_count"] >= ROW_REPEATS


@pytest.mark.engine
def test_the_cards_sampling():
    """Greedy, penalty 1.05, 4,096 tokens, the card's repetition detection, which `None` turns off."""
    params = sampling.vllm_sampling_params()
    assert (params.temperature, params.repetition_penalty, params.max_tokens) == (0.0, 1.05, 4096)
    detection = params.repetition_detection
    assert (detection.max_pattern_size, detection.min_pattern_size, detection.min_count) == (35, 35, 10)
    assert sampling.vllm_sampling_params(repetition_detection=None).repetition_detection is None
    assert sampling.vllm_sampling_params(7, seed=3, temperature=0.2).max_tokens == 7
    assert sampling.vllm_sampling_params(repetition_detection=detection).repetition_detection == detection


def stops_at(tokens, detection):
    """The length at which vLLM's own check stops a sequence that grows token by token."""
    from vllm.sampling_params import RepetitionDetectionParams
    from vllm.v1.core.sched.utils import check_sequence_repetition

    params = RepetitionDetectionParams(**detection)
    return next((n for n in range(1, len(tokens) + 1) if check_sequence_repetition(tokens[:n], params)), None)


@pytest.mark.engine
@pytest.mark.parametrize("period", [1, 2, 3, 7, 34, 35, 36, 70, 99, 100])
def test_the_servers_stop_ends_a_loop_of_any_period(period):
    """Periods from 1 to 100 are stopped within the 8,192 tokens of a page; the card's 35/35/10 sees divisors of 35."""
    tokens = list(range(500, 540)) + list(range(period)) * (8192 // period)
    assert 40 + 80 * period - period <= stops_at(tokens, sampling.SERVE_REPETITION) <= 40 + 80 * period
    assert (stops_at(tokens[:1000], sampling.CARD_REPETITION) is not None) == (35 % period == 0)


@pytest.mark.engine
def test_the_servers_stop_leaves_an_empty_form_alone():
    """Fifty rows of twelve empty cells, as token ids: an honest page."""
    row = [5, *[128821, 128822] * 12, 6]
    assert stops_at([1, 2, 3, *row * 50, 4], sampling.SERVE_REPETITION) is None


@pytest.mark.engine
def test_a_loop_is_stopped_while_drafting(snapshots, page):
    """A text that ends in a loop is stopped as `repetition`, in the middle of what a draft brought if need be."""
    snapshot = snapshots(kind="cycle", loop=7)
    start = len(snapshot.tokens) - 7
    with start_llm(snapshot.path, 3) as llm:
        (ours,) = read(llm, [page(300, 200)], max_tokens=2000, repetition_detection=sampling.SERVE_REPETITION)
        (cards,) = read(llm, [page(300, 200)], max_tokens=2000)
        assert sum(accepted(llm)[1]) > 0
    for output, tokens in ((ours, start + 80 * 7), (cards, start + 10 * 35)):
        answer = output.outputs[0]
        assert (answer.finish_reason, answer.stop_reason) == ("repetition", "repetition_detected")
        assert list(answer.token_ids) == list(snapshot.generated(tokens))
