"""Downloads: bounded in bytes and time, and kept off private networks unless they are allowed."""

from __future__ import annotations

import functools
import os
import ssl
import urllib.request
import zlib
from base64 import b64encode
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from http import HTTPStatus

import httpx

from jina_ocr_loaders.errors import DownloadError, ForbiddenURLError, ResourceLimitError
from jina_ocr_loaders.sources.addresses import HINT, Resolver, public_addresses, resolve
from jina_ocr_loaders.sources.limits import FetchLimits
from jina_ocr_loaders.threads import in_daemon_thread
from jina_ocr_loaders.urls import shown

MAX_REDIRECTS = 10
CONNECT_TIMEOUT = 10.0  # seconds
READ_TIMEOUT = 60.0  # seconds without a byte
MAX_PORT = 65535

HEADERS = {
    "User-Agent": "jina-ocr-loaders",
    "Accept": "application/pdf, image/*;q=0.9, */*;q=0.5",
    "Accept-Encoding": "identity",  # documents are compressed already
}
UNPACKED_PIECE = 1 << 20  # bytes


async def download(
    url: str,
    write: Callable[[bytes], object],
    limits: FetchLimits,
    *,
    resolver: Resolver = resolve,
    network: httpx.AsyncBaseTransport | None = None,
) -> None:
    """Fetch an http(s) URL. The caller bounds the time and the bytes that ``write`` takes.

    Unless private networks are allowed, each host, those of redirects too, is looked up once; all its addresses are
    checked, and the connection goes to one of these very addresses, so that no second look-up can give another.

    Parameters:
        write: gets the body, decoded, piece by piece.
        resolver: how names are looked up where addresses are checked.
        network: what carries the requests once they are checked, for tests; by default a connection for each.

    Raises:
        ForbiddenURLError: the URL, or one that it redirects to, may not be fetched.
        DownloadError: the server cannot be reached, answers with an error, or breaks off.
        ResourceLimitError: the server announces more than ``limits.max_bytes``.
    """
    source = shown(url)
    try:
        async with AsyncExitStack() as stack:
            response = await _Journey(source, limits, resolver, network, stack).get(url)
            _check(response, limits, source)
            async for piece in _body(response):
                write(piece)
    # No cause is kept: it may hold the URL with its credentials.
    except (httpx.InvalidURL, UnicodeError):  # UnicodeError: lone surrogates
        raise DownloadError("this, or what it redirects to, is not a valid URL", source=source) from None
    except httpx.ConnectTimeout:
        raise DownloadError(f"no connection within {CONNECT_TIMEOUT:g} s", source=source) from None
    except httpx.TimeoutException:
        raise DownloadError(f"the server sent nothing for {READ_TIMEOUT:g} s", source=source) from None
    except httpx.ConnectError as error:
        raise DownloadError(f"no connection: {error}", source=source) from None
    except httpx.ProxyError as error:
        raise DownloadError(f"the proxy refuses: {error}", source=source) from None
    except (httpx.HTTPError, zlib.error) as error:
        raise DownloadError(f"the download broke off: {error or type(error).__name__}", source=source) from None


@dataclass
class _Journey:
    """The way to one document, over all redirects.

    Not httpx.AsyncClient, which writes each URL to the log with its credentials.
    """

    source: str
    limits: FetchLimits
    resolver: Resolver
    network: httpx.AsyncBaseTransport | None
    stack: AsyncExitStack

    async def get(self, address: str) -> httpx.Response:
        """Follow redirects to the answer that is none."""
        url = httpx.URL(address)
        authorization = _authorization(url)
        for _ in range(MAX_REDIRECTS + 1):
            response = await self._send(url, {**HEADERS, **authorization})
            if not response.has_redirect_location:
                return response
            await response.aclose()
            target = url.join(response.headers["Location"])
            if target.userinfo or not _same_origin(url, target):
                authorization = _authorization(target)
            url = target
        raise DownloadError(f"more than {MAX_REDIRECTS} redirects", source=self.source)

    async def _send(self, url: httpx.URL, headers: dict[str, str]) -> httpx.Response:
        if url.scheme not in ("http", "https"):
            raise ForbiddenURLError("not allowed: it redirects to something else than http(s)", source=self.source)
        if not url.host or (url.port or 0) > MAX_PORT:
            raise httpx.InvalidURL("no such address")
        named = httpx.Request("GET", url, headers=headers)
        host = url.raw_host.decode("ascii")
        proxy = self.limits.proxy or _environment_proxy(url)
        if proxy and not self.limits.allow_private_networks:
            raise ForbiddenURLError(
                f"not allowed: the request would go through an HTTP proxy, so the address of {url.host} cannot be "
                f"checked. {HINT}, or go without the proxy",
                source=self.source,
            )
        network = self.network
        if network is None:
            network = await self.stack.enter_async_context(await self._connection(proxy))
        if self.limits.allow_private_networks:
            return await self._answer(network, named, host)
        failure: Exception | None = None
        for address in await public_addresses(host, source=self.source, resolver=self.resolver):
            request = httpx.Request("GET", url.copy_with(host=address), headers=named.headers)  # its Host is the name
            try:
                return await self._answer(network, request, host)
            except (httpx.ConnectError, httpx.ConnectTimeout) as error:
                failure = error
        raise failure or httpx.ConnectError("the host has no address")

    async def _answer(self, network: httpx.AsyncBaseTransport, request: httpx.Request, host: str) -> httpx.Response:
        request.extensions = {
            "timeout": httpx.Timeout(READ_TIMEOUT, connect=CONNECT_TIMEOUT).as_dict(),
            "sni_hostname": host,  # the name that the certificate must bear
        }
        response = await network.handle_async_request(request)
        self.stack.push_async_callback(response.aclose)
        return response

    async def _connection(self, proxy: str | None) -> httpx.AsyncHTTPTransport:
        ca_bundle = os.fspath(self.limits.ca_bundle) if self.limits.ca_bundle else None
        try:
            verify = await in_daemon_thread(lambda: _ssl_context(ca_bundle))  # reading certificates takes a while
        except OSError as error:
            raise DownloadError(f"ca_bundle cannot be read: {error.strerror}", source=self.source) from error
        try:
            return httpx.AsyncHTTPTransport(verify=verify, trust_env=False, proxy=proxy)
        except (ValueError, ImportError):  # the messages may show the proxy's password
            raise DownloadError("the proxy's URL is not one that httpx can use", source=self.source) from None


def _authorization(url: httpx.URL) -> dict[str, str]:
    """Basic authentication from the userinfo of a URL (RFC 7617)."""
    if not url.userinfo:
        return {}
    return {"Authorization": f"Basic {b64encode(f'{url.username}:{url.password}'.encode()).decode()}"}


def _same_origin(a: httpx.URL, b: httpx.URL) -> bool:
    return (a.scheme, a.host, a.port) == (b.scheme, b.host, b.port)


async def _body(response: httpx.Response) -> AsyncIterator[bytes]:
    """The body in pieces of bounded size, unpacked where the server has packed it.

    httpx would unpack each piece of the network at once, to a thousand times its size with gzip, without limit with
    others; and it takes a gzip stream that breaks off for a whole one.
    """
    if _encoding(response) in ("", "identity"):
        async for piece in response.aiter_raw():
            yield piece
        return
    unpacker = zlib.decompressobj(zlib.MAX_WBITS | 32)  # gzip and deflate
    async for piece in response.aiter_raw():
        while piece:
            yield unpacker.decompress(piece, UNPACKED_PIECE)
            piece = unpacker.unconsumed_tail
    yield unpacker.flush()
    if not unpacker.eof:
        raise zlib.error("the compressed body has no end")


def _encoding(response: httpx.Response) -> str:
    return str(response.headers.get("Content-Encoding", "")).strip().lower()


def _check(response: httpx.Response, limits: FetchLimits, source: str) -> None:
    if not response.is_success:
        raise DownloadError(f"the server answered {_status(response.status_code)}", source=source)
    if _encoding(response) not in ("", "identity", "gzip", "x-gzip", "deflate"):
        raise DownloadError("the server compressed the document, unasked, in a way that is not known", source=source)
    announced = response.headers.get("Content-Length", "")
    if announced.isdecimal() and int(announced) > limits.max_bytes:
        raise ResourceLimitError(f"{int(announced):,} bytes, more than max_bytes={limits.max_bytes:,}", source=source)


def _status(code: int) -> str:
    """A status in the standard's words: the server's own are not ours to pass on."""
    with suppress(ValueError):
        return f"{code} {HTTPStatus(code).phrase}"
    return str(code)


def _environment_proxy(url: httpx.URL) -> str | None:
    proxies = urllib.request.getproxies()
    proxy = proxies.get(url.scheme) or proxies.get("all")
    if not proxy or urllib.request.proxy_bypass(url.host):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


@functools.cache
def _ssl_context(ca_bundle: str | None) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=ca_bundle) if ca_bundle else httpx.create_ssl_context()
