"""Pages put together into one text: what a page break cut is made whole again.

A hyphenated word is joined, a sentence goes on in its paragraph, and a table goes on when the next page begins with a
table of as many columns that repeats the header, has an empty one, or has a body row in its place. Everything else is
kept apart by a blank line. Where it is not clear that something goes on, nothing is joined.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from jina_ocr_loaders.tables import Table

_BLANK_LINE = re.compile(r"\n[ \t]*\n")
_NOT_PROSE = re.compile(r"#{1,6}\s|\||<|```|~~~|\$\$|!\[|\[\^|(?:[-*_]\s*){3,}$|\W*(?:page\s)?\d+\W*$", re.IGNORECASE)
_LIST_ITEM = re.compile(r"(?:[-*+]|\d{1,3}[.)]|[a-z][.)])\s")
_CUT_WORD = re.compile(r"([^\W\d_]+)([-\u00ad\u2010])$")
_FIRST_WORD = re.compile(r"[^\W\d_]+")
_END_OF_SENTENCE = re.compile(r"""[.!?:;…。！？：；][)\]"'»”’*_]*$""")
_CJK = re.compile(r"[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff]")


def join_pages(pages: Iterable[str]) -> str:
    """The pages as one Markdown text; blank pages leave no trace.

    Parameters:
        pages: the Markdown of each page, in order.
    """
    texts = [stripped for page in pages if (stripped := page.strip())]
    whole = "\n\n".join(texts)
    joined = ""
    for text in texts:
        joined = _join(joined, text, whole) if joined else text
    return joined


def _join(left: str, right: str, whole: str) -> str:
    if left.count("```") % 2:  # the break is inside a block of code
        return f"{left}\n{right}"
    before, end = _last_block(left)
    start, after = _first_block(right)
    if merged := _join_tables(end, start) or _join_prose(end, start, whole):
        return before + merged + after
    return f"{left}\n\n{right}"


def _join_tables(end: str, start: str) -> str | None:
    upper, lower = Table.parse(end), Table.parse(start)
    if upper and lower and upper.goes_on_in(lower):
        return upper.with_rows_of(lower)
    return None


def _join_prose(end: str, start: str, whole: str) -> str | None:
    """The paragraph that ends one page and begins the next, or None when these are two."""
    if _NOT_PROSE.match(end.rpartition("\n")[2]) or _NOT_PROSE.match(start) or _LIST_ITEM.match(start):
        return None
    head = _FIRST_WORD.match(start)
    if (cut := _CUT_WORD.search(end)) and head:
        return end[: cut.start(2)] + _hyphen(cut[1], cut[2], head[0], whole) + start
    if _END_OF_SENTENCE.search(end):
        return None
    if _CJK.match(end[-1]) and _CJK.match(start):
        return end + start if _END_OF_SENTENCE.search(start) else None
    goes_on = start[0].islower() or (end.endswith(",") and start[0].isalnum())
    return f"{end} {start}" if goes_on else None


def _hyphen(left: str, mark: str, right: str, whole: str) -> str:
    """What stays of the hyphen between two halves: "Austria-Hungary" keeps it, and so does "well-known" where the text
    has it elsewhere; "trans-lation" does not."""
    if mark == "\u00ad":  # a soft hyphen is only ever for the line break
        return ""
    return mark if right[0].isupper() or re.search(rf"\b{left}-{right}\b", whole, re.IGNORECASE) else ""


def _last_block(text: str) -> tuple[str, str]:
    """What stands before the last block (with its blank line), and that block."""
    if text.endswith("</table>") and (at := text.rfind("<table")) >= 0:
        return text[:at], text[at:]
    *_, last = [0, *(match.end() for match in _BLANK_LINE.finditer(text))]
    return text[:last], text[last:]


def _first_block(text: str) -> tuple[str, str]:
    """The first block, and what stands after it (with its blank line)."""
    if text.startswith("<table") and (at := text.find("</table>")) >= 0:
        at += len("</table>")
    else:
        gap = _BLANK_LINE.search(text)
        at = gap.start() if gap else len(text)
    return text[:at], text[at:]
