"""A chat/completions server in a process of its own that answers after a set time, or fails a set share of requests.

It reads requests and throws them away, so that it costs as little as a server can on the machine that is measured.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from jina_ocr_loaders.bench.document import WORDS

TEXT = " ".join(f"{WORDS[n * n % len(WORDS)]} {n * 7919:,}" for n in range(320))  # 4,319 characters
PIECE = 16  # characters; four tokens, as speculation delivers them


def _answers() -> tuple[bytes, bytes, bytes]:
    def chunk(**more: object) -> dict[str, object]:
        return {
            "id": "c",
            "object": "chat.completion.chunk",
            "created": 1,
            "model": "jina-ocr-v1",
            "choices": [],
            **more,
        }

    usage = {"prompt_tokens": 930, "completion_tokens": 1085, "total_tokens": 2015}
    pieces = [TEXT[i : i + PIECE] for i in range(0, len(TEXT), PIECE)]
    events = [
        *(chunk(choices=[{"index": 0, "delta": {"content": piece}, "finish_reason": None}]) for piece in pieces),
        chunk(choices=[{"index": 0, "delta": {}, "finish_reason": "stop"}]),
        chunk(usage=usage),
    ]
    stream = "".join(f"data: {json.dumps(event)}\n\n" for event in events) + "data: [DONE]\n\n"
    message = {"role": "assistant", "content": TEXT}
    whole = chunk(
        object="chat.completion", choices=[{"index": 0, "message": message, "finish_reason": "stop"}], usage=usage
    )
    return (
        _http("200 OK", "text/event-stream", stream.encode()),
        _http("200 OK", "application/json", json.dumps(whole).encode()),
        _http("500 Internal Server Error", "application/json", b'{"detail": "a failure that passes"}'),
    )


def _http(status: str, kind: str, body: bytes) -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


async def serve(delay: float, fail_every: int) -> None:
    """Answer for ever; print the port first.

    Parameters:
        delay: seconds from the end of the request to the answer.
        fail_every: every so many requests one gets 500; 0 is never.
    """
    streamed, whole, failure = _answers()
    count = 0

    async def connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal count
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0] or 0)
                body = await reader.readexactly(length)
                count += 1
                failed = fail_every and count % fail_every == 0
                await asyncio.sleep(0 if failed else delay)
                streams = b'"stream":true' in body or b'"stream": true' in body
                writer.write(failure if failed else streamed if streams else whole)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(connection, "127.0.0.1", 0, limit=1 << 24)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


@contextmanager
def running(delay: float = 0.0, fail_every: int = 0) -> Iterator[str]:
    """Run the server in a process of its own; yields its base URL."""
    command = [sys.executable, "-m", __name__, str(delay), str(fail_every)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}/v1"
        finally:
            process.kill()


if __name__ == "__main__":
    asyncio.run(serve(float(sys.argv[1]), int(sys.argv[2])))
