"""What two readings of the same pages have in common, and how nearly equal the tokens were where they part."""

import math

import pytest

from local_engine.compare import EXACT, Text, compare, main, table
from local_engine.setups import CARD


def text(*tokens, second=None, margin=1.0):
    """A text in which each token leads the one after it by a margin; `second` names the one that comes close."""
    logprobs = tuple({token: -0.5, (second or {}).get(at, token + 1): -0.5 - margin} for at, token in enumerate(tokens))
    return Text(tokens, logprobs)


def test_equal_texts_have_all_tokens_in_common():
    """No page parts, and the logprobs are the same."""
    pages = [text(5, 6, 7), text(8)]
    same = compare("K = 0", pages, CARD, pages)
    assert (same.pages, same.common, same.gaps, same.widest, same.drift) == (2, 4, (), 0.0, 0.0)
    assert "| K = 0 | card recipe | 2 of 2 pages | 4 | - | 0.0000 |" in table([same])


def test_the_gap_is_the_references_own():
    """Where texts part, what counts is by how much the reference held its own token for likelier."""
    reference = text(5, 6, 7, 9, second={2: 8}, margin=0.01)
    found = compare("K = 3", [text(5, 6, 8, 3, margin=4.0), reference], "K = 0", [reference, reference])
    assert found.common == 2 + 4
    assert found.gaps == (pytest.approx(0.01),)
    assert "| K = 3 | K = 0 | 1 of 2 pages | 6 | 0.010 |" in table([found])


def test_a_token_that_the_reference_does_not_list_is_at_least_as_far_as_the_last_it_does():
    """A token out of the blue has the gap of the least likely one listed."""
    reference = text(5, 6, margin=3.0)
    assert compare("K = 3", [text(5, 99)], "K = 0", [reference]).gaps == (pytest.approx(3.0),)


@pytest.mark.parametrize(("one", "other"), [((5, 6), (5, 6, 7)), ((5, 6, 7), (5, 6)), ((), (5,))])
def test_a_text_that_is_cut_is_no_tie(one, other):
    """A text that stops where the other goes on, in either direction, parts from it without bound."""
    assert compare("K = 3", [text(*one)], "K = 0", [text(*other)]).gaps == (math.inf,)


def test_logprobs_are_compared_up_to_where_the_texts_part():
    """The drift is the root mean square over the tokens that both list."""
    near, far = Text((5, 6), ({5: -0.5, 6: -1.0}, {6: -0.5})), Text((5, 7), ({5: -0.4, 9: -1.0}, {7: -0.1, 6: -9.0}))
    assert compare("a", [near], "b", [far]).drift == pytest.approx(0.1)


@pytest.mark.engine
@pytest.mark.timeout(900)
def test_the_engine_is_compared_with_the_recipe(snapshots, page, tmp_path, capsys):
    """On real vLLM, on a snapshot whose every layer acts: an engine in fp32 gives the text of the recipe in fp32, with
    and without drafts, and the recipe in bf16 is told from it."""
    images = [tmp_path / f"{number}.png" for number in range(2)]
    for number, image in enumerate(images):
        page(300, 200, number).save(image)
    options = ["--drafts", "3", "--max-tokens", "40", "--engine-args", '{"dtype": "float32"}']
    assert main([str(snapshots(kind="live").path), *map(str, images), *options]) == 0
    recipe, *engine = (row.strip("| ").split(" | ") for row in capsys.readouterr().out.splitlines()[2:])
    assert recipe[:2] == [CARD, EXACT]
    assert 1e-3 < float(recipe[5]) < 0.5
    for name, row in zip(["K = 0", "K = 3"], engine, strict=True):
        assert row[:5] == [name, EXACT, "2 of 2 pages", "80", "-"]
        assert float(row[5]) < 1e-3


def test_a_snapshot_that_is_not_there_is_said(tmp_path, capsys):
    """One line, before any process is started for it."""
    assert main([str(tmp_path / "nowhere")]) == 1
    assert capsys.readouterr().err.count("\n") == 1
