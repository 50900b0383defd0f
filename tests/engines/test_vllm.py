"""The vllm engine of the loaders, on real vLLM on the CPU with a tiny synthetic snapshot."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from jina_ocr_loaders import JinaOCR
from jina_ocr_loaders.engines import vllm
from jina_ocr_loaders.engines.base import OCRRequest
from jina_ocr_loaders.engines.vllm import VLLMEngine
from jina_ocr_loaders.errors import EngineNotReadyError, MissingExtraError
from jina_ocr_loaders.pages import PageImage
from jina_ocr_loaders.results import PageStatus, Usage
from jina_ocr_loaders.settings import OCRSettings
from local_engine.synthetic import Snapshot, write_snapshot
from tests.servers.hosted import marked_jpeg, marked_pdf

engine = pytest.mark.engine
pytestmark = pytest.mark.timeout(900)
needs_vllm = pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is not installed: `make test-engine` runs this")

OPTIONS = {
    "num_speculative_tokens": 3,
    "engine_args": {"dtype": "float32", "enforce_eager": True, "max_model_len": 2048},
}


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory: pytest.TempPathFactory):
    """A tiny snapshot, whose text ends, and vLLM's settings for a small machine."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        patch.setenv("HF_HUB_OFFLINE", "1")
        patch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "0")  # the engine's process does the work itself
        patch.setenv("VLLM_CPU_KVCACHE_SPACE", "1")
        patch.setenv("VLLM_CPU_OMP_THREADS_BIND", "0")
        yield write_snapshot(tmp_path_factory.mktemp("snapshot"))


def engine_processes() -> set[int]:
    import psutil

    return {
        child.pid
        for child in psutil.Process().children(recursive=True)
        if child.status() != psutil.STATUS_ZOMBIE and "EngineCore" in child.name() + " ".join(child.cmdline())
    }


@engine
@needs_vllm
def test_documents_come_out_whole_through_one_engine_that_survives_its_death(
    snapshot: Snapshot, tmp_path: Path
) -> None:
    """Loaders in three threads read PDFs through one engine; killed, it is started again, and no page is lost."""
    pdf = tmp_path / "three.pdf"
    pdf.write_bytes(marked_pdf(3))
    results = []

    def read() -> None:
        with JinaOCR("vllm", model=str(snapshot.path), engine_options=OPTIONS, cache=False) as ocr:
            results.append(ocr.read(pdf))

    before = engine_processes()
    with JinaOCR("vllm", model=str(snapshot.path), engine_options=OPTIONS, cache=False, max_retries=2) as ocr:
        first = ocr.read(pdf, pages=[1]).pages[0]
        assert (first.markdown.strip(), first.status, first.engine) == (snapshot.text.strip(), PageStatus.OK, "vllm")
        assert first.usage.output_tokens == len(snapshot.tokens) + 1
        (running,) = engine_processes() - before
        threads = [threading.Thread(target=read) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert engine_processes() - before == {running}
        os.kill(running, signal.SIGKILL)
        results.append(ocr.read(pdf))
        assert running not in engine_processes()
    assert engine_processes() == before
    for result in results:
        assert [page.number for page in result.pages] == [1, 2, 3]
        assert {page.markdown.strip() for page in result.pages} == {snapshot.text.strip()}


@engine
@needs_vllm
def test_the_last_delta_says_how_the_page_ended(snapshot: Snapshot) -> None:
    """Deltas add up to the text; the last carries finish reason, usage and model; close may come twice."""

    async def read():
        made = VLLMEngine(OCRSettings(model=str(snapshot.path), engine_options=OPTIONS))
        await made.prepare()
        page = PageImage(1, data=marked_jpeg(7))
        deltas = [delta async for delta in made.stream(page, OCRRequest("Read it.", max_tokens=20))]
        await made.aclose()
        await made.aclose()
        return deltas

    *pieces, last = asyncio.run(read())
    assert snapshot.text.startswith("".join(delta.text for delta in [*pieces, last]))
    assert all(delta.finish_reason is delta.usage is delta.model is None for delta in pieces)
    assert (last.finish_reason, last.model) == ("length", str(snapshot.path))
    assert isinstance(last.usage, Usage)
    assert last.usage.output_tokens == 20


@engine
@needs_vllm
def test_what_cannot_run_is_fatal_and_says_why(snapshot: Snapshot, tmp_path: Path) -> None:
    """Unknown options, other options for a running model, and missing weights: one fatal error each, and readable."""

    def make(**options: object) -> VLLMEngine:
        return VLLMEngine(OCRSettings(model=str(snapshot.path), engine_options=options))

    with pytest.raises(EngineNotReadyError, match="'tensors'"):
        make(tensors=3)
    first = make(**OPTIONS)
    with pytest.raises(EngineNotReadyError, match="num_speculative_tokens"):
        make(**{**OPTIONS, "num_speculative_tokens": 0})
    asyncio.run(first.aclose())
    with (
        JinaOCR("vllm", model=str(tmp_path), cache=False) as ocr,
        pytest.raises(EngineNotReadyError, match=str(tmp_path)),
    ):
        ocr.read(marked_pdf(2))


@pytest.mark.parametrize(
    ("on_cpu", "options", "pages"),
    [
        (False, {}, 136),
        (False, {"max_num_seqs": 2}, 10),
        (False, {"engine_args": {"max_num_seqs": 2}}, 10),
        (True, {}, None),
    ],
)
def test_it_takes_as_many_pages_as_it_reads_and_prepares(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, on_cpu: bool, options: dict[str, Any], pages: int | None
) -> None:
    """On a GPU ``max_num_seqs`` and 8 more; on a CPU it leaves the number to the caller. vLLM is not needed to know."""
    monkeypatch.setattr(vllm, "vllm_version", lambda: "0.26.0")
    monkeypatch.setattr(vllm, "on_cpu", lambda: on_cpu)
    made = VLLMEngine(OCRSettings(model=str(tmp_path), engine_options={"num_speculative_tokens": 3, **options}))
    assert made.max_concurrency == pages
    asyncio.run(made.aclose())


@pytest.mark.parametrize(("memory", "pages"), [(12_288, 12), (24_564, 46), (143_771, 136)])
def test_a_small_gpu_takes_fewer_pages(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, memory: int, pages: int
) -> None:
    """Beyond twice what its cache holds, and 8 more, pages would wait in the engine until their time is up."""
    program = tmp_path / "nvidia-smi"
    program.write_text(f"#!/bin/sh\necho 'NVIDIA, {memory}, {memory}'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr("local_engine.engine.on_cpu", lambda: False)
    monkeypatch.setattr(vllm, "on_cpu", lambda: False)
    monkeypatch.setattr(vllm, "vllm_version", lambda: "0.26.0")
    made = VLLMEngine(OCRSettings(model=str(tmp_path), engine_options={"num_speculative_tokens": 3}))
    assert made.max_concurrency == pages
    asyncio.run(made.aclose())


@pytest.mark.skipif(find_spec("vllm") is not None, reason="vLLM is installed here")
def test_without_vllm_the_extra_is_named() -> None:
    """Where vLLM is not installed, the error names the command that installs it."""
    with pytest.raises(MissingExtraError, match=r'pip install "jina-ocr-loaders\[vllm\]"'):
        VLLMEngine(OCRSettings())
