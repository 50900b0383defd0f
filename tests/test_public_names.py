"""What the package exports, and what importing it costs."""

import subprocess
import sys

import pytest

import jina_ocr_loaders


def test_the_public_names():
    """What the package exports; adding or removing one is a decision."""
    errors = [name for name in jina_ocr_loaders.__all__ if name.endswith("Error")]
    names = """AccessPolicy Attempt BENCHMARK_PROMPT DEFAULT_PROMPT Delta DocumentEngine DocumentResult DocumentTool
        Engine Estimate JinaOCR JinaOCRBlobParser JinaOCRLoader JinaOCRReader JinaOCRTool JinaOCRToolSpec OCRRequest
        OCRSettings OpenDocument PageImage PageResult PageStatus RetryEvent Source Transcription Usage"""
    assert sorted(set(jina_ocr_loaders.__all__) - set(errors)) == names.split()
    assert len(errors) == 26
    for name in jina_ocr_loaders.__all__:
        assert getattr(jina_ocr_loaders, name) is not None
    with pytest.raises(AttributeError):
        _ = jina_ocr_loaders.nothing


def test_importing_the_package_imports_no_framework_and_no_client():
    """Names are loaded on first use: neither LlamaIndex nor LangChain, torch, openai, pdfium or Pillow come with it."""
    code = "import sys, jina_ocr_loaders; print(*{name.partition('.')[0] for name in sys.modules})"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    heavy = {"llama_index", "langchain_core", "torch", "openai", "pypdfium2", "PIL", "pydantic", "httpx", "vllm"}
    assert not heavy & set(loaded)
