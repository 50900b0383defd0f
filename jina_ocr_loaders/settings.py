"""Every option there is, once: its name, type, default and meaning."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from pydantic import BaseModel, ConfigDict, Field, SecretStr

from jina_ocr_loaders.results import PageResult

if TYPE_CHECKING:
    from jina_ocr_loaders.sources import FetchLimits

OnError = Literal["raise", "mark", "skip"]
TextLayer = Literal["never", "trust"]
OnPage = Callable[[PageResult, int], object]
"""Called with each finished page, in page order, and the number of pages that were asked for."""
OnRetry = Callable[["RetryEvent"], object]


class RetryEvent(BaseModel):
    """A wait before another attempt at a page: told to ``on_retry`` and to the log."""

    model_config = ConfigDict(frozen=True)

    source: str
    page: int
    attempt: int = Field(description="The attempt that failed, from 1.")
    code: str = Field(description="The error's code.")
    wait: float = Field(description="Seconds until the next attempt.")


class OCRSettings(BaseModel):
    """The options shared by ``JinaOCR``, the adapters and the command line."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True, hide_input_in_errors=True)

    engine: Any = Field(
        default="auto",
        description='"auto", "hosted", "reader", "vllm", "transformers", "cpu", or an object that implements Engine.',
    )
    api_key: SecretStr | None = Field(default=None, exclude=True, repr=False, description="Or JINA_API_KEY.")
    base_url: str | None = Field(
        default=None, repr=False, description="An OpenAI-compatible server; or JINA_OCR_BASE_URL."
    )
    model: str = Field(default="jina-ocr-v1", description="The model's name on the server, or a local snapshot.")
    prompt: str | None = Field(default=None, description='"default", "benchmark", or the text itself.')
    concurrency: int | None = Field(
        default=None, ge=1, description="Pages in flight at most; None: as many as suit the engine."
    )
    on_error: OnError = Field(
        default="raise", description="What failed pages do: raise at the end, keep their slot, or be left out."
    )
    max_tokens: int = Field(default=4096, ge=1, le=8192, description="Output tokens a page at most.")
    temperature: float = Field(default=0.0, ge=0, description="0 is greedy, as the model was evaluated.")
    max_retries: int = Field(default=4, ge=0, description="Further attempts at a page after passing failures.")
    content_retries: int = Field(default=1, ge=0, description="Further attempts at a page that was cut or looped.")
    timeout: float = Field(default=300.0, gt=0, description="Seconds for one attempt at a page.")
    warmup_timeout: float = Field(default=600.0, ge=0, description="Seconds to wait for a cold start (503).")
    wait_for_server: float = Field(default=10.0, ge=0, description="Seconds to wait while connections are refused.")
    raw: bool = Field(default=False, description="Leave the model's text as it is.")
    pass_urls: bool = Field(default=False, description="Hand image URLs to the server instead of fetching them.")
    text_layer: TextLayer = Field(default="trust", description="cpu engine: read born-digital pages from their text.")
    cache: bool | str | PathLike[str] | None = Field(
        default=None, description="A folder, True, False, or None for what JINA_OCR_CACHE_DIR says."
    )
    refresh: bool = Field(default=False, description="Read again and replace what the cache holds.")
    max_pages: int | None = Field(default=None, ge=1, description="Refuse documents that ask for more pages.")
    max_cost: float | None = Field(default=None, ge=0, description="Refuse documents estimated above these dollars.")
    max_bytes: int = Field(default=1 << 30, ge=1, description="Size of a document at most, in bytes.")
    long_side: int | None = Field(default=None, ge=64, description="Pixels of the page image's longer side.")
    allow_private_networks: bool = Field(default=False, description="Fetch documents from private addresses too.")
    proxy: str | None = Field(default=None, repr=False, exclude=True, description="An HTTP proxy for all requests.")
    ca_bundle: str | PathLike[str] | None = Field(default=None, description="A file of CA certificates.")
    http_client: Any = Field(default=None, exclude=True, repr=False, description="A client for the hosted engine.")
    extra_body: Mapping[str, Any] | None = Field(default=None, description="More fields of hosted requests.")
    engine_options: Mapping[str, Any] | None = Field(default=None, description="Options of the engine's own.")
    on_page: OnPage | None = Field(default=None, exclude=True, repr=False, description="Called with each page.")
    on_retry: OnRetry | None = Field(default=None, exclude=True, repr=False, description="Called before each wait.")

    def fetch_limits(self) -> FetchLimits:
        """What fetching a document may cost."""
        from jina_ocr_loaders.sources import FetchLimits

        return FetchLimits(
            max_bytes=self.max_bytes,
            timeout=self.timeout,
            allow_private_networks=self.allow_private_networks,
            proxy=self.proxy,
            ca_bundle=self.ca_bundle,
        )


class OCROptions(TypedDict, total=False):
    """The same options as keyword arguments, except ``engine``; a test holds both lists equal."""

    api_key: str | SecretStr | None
    base_url: str | None
    model: str
    prompt: str | None
    concurrency: int | None
    on_error: OnError
    max_tokens: int
    temperature: float
    max_retries: int
    content_retries: int
    timeout: float
    warmup_timeout: float
    wait_for_server: float
    raw: bool
    pass_urls: bool
    text_layer: TextLayer
    cache: bool | str | PathLike[str] | None
    refresh: bool
    max_pages: int | None
    max_cost: float | None
    max_bytes: int
    long_side: int | None
    allow_private_networks: bool
    proxy: str | None
    ca_bundle: str | PathLike[str] | None
    http_client: Any
    extra_body: Mapping[str, Any] | None
    engine_options: Mapping[str, Any] | None
    on_page: OnPage | None
    on_retry: OnRetry | None
