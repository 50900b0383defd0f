"""What a PDF says about itself, in the words that other loaders use."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import Any

# PDF 32000-1, 7.9.4: D:YYYYMMDDHHmmSSOHH'mm; all behind the year may be missing, and is written in many ways
_DATE = re.compile(r"(?:D:)?(\d{4})(\d\d)?(\d\d)?(\d\d)?(\d\d)?(\d\d)?([Z+-])?(\d\d)?'?(\d\d)?'?\s*")


def metadata(pdf: Any) -> dict[str, str]:
    """The document's properties that are set: title, author, subject, keywords, creator, producer and two dates.

    The dates, creationdate and moddate, are in ISO 8601 where they can be understood, and as they stand where not.
    """
    found = {}
    for key in pdf.METADATA_KEYS:
        if value := _text(pdf.get_metadata_value, key):
            found[key.lower()] = _iso_8601(value) if key.endswith("Date") else value
    return found


def label(pdf: Any, index: int) -> str:
    """The printed label of a page, or its number."""
    return _text(pdf.get_page_label, index) or str(index + 1)


def _text(get: Callable[[Any], str], key: Any) -> str:
    """A text of the document's, or nothing when it is no valid UTF-16."""
    with contextlib.suppress(UnicodeDecodeError):
        return get(key).replace("\0", "").strip()
    return ""


def _iso_8601(date: str) -> str:
    if not (match := _DATE.fullmatch(date)):
        return date
    year, month, day, hour, minute, second = (int(match[n] or (1 if n < 4 else 0)) for n in range(1, 7))
    sign, hours, minutes = match[7], int(match[8] or 0), int(match[9] or 0)
    offset = timedelta(hours=hours, minutes=minutes)
    with contextlib.suppress(ValueError):
        zone = timezone(-offset if sign == "-" else offset) if sign else None
        return datetime(year, month, day, hour, minute, second, tzinfo=zone).isoformat()
    return date
