"""`python -m local_engine serve`, which is `vllm serve` with the plugin: a real OpenAI-compatible server."""

import base64
import io
import os
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from local_engine import DEFAULT_OCR_PROMPT

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]

START_SECONDS = 600  # until the server answers; a guard against one that never does
LOOP = 7


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="module")
def snapshot(snapshots):
    """What the server reads: a text that ends in a loop."""
    return snapshots(kind="cycle", loop=LOOP)


@pytest.fixture(scope="module")
def server(snapshot, tmp_path_factory):
    """Address of a server that drafts three tokens a step."""
    port = free_port()
    arguments = (
        *("--host", "127.0.0.1", "--port", str(port), "--dtype", "float32"),
        *("--enforce-eager", "--max-model-len", "4096", "--max-num-seqs", "8"),
    )
    command = [sys.executable, "-m", "local_engine", "serve", str(snapshot.path), "--", *arguments]
    log = tmp_path_factory.mktemp("server") / "log"
    environment = os.environ | {"VLLM_ENABLE_V1_MULTIPROCESSING": "1", "VLLM_LOGGING_LEVEL": "INFO"}
    with log.open("w") as output, subprocess.Popen(command, env=environment, stdout=output, stderr=output) as process:
        try:
            wait_until_ready(f"http://127.0.0.1:{port}/health", process, log)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()


def wait_until_ready(address: str, process: "subprocess.Popen[bytes]", log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            if httpx.get(address).status_code == 200:
                return
        except httpx.TransportError:
            time.sleep(0.5)
    pytest.fail(f"the server did not start:\n{log.read_text()[-6000:]}")


def data_url(image) -> str:
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()


def request(image, **fields):
    content = [
        {"type": "text", "text": DEFAULT_OCR_PROMPT},
        {"type": "image_url", "image_url": {"url": data_url(image)}},
    ]
    return {"model": "jina-ocr-v1", "messages": [{"role": "user", "content": content}], **fields}


def ask(server, image, **fields):
    response = httpx.post(f"{server}/v1/chat/completions", json=request(image, **fields), timeout=300)
    assert response.status_code == 200, response.text
    return response.json()


def text_of(snapshot, tokens: int) -> str:
    from tokenizers import Tokenizer

    return Tokenizer.from_file(str(snapshot.path / "tokenizer.json")).decode(snapshot.generated(tokens))


def test_pages_are_read_at_once(server, snapshot, page):
    """Pages of several sizes, asked for together, each give the known text; the model answers to the API's name."""
    models = httpx.get(f"{server}/v1/models").json()
    assert [model["id"] for model in models["data"]] == ["jina-ocr-v1"]
    images = [page(300, 200), page(1000, 1400), page(1300, 900), page(1500, 1500)]
    with ThreadPoolExecutor() as pool:
        answers = list(pool.map(lambda image: ask(server, image, max_tokens=100), images))
    assert [answer["choices"][0]["message"]["content"] for answer in answers] == [text_of(snapshot, 100)] * 4
    assert [answer["choices"][0]["finish_reason"] for answer in answers] == ["length"] * 4
    # Letters of the prompt, and what the layout puts around it: <|User|> : \n, \n, \n <|Assistant|> : \n
    tokens = [answer["usage"]["prompt_tokens"] - len(DEFAULT_OCR_PROMPT) - 8 for answer in answers]
    assert tokens == [273, 903, 893, 1203]


def test_a_client_that_says_nothing_gets_the_cards_sampling_and_the_loop_stopped(server, snapshot, page):
    """Without a word on sampling or loops: greedy text, stopped after 80 copies, and the reason is `repetition`."""
    choice = ask(server, page(300, 200), max_tokens=3000)["choices"][0]
    assert (choice["finish_reason"], choice["stop_reason"]) == ("repetition", "repetition_detected")
    assert choice["message"]["content"] == text_of(snapshot, len(snapshot.tokens) - LOOP + 80 * LOOP)


def test_openais_own_client_streams_a_page(server, snapshot, page):
    """The official client streams the text piece by piece; a loop ends it with `repetition`, earlier if asked."""
    import openai

    client = openai.OpenAI(base_url=f"{server}/v1", api_key="none", max_retries=0)
    extra = {"repetition_detection": {"max_pattern_size": 100, "min_pattern_size": 1, "min_count": 10}}
    fields = request(page(300, 200), max_tokens=3000, stream=True, stream_options={"include_usage": True})
    chunks = list(client.chat.completions.create(**fields, extra_body=extra))
    pieces = [chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices]
    expected = len(snapshot.tokens) - LOOP + 10 * LOOP
    assert "".join(pieces) == text_of(snapshot, expected)
    assert sum(map(bool, pieces)) > 10
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == "repetition"
    assert chunks[-1].usage.completion_tokens == expected


def test_the_server_drafts(server):
    """Its own metrics say that drafts were made and accepted, at position 3 too."""
    figures = dict(
        line.rsplit(" ", 1)
        for line in httpx.get(f"{server}/metrics").text.splitlines()
        if line.startswith("vllm:spec_decode")
    )
    at_third = [float(value) for name, value in figures.items() if "per_pos_total" in name and 'position="2"' in name]
    assert len(at_third) == 1
    assert at_third[0] > 0


def test_what_is_not_one_page_is_refused(server, page):
    """Two pages, a system message and a conversation are answered with 400 and a reason, and the server goes on."""
    body = request(page(300, 200), max_tokens=4)
    question = body["messages"][0]
    two_images = {"role": "user", "content": [*question["content"], question["content"][1]]}
    for messages, reason in (
        ([two_images], "At most 1 image"),
        ([{"role": "system", "content": "Be brief."}, question], "one user message"),
        ([question, {"role": "assistant", "content": "a"}, question], ""),
    ):
        response = httpx.post(f"{server}/v1/chat/completions", json=body | {"messages": messages}, timeout=60)
        assert response.status_code == 400
        assert reason in response.text
    assert ask(server, page(300, 200), max_tokens=4)["usage"]["completion_tokens"] == 4


def test_the_whole_way_round(server, snapshot, tmp_path):
    """`JinaOCRReader(engine="hosted")` reads a PDF through the server: each page, the loop found, cut and marked."""
    from fpdf import FPDF

    from jina_ocr_loaders.llama_index import JinaOCRReader

    pdf = FPDF(format="letter")
    for number in (1, 2, 3):
        pdf.add_page()
        pdf.set_font("helvetica", size=40)
        pdf.cell(text=f"Page {number}")
    pdf.output(str(tmp_path / "three.pdf"))

    reader = JinaOCRReader(engine="hosted", base_url=f"{server}/v1", cache=False, content_retries=0)
    documents = reader.load_data(tmp_path / "three.pdf")
    assert [document.metadata["page_label"] for document in documents] == ["1", "2", "3"]
    assert [document.text for document in documents] == [snapshot.text.strip()] * 3
    assert [document.metadata["status"] for document in documents] == ["repetition"] * 3
