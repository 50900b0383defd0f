"""The CPU engine: no key, no GPU, no download."""

from jina_ocr_loaders.engines.cpu.engine import CPUEngine

__all__ = ["CPUEngine"]
