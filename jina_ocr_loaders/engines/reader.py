"""Jina Reader: it gets the document by its URL, or as an upload, and reads one page of it for each request.

What is known of it beyond its documentation comes from reports of others, unverified here: OCR needs a key; an
``X-Page`` past the end gets page 1 and nothing says so; a site's refusal comes with status 200, as a reading of its
error page.
"""

from __future__ import annotations

import json
import logging
import re
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import httpx
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from jina_ocr_loaders.engines import endpoint
from jina_ocr_loaders.engines.base import OCRRequest, Retry, Transcription
from jina_ocr_loaders.engines.http_client import PerLoop, make_client
from jina_ocr_loaders.engines.http_errors import connection_error, refusal, retry_after
from jina_ocr_loaders.errors import (
    AuthenticationError,
    BudgetExceededError,
    DownloadError,
    EngineError,
    EngineNotReadyError,
    ForbiddenURLError,
    JinaOCRError,
    PasswordRequiredError,
    QuotaError,
    RateLimitedError,
    RequestRejectedError,
    TransientError,
    UnsupportedEncryptionError,
)
from jina_ocr_loaders.pages import open_document
from jina_ocr_loaders.results import Usage
from jina_ocr_loaders.settings import OCRSettings

if TYPE_CHECKING:
    from jina_ocr_loaders.sources import Source

logger = logging.getLogger("jina_ocr_loaders.engines.reader")

READER_URL = "https://r.jina.ai"  # model card, "Jina Reader"
MODEL = "jina-ocr-v1"
TOKENS_PER_PAGE = 60_000  # some 40 times a plain reading (reported by users of Reader, not documented)
CONNECT_TIMEOUT = 10.0  # seconds
MAX_PROBED = 100  # pages that ``probe`` reads at most where max_pages is not set
LOOKS_PAST_END = 2  # pages in a row that are refused, or read like the first: a single one may be what it seems
PROBES_KEPT = 16  # documents whose probed pages wait to be asked for
PROBE_AGE = 3600.0  # seconds that they wait

_LOCKED = 40903  # Reader's own status beside 409: not the budget, somebody else works on the same
_PLAIN_HEAD = re.compile(
    r"\ATitle: .*\n+URL Source: .*\n(?:\n*(?!Markdown Content:)[A-Z][\w ]*: .*\n)*\n*Markdown Content:\n"
)
_PLAIN_WARNING = re.compile(r"^Warning: (.*)$", re.MULTILINE)
_SITE_ERROR = re.compile(r"\bTarget URL returned error (\d{3})\b")


class ReaderOptions(BaseModel):
    """The engine's own options, given as ``engine_options={...}``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    probe: bool = Field(
        default=False, description="Do not fetch a URL here to count its pages: read on until there are no more."
    )
    no_cache: bool = Field(default=False, description="X-No-Cache: have the document fetched anew.")
    cache_tolerance: int | None = Field(default=None, ge=0, description="X-Cache-Tolerance: seconds.")
    timeout: int | None = Field(default=None, ge=1, le=180, description="X-Timeout: seconds that Reader may take.")
    token_budget: int | None = Field(default=None, ge=1, description="X-Token-Budget: tokens a page at most.")
    max_tokens: int | None = Field(default=None, ge=1, description="X-Max-Tokens: Reader cuts the text there.")
    json_answers: bool = Field(default=True, description="Ask for JSON rather than plain text.")

    def headers(self) -> dict[str, str]:
        """What goes with every request."""
        values = {
            "X-Respond-With": MODEL,
            "Accept": "application/json" if self.json_answers else "text/plain",
            "X-No-Cache": "true" if self.no_cache else None,
            "X-Cache-Tolerance": self.cache_tolerance,
            "X-Timeout": self.timeout,
            "X-Token-Budget": self.token_budget,
            "X-Max-Tokens": self.max_tokens,
        }
        return {name: str(value) for name, value in values.items() if value is not None}


@dataclass(slots=True)
class _Probe:
    """A document that is read page by page to find its end."""

    answers: list[Transcription | None] = field(default_factory=list)  # None: refused, or given out
    count: int | None = None
    started: float = field(default_factory=time.monotonic)

    def usable(self) -> bool:
        """Whether to go on with it: it has not found the end yet, or holds pages that nobody has asked for."""
        return (self.count is None or any(self.answers)) and time.monotonic() - self.started < PROBE_AGE

    def past_end(self) -> bool:
        """Whether the last two answers say that there is no such page: both refused, or both the first page again."""
        if len(self.answers) <= LOOKS_PAST_END:
            return False
        first, *_, last = (answer and answer.text for answer in self.answers)
        tail = [answer and answer.text for answer in self.answers[-LOOKS_PAST_END:]]
        return tail == [last] * LOOKS_PAST_END and last in (None, first)

    def finish(self) -> int:
        """Drop the answers past the end; what they cost is the last page's."""
        *pages, last = self.answers[:-LOOKS_PAST_END]
        wasted = sum((answer.usage for answer in self.answers[-LOOKS_PAST_END:] if answer), Usage())
        self.answers = [*pages, last and replace(last, usage=last.usage + wasted)]
        self.count = len(self.answers)
        return self.count

    def take(self, number: int) -> Transcription | None:
        """Give out the page, once; None where it has to be asked for."""
        if self.count is None or number > self.count:
            return None
        page, self.answers[number - 1] = self.answers[number - 1], None
        return page


class ReaderEngine:
    """Reads pages through r.jina.ai. It works from any event loop, and from several at once.

    Parameters:
        settings: ``api_key, base_url, engine_options, proxy, ca_bundle, timeout, max_pages`` and the limits of
            downloads are used. Reader has a prompt of its own, and settles output tokens and sampling itself.

    Raises:
        TypeError: ``engine_options`` holds an unknown option or a wrong value.
        EngineNotReadyError: ``base_url`` is no http(s) address.
        AuthenticationError: the key holds characters that none has.
    """

    name = "reader"
    model = MODEL
    leaves_machine = True
    max_concurrency: int | None = None
    prices: tuple[float, float] | None = None  # depends on the account
    tokens_per_page = TOKENS_PER_PAGE
    head_start = 1.0  # seconds that the first request is alone: a wrong key costs one request, not one a page

    def __init__(self, settings: OCRSettings) -> None:
        try:
            self._options = ReaderOptions.model_validate(settings.engine_options or {})
        except ValidationError as error:
            problems = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())
            raise TypeError(f"engine_options of the engine reader: {problems}") from None
        self._url = endpoint.http_url(settings.base_url or READER_URL).rstrip("/")
        self._host = endpoint.shown(self._url)
        self._key = endpoint.api_key(self._url, settings.api_key)
        self._settings = settings
        self._clients = PerLoop(self._new_client, httpx.AsyncClient.aclose)
        self._probes: OrderedDict[str, _Probe] = OrderedDict()
        self._warned = False

    def __repr__(self) -> str:
        return f"ReaderEngine({self._host!r})"

    async def page_count(self, source: Source, password: str | None, retry: Retry) -> int:
        """Pages in the document: counted here, or, for a URL with ``probe``, by reading them, each through ``retry``.

        The probed pages are kept for ``read_page``, and for an hour the count while some of them wait. After an error,
        the next call goes on where this one stopped.

        Raises:
            UnsupportedEncryptionError: it needs a password, and Reader takes none.
            BudgetExceededError: probing has found no end within ``max_pages`` (100 where not set).
            SourceError, EngineError: it cannot be had, opened or read.
        """
        if self._options.probe and source.url:
            return await self._probe(source, retry)
        async with source.open(self._settings.fetch_limits()) as content:
            try:
                document = await open_document(content, name=source.name)
            except PasswordRequiredError:
                raise UnsupportedEncryptionError(
                    "it needs a password, and Reader takes none: read it with another engine", source=source.name
                ) from None
            async with document:
                return document.page_count

    async def read_page(self, source: Source, number: int, request: OCRRequest) -> Transcription:
        """Read one page, 1-based.

        Raises:
            EngineError: its class tells whether, and after how long, another attempt makes sense.
            ForbiddenURLError: Reader refuses the document for safety.
            DownloadError: the document's site does not give it to Reader.
        """
        probe = self._probes.get(source.id) if source.url else None
        return (probe and probe.take(number)) or await self._ask(source, number, request.deadline)

    async def aclose(self) -> None:
        """Close this event loop's connections, and have other running loops close theirs."""
        await self._clients.aclose()

    async def _probe(self, source: Source, retry: Retry) -> int:
        probe = self._probes.pop(source.id, None)  # taken out: whoever else probes this document has its own
        if probe is None or not probe.usable() or (probe.count and self._options.no_cache):
            probe = _Probe()
        try:
            return probe.count or await self._find_end(probe, source, retry)
        finally:
            self._probes[source.id] = probe
            if len(self._probes) > PROBES_KEPT:
                self._probes.popitem(last=False)

    async def _find_end(self, probe: _Probe, source: Source, retry: Retry) -> int:
        limit = self._settings.max_pages or MAX_PROBED
        while not probe.past_end():
            if len(probe.answers) == limit + LOOKS_PAST_END:
                raise BudgetExceededError(
                    f"no end within {limit} pages, which are read and paid: pass max_pages=, or leave probe out",
                    source=source.name,
                )
            number = len(probe.answers) + 1
            try:
                probe.answers.append(await retry(partial(self._ask, source, number, self._settings.timeout)))
            except RequestRejectedError:
                if number == 1:
                    raise
                probe.answers.append(None)
        repeated = probe.answers[-1] is not None
        count = probe.finish()
        if repeated:
            logger.warning(
                "%s: read %d pages; the next two read exactly like page 1, which is what Reader gives past the end. If "
                "they are pages of their own, leave probe out",
                *(source.name, count),
            )
        return count

    async def _ask(self, source: Source, number: int, deadline: float) -> Transcription:
        if not self._warned:
            self._warned = True
            logger.warning(
                "engine reader: OCR takes about %s tokens a page there; the engine hosted takes some 2,000 with the "
                "same model",
                f"{TOKENS_PER_PAGE:,}",
            )
        timeout = httpx.Timeout(deadline, connect=min(CONNECT_TIMEOUT, deadline))
        headers = self._options.headers() | {"X-Page": str(number)}
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        async with self._address(source) as arguments:
            try:
                response = await self._clients.get().request(**arguments, headers=headers, timeout=timeout)
            except (httpx.TransportError, httpx.StreamError) as error:
                raise connection_error(error, self._host) from None
            except (httpx.InvalidURL, UnicodeError):
                raise DownloadError("this is not a valid URL", source=source.name) from None
            except httpx.DecodingError:
                raise TransientError(f"The answer of {self._host} cannot be decoded.", code="bad_answer") from None
        return self._transcription(response)

    @asynccontextmanager
    async def _address(self, source: Source) -> AsyncIterator[dict[str, Any]]:
        """Method, address and body of a request for this document."""
        if source.url is None:
            async with source.open(self._settings.fetch_limits()) as content:
                kind = "pdf" if content.kind == "pdf" else "file"
                with content.path.open("rb") as file:
                    yield {"method": "POST", "url": f"{self._url}/", "files": {kind: (f"document.{kind}", file)}}
        elif re.search(r"[?#@\\]|[^!-~]", source.url):
            # In the body, a fragment survives, and neither a proxy's log nor httpx's shows what a query may hold.
            yield {"method": "POST", "url": f"{self._url}/", "json": {"url": source.url}}
        else:
            yield {"method": "GET", "url": f"{self._url}/{source.url}"}

    def _transcription(self, response: httpx.Response) -> Transcription:
        if not response.is_success:
            raise self._refusal(response.status_code, _body(response), response.headers)
        kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind.endswith("json"):
            return self._of_json(_body(response), response.headers)
        if kind not in ("text/plain", "text/markdown"):
            raise TransientError(f"{self._host} answered with {kind or 'something'}, not with text.", code="bad_answer")
        head = _PLAIN_HEAD.match(response.text)
        warning = _PLAIN_WARNING.search(head[0]) if head else None
        text = response.text[head.end() :] if head else response.text
        return _page(text, warning and warning[1], None, response.headers.get("x-usage-tokens"))

    def _of_json(self, body: Any, headers: Mapping[str, str]) -> Transcription:
        envelope = body if isinstance(body, dict) else {}
        code, data = envelope.get("code"), envelope.get("data")
        if isinstance(code, int) and code >= 400:
            raise self._refusal(code, body, headers)
        if not isinstance(data, dict) or not isinstance(data.get("content"), str):
            raise TransientError(f"The answer of {self._host} has no content.", code="bad_answer")
        usage = data.get("usage")
        used = usage.get("tokens") if isinstance(usage, dict) else headers.get("x-usage-tokens")
        return _page(data["content"], data.get("warning"), data.get("httpStatus"), used)

    def _refusal(self, status: int, body: Any, headers: Mapping[str, str]) -> JinaOCRError:
        message = refusal(self._host, status, body, self._key)
        own_status = body.get("status") if isinstance(body, dict) else None
        wait = retry_after(headers)
        kind: type[EngineError] = TransientError
        if status in (401, 403):
            advice = (
                "Is the API key right?" if self._key else "OCR needs a key there: set JINA_API_KEY or pass api_key=."
            )
            message, kind = f"{message} {advice}", AuthenticationError
        elif status == 402:
            message, kind = f"{message} The account has no credit left.", QuotaError
        elif status == 409 and own_status != _LOCKED:
            message, kind = f"{message} A page takes more than the token_budget.", BudgetExceededError
        elif status == 451:
            return ForbiddenURLError(message, code="refused_for_safety")
        elif status in (429, 503):
            kind = RateLimitedError
        elif 300 <= status < 400:
            message, kind = f"{message} It redirects elsewhere, and nothing is sent on.", EngineNotReadyError
        elif 400 <= status < 500 and status not in (408, 409, 425):
            kind = RequestRejectedError
        return kind(message, status=status, retry_after=wait)

    def _new_client(self) -> httpx.AsyncClient:
        # None of httpx's own: the pipeline bounds what is in flight, and with it what is kept open.
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
        return make_client(httpx.AsyncClient, self._settings, limits=limits)


def _body(response: httpx.Response) -> Any:
    """The parsed JSON, or the text where it is none."""
    try:
        return json.loads(response.content)
    except ValueError:
        return response.text


def _page(text: str, warning: object, site: object, used: object) -> Transcription:
    """The page, unless what was read is the error page of the document's site.

    Parameters:
        warning: what Reader says of its reading, if anything.
        site: the HTTP status of the document's site, where it is known.
        used: tokens, as text or number.
    """
    if error := _SITE_ERROR.search(str(warning)):
        site = int(error[1])
    if isinstance(site, int) and site >= 400:
        message = f"the document's site answered {site} to Reader"
        if site >= 500 or site in (408, 429):
            raise TransientError(f"{message}.", code="site_error", status=site)
        raise DownloadError(message)
    if warning:
        logger.warning("Reader says: %s", warning)
    # Reader does not tell input and output apart.
    spent = Usage(input_tokens=int(str(used))) if str(used).isdecimal() else Usage()
    return Transcription(text, usage=spent, model=MODEL, warnings=("reader_warning",) if warning else ())
