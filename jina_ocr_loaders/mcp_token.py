"""Who may use the MCP server over HTTP: whoever has its token."""

from __future__ import annotations

import logging
import os
import secrets
import sys
from ipaddress import ip_address
from typing import Literal

from mcp.server.auth.provider import AccessToken

logger = logging.getLogger("jina_ocr_loaders.mcp")

TOKEN_VARIABLE = "JINA_OCR_MCP_TOKEN"


class FixedToken:
    """Accepts one bearer token."""

    def __init__(self, token: str) -> None:
        self._token = token.encode()

    async def verify_token(self, token: str) -> AccessToken | None:
        """The caller's rights, or None."""
        if secrets.compare_digest(token.encode(), self._token):
            return AccessToken(token=token, client_id="jina-ocr", scopes=[])
        return None


def token_for(host: str, token: str | Literal[False] | None) -> str | None:
    """The token to ask for.

    Parameters:
        host: where the server listens.
        token: a token; False for none; None for the environment's, or a new one, which is said on standard error.
    """
    if token is False:
        if not _is_loopback(host):
            logger.warning("%s is open to other machines and asks for no token: anybody there may use it", host)
        return None
    if not (token or (token := os.environ.get(TOKEN_VARIABLE))):
        token = secrets.token_urlsafe(24)
        print(f"Authorization: Bearer {token}", file=sys.stderr, flush=True)
    return token


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
