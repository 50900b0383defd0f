"""Cost before it is spent."""

import pytest

from jina_ocr_loaders import BudgetExceededError, Delta, OCRRequest
from jina_ocr_loaders.engines.base import Render
from jina_ocr_loaders.estimate import check_cost_allowed, estimate
from tests.servers.hosted import marked_pdf

A4 = 903  # tokens of an upright page: 2 x 3 tiles and the global view (reference: "Image tiles")


class Remote:
    """An engine on another machine."""

    name, model, leaves_machine, render, max_concurrency, prices = "remote", "m", True, Render(), None, None

    async def stream(self, page, request):
        yield Delta("text", finish_reason="stop")

    async def aclose(self):
        pass


def of(prices, sizes=(((1280, 1920),), ((1280, 1920), (1280, 1920)))):
    """The estimate of two pages, the second in two strips."""
    return estimate("a.pdf", Remote(), OCRRequest("x" * 40, max_tokens=500), 9, [1, 5], sizes, prices)


def test_pages_are_counted_by_the_tile_rule():
    """Image tokens a page, strips added up; prompt and output for each request; dollars by the price."""
    expected = of((0.5, 2.0))
    assert expected.image_tokens == (A4, 2 * A4)
    assert expected.input_tokens == 3 * (A4 + 10 + 10)
    assert expected.output_tokens == 3 * 500
    assert expected.cost == pytest.approx((expected.input_tokens * 0.5 + expected.output_tokens * 2) / 1e6)
    assert (expected.pages, expected.page_count) == (2, 9)


def test_a_price_that_nobody_knows_is_refused_under_a_budget():
    """max_cost cannot be kept to then: say so instead of guessing."""
    with pytest.raises(BudgetExceededError, match="price of engine 'remote' is not known"):
        check_cost_allowed(of(None), 1.0)
    check_cost_allowed(of((0.5, 2.0)), 1.0)


def test_a_server_that_lists_prices_is_believed(make_ocr, server):
    """The price comes from /v1/models; no page is sent."""
    expected = make_ocr().estimate(marked_pdf(2), pages="2")
    assert expected.numbers == (2,)
    assert expected.cost == pytest.approx((expected.input_tokens * 0.5 + expected.output_tokens * 2) / 1e6)
    assert not server.requests
    assert [request.path for request in server.other_requests] == ["/v1/models"]
