"""OpenTelemetry spans."""

import pytest

from tests.servers import hosted
from tests.servers.hosted import marked_pdf


def test_each_document_and_page_is_a_span(make_ocr, server):
    """One span a document, one a page below it, with status, tokens and attempts; no key and no text in them."""
    sdk = pytest.importorskip("opentelemetry.sdk.trace", reason="the OpenTelemetry SDK is not installed")
    from opentelemetry import trace
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter = InMemorySpanExporter()
    provider = sdk.TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    server.script_page(2, hosted.status(500))
    make_ocr(api_key="jina_secret").read(marked_pdf(2), name="two.pdf")
    spans = exporter.get_finished_spans()
    (document,) = [span for span in spans if span.name == "jina_ocr.document"]
    pages = sorted(
        (span for span in spans if span.name == "jina_ocr.page"), key=lambda span: span.attributes["jina_ocr.page"]
    )
    assert [span.attributes["jina_ocr.attempts"] for span in pages] == [1, 2]
    assert all(span.parent.span_id == document.context.span_id for span in pages)
    assert all(span.attributes["jina_ocr.tokens.output"] > 0 for span in pages)
    assert document.attributes["jina_ocr.source"] == "two.pdf"
    assert "jina_secret" not in repr([span.to_json() for span in spans])
