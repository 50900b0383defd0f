"""What the test servers have in common: real HTTP on loopback by uvicorn, in a thread, with faults on demand."""

from __future__ import annotations

import asyncio
import functools
import json
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Self, TypeVar

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

E = TypeVar("E", bound="Exchange")


@dataclass
class Recorded:
    """A request as it arrived, and what became of it.

    ``sent`` counts the pieces of text that were streamed; ``disconnected`` says that the client went away before the
    end; ``done`` is set when the server is through with it. ``arrived`` and ``finished`` are seconds of
    ``time.monotonic()``.
    """

    method: str
    path: str
    headers: dict[str, str]
    raw: bytes
    arrived: float
    finished: float | None = None
    sent: int = 0
    disconnected: bool = False
    done: threading.Event = field(default_factory=threading.Event, repr=False)

    @functools.cached_property
    def body(self) -> dict[str, Any]:
        """The parsed JSON body."""
        return json.loads(self.raw) if self.raw else {}


class ClientGoneError(Exception):
    """The client closed the connection."""


@dataclass
class Exchange:
    """One request and the means to answer it: whole, piece by piece, or not at all."""

    request: Any
    transport: asyncio.Transport
    _send: Callable[[dict[str, Any]], Awaitable[None]]
    gone: asyncio.Event = field(default_factory=asyncio.Event)

    async def answer(self, code: int, body: object, headers: Mapping[str, str] | None = None) -> None:
        """Send a whole response: bytes and str as they are, anything else as JSON."""
        payload = body if isinstance(body, bytes) else body.encode() if isinstance(body, str) else to_json(body)
        kind = "text/html" if isinstance(body, str | bytes) else "application/json"
        lower = {name.lower(): value for name, value in (headers or {}).items()}
        await self.start(code, {"content-type": kind, "content-length": str(len(payload))} | lower)
        await self._send({"type": "http.response.body", "body": payload})

    async def start(self, code: int, headers: Mapping[str, str]) -> None:
        """Send the status line and headers."""
        encoded = [(name.encode(), value.encode()) for name, value in headers.items()]
        await self._send({"type": "http.response.start", "status": code, "headers": encoded})

    async def write(self, data: bytes) -> None:
        """Send a part of the body."""
        if self.gone.is_set():
            raise ClientGoneError
        await self._send({"type": "http.response.body", "body": data, "more_body": True})

    async def end(self) -> None:
        """End the body."""
        await self._send({"type": "http.response.body", "body": b""})

    async def wait(self, seconds: float | None = None) -> None:
        """Let time pass, for ever if no seconds are given; ClientGoneError ends it when the client leaves."""
        try:
            await asyncio.wait_for(self.gone.wait(), seconds)
        except TimeoutError:
            return
        raise ClientGoneError

    async def flush(self) -> None:
        """Wait until what was sent has left this process."""
        while self.transport.get_write_buffer_size():  # noqa: ASYNC110  (the transport has no event for it)
            await asyncio.sleep(0)

    async def reset(self) -> None:
        """Break the connection with a TCP reset, after what was sent so far has left."""
        await self.flush()
        sock: socket.socket = self.transport.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.transport.abort()
        await self.gone.wait()


Behaviour = Callable[[E], Awaitable[None]]


class _Protocol(H11Protocol):
    """uvicorn's own, but it tells the application which connection a request came by."""

    transports: dict[tuple[str, int], asyncio.Transport]

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        assert self.client is not None
        self.transports[self.client] = transport
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def connection_lost(self, exc: Exception | None) -> None:
        assert self.client is not None
        self.transports.pop(self.client)
        super().connection_lost(exc)


class _Uvicorn(uvicorn.Server):
    """uvicorn's own, but it stops at once: no tick of 0.1 s, no farewell to clients."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._stop = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._running = threading.Event()

    async def main_loop(self) -> None:
        await self.on_tick(0)  # sets the Date header
        self._loop = asyncio.get_running_loop()
        self._running.set()
        await self._stop.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for server in self.servers:
            server.close()
        for connection in list(self.server_state.connections):
            connection.transport.abort()

    def stop(self) -> None:
        """From another thread."""
        self._running.wait(timeout=10)
        assert self._loop is not None, "the server did not start"
        self._loop.call_soon_threadsafe(self._stop.set)


class LoopbackServer(Generic[E]):
    """A server that runs in a thread of its own from ``__enter__`` to ``__exit__``.

    Subclasses say what kinds of request and exchange they have and how a request is answered.

    Parameters:
        port: to come back at the port of an earlier server; by default a free one.
        tls: files of a certificate and its key, to speak https.
    """

    recorded: type[Recorded] = Recorded
    exchange: type[E]

    def __init__(self, port: int = 0, tls: tuple[str, str] | None = None) -> None:
        self.requests: list[Any] = []
        self.received = threading.Event()  # set by the first request
        self.in_flight = 0
        self.peak = 0
        self._script: deque[Behaviour[E]] = deque()
        self._lock = threading.Lock()
        self._scheme = "https" if tls else "http"
        self._socket = socket.create_server(("127.0.0.1", port))
        self.port: int = self._socket.getsockname()[1]
        protocol = type("Protocol", (_Protocol,), {"transports": {}})
        self._transports: dict[tuple[str, int], asyncio.Transport] = protocol.transports  # type: ignore[attr-defined]
        config = uvicorn.Config(
            self._app,
            http=protocol,
            loop="asyncio",
            interface="asgi3",
            proxy_headers=False,
            lifespan="off",
            ws="none",
            log_config=None,
            ssl_certfile=tls and tls[0],
            ssl_keyfile=tls and tls[1],
        )
        self._uvicorn = _Uvicorn(config)
        self._thread = threading.Thread(
            target=self._uvicorn.run, kwargs={"sockets": [self._socket]}, name="loopback server", daemon=True
        )

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"{self._scheme}://127.0.0.1:{self.port}"

    def script(self, *behaviours: Behaviour[E]) -> None:
        """Answer the next requests so, in the order of their arrival."""
        with self._lock:
            self._script.extend(behaviours)

    def clear(self) -> None:
        """Forget the requests and what is left of the script."""
        with self._lock:
            self.requests.clear()
            self._script.clear()
            self.peak = 0
            self.received.clear()

    def behaviour(self, request: Any) -> Behaviour[E]:
        """Record the request and choose how it is answered."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop: connections are closed, stalled answers end, and the port refuses."""
        self._uvicorn.stop()
        self._thread.join(timeout=10)
        self._socket.close()
        assert not self._thread.is_alive(), "the server did not stop"

    async def _app(self, scope: dict[str, Any], receive: Callable[[], Awaitable[Any]], send: Any) -> None:
        body = bytearray()
        more = True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            body += message.get("body", b"")
            more = message.get("more_body", False)
        headers = {name.decode().lower(): value.decode() for name, value in scope["headers"]}
        query = "?" + scope["query_string"].decode() if scope["query_string"] else ""
        path = scope["raw_path"].decode() + query
        request = self.recorded(scope["method"], path, headers, bytes(body), time.monotonic())
        exchange = self.exchange(request, self._transports[tuple(scope["client"])], send)
        watcher = asyncio.create_task(self._watch(receive, exchange))
        with self._lock:
            self.in_flight += 1
            self.peak = max(self.peak, self.in_flight)
        try:
            await self.behaviour(request)(exchange)
        except (ClientGoneError, ConnectionError):
            request.disconnected = True
        finally:
            with self._lock:
                self.in_flight -= 1
            request.finished = time.monotonic()
            request.done.set()
            watcher.cancel()

    @staticmethod
    async def _watch(receive: Callable[[], Awaitable[Any]], exchange: Exchange) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        exchange.gone.set()


def status(code: int, body: object = None, headers: Mapping[str, str] | None = None) -> Behaviour[Any]:
    """Refuse with an HTTP status; the body defaults to the hosted API's own kind, ``{"detail": ...}``."""

    async def behave(exchange: Exchange) -> None:
        await exchange.answer(code, {"detail": f"refused with {code}"} if body is None else body, headers)

    return behave


def raw(body: str | bytes, content_type: str = "application/json") -> Behaviour[Any]:
    """Answer 200 with exactly this body, whatever was asked for."""

    async def behave(exchange: Exchange) -> None:
        await exchange.answer(200, body, {"content-type": content_type})

    return behave


def garbage() -> Behaviour[Any]:
    """An HTML page with status 200, as proxies and captive portals give."""
    return raw("<html><body>Welcome to the hotel network</body></html>", "text/html")


def reset_before() -> Behaviour[Any]:
    """A TCP reset after the request was read, before a byte of the answer."""

    async def behave(exchange: Exchange) -> None:
        await exchange.reset()

    return behave


def refused_port() -> int:
    """A port of loopback at which nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def to_json(data: object) -> bytes:
    """Compact enough, and with letters as they are."""
    return json.dumps(data, ensure_ascii=False).encode()
