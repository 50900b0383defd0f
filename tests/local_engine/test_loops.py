"""The loop finder: catches every period, leaves honest pages alone."""

import random

import pytest

from local_engine.loops import CHECK_EVERY, MAX_PERIOD, MIN_REPEATS, MIN_SPAN, PIECE, Loop, LoopGuard, find_loop


def pieces(text: str) -> list[str]:
    return [match.group() for match in PIECE.finditer(text)]


def prose(words: int, seed: int = 0) -> list[int]:
    """Token ids without any repeated pattern."""
    return random.Random(seed).sample(range(10_000), words)


def looping(period: int, size: int) -> list[int]:
    pattern = [20_000 + i for i in range(period)]
    return [pattern[i % period] for i in range(size)]


@pytest.mark.parametrize("period", range(1, MAX_PERIOD + 1))
def test_every_period_from_1_to_100_is_found_where_it_begins(period):
    """A loop of any period is found with its start, its period and its whole copies, wherever the end falls."""
    head = prose(57)
    size = max(MIN_REPEATS * period, MIN_SPAN) + period // 2
    assert find_loop(head + looping(period, size)) == Loop(57, period, size // period)


@pytest.mark.parametrize("period", [1, 2, 7, 34, 35, 36, 99, 100])
def test_a_loop_is_no_loop_before_it_is_long_enough(period):
    """One element under the least span, nothing is reported."""
    assert find_loop(prose(57) + looping(period, max(MIN_REPEATS * period, MIN_SPAN) - 1)) is None


def test_only_the_end_counts():
    """Text that looped and went on is not looping."""
    assert find_loop(looping(3, 900) + prose(MAX_PERIOD)) is None


def test_a_pattern_longer_than_the_longest_period_is_left_alone():
    """A page that repeats every 101 tokens is outside of what was asked."""
    assert find_loop(looping(MAX_PERIOD + 1, 4000)) is None
    assert find_loop(looping(MAX_PERIOD + 1, 4000), MAX_PERIOD + 1) == Loop(0, MAX_PERIOD + 1, 4000 // (MAX_PERIOD + 1))


def test_a_pattern_that_repeats_inside_itself_is_found_as_a_whole():
    """`a a a b` repeated is one pattern of four, not a loop of `a`."""
    assert find_loop([1, 1, 1, 2] * 200) == Loop(0, 4, 200)


def test_short_and_empty_sequences_do_not_loop():
    """Nothing, one element, and less than the least span give no loop."""
    assert find_loop([]) is None
    assert find_loop([7]) is None
    assert find_loop("abc" * 5) is None


def test_the_thresholds_can_be_lowered():
    """A caller that knows more, such as that the token limit was hit, may ask for less."""
    assert find_loop("xyabcabcabc", 10, 3, min_span=0) == Loop(2, 3, 3)


@pytest.mark.parametrize(
    "page",
    [
        "Chapter one " + "." * 180 + " 12\nChapter two " + "." * 200,
        "Chapter one " + ". " * 180,
        "Name " + "_" * 200,
        "| a | b |\n|" + "---|" * 50,
        "-" * 200,
        ("_" * 90 + "\n") * 30,
        "<table>" + ("<tr>" + "<td></td>" * 12 + "</tr>") * 50,
        "<table><tr>" + "<td></td>" * 50,
        "<table>" + "<tr><td>0.00</td><td>0.00</td><td>n/a</td></tr>" * 40,
        "| x | y | z |\n|---|---|---|\n" + "| | | |\n" * 60,
        "| day | yes | no |\n|---|---|---|\n" + "| 0 | 0 | 0 |\n" * 60,
        "0 0 0 0 0 0 0 0 0 0\n" * 60,
        r"\begin{array}" + r"0 & 0 & 0 & 0 \\" * 40,
    ],
    ids=lambda page: page[:24],
)
def test_an_honest_page_is_left_alone_at_every_length(page):
    """Leaders, rulings, blank forms, rows of zeros and matrices of zeros pass, however much has been read."""
    seq = pieces(page)
    assert [n for n in range(len(seq) + 1) if find_loop(seq[:n])] == []


@pytest.mark.parametrize(
    ("page", "period"),
    [
        ("Total " + "." * 2000, 1),
        ("the " * 400, 1),
        ("It was the end of the day. " * 60, 8),
        ("It was the end of the day.\n" * 60, 9),
        ("<table>" + "<tr><td>1</td><td>2</td></tr>" * 200, 8),
        ("<table><tr>" + "<td></td>" * 200, 2),
        ("<table>" + ("<tr>" + "<td></td>" * 12 + "</tr>") * 90, 26),
        ("| x | y |\n|---|---|\n" + "| | |\n" * 120, 4),
        ("Stop" + "!" * 320, 1),
    ],
    ids=lambda value: str(value)[:24],
)
def test_a_page_that_never_ends_is_a_loop(page, period):
    """The same kinds of text, longer than any page, are found; what is kept is the text up to the end of one copy."""
    seq = pieces(page)
    loop = find_loop(seq)
    assert loop is not None
    assert loop.period == period
    kept = seq[: loop.start + loop.period]
    assert page.replace(" ", "").startswith("".join(kept))
    assert find_loop(kept) is None


@pytest.mark.parametrize("period", [1, 2, 10, 35, 36, 77, 100])
@pytest.mark.parametrize("chunk", [1, 4, 50])
def test_the_guard_stops_a_stream_a_few_tokens_after_it_became_a_loop(period, chunk):
    """Fed in pieces as speculation delivers them, the guard is at most `CHECK_EVERY` and one chunk late."""
    stream = prose(123) + looping(period, 3000)
    guard = LoopGuard()
    for end in range(chunk, len(stream), chunk):
        loop = guard.push(stream[end - chunk : end])
        if loop:
            break
    assert loop is not None
    assert (loop.start, loop.period) == (123, period)
    assert end <= 123 + max(MIN_REPEATS * period, MIN_SPAN) + CHECK_EVERY + chunk


def test_the_guard_reads_the_text_of_ids():
    """With a tokenizer's decode, rows of empty cells pass as ids too; without it, ids are judged by their count."""
    names = ["<tr>", "<td>", "</td>", "</tr>"]
    rows = ([0] + [1, 2] * 12 + [3]) * 40
    assert LoopGuard(lambda ids: "".join(names[i] for i in ids)).push(rows) is None
    assert LoopGuard().push(rows) == Loop(0, 26, 40)
