"""From what HTTP clients report to our error classes; shared by the engines that speak HTTP.

openai 3 raises errors of ``httpx2``, openai 2 those of ``httpx``, and Reader is reached through ``httpx``. They give
their classes the same names, which are looked at here, so that none of the libraries has to be there.
"""

from __future__ import annotations

import math
import re
import socket
import ssl
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from jina_ocr_loaders.errors import CONNECTION_REFUSED, EngineError, EngineNotReadyError, TransientError

DETAIL_LENGTH = 300  # characters of a server's own words that are repeated in a message


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds that the ``Retry-After`` header asks to wait, given as a number or as a date; None without one."""
    value = headers.get("retry-after", "").strip()
    try:
        seconds = float(value)
    except ValueError:
        seconds = _seconds_until(value, headers.get("date"))
    return max(0.0, seconds) if math.isfinite(seconds) else None


def detail(body: object, key: str | None = None) -> str:
    """What the server says went wrong, in one line; the key, should the server repeat it, is taken out."""
    text = " ".join(_words(body).split())
    if key:
        text = text.replace(key, "***")
    return text if len(text) <= DETAIL_LENGTH else text[: DETAIL_LENGTH - 1] + "…"


def refusal(host: str, status: int, body: object, key: str | None) -> str:
    """A sentence that tells that the server refused, and why."""
    said = detail(body, key).rstrip(".")
    return f"{host} answered {status}{': ' + said if said else ''}."


def is_transport_error(error: BaseException) -> bool:
    """Whether the error is one of httpx or httpx2: no connection, or a broken one."""
    return any(
        cls.__name__ in ("TransportError", "StreamError") and cls.__module__.partition(".")[0] in ("httpx", "httpx2")
        for cls in type(error).__mro__
    )


def connection_error(error: BaseException, host: str) -> EngineError:
    """The error to raise for a connection that could not be made, or that broke.

    Parameters:
        error: what the client raised; its causes are looked at as well.
        host: where the connection was to go, as people may see it.
    """
    causes = list(_causes(error))
    names = {cls.__name__ for cause in causes for cls in type(cause).__mro__}
    if "ReadTimeout" in names or "WriteTimeout" in names:
        return TransientError(f"{host} stopped answering.", code="read_timeout")
    if "ConnectTimeout" in names or "PoolTimeout" in names:
        return TransientError(f"No connection to {host} in time.", code="connect_timeout")
    if any(isinstance(cause, ssl.SSLCertVerificationError) for cause in causes):
        message = f"The certificate of {host} is not trusted; ca_bundle= names the file of an authority of your own."
        return EngineNotReadyError(message, code="certificate")
    if any(isinstance(cause, ssl.SSLError) for cause in causes) and "ConnectError" in names:
        message = f"{host} does not speak TLS as it should; is the address meant to begin with http://?"
        return EngineNotReadyError(message, code="tls")
    if "ProxyError" in names:
        return TransientError(f"The proxy does not let the connection to {host} through.", code="proxy_error")
    if any(isinstance(cause, socket.gaierror) for cause in causes):
        return TransientError(f"The name of the host {host} is not known.", code=CONNECTION_REFUSED)
    if "ConnectError" in names:
        return TransientError(f"{host} refuses the connection.", code=CONNECTION_REFUSED)
    return TransientError(f"The connection to {host} broke.", code="disconnect")


def _seconds_until(date: str, now: str | None) -> float:
    """Seconds between two HTTP dates; the second is the server's own clock, where it tells it."""
    try:
        then = parsedate_to_datetime(date)
        since = parsedate_to_datetime(now) if now else datetime.now(UTC)
        return (then - since).total_seconds()
    except (ValueError, TypeError):  # no date, or one with and one without a time zone
        return math.nan


def _words(body: object) -> str:
    if isinstance(body, Mapping):
        # {"detail": …} is Jina's, {"error": {"message": …}} OpenAI's, {"readableMessage": …} Reader's.
        for name in ("detail", "error", "readableMessage", "message", "msg"):
            if body.get(name):
                return _words(body[name])
        return ""
    if isinstance(body, list):
        return "; ".join(filter(None, map(_words, body)))
    text = body if isinstance(body, str) else ""
    if text.lstrip().startswith("<"):
        title = re.search(r"<title[^>]*>(.*?)</title>", text, re.IGNORECASE | re.DOTALL)
        return title[1] if title else ""
    return text


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The error and all that led to it, members of groups included."""
    seen: set[int] = set()
    todo = [error]
    while todo:
        one = todo.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        todo += [cause for cause in (one.__cause__, one.__context__) if cause is not None]
        if isinstance(one, BaseExceptionGroup):
            todo += one.exceptions
