"""The benchmark: its table says what was measured, and it measures a real engine."""

import re

import pytest

from local_engine import benchmark
from local_engine.benchmark import Measurement, main, table
from local_engine.setups import CARD


def measured(name, speed, lone, acceptance=(), pipeline=()):
    loads = {"32": speed} if name == CARD else {"32": speed, "128": 2 * speed}
    tokens = {load: 1000 * pages for load, pages in loads.items()}
    steps = 1 + sum(acceptance)
    return Measurement(name, 80, loads, tokens, lone, 1000 / lone, acceptance, steps, 20, dict(pipeline))


def test_the_table_compares_with_the_card_recipe_and_with_no_drafts():
    """Rows hold speed, acceptance and dollars; ratios are to the card's recipe and to our own K = 0."""
    rounds = {"32": [0.97, 1.1, 0.88], "128": [0.96, 0.95, 0.94]}
    ours = [measured("K = 0", 8, 2), measured("K = 3", 12, 1, (0.8, 0.6, 0.5), rounds)]
    text = table([measured(CARD, 4, 3), *ours], price=3.6)
    rows = {row.split(" | ")[0].strip("| "): row for row in text.splitlines()}
    assert "| 12.00 | 12000 | 0.083 | 24.00 |" in rows["K = 3"]
    assert "| 0.80 / 0.60 / 0.50 | 2.90 |" in rows["K = 3"]
    assert "| 4.00 | 4000 | 0.250 | - | - | - |" in rows[CARD]
    assert "concurrency-32, K = 3: 3.00 x the card recipe" in text
    assert "lone-page, K = 3: 0.33 of the card recipe's time" in text
    assert "fastmtp-lone, K = 3: 2.00; fastmtp-loaded: 1.50, 1.50" in text
    assert "pipeline, K = 3: 0.97, 0.95 of the same pages ready-made" in text
    assert "fastest at 128: K = 3" in text


@pytest.mark.engine
@pytest.mark.timeout(900)
def test_the_benchmark_runs_from_the_command_line(snapshots, page, tmp_path, capsys):
    """On real vLLM, with real pages: card recipe and engine, and every figure that the head of the table names."""
    images = [tmp_path / f"{number}.png" for number in range(2)]
    for number, image in enumerate(images):
        page(300, 200 + 500 * number, number).save(image)
    options = ["--drafts", "3", "--concurrency", "2", "--pages", "4", "--max-tokens", "40", "--price", "3.6"]
    assert main([str(snapshots(kind="cycle").path), *map(str, images), *options]) == 0
    printed = capsys.readouterr().out
    head, _, card, ours = (row.strip("| ").split(" | ") for row in printed.splitlines()[:4])
    assert (card[0], ours[0]) == (CARD, "K = 3")
    plain, drafting = dict(zip(head, card, strict=True)), dict(zip(head, ours, strict=True))
    for row in (plain, drafting):
        assert all(float(row[name]) > 0 for name in head[1:] if name != "acceptance")
        speed = float(row["pages/s at 2"])
        assert float(row["tokens/s at 2"]) == pytest.approx(40 * speed, rel=0.1, abs=1)
        assert float(row["$ per 1,000 pages at 2"]) == pytest.approx(1 / speed, rel=0.1)
        assert float(row["lone tokens/s"]) == pytest.approx(40 / float(row["lone page, s"]), rel=0.1, abs=1)
    assert (plain["acceptance"], plain["tokens/step"]) == ("-", "1.00")
    accepted = [float(share) for share in drafting["acceptance"].split(" / ")]
    assert 1 > accepted[0] > accepted[1] > accepted[2] > 0
    assert float(drafting["tokens/step"]) == pytest.approx(1 + sum(accepted), abs=0.03)
    (share,) = re.findall(r"^pipeline, K = 3: ([\d.]+) of the same pages ready-made$", printed, re.MULTILINE)
    assert float(share) > 0


@pytest.mark.parametrize("arguments", ["[1]", "{", "dtype"])
def test_arguments_that_are_no_json_object_are_refused(arguments, capsys):
    """The command line names what was given."""
    with pytest.raises(SystemExit):
        main(["--engine-args", arguments])
    assert f"not a JSON object: {arguments}" in capsys.readouterr().err


def test_arguments_are_for_the_engine_alone(monkeypatch):
    """The card's recipe is measured as it is."""
    measured = []
    monkeypatch.setattr(benchmark, "can_run", lambda program, model: True)
    monkeypatch.setattr(benchmark, "in_process", lambda work, setup: measured.append(setup))
    assert main(["--engine-args", '{"dtype": "float32"}', "--drafts", "0", "3"]) == 1
    assert [(setup.name, dict(setup.engine_args)) for setup in measured] == [
        (CARD, {}),
        ("K = 0", {"dtype": "float32"}),
        ("K = 3", {"dtype": "float32"}),
    ]


@pytest.mark.engine
def test_a_snapshot_that_is_not_there_is_said_once(tmp_path, capsys):
    """One line, before any process is started for it."""
    assert main([str(tmp_path / "nowhere")]) == 1
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert str(tmp_path / "nowhere") in err
