"""The hosted API, and any other server that speaks chat/completions (a vLLM of your own, for one)."""

from __future__ import annotations

import asyncio
import importlib
import os
import re
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from jina_ocr_loaders.engines import endpoint
from jina_ocr_loaders.engines.base import Delta, OCRRequest, Render
from jina_ocr_loaders.engines.chat_answers import BAD_ANSWER, StreamReading, whole_answer
from jina_ocr_loaders.engines.http_client import PerLoop, make_client
from jina_ocr_loaders.engines.http_errors import connection_error, is_transport_error, refusal, retry_after
from jina_ocr_loaders.errors import (
    NO_END,
    AuthenticationError,
    EngineError,
    EngineNotReadyError,
    ModelNotFoundError,
    QuotaError,
    RateLimitedError,
    RequestRejectedError,
    TransientError,
    WarmingUpError,
)
from jina_ocr_loaders.settings import OCRSettings
from jina_ocr_loaders.threads import in_daemon_thread

if TYPE_CHECKING:
    from openai import AsyncOpenAI

    from jina_ocr_loaders.pages import PageImage

SPELLINGS = ("jina-ocr-v1", "jinaai/jina-ocr-v1", "jina-ai/jina-ocr-v1")
"""The model's names: the API's, Hugging Face's, the API catalogue's."""

PRICES = 0.5, 2.0  # dollars per million tokens in and out at api.jina.ai
IMAGE_FIRST = True  # as in the model's own layout; the card's hosted example has the text first (unverified)
CONNECT_TIMEOUT = 10.0  # seconds
GRACE = 5.0  # seconds that a stream may take, after the finish reason, for the usage and its end
NAMES_SHOWN = 20  # models listed in an error message

_TRY_AGAIN = {408, 409, 425}  # besides 5xx: request time-out, conflict, too early
_ABOUT_MODEL = re.compile(
    r"\bmodel\b.*\b(not (found|exist|supported|available)|n.t exist|unknown|invalid)"
    r"|\b(no such|unknown|invalid|unsupported) model\b",
    re.IGNORECASE,
)


class HostedEngine:
    """Reads pages through chat/completions. It works from any event loop, and from several at once.

    Parameters:
        settings: ``api_key, base_url, model, extra_body, proxy, ca_bundle, http_client`` and ``long_side`` are used.

    Raises:
        EngineNotReadyError: ``base_url`` is no http(s) address.
        AuthenticationError: the key holds characters that none has.
    """

    name = "hosted"
    max_concurrency: int | None = None
    head_start = 0.3  # seconds that the first request is alone: a wrong key costs one, and a short document little

    def __init__(self, settings: OCRSettings) -> None:
        self.base_url = endpoint.base_url(settings.base_url)
        self._jina = endpoint.is_jina(self.base_url)
        self._key = endpoint.api_key(self.base_url, settings.api_key)
        self._host = endpoint.shown(self.base_url)
        self._settings = settings
        self.model = SPELLINGS[0] if self._jina and settings.model in SPELLINGS else settings.model
        self.leaves_machine = not endpoint.is_loopback(self.base_url)
        self.render = Render(long_side=settings.long_side or Render().long_side)
        self.prices = PRICES if self._jina else None
        self._served_model = self.model  # the name that the server knows it by
        self._ends = _Ends()
        self._clients = PerLoop(self._new_client, self._close)

    def __repr__(self) -> str:
        return f"HostedEngine({self._host!r}, model={self.model!r})"

    def warm(self) -> None:
        """Import the client, which takes about a second: in a thread, so that the first page need not wait for it."""
        importlib.import_module("openai")

    async def stream(self, page: PageImage, request: OCRRequest) -> AsyncGenerator[Delta]:
        """Yield the page's Markdown as it comes; the last Delta carries finish reason, usage and the model's name.

        The first one is empty: the server has taken the request on.

        Raises:
            EngineError: its class tells whether, and after how long, another attempt makes sense. One with the code
                "no_end" is a stream that stopped without a word; if this server has never ended one properly, the
                next answers are asked for whole.
        """
        client = await self._client()
        fields = self._fields(page, request)
        if self._ends.ask_whole():
            answer = whole_answer(await self._create(client, fields))
            self._ends.answered_whole()
            yield answer
            return
        # The client takes any end of the connection for the end of the answer: only what the chunks say counts.
        chunks = await self._create(client, fields, stream=True)
        reading = StreamReading()
        try:
            yield Delta()
            with self._errors():
                # Nothing is awaited here for each piece but the piece: a page has a thousand of them.
                while reading.finish_reason is None and (chunk := await anext(chunks, None)) is not None:
                    if text := reading.take(chunk):
                        yield Delta(text)
            if reading.finish_reason is not None and (text := await self._after_finish(chunks, reading)):
                yield Delta(text)
        finally:
            await chunks.close()
        self._ends.streamed(reading.ended)
        if not reading.ended:
            raise TransientError(f"The answer of {self._host} broke off without a finish reason.", code=NO_END)
        yield reading.last()

    async def prepare(self) -> None:
        """Have everything ready that the first request on this event loop needs.

        Raises:
            AuthenticationError: a key is needed and there is none.
        """
        await self._client()

    async def fetch_prices(self) -> tuple[float, float] | None:
        """Dollars per million input and output tokens as the server's list of models says; otherwise ``prices``."""
        try:
            listed = await (await self._client()).models.list(extra_headers=self._headers(), timeout=CONNECT_TIMEOUT)
            names = SPELLINGS if self.model in SPELLINGS else (self.model,)
            pricing = next(entry.pricing for entry in listed.data if entry.id in names)  # type: ignore[attr-defined]
            return round(1e6 * float(pricing["prompt"]), 9), round(1e6 * float(pricing["completion"]), 9)
        except Exception:  # no key, no server, no list, another form of list: there is no newer price to be had
            return self.prices

    async def aclose(self) -> None:
        """Close this event loop's connections, and have other running loops close theirs.

        A client that was passed in stays open: it is the caller's.
        """
        await self._clients.aclose()

    async def _client(self) -> AsyncOpenAI:
        if self._key is None and self._jina:
            raise AuthenticationError("There is no API key: set JINA_API_KEY or pass api_key= (keys: https://jina.ai).")
        if asyncio.get_running_loop() not in self._clients:
            await in_daemon_thread(lambda: importlib.import_module("openai"))
        return self._clients.get()

    async def _close(self, client: AsyncOpenAI) -> None:
        if self._settings.http_client is None:
            await client.close()

    def _new_client(self) -> AsyncOpenAI:
        import openai

        settings = self._settings
        return openai.AsyncOpenAI(
            api_key=self._key or "none",
            base_url=self.base_url,
            max_retries=0,
            http_client=settings.http_client or make_client(openai.DefaultAsyncHttpxClient, settings),
        )

    def _fields(self, page: PageImage, request: OCRRequest) -> dict[str, Any]:
        import openai

        image = {"type": "image_url", "image_url": {"url": page.data_url()}}
        prompt = {"type": "text", "text": request.prompt}
        return {
            "messages": [{"role": "user", "content": [image, prompt] if IMAGE_FIRST else [prompt, image]}],
            "max_tokens": request.max_tokens,
            "temperature": request.sampling.temperature,
            "extra_body": self._settings.extra_body,
            "extra_headers": self._headers(),
            "timeout": openai.Timeout(request.deadline, connect=min(CONNECT_TIMEOUT, request.deadline)),
        }

    def _headers(self) -> dict[str, Any]:
        """The key, and none of the headers that openai takes from OPENAI_* variables: they are not for this server."""
        import openai

        ambient = [line.partition(":")[0].strip() for line in os.environ.get("OPENAI_CUSTOM_HEADERS", "").splitlines()]
        headers: dict[str, Any] = dict.fromkeys(["OpenAI-Organization", "OpenAI-Project", *ambient], openai.omit)
        return headers | {"Authorization": f"Bearer {self._key}" if self._key else openai.omit}

    async def _create(self, client: AsyncOpenAI, fields: dict[str, Any], *, stream: bool = False) -> Any:
        """Send the request; where the server lists the model under another of its names, send it under that one."""
        send = _stream if stream else _whole
        model = self._served_model
        try:
            with self._errors():
                return await send(client, model, fields)
        except EngineError as error:
            if error.status != 404 and not (error.status in (400, 422) and _ABOUT_MODEL.search(error.message)):
                raise
            self._served_model = await self._other_name(client, model, error)
        with self._errors():
            return await send(client, self._served_model, fields)

    async def _other_name(self, client: AsyncOpenAI, model: str, error: EngineError) -> str:
        """Another name of the model that the server lists.

        Raises:
            ModelNotFoundError: it lists none; the message says what it does list.
            EngineError: the one given, if the model is not what it is about.
        """
        try:
            listed = await client.models.list(extra_headers=self._headers(), timeout=CONNECT_TIMEOUT)
            offered = [str(entry.id) for entry in listed.data]
        except Exception:  # the list only serves to explain an error: whatever is wrong with it, there is none
            raise error from None
        if model in offered:
            raise error
        if model in SPELLINGS and (others := [name for name in SPELLINGS if name in offered]):
            return others[0]
        names = ", ".join(offered[:NAMES_SHOWN]) + (", …" if len(offered) > NAMES_SHOWN else "")
        message = f"{self._host} has no model {model!r}. It offers: {names or 'none at all'}. Pass one as model=."
        raise ModelNotFoundError(message, status=error.status)

    async def _after_finish(self, chunks: AsyncIterator[Any], reading: StreamReading) -> str:
        """Take in what follows the finish reason, as a rule the usage; whatever goes wrong, the text is whole."""
        text = ""
        with suppress(EngineError, TimeoutError), self._errors():
            async with asyncio.timeout(GRACE):
                while (chunk := await anext(chunks, None)) is not None:
                    text += reading.take(chunk)
        return text

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Turn what the client raises into our errors. The originals are left out: they can repeat the key."""
        import openai

        try:
            yield
        except openai.APIStatusError as error:
            raise self._refusal(error.status_code, error.body, error.response.headers) from None
        except openai.APIConnectionError as error:
            raise connection_error(error, self._host) from None
        except openai.APIError as error:  # an error object in the midst of a stream
            raise self._refusal(_status_of(error.body), error.body, {}) from None
        except ValueError:
            raise TransientError(f"The answer of {self._host} is no valid JSON.", code=BAD_ANSWER) from None
        except Exception as error:
            if not is_transport_error(error):
                raise
            raise connection_error(error, self._host) from None

    def _refusal(self, status: int, body: object, headers: Mapping[str, str]) -> EngineError:
        """The error for an HTTP status, or for the one that an error object in a stream carries."""
        message = refusal(self._host, status, body, self._key)
        wait = retry_after(headers)
        if status in (401, 403):
            advice = (
                "Is the API key right?"
                if self._key
                else "No key was sent: pass api_key= (JINA_API_KEY goes to jina.ai and JINA_OCR_BASE_URL only)."
            )
            return AuthenticationError(f"{message} {advice}", status=status)
        if status == 402:
            return QuotaError(f"{message} The account has no credit left.", status=status)
        if status == 404:
            message = f"{message} Is base_url right? For most servers it ends in /v1."
            return EngineNotReadyError(message, status=status, code="not_found")
        if 300 <= status < 400:
            message = f"{message} It redirects elsewhere, and pages are not sent on: pass that address as base_url=."
            return EngineNotReadyError(message, status=status, code="redirect")
        if status == 413:
            message = f"{message} The page image is too large for the server: pass a smaller long_side=."
        if status == 429:
            return RateLimitedError(message, status=status, retry_after=wait)
        if status == 503:
            return WarmingUpError(message, status=status, retry_after=wait)
        if 400 <= status < 500 and status not in _TRY_AGAIN:
            return RequestRejectedError(message, status=status)
        return TransientError(message, status=status, retry_after=wait)


class _Ends:
    """Whether this server's streams say how they ended, and what to do as long as none has.

    The first one that does not may be a broken connection: a few answers are then asked for whole, and a stream is
    tried again. After a second one, streams are given up.
    """

    WHOLE_ANSWERS = 8

    def __init__(self) -> None:
        self._proven = False
        self._missing = 0
        self._whole = 0

    def streamed(self, ended: bool) -> None:
        self._proven = self._proven or ended
        self._missing += not ended

    def answered_whole(self) -> None:
        self._whole += 1

    def ask_whole(self) -> bool:
        return not self._proven and self._missing > 0 and (self._missing > 1 or self._whole < self.WHOLE_ANSWERS)


async def _whole(client: AsyncOpenAI, model: str, fields: dict[str, Any]) -> Any:
    return await client.chat.completions.create(model=model, **fields)


async def _stream(client: AsyncOpenAI, model: str, fields: dict[str, Any]) -> Any:
    """A stream of chunks as they are in the JSON.

    As the client's own objects they take 20 ms more of CPU a page: there is one for every few tokens.
    """
    import openai

    body = {"model": model, **fields, "stream": True, "stream_options": {"include_usage": True}}
    more = body.pop("extra_body")
    options: openai.RequestOptions = {"headers": body.pop("extra_headers"), "timeout": body.pop("timeout")}
    return await client.post(
        "/chat/completions",
        cast_to=object,
        body=body | dict(more or {}),
        options=options,
        stream=True,
        stream_cls=openai.AsyncStream[object],
    )


def _status_of(body: object) -> int:
    """The HTTP status that an error object names; 500 where it names none."""
    code = body.get("code") if isinstance(body, Mapping) else None
    text = str(code)
    return int(text) if text.isdigit() and 400 <= int(text) < 600 else 500
