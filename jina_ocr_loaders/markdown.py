"""Mends what the model is known to get wrong in its Markdown; never changes words."""

from __future__ import annotations

import re

_TABLE = re.compile(r"<table\b.*?(?:</table>|\Z)", re.S | re.I)
_ROW = re.compile(r"<tr\b.*?(?=<tr\b|</table>|\Z)", re.S | re.I)
_TH = re.compile(r"<(/?)th\b", re.I)
_TAG = re.compile(r"<(/?)(table|thead|tbody|tfoot|tr|td|th)\b[^<>]*>", re.I)
_OPEN_TAG = re.compile(r"<(?:table|thead|tbody|tfoot|tr|td|th)\b[^<>]*>", re.I)
_ATTRIBUTE = re.compile(r"(\s[a-zA-Z-]+=)([^\s\"'<>=]+)(?=[\s>])")
_PARTIAL_TAG = re.compile(r"<[a-zA-Z/][^<>]*\Z")


def mend(text: str) -> str:
    """The page's Markdown with its tables made whole.

    Body cells written as ``<th>`` become ``<td>`` (the first row keeps its ``<th>``), attributes are quoted, and tags
    that the token limit left open are closed. Mending twice changes nothing more.
    """
    return _TABLE.sub(lambda table: _mend_table(table[0]), text).strip() if "<t" in text.lower() else text.strip()


def is_null(text: str) -> bool:
    """Whether the model says there is nothing to read: the benchmark prompt's ``null``, or no text at all."""
    return text.strip().strip("`\"'.").strip().lower() in ("", "null")


def _mend_table(table: str) -> str:
    table = _OPEN_TAG.sub(lambda tag: _ATTRIBUTE.sub(r'\1"\2"', tag[0]), table)
    return _close(_mend_header_cells(table))


def _mend_header_cells(table: str) -> str:
    rows = list(_ROW.finditer(table))
    body = [row[0] for row in rows[1:]]
    # A row whose first cell alone is <th> has a row heading, which is right; all cells <th> is the model's fault.
    if not body or not all(re.search(r"<th\b", row, re.I) and not re.search(r"<td\b", row, re.I) for row in body):
        return table
    if re.search(r"<thead\b", table, re.I) and re.search(r"<tbody\b", table, re.I):
        head, mark, rest = re.split(r"(<tbody\b)", table, maxsplit=1, flags=re.I)
        return head + mark + _TH.sub(r"<\1td", rest)
    start = rows[1].start()
    return table[:start] + _TH.sub(r"<\1td", table[start:])


def _close(table: str) -> str:
    table = _PARTIAL_TAG.sub("", table)
    stack: list[str] = []
    for tag in _TAG.finditer(table):
        name = tag[2].lower()
        if not tag[1]:
            stack.append(name)
        elif name in stack:
            while stack.pop() != name:
                pass
    return table.rstrip() + "".join(f"</{name}>" for name in reversed(stack)) if stack else table
