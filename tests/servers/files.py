"""A real HTTP file server on loopback that misbehaves as it is told.

It writes its answers byte by byte, since HTTP frameworks refuse to tell the lies that real servers tell.
"""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

import httpx

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@dataclass
class Request:
    """A request that the server has received; the names of its headers in lower case."""

    method: str
    path: str
    headers: dict[str, str]


@dataclass
class FileServer:
    """Serves the handlers in ``routes`` by path; use as a context manager.

    ``requests`` are those received, ``connections`` counts accepted ones, also those that never sent a request.
    """

    tls: ssl.SSLContext | None = None
    routes: dict[str, Handler] = field(default_factory=dict)
    requests: list[Request] = field(default_factory=list)
    connections: int = 0
    port: int = 0

    def add(self, path: str, handler: Handler | bytes) -> str:
        """Serve something under a path; returns its URL."""
        self.routes[path] = body(handler) if isinstance(handler, bytes) else handler
        return self.url(path)

    def url(self, path: str, host: str = "127.0.0.1") -> str:
        """The URL of a path, by whatever name the server is called."""
        return f"{'https' if self.tls else 'http'}://{host}:{self.port}{path}"

    def __enter__(self) -> Self:
        started = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve(started)), daemon=True)
        self._thread.start()
        started.wait()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    async def _serve(self, started: threading.Event) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        self._tasks: set[asyncio.Task[None] | None] = set()
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0, ssl=self.tls)
        self.port = server.sockets[0].getsockname()[1]
        started.set()
        await self._stop.wait()
        server.close()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        self._tasks.add(task)  # the event loop alone would not keep it alive
        try:
            first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            method, path, _ = first.split(" ")
            fields = (line.split(": ", 1) for line in lines if line)
            self.requests.append(Request(method, path, {name.lower(): value for name, value in fields}))
            await self.routes.get(path, status(404))(reader, writer)
        except (OSError, asyncio.IncompleteReadError):
            pass  # the client has left
        finally:
            self._tasks.remove(task)
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()


def response(head: str, *headers: str) -> bytes:
    """Status line and headers."""
    return "\r\n".join([f"HTTP/1.1 {head}", *headers, "", ""]).encode()


def body(content: bytes, *headers: str, length: int | None = None) -> Handler:
    """An ordinary answer; ``length`` is what Content-Length says instead of the truth."""

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        announced = len(content) if length is None else length
        writer.write(response("200 OK", f"Content-Length: {announced}", *headers) + content)
        await writer.drain()

    return handler


def status(code: int, *headers: str) -> Handler:
    """An answer without a body."""

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(response(f"{code} {httpx.codes.get_reason_phrase(code)}", "Content-Length: 0", *headers))
        await writer.drain()

    return handler


def redirect(to: str, code: int = 302) -> Handler:
    """A redirect."""
    return status(code, f"Location: {to}")


def until_close(content: bytes) -> Handler:
    """An answer that ends with the connection: no length, as HTTP/1.0 servers do."""

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(response("200 OK") + content)
        await writer.drain()

    return handler


def chunked(pieces: Callable[[], AsyncIterator[bytes]], *, end: bool = True) -> Handler:
    """An answer in chunks, broken off at the end unless ``end``."""

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(response("200 OK", "Transfer-Encoding: chunked"))
        async for piece in pieces():
            writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            await writer.drain()
        if end:
            writer.write(b"0\r\n\r\n")
            await writer.drain()

    return handler


def endless(piece: bytes, pause: float = 0.0) -> Handler:
    """A body in chunks, without end, fast or in drips."""

    async def pieces() -> AsyncIterator[bytes]:
        while True:
            yield piece
            await asyncio.sleep(pause)

    return chunked(pieces)


def stalled(start: bytes = b"") -> Handler:
    """An answer that stops after its start and keeps the connection open until the client leaves."""

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(start)
        await writer.drain()
        await reader.read()

    return handler


@dataclass
class Routed(httpx.AsyncBaseTransport):
    """A network in which every address is the test's server; notes which ones were connected to.

    It stands for the internet, which tests cannot reach: requests go over real connections, only elsewhere.
    """

    server: FileServer
    addresses: list[str] = field(default_factory=list)
    verify: ssl.SSLContext | bool = True
    _networks: list[httpx.AsyncHTTPTransport] = field(default_factory=list)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.addresses.append(request.url.host)
        there = request.url.copy_with(host="127.0.0.1", port=self.server.port)
        network = httpx.AsyncHTTPTransport(verify=self.verify, trust_env=False)
        self._networks.append(network)
        return await network.handle_async_request(
            httpx.Request(request.method, there, headers=request.headers, extensions=request.extensions)
        )

    async def aclose(self) -> None:
        for network in self._networks:
            await network.aclose()
