"""The benchmark: its table says what was measured, and it measures a real engine."""

import asyncio

import pytest

from local_engine.benchmark import CARD, Measurement, Setup, measure_engine, table


def measured(name, speed, lone, acceptance=()):
    loads = {"32": speed} if name == CARD else {"32": speed, "128": 2 * speed}
    tokens = {load: 1000 * pages for load, pages in loads.items()}
    return Measurement(name, 80, loads, tokens, lone, 1000 / lone, acceptance, 1 + sum(acceptance), 20)


def test_the_table_compares_with_the_card_recipe_and_with_no_drafts():
    """Rows hold speed, acceptance and dollars; ratios are to the card's recipe and to our own K = 0."""
    text = table([measured(CARD, 4, 3), measured("K = 0", 8, 2), measured("K = 3", 12, 1, (0.8, 0.6, 0.5))], price=3.6)
    rows = {row.split(" | ")[0].strip("| "): row for row in text.splitlines()}
    assert "| 12.00 | 12000 | 0.083 | 24.00 |" in rows["K = 3"]
    assert "| 0.80 / 0.60 / 0.50 | 2.90 |" in rows["K = 3"]
    assert "| 4.00 | 4000 | 0.250 | - | - | - |" in rows[CARD]
    assert "concurrency-32, K = 3: 3.00 x the card recipe" in text
    assert "lone-page, K = 3: 0.33 of the card recipe's time" in text
    assert "fastmtp-lone, K = 3: 2.00; fastmtp-loaded: 1.50, 1.50" in text
    assert "fastest at 128: K = 3" in text


@pytest.mark.engine
@pytest.mark.timeout(300)
def test_an_engine_is_measured(snapshots):
    """On a real engine with a tiny snapshot all tokens asked for are counted, and acceptance falls by position."""
    snapshot = snapshots(kind="cycle")
    setup = Setup(
        "K = 3",
        str(snapshot.path),
        num_speculative_tokens=3,
        concurrency=(2,),
        pages=2,
        max_tokens=40,
        engine_args={"dtype": "float32", "enforce_eager": True, "max_model_len": 2048},
    )
    result = asyncio.run(measure_engine(setup))
    assert result.tokens_per_second["2"] == pytest.approx(40 * result.pages_per_second["2"])
    assert result.lone_tokens_per_second == pytest.approx(40 / result.lone_seconds)
    assert len(result.acceptance) == 3
    assert result.mean_accepted_length == pytest.approx(1 + sum(result.acceptance))
    assert 1 > result.acceptance[0] > result.acceptance[1] > result.acceptance[2] > 0
