"""Which address a request goes to, and which key goes with it.

``JINA_API_KEY`` from the environment is sent to Jina's own hosts and to ``JINA_OCR_BASE_URL``, nowhere else: a
``base_url`` argument that names another host gets a key only through ``api_key=``.
"""

from __future__ import annotations

import ipaddress
import os
from urllib.parse import urlsplit

from pydantic import SecretStr

from jina_ocr_loaders.errors import AuthenticationError, EngineNotReadyError

JINA_BASE_URL = "https://api.jina.ai/v1"  # model card, "Hosted API"
ENDPOINT = "/chat/completions"


def base_url(given: str | None) -> str:
    """The base URL to use: the one given, else ``JINA_OCR_BASE_URL``, else Jina's, in the form that openai wants.

    A bare host gets ``/v1``; a full endpoint address loses ``/chat/completions``; any other path is taken as it is.

    Raises:
        EngineNotReadyError: it is no http(s) address.
    """
    parts = urlsplit(http_url(given or os.environ.get("JINA_OCR_BASE_URL") or JINA_BASE_URL))
    path = parts.path.rstrip("/")
    path = path.removesuffix(ENDPOINT) if path.endswith(ENDPOINT) else path or "/v1"
    return parts._replace(path=path, fragment="").geturl()


def http_url(text: str) -> str:
    """The address, without white space around it.

    Raises:
        EngineNotReadyError: it is no http(s) address.
    """
    text = text.strip()
    try:
        parts = urlsplit(text)
        valid = parts.scheme in ("http", "https") and parts.hostname and not any(map(str.isspace, text))
        _ = parts.port  # raises ValueError where it is no number
    except ValueError:
        valid = False
    if not valid:
        where = text.rpartition("@")[2]
        raise EngineNotReadyError(f"base_url {where!r} is no http(s) address; one looks like http://localhost:8000/v1.")
    return text


def api_key(url: str, given: SecretStr | None) -> str | None:
    """The key to send to this address, or None.

    Raises:
        AuthenticationError: it holds characters that cannot be sent.
    """
    key = given.get_secret_value() if given else ""
    if not key and (is_jina(url) or _origin(url) == _environment_origin()):
        key = os.environ.get("JINA_API_KEY", "")
    key = key.strip()
    if not (key.isascii() and key.isprintable()):
        raise AuthenticationError(
            "The API key holds characters that no key has: was it copied whole, and nothing else?"
        )
    return key or None


def is_jina(url: str) -> bool:
    """Whether the address is one of Jina's, over https."""
    scheme, host, _ = _origin(url)
    return scheme == "https" and (host == "jina.ai" or host.endswith(".jina.ai"))


def is_loopback(url: str) -> bool:
    """Whether the address is on this machine."""
    host = _origin(url)[1]
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def shown(url: str) -> str:
    """Host and port of the address, as people may see it."""
    return urlsplit(url).netloc.rpartition("@")[2]


def _origin(url: str) -> tuple[str, str, int | None]:
    parts = urlsplit(url)
    return parts.scheme, (parts.hostname or "").rstrip("."), parts.port or {"http": 80, "https": 443}.get(parts.scheme)


def _environment_origin() -> tuple[str, str, int | None] | None:
    text = os.environ.get("JINA_OCR_BASE_URL")
    return _origin(text.strip()) if text else None
