"""Items of lists: how they begin."""

from __future__ import annotations

import re

# "•", "–", "1.", "12)", "(a)", "b.", "iv)" at the beginning of a row, with text after it
BULLET = re.compile(r"(?:[•◦▪■●○‣∙·]\s*|[–*-]\s+)(?=\S)")
ORDINAL = re.compile(r"(\(?(?:\d{1,3}|[a-z]|[ivx]{1,4})[.)])\s*(?=[^\s\d.,])")

CHECK = re.compile(r"[□☐☑☒]\s*(?=\S)")  # a box to be ticked


def is_item(text: str) -> bool:
    """Whether a row begins like an item of a list."""
    return bool(BULLET.match(text) or ORDINAL.match(text) or CHECK.match(text))
