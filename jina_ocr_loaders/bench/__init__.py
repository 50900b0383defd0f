"""Benchmarks: each figure beside a baseline from the same run. ``python -m jina_ocr_loaders.bench`` runs them."""
