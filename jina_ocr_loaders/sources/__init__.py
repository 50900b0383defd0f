"""From a path, URL, bytes, stream or file of fsspec to a local file that is what it says it is."""

from jina_ocr_loaders.sources.limits import FetchLimits
from jina_ocr_loaders.sources.source import Content, Source, SourceLike

__all__ = ["Content", "FetchLimits", "Source", "SourceLike"]
