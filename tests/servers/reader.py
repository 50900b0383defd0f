"""A real HTTP server on loopback that behaves as r.jina.ai does with ``X-Respond-With: jina-ocr-v1``, faults included.

    with ReaderServer() as server:
        server.documents["https://example.com/a.pdf"] = marked_pdf(3)
        server.script(status(429, headers={"Retry-After": "2"}))    # the next request
        JinaOCR(engine="reader", base_url=server.url, api_key=server.key).read("https://example.com/a.pdf")

It knows the pages of a document by their marks (see ``hosted``) and answers ``page_text(n)``. As the real one does, it
reads page 1 where ``X-Page`` is missing and, unless told otherwise, where it is past the end (reported by others).
"""

from __future__ import annotations

import base64
import io
import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pypdfium2

from tests.servers import loopback
from tests.servers.hosted import PIECE, page_text, read_mark
from tests.servers.loopback import LoopbackServer

_pdfium = threading.Lock()  # it may be used by one thread at a time

TOKENS_FACTOR = 40  # what OCR costs there, in times of the model's own tokens


@dataclass
class Recorded(loopback.Recorded):
    """A request as it arrived, and what became of it."""

    @property
    def page(self) -> int | None:
        """What ``X-Page`` says."""
        value = self.headers.get("x-page")
        return int(value) if value else None

    @property
    def target(self) -> str | None:
        """The URL that Reader is to read; None for an upload."""
        if self.method == "GET":
            return self.path.removeprefix("/")
        return self.body.get("url") if self._json else None

    @property
    def upload(self) -> tuple[str, bytes] | None:
        """Field and bytes of the file that came along."""
        if self._json:
            field = next((name for name in ("pdf", "file") if name in self.body), None)
            return (field, base64.b64decode(self.body[field])) if field else None
        boundary = re.search(r'boundary="?([^";]+)', self.headers.get("content-type", ""))
        if not boundary:
            return None
        for part in self.raw.split(b"--" + boundary[1].encode()):
            head, _, content = part.partition(b"\r\n\r\n")
            if name := re.search(rb'name="(pdf|file)"', head):
                return name[1].decode(), content.removesuffix(b"\r\n")
        return None

    @property
    def _json(self) -> bool:
        return self.headers.get("content-type", "").startswith("application/json")


class Exchange(loopback.Exchange):
    """One request and the means to answer it as Reader does."""

    request: Recorded

    @property
    def wants_json(self) -> bool:
        """Whether the client asked for the JSON envelope."""
        return self.request.headers.get("accept", "").startswith("application/json")

    async def refuse(
        self, code: int, name: str, message: str, status: int = 0, headers: Mapping[str, str] | None = None
    ) -> None:
        """An error in Reader's own form: JSON, whatever was asked for."""
        body = {"data": None, "code": code, "name": name, "status": status or 100 * code + 1, "message": message}
        await self.answer(code, body | {"readableMessage": f"{name}: {message}"}, headers)

    async def content(self, text: str, *, url: str = "", usage: bool = True, **data: Any) -> None:
        """An answer with this text; ``data`` adds fields to the envelope."""
        tokens = TOKENS_FACTOR * (903 + len(PIECE.findall(text)))
        if self.wants_json:
            fields = {"url": url, "title": "A document", "description": "", "content": text, **data}
            if usage:
                fields["usage"] = {"tokens": tokens}
            await self.answer(200, {"code": 200, "status": 20000, "data": fields})
            return
        head = f"Title: A document\n\nURL Source: {url}\n\nMarkdown Content:\n"
        used = {"x-usage-tokens": str(tokens)} if usage else {}
        await self.answer(200, head + text, {"content-type": "text/plain; charset=utf-8"} | used)


Behaviour = loopback.Behaviour[Exchange]


def says(text: str, **data: Any) -> Behaviour:
    """Answer with this text, whatever was asked for."""

    async def behave(exchange: Exchange) -> None:
        await exchange.content(text, **data)

    return behave


def refusal(
    code: int, name: str, message: str = "no", status: int = 0, headers: Mapping[str, str] | None = None
) -> Behaviour:
    """Refuse in Reader's own form."""

    async def behave(exchange: Exchange) -> None:
        await exchange.refuse(code, name, message, status, headers)

    return behave


class ReaderServer(LoopbackServer[Exchange]):
    """The server; it runs in a thread of its own from ``__enter__`` to ``__exit__``.

    Parameters:
        key: requests with another one, or with none, get 401, as the real one answers to OCR without a key; None lets
            all in.
        credit: tokens that are left; a request that costs more gets 402.
        max_bytes: uploads above it get 413.
        past_end: what an ``X-Page`` beyond the last page gets: "first" (page 1, and nothing says so) or "error" (422).
    """

    recorded = Recorded
    exchange = Exchange

    def __init__(
        self, key: str | None = "jina_reader_key", credit: int = 10**9, max_bytes: int = 10**8, past_end: str = "first"
    ) -> None:
        super().__init__()
        self.key = key
        self.credit = credit
        self.max_bytes = max_bytes
        self.past_end = past_end
        self.documents: dict[str, bytes] = {}
        self.read_page: Callable[[bytes, int], str] = lambda document, number: page_text(_mark(document, number))
        self.requests: list[Recorded] = []

    def pages(self) -> list[int | None]:
        """``X-Page`` of each request, in the order of arrival."""
        return [request.page for request in self.requests]

    def behaviour(self, request: Recorded) -> Behaviour:
        """The next of the script, or an honest reading."""
        with self._lock:
            self.requests.append(request)
            self.received.set()
            return self._script.popleft() if self._script else self.read

    async def read(self, exchange: Exchange) -> None:
        """Answer honestly."""
        request = exchange.request
        url, upload = request.target, request.upload
        document = upload[1] if upload else self.documents.get((url or "").partition("#")[0])
        if self.key is not None and request.headers.get("authorization") != f"Bearer {self.key}":
            message = "Authentication is required to use this feature (Vision Language Model / OCR)"
            await exchange.refuse(401, "AuthenticationRequiredError", message)
        elif request.headers.get("x-respond-with") != "jina-ocr-v1":
            await exchange.content("A plain reading, without OCR.")
        elif upload and len(upload[1]) > self.max_bytes:
            await exchange.refuse(413, "TargetFileTooLargeError", "The file is too large", 41302)
        elif document is None:
            # The site's refusal comes as a reading of its error page, with status 200.
            warning = "Target URL returned error 404: Not Found"
            await exchange.content("# Not found", url=url or "", httpStatus=404, warning=warning)
        else:
            await self._read_page(exchange, document, url or "")

    async def _read_page(self, exchange: Exchange, document: bytes, url: str) -> None:
        number = exchange.request.page or 1
        past_end = number > page_count(document)
        if past_end and self.past_end == "error":
            await exchange.refuse(422, "ParamValidationError", f"There is no page {number}")
            return
        text = self.read_page(document, 1 if past_end else number)
        cost = TOKENS_FACTOR * (903 + len(PIECE.findall(text)))
        if cost > int(exchange.request.headers.get("x-token-budget", cost)):
            await exchange.refuse(409, "BudgetExceededError", f"{cost} tokens exceed the budget", 40904)
        elif cost > self.credit:
            await exchange.refuse(402, "InsufficientBalanceError", "Account balance not enough", 40203)
        else:
            self.credit -= cost
            await exchange.content(text, url=url)


def page_count(document: bytes) -> int:
    """Pages of a PDF; 1 for an image."""
    if not document.startswith(b"%PDF"):
        return 1
    with _pdfium, pypdfium2.PdfDocument(document) as pdf:
        return len(pdf)


def _mark(document: bytes, number: int) -> int | None:
    if not document.startswith(b"%PDF"):
        return read_mark(document)
    with _pdfium, pypdfium2.PdfDocument(document) as pdf:
        image = pdf[number - 1].render(scale=1).to_pil()
    out = io.BytesIO()
    image.save(out, "PNG")
    return read_mark(out.getvalue())
