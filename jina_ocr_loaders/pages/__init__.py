"""From a document to page images, one at a time, in a worker process.

``open_document`` and ``prestart`` are loaded on first use: the worker imports this package too and needs neither.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from jina_ocr_loaders.pages.limits import Limits
from jina_ocr_loaders.pages.page import Page, PageImage, TextRun

if TYPE_CHECKING:
    from jina_ocr_loaders.pages.client import prestart
    from jina_ocr_loaders.pages.document import Document, open_document
    from jina_ocr_loaders.pages.strips import join_strips

__all__ = ["Document", "Limits", "Page", "PageImage", "TextRun", "join_strips", "open_document", "prestart"]

_LAZY = {"Document": "document", "open_document": "document", "prestart": "client", "join_strips": "strips"}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_LAZY[name]}"), name)
