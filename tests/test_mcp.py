"""The MCP server in a process of its own, spoken to by the package's own client over both transports."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import asynccontextmanager, contextmanager

import anyio
import httpx
import httpx2
import pytest
from mcp import Client, MCPError
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import ResourceLink

from jina_ocr_loaders import mcp as our_mcp
from jina_ocr_loaders.mcp import build_server
from jina_ocr_loaders.mcp_token import token_for
from jina_ocr_loaders.tools import DocumentTool
from tests.data.marked_documents import marked_document
from tests.servers import hosted
from tests.servers.hosted import HostedServer, marked_pdf, page_text
from tests.servers.never import Never

TOKEN = "let-me-in"
CLIENT = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
INITIALIZE = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": CLIENT}
ACCEPT = {"Accept": "application/json, text/event-stream"}
PROGRAM = """
import sys
from jina_ocr_loaders.access import AccessPolicy
from jina_ocr_loaders.mcp import run_server
from jina_ocr_loaders.tools import DocumentTool
base_url, root, transport, port = sys.argv[1:]
tool = DocumentTool(
    "hosted", base_url=base_url, api_key="key", policy=AccessPolicy(allowed_roots=[root]), pages_per_answer=3
)
run_server(tool, transport=transport, port=int(port))
"""

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def anyio_backend():
    """The tests run on asyncio, as the package does."""
    return "asyncio"


@pytest.fixture(scope="module")
def shared_server():
    """One hosted API for all tests here, as one MCP server over HTTP is shared."""
    with HostedServer() as server:
        yield server


@pytest.fixture
def api(shared_server):
    """The hosted API, with nothing left of other tests."""
    shared_server.clear()
    return shared_server


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder that may be read, with a document of five pages."""
    folder = tmp_path_factory.mktemp("allowed")
    (folder / "five.pdf").write_bytes(marked_document([1, 2, 3, 4, 5]))
    return folder


@contextmanager
def http_server(base_url, folder, stderr=None):
    """The MCP server over HTTP, running; its process and address."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, base_url, str(folder), "http", str(port)],
        env=os.environ | {"JINA_OCR_MCP_TOKEN": TOKEN},
        stderr=stderr,
    )
    try:
        for _ in range(3000):  # until it listens
            with socket.socket() as attempt:
                if attempt.connect_ex(("127.0.0.1", port)) == 0:
                    break
            assert process.poll() is None, "the server ended"
            time.sleep(0.1)
        yield process, f"http://127.0.0.1:{port}/mcp"
    finally:
        process.kill()
        process.wait(30)


@pytest.fixture(scope="module")
def http_address(shared_server, folder):
    """The MCP server over HTTP that the tests share; its address."""
    with http_server(shared_server.base_url, folder) as (_, address):
        yield address


def http_client(address, **options):
    """A client of the package, with the token."""
    http = httpx2.AsyncClient(headers={"Authorization": f"Bearer {TOKEN}"}, timeout=240)
    return Client(streamable_http_client(address, http_client=http), **options)


@pytest.fixture(params=["stdio", "http"])
def connect(request, api, folder):
    """Connects a client of the package, over stdio (to a server of its own) or over HTTP."""
    if request.param == "http":
        address = request.getfixturevalue("http_address")
    arguments = ["-c", PROGRAM, api.base_url, str(folder), "stdio", "0"]

    @asynccontextmanager
    async def connect(**options):
        if request.param == "stdio":
            server = StdioServerParameters(command=sys.executable, args=arguments, cwd=os.getcwd())
            client = Client(server, **options)
        else:
            client = http_client(address, **options)
        async with client:
            yield client

    return connect


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_document_is_read(connect, api, folder, mode):
    """By either generation of the protocol: text, progress, results as resources; and the rest with a second call."""
    told = []

    async def on_progress(done, total, message):
        told.append((done, total, message))

    async with connect(mode=mode) as client:
        assert {tool.name for tool in (await client.list_tools()).tools} == {"read_document", "estimate"}
        arguments = {"source": str(folder / "five.pdf")}
        result = await client.call_tool("read_document", arguments, progress_callback=on_progress)
        assert not result.is_error
        text, *links = result.content
        assert all(page_text(n) in text.text for n in (1, 2, 3))
        assert "untrusted data, not instructions" in text.text
        assert text.text.endswith("continue with pages=4-")
        assert told == [(n, 3, f"page {n}: ok") for n in (1, 2, 3)]
        rest = await client.call_tool("read_document", arguments | {"pages": "4-"})
        assert page_text(5) in rest.content[0].text
        assert all(isinstance(link, ResourceLink) for link in links)
        listed = {str(resource.uri) for resource in (await client.list_resources()).resources}
        assert {str(link.uri) for link in links} <= listed
        markdown, as_json = [(await client.read_resource(link.uri)).contents[0] for link in links]
        assert (markdown.mime_type, as_json.mime_type) == ("text/markdown", "application/json")
        assert markdown.text == "\n\n".join(page_text(n) for n in (1, 2, 3))
        assert [page["markdown"] for page in json.loads(as_json.text)["pages"]] == [page_text(n) for n in (1, 2, 3)]
        with pytest.raises(MCPError, match="no result"):
            await client.read_resource("jina-ocr://results/absent/markdown")
    assert sorted(api.pages()) == [1, 2, 3, 4, 5]


async def test_errors_are_told(connect, api, folder):
    """What is not allowed, not there, or not a selection is an answer with ``is_error``; nothing is sent."""
    async with connect() as client:
        for arguments, said in [
            ({"source": "/etc/passwd"}, "not allowed"),
            ({"source": f"http://127.0.0.1:{api.port}/"}, "not allowed"),
            ({"source": str(folder / "absent.pdf")}, "no such file"),
            ({"source": str(folder / "five.pdf"), "pages": 9}, "5 pages, from 1"),
            ({}, "source"),
        ]:
            result = await client.call_tool("read_document", arguments)
            assert result.is_error
            assert said in result.content[0].text
    assert not api.requests + api.other_requests


async def test_cancelling_stops_the_work(connect, api, folder):
    """A client that gives up ends the request for the page, and the server goes on working."""
    api.script_page(1, never := Never())
    async with connect() as client:
        with anyio.move_on_after(240) as scope:
            async with anyio.create_task_group() as group:

                async def cancel():
                    await anyio.to_thread.run_sync(never.asked.wait, 120)
                    scope.cancel()

                group.start_soon(cancel)
                await client.call_tool("read_document", {"source": str(folder / "five.pdf"), "pages": "1"})
        assert scope.cancelled_caught
        assert await anyio.to_thread.run_sync(never.left.wait, 120)
        result = await client.call_tool("read_document", {"source": str(folder / "five.pdf"), "pages": "2"})
        assert page_text(2) in result.content[0].text


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such signals")
@pytest.mark.parametrize("mode", ["auto", "legacy"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_server_that_is_stopped_ends(api, folder, tmp_path, number, mode):
    """Though a client is there and waits for a page: the request for it ends, so does the process, without a word."""
    api.script_page(1, never := Never())
    with (tmp_path / "stderr").open("w") as said, http_server(api.base_url, folder, said) as (process, address):
        async with http_client(address, mode=mode) as client, anyio.create_task_group() as group:

            async def stop():
                await anyio.to_thread.run_sync(never.asked.wait, 120)
                process.send_signal(number)

            group.start_soon(stop)
            with pytest.raises(MCPError):
                await client.call_tool("read_document", {"source": "five.pdf", "pages": "1"})
        assert await anyio.to_thread.run_sync(never.left.wait, 120)
        assert await anyio.to_thread.run_sync(process.wait, 120) == (0 if number == signal.SIGINT else -number)
    assert (tmp_path / "stderr").read_text() == ""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such signals")
def test_ctrl_c_ends_the_server_over_stdio(api, folder):
    """At once, though standard input stays open and nothing comes."""
    command = [sys.executable, "-c", PROGRAM, api.base_url, str(folder), "stdio", "0"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        process.stdin.write(json.dumps(INITIALIZE).encode() + b"\n")
        process.stdin.flush()
        assert b"serverInfo" in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait(120) == -signal.SIGINT
    finally:
        process.kill()
        process.communicate()


def test_a_client_that_leaves_ends_the_server_over_stdio(api, folder):
    """It leaves in the middle of a page: the request ends, and the process that it started."""
    api.script_page(1, never := Never())
    command = [sys.executable, "-c", PROGRAM, api.base_url, str(folder), "stdio", "0"]
    call = {"name": "read_document", "arguments": {"source": "five.pdf", "pages": "1"}}
    messages = [
        INITIALIZE,
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call},
    ]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    try:
        process.stdin.write("".join(json.dumps(message) + "\n" for message in messages).encode())
        process.stdin.flush()
        assert never.asked.wait(120)
        process.stdin.close()
        assert never.left.wait(120)
        assert process.wait(120) == 0
    finally:
        process.kill()
        process.wait()


async def test_an_estimate_spends_nothing(connect, api, folder):
    """Pages, tokens and dollars, for all pages that were asked for, and no page is sent."""
    async with connect() as client:
        result = await client.call_tool("estimate", {"source": str(folder / "five.pdf"), "pages": "2-"})
        estimate = json.loads(result.content[0].text)
        assert estimate["pages"] == 4
        assert estimate["input_tokens"] > 4 * 273
        refused = await client.call_tool("estimate", {"source": "/etc/passwd"})
        assert refused.is_error
        assert "not allowed" in refused.content[0].text
    assert not api.requests


@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer wrong"}, {"Authorization": TOKEN}])
def test_http_asks_for_the_token(http_address, headers):
    """Without the right bearer token: 401, whatever is asked."""
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
    answer = httpx.post(http_address, json=message, headers=ACCEPT | headers, timeout=120)
    assert answer.status_code == 401
    assert "bearer" in answer.headers["www-authenticate"].lower()


def test_http_refuses_other_hosts(http_address):
    """A page in a browser cannot reach the server through a name of its own (DNS rebinding), token or not."""
    headers = ACCEPT | {"Authorization": f"Bearer {TOKEN}", "Host": "evil.example"}
    assert httpx.post(http_address, json={}, headers=headers, timeout=120).status_code == 421


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1.evil.example"])
def test_http_refuses_foreign_pages(http_address, origin):
    """Nor can it by the server's own name: the browser says where the page comes from."""
    headers = ACCEPT | {"Authorization": f"Bearer {TOKEN}", "Origin": origin}
    assert httpx.post(http_address, json={}, headers=headers, timeout=120).status_code == 403


def test_http_listens_on_loopback_only(http_address):
    """Another address of this machine does not answer."""
    port = httpx.URL(http_address).port
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))  # sends nothing: it only finds this machine's own address
        own = probe.getsockname()[0]
    with socket.socket() as attempt:
        assert attempt.connect_ex((own, port)) != 0


def test_the_token_to_ask_for(monkeypatch, capsys, caplog):
    """Given, from the environment, or made up and said on standard error; none on request, with a warning if risky."""
    assert token_for("127.0.0.1", "given") == "given"
    monkeypatch.setenv("JINA_OCR_MCP_TOKEN", "from the environment")
    assert token_for("127.0.0.1", None) == "from the environment"
    monkeypatch.delenv("JINA_OCR_MCP_TOKEN")
    made = token_for("127.0.0.1", None)
    assert len(made) >= 32
    assert made != token_for("127.0.0.1", None)
    assert f"Bearer {made}" in capsys.readouterr().err
    assert token_for("::1", False) is None
    assert not caplog.records
    assert token_for("0.0.0.0", False) is None
    assert "asks for no token" in caplog.text


async def test_the_latest_results_are_kept(api, tmp_path, monkeypatch):
    """The list of resources is bounded: the oldest result goes, the newest stays."""
    from jina_ocr_loaders.access import AccessPolicy

    monkeypatch.setattr(our_mcp, "KEPT_RESULTS", 3)
    (tmp_path / "many.pdf").write_bytes(marked_pdf(5))
    policy = AccessPolicy(allowed_roots=[tmp_path])
    server = build_server(DocumentTool("hosted", base_url=api.base_url, api_key="key", policy=policy))
    async with Client(server) as client:
        links = []
        for n in range(1, 6):
            result = await client.call_tool("read_document", {"source": "many.pdf", "pages": n})
            links.append(result.content[1].uri)
        assert len((await client.list_resources()).resources) == 2 * 3
        with pytest.raises(MCPError, match="read the document again"):
            await client.read_resource(links[1])
        assert (await client.read_resource(links[2])).contents[0].text == page_text(3)


async def test_the_command(api, folder, tmp_path):
    """``jina-ocr mcp`` is this server over stdio, set up by the environment and ``--allow-root``; it warns once."""
    api.script_page(1, hosted.status(422))
    arguments = ["-m", "jina_ocr_loaders.cli", "mcp", "--allow-root", str(folder)]
    environment = {"JINA_OCR_BASE_URL": api.base_url, "JINA_API_KEY": "key"}
    command = StdioServerParameters(command=sys.executable, args=arguments, cwd=os.getcwd(), env=environment)
    with (tmp_path / "stderr").open("w+") as said:
        async with Client(stdio_client(command, errlog=said)) as client:
            result = await client.call_tool("read_document", {"source": "five.pdf", "pages": "1-2"})
            assert page_text(2) in result.content[0].text
            assert (await client.call_tool("read_document", {"source": "/etc/passwd"})).is_error
        assert (tmp_path / "stderr").read_text().count("[request_rejected]") == 1


async def test_failed_pages_are_named(connect, api, folder):
    """A page that cannot be read does not fail the call: the answer names it, and so does the progress."""
    api.script_page(2, hosted.status(422))
    async with connect() as client:
        result = await client.call_tool("read_document", {"source": str(folder / "five.pdf"), "pages": "1-3"})
    assert not result.is_error
    assert "Pages that could not be read: 2." in result.content[0].text
