"""The transformers engine of the loaders: what it refuses; reading is tested in tests/local_engine."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from jina_ocr_loaders import JinaOCR
from jina_ocr_loaders.engines.transformers import TransformersEngine
from jina_ocr_loaders.errors import EngineNotReadyError, MissingExtraError
from jina_ocr_loaders.settings import OCRSettings
from tests.servers.hosted import marked_pdf

engine = pytest.mark.engine
missing = find_spec("transformers") is None or find_spec("torch") is None
needs_transformers = pytest.mark.skipif(missing, reason="Transformers is not installed: `make test-engine` runs this")


@engine
@needs_transformers
def test_running_the_snapshots_code_must_be_allowed(tmp_path) -> None:
    """Without the option nothing runs, and the error names it; an unknown option is named too."""
    with pytest.raises(EngineNotReadyError, match="trust_remote_code=True"):
        TransformersEngine(OCRSettings(model=str(tmp_path)))
    with pytest.raises(EngineNotReadyError, match="'colour'"):
        TransformersEngine(OCRSettings(model=str(tmp_path), engine_options={"colour": 1}))


@engine
@needs_transformers
def test_missing_weights_are_one_fatal_error(tmp_path) -> None:
    """A folder without a snapshot ends the document at the first page, in every error mode."""
    options = {"trust_remote_code": True, "device": "cpu"}
    with (
        JinaOCR("transformers", model=str(tmp_path), engine_options=options, cache=False, on_error="mark") as ocr,
        pytest.raises(EngineNotReadyError, match=str(tmp_path)),
    ):
        ocr.read(marked_pdf(3))


@pytest.mark.skipif(not missing, reason="Transformers is installed here")
def test_without_transformers_the_extra_is_named() -> None:
    """Where Transformers is not installed, the error names the command that installs it."""
    with pytest.raises(MissingExtraError, match=r'pip install "jina-ocr-loaders\[transformers\]"'):
        TransformersEngine(OCRSettings(engine_options={"trust_remote_code": True}))
