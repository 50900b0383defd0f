"""Every error this package raises.

JinaOCRError
├── SourceError                        the document: nothing was read from it
│   ├── SourceNotFoundError            also a FileNotFoundError
│   ├── UnsupportedSourceError         not a PDF or an image, or a source of a kind that is not known
│   ├── CorruptDocumentError           it cannot be opened
│   ├── PasswordRequiredError
│   │   └── WrongPasswordError
│   ├── UnsupportedEncryptionError
│   ├── ResourceLimitError             too many bytes or pixels, or too much time or memory
│   ├── PageRenderError                one page cannot be drawn
│   ├── DownloadError
│   ├── ForbiddenURLError              an address that may not be fetched
│   └── PageRangeError                 also a ValueError
├── EngineError                        the reading of pages
│   ├── EngineNotReadyError            fatal: no engine, or none that answers
│   ├── MissingExtraError              fatal; also an ImportError
│   ├── AuthenticationError            fatal: 401, 403
│   ├── QuotaError                     fatal: 402
│   ├── ModelNotFoundError             fatal
│   ├── BudgetExceededError            fatal: max_pages or max_cost, before anything is spent
│   ├── RequestRejectedError           this page only: 400, 413, 422
│   ├── RateLimitedError               retried: 429
│   ├── WarmingUpError                 retried: 503, a cold start
│   ├── TransientError                 retried: 408, 409, 5xx, disconnects
│   └── DeadlineExceededError          this page only: out of time
└── PagesFailedError                   some pages failed; .result holds all of them
"""

from __future__ import annotations

import errno
import os
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jina_ocr_loaders.results import DocumentResult


class JinaOCRError(Exception):
    """Base of every error of this package.

    Parameters:
        message: what happened and what to do next.
        source: the document, as it is shown to people (never with credentials).
        page: its 1-based page number.
        code: short stable name for programs; by default the class name in snake case without "Error".

    Attributes:
        result: the pages that had been read, if any, where the error ended the reading of a whole document.

    Errors pickle, and compare by identity like any exception.
    """

    fatal = False  # a fatal error ends the document at once, in every error mode
    result: DocumentResult | None = None

    def __init__(
        self, message: str, *, source: str | None = None, page: int | None = None, code: str | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.source = source
        self.page = page
        self.code = code or _snake(type(self).__name__)

    def __str__(self) -> str:
        where = [part for part in (self.source, f"page {self.page}" if self.page else None) if part]
        return f"{', '.join(where)}: {self.message}" if where else self.message


class SourceError(JinaOCRError):
    """The document cannot be read."""

    fatal = True


class SourceNotFoundError(SourceError, FileNotFoundError):
    """There is no such file. Also a FileNotFoundError, with its ``errno``, ``strerror`` and ``filename``."""

    errno = errno.ENOENT
    strerror = os.strerror(errno)

    @property
    def filename(self) -> str | None:  # OSError's own would not survive a pickle
        return self.source


class UnsupportedSourceError(SourceError):
    """Neither a PDF nor an image that is known here."""


class CorruptDocumentError(SourceError):
    """The document is damaged and cannot be opened."""


class PasswordRequiredError(SourceError):
    """The document is encrypted: pass ``password=``."""


class WrongPasswordError(PasswordRequiredError):
    """The password does not open the document."""


class UnsupportedEncryptionError(SourceError):
    """The document is encrypted in a way that the renderer does not know."""


class ResourceLimitError(SourceError):
    """The document exceeds a limit of bytes, pixels, time or memory."""


class PageRenderError(SourceError):
    """One page cannot be drawn; the others can. Its ``code`` says more: blank_render, xfa_placeholder, render_error."""

    fatal = False


class DownloadError(SourceError):
    """The document cannot be fetched."""


class ForbiddenURLError(SourceError):
    """The address may not be fetched: private network, unknown scheme, or not among those allowed."""


class PageRangeError(SourceError, ValueError):
    """The page selection is malformed or names pages that the document does not have."""


# Codes of TransientErrors that the retries look at:
CONNECTION_REFUSED = "connection_refused"  # nobody listens there: a wrong address, or a server that is still starting
NO_END = "no_end"  # a stream that said neither how it finished nor what it used


class EngineError(JinaOCRError):
    """An engine could not read a page.

    Parameters:
        retry_after: seconds that the server asked to wait, if it did.
        status: HTTP status, if there was one.
    """

    def __init__(
        self,
        message: str,
        *,
        source: str | None = None,
        page: int | None = None,
        code: str | None = None,
        retry_after: float | None = None,
        status: int | None = None,
    ) -> None:
        super().__init__(message, source=source, page=page, code=code)
        self.retry_after = retry_after
        self.status = status


class EngineNotReadyError(EngineError):
    """No engine is set up, or the one that is does not answer."""

    fatal = True


class MissingExtraError(EngineError, ImportError):
    """An optional dependency is missing; the message names the extra that brings it.

    Also an ImportError, the one exception that LlamaIndex's SimpleDirectoryReader lets through.
    """

    fatal = True


class AuthenticationError(EngineError):
    """The key is missing, wrong, or not allowed to do this."""

    fatal = True


class QuotaError(EngineError):
    """The account has no credit left."""

    fatal = True


class ModelNotFoundError(EngineError):
    """The server does not offer this model."""

    fatal = True


class BudgetExceededError(EngineError):
    """The run would exceed ``max_pages`` or ``max_cost``: nothing was spent."""

    fatal = True


class RequestRejectedError(EngineError):
    """The server refuses this page for good."""


class RateLimitedError(EngineError):
    """The server asks to slow down."""


class WarmingUpError(EngineError):
    """The model is being started on the server."""


class TransientError(EngineError):
    """A passing failure: a server error, a lost connection, a read time-out."""


class DeadlineExceededError(EngineError):
    """The page was not read within its time."""


class PagesFailedError(JinaOCRError):
    """Some pages could not be read. ``result`` holds every page, the good ones too."""

    result: DocumentResult

    def __init__(self, message: str, *, result: DocumentResult, source: str | None = None) -> None:
        super().__init__(message, source=source)
        self.result = result

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild_pages_failed, (self.message, self.result, self.source)


def _rebuild_pages_failed(message: str, result: DocumentResult, source: str | None) -> PagesFailedError:
    return PagesFailedError(message, result=result, source=source)


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name.removesuffix("Error")).lower()
