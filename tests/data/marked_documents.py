"""PDFs whose pages the test server tells apart, with blank pages between them and properties."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

from fpdf import FPDF

from tests.servers.hosted import marked_image


def marked_document(pages: Iterable[int | None], *, title: str = "", author: str = "", password: str = "") -> bytes:
    """A PDF that carries a mark on each page, and nothing on those given as None.

    Producer, creator and creation date are always the same.
    """
    pdf = FPDF(unit="pt", format=(320, 452))
    pdf.set_creation_date(datetime(2026, 3, 1, 12, 0, tzinfo=UTC))
    pdf.set_producer("the producer")
    pdf.set_creator("the creator")
    if title:
        pdf.set_title(title)
    if author:
        pdf.set_author(author)
    if password:
        pdf.set_encryption(owner_password=password, user_password=password)
    for number in pages:
        pdf.add_page()
        if number is not None:
            pdf.image(marked_image(number), 0, 0, 320, 452)
    return bytes(pdf.output())
