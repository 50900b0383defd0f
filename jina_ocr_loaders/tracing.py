"""OpenTelemetry spans, where its API is installed: one for each document, and in it one for each page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

try:
    from opentelemetry import trace
except ImportError:
    trace = None  # type: ignore[assignment]

NAME = "jina_ocr_loaders"


class Span(Protocol):
    """The part of a span that is used here."""

    def set_attributes(self, attributes: Mapping[str, Any]) -> None:
        """Say what is known only at the end."""
        ...


class _NoSpan:
    def set_attributes(self, attributes: Mapping[str, Any]) -> None:
        pass


@contextmanager
def span(name: str, attributes: Mapping[str, Any]) -> Iterator[Span]:
    """Run the body in a span of this name; without OpenTelemetry it runs as it is. Exceptions are recorded."""
    if trace is None:
        yield _NoSpan()
        return
    with trace.get_tracer(NAME).start_as_current_span(name, attributes=dict(attributes)) as current:
        yield current
