"""What an answer of chat/completions says, streamed or whole, from servers that keep to the format and from others.

Chunks of a stream are dicts, a whole answer is an object of the openai library's. Neither is checked by anyone: any
field may be missing or of another type.
"""

from __future__ import annotations

from typing import Any

from jina_ocr_loaders.engines.base import Delta
from jina_ocr_loaders.errors import RequestRejectedError, TransientError
from jina_ocr_loaders.results import Usage

BAD_ANSWER = "bad_answer"  # code of an answer that is none: not JSON, or without a choice

_SAME = {"eos": "stop", "eos_token": "stop", "end_turn": "stop", "max_tokens": "length"}
_GIVEN_UP = {"abort", "cancelled", "error"}  # vLLM says "abort" when it is being shut down


class StreamReading:
    """What the chunks of a stream have told so far.

    Attributes:
        finish_reason: as sent, or None.
        ended: a finish reason or the final usage has come, so that the text is whole.
    """

    def __init__(self) -> None:
        self.finish_reason: str | None = None
        self.ended = False
        self._usage: Usage | None = None
        self._model: str | None = None
        self._spoke = False

    def take(self, chunk: Any) -> str:
        """Take in a chunk and return its text."""
        usage = _usage(chunk)
        self._usage = usage or self._usage
        self._model = self._model or _text(chunk, "model")
        choice = _choice(chunk)
        if choice is None:
            # Usage in a chunk without choices comes last; some servers send a running count with every chunk.
            self.ended = self.ended or usage is not None
            return ""
        if finish_reason := _text(choice, "finish_reason"):
            self.finish_reason = finish_reason
            self.ended = True
        text = _text(_field(choice, "delta"), "content")
        if text is None:
            return ""
        self._spoke = True
        return text

    def last(self) -> Delta:
        """The Delta that ends the page.

        Raises:
            EngineError: the server refused or gave up, or its answer has no content at all.
        """
        return _ending(self._spoke, self.finish_reason, self._usage, self._model)


def whole_answer(answer: Any) -> Delta:
    """The page in one Delta, from an answer that was not streamed; here a missing finish reason is no failure.

    Raises:
        EngineError: the server refused or gave up, or its answer has no content at all.
    """
    choice = _choice(answer)
    if choice is None:
        raise TransientError("The server's answer is no chat completion.", code=BAD_ANSWER)
    text = _text(_field(choice, "message"), "content")
    end = _ending(text is not None, _text(choice, "finish_reason"), _usage(answer), _text(answer, "model"))
    return Delta(text or "", end.finish_reason, end.usage, end.model)


def _ending(spoke: bool, finish_reason: str | None, usage: Usage | None, model: str | None) -> Delta:
    if finish_reason == "content_filter":
        raise RequestRejectedError("The server's content filter refused the page.", code="content_filter")
    if finish_reason in _GIVEN_UP:
        raise TransientError(f"The server gave up on the page ({finish_reason}).", code="given_up")
    if not spoke:
        raise TransientError("The server's answer has no content, not even an empty text.", code="no_content")
    return Delta("", _SAME.get(finish_reason or "", finish_reason), usage, model or None)


def _choice(answer: Any) -> Any:
    choices = _field(answer, "choices")
    return choices[0] if isinstance(choices, list) and choices else None


def _text(thing: Any, name: str) -> str | None:
    value = _field(thing, name)
    return value if isinstance(value, str) else None


def _field(thing: Any, name: str) -> Any:
    return thing.get(name) if isinstance(thing, dict) else getattr(thing, name, None)


def _usage(answer: Any) -> Usage | None:
    usage = _field(answer, "usage")
    if usage is None:
        return None
    spent = [_field(usage, name) for name in ("prompt_tokens", "completion_tokens")]
    if all(tokens is None for tokens in spent):
        return None
    return Usage(*(tokens if isinstance(tokens, int) else 0 for tokens in spent))
