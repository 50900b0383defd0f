"""The HTTP clients of engines: made from the settings, one for each event loop, since a client belongs to one."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any, Generic, TypeVar
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from jina_ocr_loaders.errors import EngineNotReadyError
from jina_ocr_loaders.settings import OCRSettings

T = TypeVar("T")


class PerLoop(Generic[T]):
    """One client, or what else belongs to an event loop, for each of them, made on first use.

    Parameters:
        make: makes a client; called on the loop that it is for.
        close: closes one, if that is needed.
    """

    def __init__(self, make: Callable[[], T], close: Callable[[T], Awaitable[object]] | None = None) -> None:
        self._make = make
        self._close = close
        self._clients: WeakKeyDictionary[asyncio.AbstractEventLoop, T] = WeakKeyDictionary()
        self._closing: set[asyncio.Future[object]] = set()

    def __contains__(self, loop: asyncio.AbstractEventLoop) -> bool:
        return loop in self._clients

    def get(self) -> T:
        """The running loop's client."""
        loop = asyncio.get_running_loop()
        if loop not in self._clients:
            self._forget_closed()
            self._clients[loop] = self._make()
        return self._clients[loop]

    async def aclose(self) -> None:
        """Close this loop's client, and have other running loops close theirs. ``get`` makes new ones."""
        for reference in self._clients.keyrefs():  # a copy: other threads may add theirs meanwhile
            loop = reference()
            client = self._clients.pop(loop, None) if loop else None
            if loop is None or client is None or self._close is None:
                continue
            if loop is asyncio.get_running_loop():
                await self._close(client)
            else:
                with suppress(RuntimeError):  # it is closed, and its connections with it
                    loop.call_soon_threadsafe(partial(self._close_later, client))

    def _forget_closed(self) -> None:
        """A client knows its loop, which therefore never goes by itself: ``asyncio.run`` in a row would add up."""
        for reference in self._clients.keyrefs():
            if (loop := reference()) and loop.is_closed():
                self._clients.pop(loop, None)

    def _close_later(self, client: T) -> None:
        assert self._close
        task = asyncio.ensure_future(self._close(client))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)


def make_client(cls: Callable[..., T], settings: OCRSettings, **more: Any) -> T:
    """A client with the proxy and the certificates of the settings; what is sent goes where it is sent, no redirects.

    Parameters:
        cls: ``AsyncClient`` of httpx or httpx2, or a subclass.
        more: further arguments for it.

    Raises:
        EngineNotReadyError: the proxy's address or the file of certificates cannot be used.
    """
    try:
        verify = ssl.create_default_context(cafile=settings.ca_bundle) if settings.ca_bundle else True
    except OSError as error:
        raise EngineNotReadyError(f"ca_bundle {settings.ca_bundle} cannot be used: {error.strerror or error}") from None
    try:
        if settings.proxy is not None and (not urlsplit(settings.proxy).hostname or urlsplit(settings.proxy).port == 0):
            raise ValueError
        return cls(proxy=settings.proxy, verify=verify, follow_redirects=False, **more)
    except (ValueError, ImportError):  # ImportError: SOCKS without its package; the messages may hold a password
        raise EngineNotReadyError(
            "The proxy (proxy=, or HTTP_PROXY and the like) cannot be used: it should look like http://host:3128, "
            "or socks5://host:1080 with the package socksio."
        ) from None
