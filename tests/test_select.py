"""Which engine "auto" takes."""

import logging
import sys

import pytest

from jina_ocr_loaders import EngineNotReadyError, JinaOCR, OCRSettings
from jina_ocr_loaders.engines import select


@pytest.fixture
def nothing(monkeypatch):
    """A machine with no GPU and no OCR packages."""
    monkeypatch.setattr(select, "gpu_ready", lambda: False)
    monkeypatch.setattr(select, "find_spec", lambda name: None)


def test_nothing_set_up_names_each_way(nothing):
    """The error is a list of commands, one for each engine."""
    with pytest.raises(EngineNotReadyError) as caught:
        JinaOCR().read(b"%PDF-")
    for word in ("JINA_API_KEY", "JINA_OCR_BASE_URL", "[vllm]", "[cpu]"):
        assert word in str(caught.value)


@pytest.mark.parametrize("variable", ["JINA_API_KEY", "JINA_OCR_BASE_URL"])
def test_a_key_or_a_server_means_hosted(nothing, monkeypatch, caplog, variable):
    """Either is enough, and one line says where pages go."""
    monkeypatch.setenv(variable, "http://127.0.0.1:9/v1" if "URL" in variable else "jina_secret")
    with caplog.at_level(logging.INFO, "jina_ocr_loaders"):
        assert select.create_engine(OCRSettings()).name == "hosted"
    (line,) = [record.getMessage() for record in caplog.records if record.name == "jina_ocr_loaders.engines"]
    assert "127.0.0.1" in line if "URL" in variable else "api.jina.ai" in line
    assert "jina_secret" not in caplog.text


def test_an_argument_wins_over_the_environment(monkeypatch):
    """JINA_OCR_ENGINE names what auto takes; a named engine is that one."""
    monkeypatch.setenv("JINA_OCR_ENGINE", "hosted")
    assert select.create_engine(OCRSettings()).name == "hosted"
    assert select.create_engine(OCRSettings(engine="reader", api_key="k")).name == "reader"


def test_a_gpu_comes_before_the_cpu(nothing, monkeypatch):
    """With vLLM and a GPU, pages stay on this machine."""
    monkeypatch.setattr(select, "gpu_ready", lambda: True)
    assert select.first_ready(OCRSettings()) == "vllm"


def test_the_cpu_is_last_and_says_what_it_is(nothing, monkeypatch, caplog):
    """One warning: this is not the model."""
    monkeypatch.setattr(select, "find_spec", lambda name: object())
    assert select.create_engine(OCRSettings()).name == "cpu"
    assert "not by jina-ocr-v1" in caplog.text


def test_looking_for_an_engine_imports_no_torch():
    """Whether a GPU is there is found out without torch, so CUDA is not initialised in this process."""
    select.first_ready(OCRSettings(api_key="k"))
    assert "torch" not in sys.modules
