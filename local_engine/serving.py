"""What `vllm serve` has no flag for: a loop is stopped even if the client does not ask for it."""

import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from local_engine.sampling import SERVE_REPETITION

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

_PATHS = ("/v1/chat/completions", "/v1/completions")


class LoopStop:
    """ASGI middleware for `vllm serve --middleware`: asks vLLM for `SERVE_REPETITION` where a request says nothing.

    A client that sends `"repetition_detection": null` gets none.
    """

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "POST" or not scope["path"].endswith(_PATHS):
            return await self._app(scope, receive, send)
        received, more = bytearray(), True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            received += message.get("body", b"")
            more = message.get("more_body", False)
        body = _with_default(bytes(received))
        length = str(len(body)).encode()
        headers = [(name, length if name == b"content-length" else value) for name, value in scope["headers"]]
        parts = [{"type": "http.request", "body": body, "more_body": False}]

        async def replay() -> MutableMapping[str, Any]:
            return parts.pop() if parts else await receive()

        return await self._app({**scope, "headers": headers}, replay, send)


def _with_default(body: bytes) -> bytes:
    # Spliced in, not parsed: a page is megabytes of base64, and this is the server's event loop.
    text = body.rstrip()
    if not text.endswith(b"}") or b'"repetition_detection"' in text:
        return body
    fields = text[:-1].rstrip()
    comma = b"" if fields.endswith(b"{") else b","
    return fields + comma + b'"repetition_detection":' + json.dumps(SERVE_REPETITION).encode() + b"}"
