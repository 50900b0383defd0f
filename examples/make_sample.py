"""Makes sample.pdf: two pages with headings, two columns, a list, a table and a footnote. Needs fpdf2.

    python examples/make_sample.py [FILE]

The same bytes come out every time.
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path

from fpdf import FPDF, FontFace

LEFT = """\
Tidal flats look empty at low water, yet a square metre of mud can hold more animals than a square metre of rain \
forest. Most of them are smaller than a grain of rice. They live on the thin film of algae that covers the surface and \
turns green in the sun, and they are the reason why millions of birds rest here on their way south.

The survey counted these animals at twelve stations between March and October. At each station three cores were \
taken, ten centimetres wide and thirty deep. Each core was sieved on the spot, and what stayed in the sieve was \
sorted under a microscope within two days.
"""
RIGHT = """\
Counting by hand is slow, and two people rarely agree on the last tenth of the animals. Every fifth core was \
therefore counted twice. Where both counts differed by more than five per cent, a third person decided.

The weather was kind to the work. Only two days were lost to storms, and the ice of the winter before had left no \
marks on the stations. The cores of June are missing from station nine, because the boat could not land there; they \
were taken in the first week of July instead.
"""
CLOSING = (
    "Numbers rose until July and fell in autumn, as they do in most years. The snails led in every "
    "month, and the worms hardly changed. The cockles of 2025 grew well: their mean length passed twenty millimetres "
    "before the first frost."
)
STEPS = ("Walk to the station at low water.", "Take three cores and label them.", "Sieve, sort and count.")
COUNTS = (
    ("Month", "Stations", "Snails", "Worms", "Cockles"),
    ("March", "12", "4,180", "2,210", "310"),
    ("May", "12", "9,655", "2,340", "1,275"),
    ("July", "12", "12,902", "2,405", "2,980"),
    ("September", "11", "8,114", "2,288", "2,651"),
    ("October", "12", "5,037", "2,196", "2,403"),
)


def main() -> None:
    """Write the document."""
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).with_name("sample.pdf")
    target.write_bytes(make())


def make() -> bytes:
    """The document's bytes."""
    pdf = _Sample(format="A4")
    pdf.set_title("Life in the Mud")
    pdf.set_author("Jina OCR loaders")
    pdf.set_creation_date(datetime(2026, 1, 1, tzinfo=UTC))
    pdf.set_margin(25)
    pdf.set_auto_page_break(False)
    _first_page(pdf)
    _second_page(pdf)
    return bytes(pdf.output())


class _Sample(FPDF):
    """Pages with a running head and a page number."""

    def header(self) -> None:
        self.set_font("Helvetica", size=8)
        self.set_xy(25, 10)
        self.cell(0, 4, "Shore Notes")

    def footer(self) -> None:
        self.set_font("Helvetica", size=8)
        self.set_y(-14)
        self.cell(0, 4, str(self.page_no()), align="C")


def _first_page(pdf: FPDF) -> None:
    pdf.add_page()
    pdf.set_y(30)
    pdf.set_font("Helvetica", "B", 24)
    pdf.cell(0, 12, "Life in the Mud", new_x="LMARGIN", new_y="NEXT")
    pdf.set_font("Helvetica", size=12)
    pdf.cell(0, 8, "A survey of the tidal flats in 2025", new_x="LMARGIN", new_y="NEXT")
    pdf.ln(6)
    pdf.set_font("Times", size=11)
    with pdf.text_columns(text=LEFT, ncols=2, gutter=9, text_align="J", line_height=1.25) as columns:
        columns.new_column()
        columns.write(RIGHT)


def _second_page(pdf: FPDF) -> None:
    pdf.add_page()
    pdf.set_y(30)
    _heading(pdf, "Method")
    pdf.set_font("Times", size=11)
    for number, step in enumerate(STEPS, 1):
        pdf.cell(0, 7, f"{number}. {step}", new_x="LMARGIN", new_y="NEXT")
    pdf.ln(4)
    _heading(pdf, "Counts")
    pdf.set_font("Times", size=11)
    with pdf.table(
        COUNTS,
        headings_style=FontFace(emphasis="BOLD"),
        text_align=("LEFT", "RIGHT", "RIGHT", "RIGHT", "RIGHT"),
        line_height=7,
    ):
        pass
    pdf.ln(3)
    pdf.set_font("Times", "I", 10)
    pdf.cell(0, 6, "Table 1. Animals in all cores of a month.", new_x="LMARGIN", new_y="NEXT")
    pdf.ln(4)
    pdf.set_font("Times", size=11)
    pdf.multi_cell(0, 6, CLOSING, align="J", new_x="LMARGIN", new_y="NEXT")
    pdf.set_font("Times", size=8)
    pdf.set_y(262)
    pdf.cell(0, 4, "* Station four was not reached in September.")


def _heading(pdf: FPDF, text: str) -> None:
    pdf.set_font("Helvetica", "B", 15)
    pdf.cell(0, 10, text, new_x="LMARGIN", new_y="NEXT")
    pdf.ln(2)


if __name__ == "__main__":
    main()
