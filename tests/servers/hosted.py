"""A real HTTP server on loopback that speaks the hosted API (chat/completions, models) and misbehaves on demand.

    with HostedServer() as server:
        server.script(status(429, headers={"Retry-After": "2"}))    # the next request; those after it are answered well
        server.script_page(2, reset_before(), ok("# Two"))           # the next two requests for page 2
        server.otherwise = ok(finish_reason=None)                    # all other requests
        JinaOCR(engine="hosted", base_url=server.base_url).read(marked_pdf(3))
        assert [request.page for request in server.requests] == [1, 2, 3, 2]

A behaviour is an ``async`` function of one ``Exchange``: those below cover what servers do, a test can write its own.
Pages are told apart by a mark that ``marked_image`` and ``marked_pdf`` draw, so that the answer to page 7 is
``page_text(7)`` whatever the order of the requests.
"""

from __future__ import annotations

import asyncio
import base64
import functools
import io
import re
from collections import defaultdict, deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from PIL import Image, ImageDraw

from tests.servers import loopback
from tests.servers.loopback import ClientGoneError as ClientGoneError
from tests.servers.loopback import LoopbackServer, to_json
from tests.servers.loopback import garbage as garbage
from tests.servers.loopback import raw as raw
from tests.servers.loopback import refused_port as refused_port
from tests.servers.loopback import reset_before as reset_before
from tests.servers.loopback import status as status

MODEL = "jina-ocr-v1"
UNAUTHORIZED = {"detail": "Unauthorized. Please provide a valid API key."}
ABSENT = "absent"  # as a finish reason: the key is missing, whereas None sends null
PIECE = re.compile(r"\s*\S+|\s+")
CELLS = 16  # of a page mark: a black anchor, a white one, then 14 bits of the page number, low bit first


def page_text(number: int | None) -> str:
    """What the server reads on a page that carries this mark."""
    return f"# Page {number}\n\nText of page {number}." if number else "Text of a page without a mark."


def mark_boxes(number: int) -> list[tuple[float, float, float, float]]:
    """The black boxes of a page mark: left, top, right, bottom as fractions of the page, from its top left corner."""
    bits = [1, 0, *(number >> bit & 1 for bit in range(CELLS - 2))]
    return [(0.1 + 0.05 * i, 0.02, 0.1 + 0.05 * (i + 1), 0.06) for i, bit in enumerate(bits) if bit]


def marked_image(number: int, size: tuple[int, int] = (320, 452)) -> Image.Image:
    """A grey-level page with the mark of its number and a few strokes below, so that it is not blank."""
    image = Image.new("L", size, 255)
    draw = ImageDraw.Draw(image)
    for left, top, right, bottom in [*mark_boxes(number), (0.1, 0.2, 0.8, 0.22), (0.1, 0.3, 0.6, 0.32)]:
        draw.rectangle((left * size[0], top * size[1], right * size[0] - 1, bottom * size[1] - 1), fill=0)
    return image


def marked_jpeg(number: int, size: tuple[int, int] = (320, 452)) -> bytes:
    """The same as JPEG bytes."""
    out = io.BytesIO()
    marked_image(number, size).save(out, "JPEG", quality=90)
    return out.getvalue()


def marked_pdf(pages: int | Iterable[int]) -> bytes:
    """A PDF whose pages carry the marks 1 to ``pages``, or those given."""
    numbers = range(1, pages + 1) if isinstance(pages, int) else pages
    first, *others = [marked_image(number) for number in numbers]
    out = io.BytesIO()
    first.save(out, "PDF", save_all=True, append_images=others, resolution=72)
    return out.getvalue()


def read_mark(image: bytes) -> int | None:
    """The page number that the image's mark says, or None where there is no mark."""
    grey = Image.open(io.BytesIO(image)).convert("L")
    width, height = grey.size
    cells = [grey.getpixel((int(width * (0.125 + 0.05 * i)), int(height * 0.04))) for i in range(CELLS)]
    bits = [isinstance(value, int) and value < 128 for value in cells]
    if not bits[0] or bits[1]:
        return None
    return sum(bit << i for i, bit in enumerate(bits[2:]))


@dataclass
class Recorded(loopback.Recorded):
    """A request as it arrived, and what became of it."""

    @property
    def content(self) -> list[dict[str, Any]]:
        """The content parts of the (one) message, in the order sent."""
        content: list[dict[str, Any]] = self.body["messages"][0]["content"]
        return content

    @property
    def prompt(self) -> str:
        """The text part."""
        return str(next(part["text"] for part in self.content if part["type"] == "text"))

    @property
    def image_url(self) -> str:
        """The image part's URL."""
        return str(next(part["image_url"]["url"] for part in self.content if part["type"] == "image_url"))

    @functools.cached_property
    def image(self) -> bytes:
        """The bytes of the image that was sent as a data URL."""
        prefix, _, data = self.image_url.partition(";base64,")
        assert prefix.startswith("data:image/"), f"not a data URL: {prefix[:80]}"
        return base64.b64decode(data, validate=True)

    @functools.cached_property
    def page(self) -> int | None:
        """The page number that the image's mark says; None for other images and for addresses handed on."""
        return read_mark(self.image) if self.image_url.startswith("data:") else None

    @property
    def streams(self) -> bool:
        """Whether the client asked for a stream."""
        return bool(self.body.get("stream"))


@dataclass
class Exchange(loopback.Exchange):
    """One request and the means to answer it as the hosted API does."""

    request: Recorded

    async def event(self, data: object) -> None:
        """Send one server-sent event; str as it is, anything else as JSON."""
        text = data if isinstance(data, str) else to_json(data).decode()
        await self.write(f"data: {text}\n\n".encode())

    def usage(self, text: str) -> dict[str, int]:
        """Tokens as the API counts them; here 903 for an image and one for each piece of text."""
        pieces = len(PIECE.findall(text))
        return {"prompt_tokens": 903, "completion_tokens": pieces, "total_tokens": 903 + pieces}

    def chunk(self, text: str | None = None, finish: str | None = None, **more: Any) -> dict[str, Any]:
        """One chunk of a stream; ``finish`` may be ABSENT."""
        delta = {} if text is None else {"content": text}
        choice: dict[str, Any] = {"index": 0, "delta": delta}
        if finish != ABSENT:
            choice["finish_reason"] = finish
        return {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": MODEL} | {
            "choices": [choice],
            **more,
        }

    def completion(self, content: object, finish: str | None = "stop", **more: Any) -> dict[str, Any]:
        """A plain answer; ``finish`` may be ABSENT."""
        choice: dict[str, Any] = {"index": 0, "message": {"role": "assistant", "content": content}}
        if finish != ABSENT:
            choice["finish_reason"] = finish
        return {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": MODEL} | {
            "choices": [choice],
            **more,
        }

    async def open_stream(self) -> None:
        """Begin a stream as the API does: headers, then a chunk with the role."""
        await self.start(200, {"content-type": "text/event-stream; charset=utf-8"})
        await self.event(self.chunk("") | {"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]})

    async def pieces(self, text: str, pace: float = 0.0) -> None:
        """Stream the text piece by piece, with ``pace`` seconds after each."""
        for piece in PIECE.findall(text):
            await self.event(self.chunk(piece))
            self.request.sent += 1
            await (self.wait(pace) if pace else asyncio.sleep(0))


Behaviour = loopback.Behaviour[Exchange]


def ok(
    text: str | None = None,
    *,
    finish_reason: str | None = "stop",
    usage: bool = True,
    delay: float = 0,
    pace: float = 0,
) -> Behaviour:
    """Answer well, streamed or plain as asked.

    Parameters:
        text: the page's text; by default what its mark says.
        finish_reason: also None (null) and ABSENT.
        usage: whether the usage comes (in a stream: if the client asked for it).
        delay: seconds before the answer begins.
        pace: seconds after each piece of a stream: a slow drip.
    """

    async def behave(exchange: Exchange) -> None:
        request = exchange.request
        content = page_text(request.page) if text is None else text
        if delay:
            await exchange.wait(delay)
        spent = exchange.usage(content)
        if not request.streams:
            more = {"usage": spent} if usage else {}
            await exchange.answer(200, exchange.completion(content, finish_reason, **more))
            return
        await exchange.open_stream()
        await exchange.pieces(content, pace)
        await exchange.event(exchange.chunk(finish=finish_reason))
        if usage and (request.body.get("stream_options") or {}).get("include_usage"):
            await exchange.event(exchange.chunk() | {"choices": [], "usage": spent})
        await exchange.event("[DONE]")
        await exchange.end()

    return behave


def half_json() -> Behaviour:
    """Valid HTTP with a JSON text that stops in the middle: the answer when plain, the second chunk when streamed."""

    async def behave(exchange: Exchange) -> None:
        if not exchange.request.streams:
            whole = to_json(exchange.completion("A page cut in half."))
            await exchange.answer(200, whole[: len(whole) // 2], {"content-type": "application/json"})
            return
        await exchange.open_stream()
        whole = to_json(exchange.chunk("A page cut in half."))
        await exchange.event(whole[: len(whole) // 2].decode())
        await exchange.end()

    return behave


def empty_choices() -> Behaviour:
    """``"choices": []`` and nothing else, in a stream too."""

    async def behave(exchange: Exchange) -> None:
        spent = {"usage": exchange.usage("")}
        if not exchange.request.streams:
            await exchange.answer(200, exchange.completion("") | {"choices": []} | spent)
            return
        await exchange.start(200, {"content-type": "text/event-stream"})
        await exchange.event(exchange.chunk() | {"choices": []} | spent)
        await exchange.event("[DONE]")
        await exchange.end()

    return behave


def null_content(finish_reason: str = "stop") -> Behaviour:
    """A well-formed answer whose content is null: nothing was said, not even an empty text."""

    async def behave(exchange: Exchange) -> None:
        spent = {"usage": exchange.usage("")}
        if not exchange.request.streams:
            await exchange.answer(200, exchange.completion(None, finish_reason, **spent))
            return
        await exchange.start(200, {"content-type": "text/event-stream"})
        await exchange.event({**exchange.chunk(), "choices": [{"index": 0, "delta": {"content": None}}]})
        await exchange.event(exchange.chunk(finish=finish_reason))
        await exchange.event(exchange.chunk() | {"choices": []} | spent)
        await exchange.event("[DONE]")
        await exchange.end()

    return behave


def stream_error(body: object) -> Behaviour:
    """A stream that begins well and then carries an error object, as vLLM sends it."""

    async def behave(exchange: Exchange) -> None:
        await exchange.open_stream()
        await exchange.pieces("The beginning of a page")
        await exchange.event({"error": body})
        await exchange.event("[DONE]")
        await exchange.end()

    return behave


def reset_during(text: str = "The beginning of a page that") -> Behaviour:
    """A TCP reset in the middle of the answer."""

    async def behave(exchange: Exchange) -> None:
        if exchange.request.streams:
            await exchange.open_stream()
            await exchange.pieces(text)
        else:
            whole = to_json(exchange.completion(text))
            await exchange.start(200, {"content-type": "application/json", "content-length": str(len(whole))})
            await exchange.write(whole[: len(whole) // 2])
        await exchange.reset()

    return behave


def reset_after(text: str | None = None) -> Behaviour:
    """The whole answer, then a TCP reset: of a stream all but the last, empty chunk of the HTTP framing has left."""

    async def behave(exchange: Exchange) -> None:
        content = page_text(exchange.request.page) if text is None else text
        if exchange.request.streams:
            await exchange.open_stream()
            await exchange.pieces(content)
            await exchange.event(exchange.chunk(finish="stop"))
            await exchange.event(exchange.chunk() | {"choices": [], "usage": exchange.usage(content)})
            await exchange.event("[DONE]")
        else:
            await exchange.answer(200, exchange.completion(content, usage=exchange.usage(content)))
        await exchange.reset()

    return behave


def cut(text: str = "The beginning of a page that", *, done: bool = False) -> Behaviour:
    """A stream that ends cleanly, for HTTP, without finish_reason and usage; with ``done`` it even says [DONE].

    A plain request is answered well: give ``status`` or ``reset_during`` to break that one too.
    """

    async def behave(exchange: Exchange) -> None:
        if not exchange.request.streams:
            await ok()(exchange)
            return
        await exchange.open_stream()
        await exchange.pieces(text)
        if done:
            await exchange.event("[DONE]")
        await exchange.end()

    return behave


def stall(text: str = "The beginning of a page that", *, finish_reason: str | None = None) -> Behaviour:
    """A stream that begins, and then nothing more comes until the client leaves.

    With ``finish_reason`` the text is whole and only the end of the stream is missing. A plain request is never
    answered at all.
    """

    async def behave(exchange: Exchange) -> None:
        if exchange.request.streams:
            await exchange.open_stream()
            await exchange.pieces(text)
            if finish_reason:
                await exchange.event(exchange.chunk(finish=finish_reason))
        await exchange.wait()

    return behave


def loop(period: int, *, before: str = "", repeats: int | None = None, pace: float = 0.001) -> Behaviour:
    """Go round in circles of ``period`` pieces until max_tokens (or ``repeats``), then finish with "length".

    The pieces of one round all differ. ``request.sent`` tells how far the server got before the client cut it off.
    """

    async def behave(exchange: Exchange) -> None:
        limit = exchange.request.body.get("max_tokens") or 4096
        words = [f" word{i}" for i in range(period)]
        rounds = repeats if repeats is not None else limit // period + 1
        text = before + "".join(PIECE.findall("".join(words * rounds))[:limit])
        finish = "length" if repeats is None else "stop"
        await ok(text, finish_reason=finish, pace=pace)(exchange)

    return behave


class HostedServer(LoopbackServer[Exchange]):
    """The server; it runs in a thread of its own from ``__enter__`` to ``__exit__``.

    Parameters:
        models: what ``GET /v1/models`` offers; chat requests for another model get 404, as vLLM answers.
        key: when given, other keys get 401 (on chat only: the list of models ignores keys, as the real one does).
        port: to come back at the port of an earlier server; by default a free one.
        tls: files of a certificate and its key, to speak https.
    """

    recorded = Recorded
    exchange = Exchange

    def __init__(
        self,
        models: Iterable[str] = (MODEL,),
        key: str | None = None,
        port: int = 0,
        tls: tuple[str, str] | None = None,
    ) -> None:
        super().__init__(port, tls)
        self.models = tuple(models)
        self.key = key
        self.requests: list[Recorded] = []
        self.other_requests: list[Recorded] = []
        self.otherwise: Behaviour = ok()
        self.models_behaviour: Behaviour = self._list_models
        self._page_scripts: defaultdict[int | None, deque[Behaviour]] = defaultdict(deque)

    @property
    def base_url(self) -> str:
        """Where it listens, with /v1."""
        return f"{self.url}/v1"

    def script_page(self, page: int | None, *behaviours: Behaviour) -> None:
        """Answer the next requests for the page with this mark so; they come before ``script``."""
        with self._lock:
            self._page_scripts[page].extend(behaviours)

    def pages(self) -> list[int | None]:
        """The page of each chat request, in the order of arrival."""
        return [request.page for request in self.requests]

    def clear(self) -> None:
        """Forget the requests and what is left of the scripts."""
        super().clear()
        with self._lock:
            self.other_requests.clear()
            self._page_scripts.clear()

    def behaviour(self, request: Recorded) -> Behaviour:
        """As the API routes it."""
        route = request.method, request.path.removeprefix("/v1")
        if route == ("GET", "/models"):
            self.other_requests.append(request)
            return self.models_behaviour
        if route != ("POST", "/chat/completions") or not request.path.startswith("/v1/"):
            self.other_requests.append(request)
            return status(404, {"detail": "Invalid endpoint"})
        if self.key is not None and request.headers.get("authorization") != f"Bearer {self.key}":
            return self._record(request, status(401, UNAUTHORIZED))
        if request.body.get("model") not in self.models:
            message = f"The model `{request.body.get('model')}` does not exist."
            error = {"error": {"message": message, "type": "NotFoundError", "param": "model", "code": 404}}
            return self._record(request, status(404, error))
        return self._record(request, None)

    def _record(self, request: Recorded, behaviour: Behaviour | None) -> Behaviour:
        with self._lock:
            self.requests.append(request)
            self.received.set()
            if behaviour is None and self._page_scripts and (script := self._page_scripts.get(request.page)):
                return script.popleft()
            if behaviour is None and self._script:
                return self._script.popleft()
            return behaviour or self.otherwise

    async def _list_models(self, exchange: Exchange) -> None:
        pricing = {"prompt": "0.0000005", "completion": "0.000002"}
        data = [{"id": model, "object": "model", "created": 1, "pricing": pricing} for model in self.models]
        await exchange.answer(200, {"object": "list", "data": data})
