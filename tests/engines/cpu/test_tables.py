"""Tables."""

from __future__ import annotations

from jina_ocr_loaders.engines.cpu.geometry import Box, Line, Region
from jina_ocr_loaders.engines.cpu.tables import find_tables
from tests.engines.cpu.drawing import font, line, paragraph

COLUMNS = (100.0, 400.0, 600.0, 800.0)
HEADS = ("Fruit", "2023", "2024", "2025")
ROWS = (("Apples", "120", "131", "140"), ("Pears", "80", "", "91"), ("Plums", "44", "52", "48"))


def grid(rows: tuple[tuple[str, ...], ...], top: float = 200.0, pitch: float = 30.0) -> list[Line]:
    return [
        line(text, left, top + i * pitch)
        for i, row in enumerate(rows)
        for text, left in zip(row, COLUMNS, strict=True)
        if text
    ]


def test_a_simple_table_is_a_pipe_table_with_its_empty_cell():
    """Every cell in its column, the empty one too; no layout model is needed."""
    tables, rest = find_tables(grid((HEADS, *ROWS)), [])
    assert not rest
    assert tables[0].markdown == (
        "| Fruit | 2023 | 2024 | 2025 |\n| --- | --- | --- | --- |\n"
        "| Apples | 120 | 131 | 140 |\n| Pears | 80 |  | 91 |\n| Plums | 44 | 52 | 48 |"
    )


def centred(text: str, middle: float, top: float) -> Line:
    return line(text, middle - font(20).getlength(text) / 2, top)


def test_a_head_in_the_middle_over_several_columns_spans_them():
    """That cannot be said with pipes, so it is HTML, and the columns below keep their places."""
    right = COLUMNS[3] + font(20).getlength("140")
    lines = [centred("Year", (COLUMNS[1] + right) / 2, 170), *grid((HEADS, *ROWS))]
    tables, rest = find_tables(lines, [])
    assert not rest
    html = tables[0].markdown.splitlines()
    assert html[1] == '<tr><th></th><th colspan="3">Year</th></tr>'
    assert html[2] == "<tr><th>Fruit</th><th>2023</th><th>2024</th><th>2025</th></tr>"
    assert html[4] == "<tr><td>Pears</td><td>80</td><td></td><td>91</td></tr>"


def test_a_cell_that_reaches_over_two_columns_spans_them():
    """A wide text in the middle of a table is one cell."""
    wide = line("reported together with the others", COLUMNS[1], 200 + 4 * 30)
    lines = [*grid((HEADS, *ROWS)), line("Figs", COLUMNS[0], 200 + 4 * 30), wide, line("9", COLUMNS[3], 320)]
    tables, _ = find_tables(lines, [Region("table", Box(90, 190, 900, 350), 0.9)])
    assert '<td>Figs</td><td colspan="2">reported together with the others</td><td>9</td>' in tables[0].markdown


def test_the_second_line_of_a_cell_stays_in_it():
    """It stands closer to its row than rows stand to each other."""
    lines = grid((HEADS, *ROWS), pitch=60)
    lines.append(line("(dried)", COLUMNS[0], 200 + 60 * 3 + 18))
    tables, _ = find_tables(lines, [])
    assert "| Plums (dried) | 44 | 52 | 48 |" in tables[0].markdown


def test_cells_of_several_lines_are_one_row():
    """In a table of text most cells go on below: rows are where the first column begins a new one."""
    places = (100, 250, 500)
    rows = [
        ("Method", "Advantages", "Drawbacks"),
        ("Sonar", "Works in muddy water", "Needs calm weather and"),
        ("", "and at any depth.", "a careful hand."),
        ("Divers", "See every crack.", "Danger in strong"),
        ("", "", "currents."),
        ("Weir", "All is dry.", "Rare."),
    ]
    tops = (200, 240, 262, 302, 324, 364)
    lines = [
        line(text, left, top)
        for row, top in zip(rows, tops, strict=True)
        for text, left in zip(row, places, strict=True)
        if text
    ]
    tables, _ = find_tables(lines, [Region("table", Box(90, 190, 900, 400), 0.9)])
    assert tables[0].markdown.splitlines()[2:] == [
        "| Sonar | Works in muddy water and at any depth. | Needs calm weather and a careful hand. |",
        "| Divers | See every crack. | Danger in strong currents. |",
        "| Weir | All is dry. | Rare. |",
    ]


def test_sums_below_are_rows_and_a_sentence_below_is_none():
    """The layout model's region ends early or late; what is in line with the columns belongs to them."""
    total = [line("Total", COLUMNS[0], 320), line("244", COLUMNS[1], 320), line("279", COLUMNS[3], 320)]
    source = line("Source: a survey of all markets, made in December.", COLUMNS[0], 350)
    lines = [*grid((HEADS, *ROWS)), *total, source]
    early, rest = find_tables(lines, [Region("table", Box(90, 190, 900, 310), 0.9)])
    assert early[0].markdown.splitlines()[-1] == "| Total | 244 |  | 279 |"
    assert rest == [source]
    late, rest = find_tables(lines, [Region("table", Box(90, 190, 900, 380), 0.9)])
    assert late[0].markdown == early[0].markdown
    assert rest == [source]


def test_heads_at_the_left_of_the_columns_that_they_belong_to_span_them():
    """Two heads over two columns each, set flush left, as most spreadsheets do."""
    heads = [line("2023", COLUMNS[0] + 200, 170), line("2024", COLUMNS[2], 170)]
    places = (100.0, COLUMNS[0] + 200, 450.0, COLUMNS[2], 750.0)
    body = (
        ("Site", "Junior", "Senior", "Junior", "Senior"),
        ("Porto", "12", "4", "15", "5"),
        ("Lund", "30", "11", "28", "12"),
    )
    lines = [
        line(text, left, 200 + 30 * i) for i, row in enumerate(body) for text, left in zip(row, places, strict=True)
    ]
    tables, _ = find_tables([*heads, *lines], [Region("table", Box(90, 160, 900, 290), 0.9)])
    assert '<tr><th></th><th colspan="2">2023</th><th colspan="2">2024</th></tr>' in tables[0].markdown


def test_currency_signs_go_with_their_numbers():
    """A sign that stands at the left of a column, far from the number, makes no column of its own."""
    lines = grid((HEADS, *ROWS), pitch=30)
    lines += [line("$", left - 60, 230) for left in COLUMNS[1:]]
    tables, _ = find_tables(lines, [])
    assert "| Apples | $ 120 | $ 131 | $ 140 |" in tables[0].markdown


def test_slanted_heads_stand_over_the_column_in_which_they_begin():
    """A head that is set at 45 degrees belongs to where it starts, not to where its box lies."""
    slanted = [
        Line(text, Box(left, 120, left + 80, 200), 1.0, (), 45.0, 20.0)
        for text, left in zip(HEADS[1:], COLUMNS[1:], strict=True)
    ]
    tables, rest = find_tables([*slanted, line("Fruit", COLUMNS[0], 180), *grid(ROWS, top=210)], [])
    assert not rest
    assert tables[0].markdown.startswith("| Fruit | 2023 | 2024 | 2025 |")


def test_bars_and_angle_brackets_in_cells_are_escaped():
    """A cell cannot break out of its table."""
    tables, _ = find_tables(grid((HEADS, ("a|b", "1", "2", "3"), ("c", "4", "5", "6"))), [])
    assert "| a\\|b | 1 | 2 | 3 |" in tables[0].markdown
    right = COLUMNS[3] + font(20).getlength("140")
    head = centred("Year", (COLUMNS[1] + right) / 2, 170)
    tables, _ = find_tables([head, *grid((HEADS, ("<b>x", "1", "2", "3"), *ROWS))], [])
    assert "<td>&lt;b&gt;x</td>" in tables[0].markdown


def test_columns_of_prose_are_no_table():
    """Three columns of running text stand in rows too, but their lines are long."""
    text = "The quick brown fox jumps over the lazy dog and runs on through the dark wood until night falls. " * 3
    lines = [one for left in (100, 420, 740) for one in paragraph(text, left, 200, 300)]
    tables, rest = find_tables(lines, [])
    assert not tables
    assert len(rest) == len(lines)


def test_prose_beside_two_columns_of_facts_is_no_table():
    """As in an encyclopedia: the text's lines stand at the heights of the facts beside it."""
    text = "He was the younger son of the king, and his reign was a lull between raids, of which little is known. " * 3
    prose = paragraph(text, 100, 200, 480)
    facts = [
        one
        for i, row in enumerate(prose)
        for one in (line(f"Key {i}", 640, row.box.top), line(f"Value {i}", 760, row.box.top))
    ]
    tables, rest = find_tables([*prose, *facts], [])
    assert not tables
    assert len(rest) == 3 * len(prose)


def test_text_around_a_table_stays_outside():
    """The paragraph before and the caption after it are not drawn in."""
    before = paragraph("What was sold in three years of the market is listed below as follows:", 100, 150, 800)
    after = paragraph("Table 1. Fruit sold at the market in tons, as far as it was weighed.", 100, 340, 800)
    tables, rest = find_tables([*before, *grid((HEADS, *ROWS)), *after], [])
    assert len(tables) == 1
    assert rest == [*before, *after]
