"""Makes jina-ocr-v1 known to vLLM: the `vllm.general_plugins` entry point.

vLLM calls `register` in each of its processes, for whatever model they serve. So it only writes down names: the modules
behind them are imported when a model asks for one.
"""

import logging
import multiprocessing
import os
import re
import sys
import threading
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import module_from_spec
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from local_engine.errors import EngineSetupError

TARGET = "JinaOCRForCausalLM"
FAST_TARGET = "JinaOCRFastForCausalLM"  # the target that prepares pages on the GPU
DRAFT = "EagleJinaOCRMTPModel"  # vLLM leaves a name alone that begins so already
WORKER = "local_engine.worker.PageWorker"

# Switches in vLLM's additional_config, all on unless set to False.
ENCODE_AHEAD = "encode_ahead"  # or a page is encoded within the step that takes it up
ONE_GRAPH_DRAFTS = "one_graph_drafts"  # or a CUDA graph for each draft
ONE_GROUP_ROUTING = "one_group_routing"  # or vLLM's grouped router
VISION_GRAPHS = "vision_graphs"  # or towers neither compiled nor in CUDA graphs

ARCHITECTURES = {
    TARGET: "local_engine.target:JinaOCRForCausalLM",
    DRAFT: "local_engine.fastmtp:JinaOCRDraft",
    FAST_TARGET: "local_engine.vision:JinaOCRFastForCausalLM",
    "JinaOCRSyntheticForCausalLM": "local_engine.synthetic_target:SyntheticTarget",
}

TESTED = ((0, 26), (0, 32))  # vLLM versions, oldest and newest: on a GPU and on the CPU

SNAPSHOT_SPECULATOR = "JINA_OCR_SNAPSHOT_SPECULATOR"  # environment: a snapshot whose own deepseek_ocr_mtp.py is used

# Environment: the process that starts an engine, and the file in which the engine's own processes write why they end.
ERROR_FILE = "JINA_OCR_ENGINE_ERRORS"

_LOG = logging.getLogger(__name__)


def register() -> None:
    """Register the architectures of this package, and those of the snapshot that `JINA_OCR_SNAPSHOT_SPECULATOR` names.

    Can be called any number of times, and does not fail on a vLLM that is not supported: it may serve another model.
    """
    from vllm.model_executor.models.registry import ModelRegistry

    # A custom scheduler is warned of, with advice that does not hold for ours.
    logging.getLogger("vllm.config.scheduler").addFilter(_no_scheduler_warning)
    known = ModelRegistry.get_supported_archs()
    for architecture, location in ARCHITECTURES.items():
        if architecture not in known:
            ModelRegistry.register_model(architecture, location)
    if snapshot := os.environ.get(SNAPSHOT_SPECULATOR):
        load_snapshot_speculator(Path(snapshot)).register()
    starter, _, path = os.environ.get(ERROR_FILE, "").partition(" ")
    if path and starter != str(os.getpid()) and (parent := multiprocessing.parent_process()):
        _write_errors(path)
        threading.Thread(target=_end_with, args=(parent,), name="end-with-parent", daemon=True).start()


def check_vllm_version(version: str | None = None) -> None:
    """Warn of a vLLM between those tested.

    Parameters:
        version: what `vllm.__version__` says, if not the installed one's.

    Raises:
        EngineSetupError: it is older or newer than those tested.
    """
    if version is None:
        import vllm

        version = str(vllm.__version__)
    match = re.match(r"(\d+)\.(\d+)", version)
    found = (int(match[1]), int(match[2])) if match else (0, 0)
    oldest, newest = TESTED
    if not oldest <= found <= newest:
        raise EngineSetupError(
            f"vLLM {version} is installed; the local engine runs on {_dotted(oldest)} to {_dotted(newest)}. "
            f"Install one of these: pip install 'vllm=={_dotted(newest)}.*'"
        )
    if found not in TESTED:
        _LOG.warning(
            "vLLM %s is between the versions that the local engine was tested on (%s and %s); it may work.",
            version,
            *map(_dotted, TESTED),
        )


def load_snapshot_speculator(snapshot: Path) -> Any:
    """Import a snapshot's `deepseek_ocr_mtp.py`: code of the snapshot, run with the rights of this process.

    It is imported under that name, since it registers its classes by it, and without an edit of `sys.path`.

    Raises:
        FileNotFoundError: the snapshot has no such file.
    """
    name = "deepseek_ocr_mtp"
    if name not in sys.modules:
        path = snapshot / f"{name}.py"
        if not path.is_file():
            raise FileNotFoundError(f"{snapshot} has no {name}.py, so it brings no speculator of its own")
        _LOG.warning("Running code of the snapshot: %s", path)
        loader = SourceFileLoader(name, str(path))
        spec = ModuleSpec(name, loader, origin=str(path))
        spec.has_location = True  # sets __file__
        module = module_from_spec(spec)
        sys.modules[name] = module
        try:
            loader.exec_module(module)
        except BaseException:
            del sys.modules[name]
            raise
    return sys.modules[name]


def _no_scheduler_warning(record: logging.LogRecord) -> bool:
    return "custom scheduler class" not in record.getMessage()


def _write_errors(path: str) -> None:
    """Write the exceptions that vLLM logs in this process to a file too, one a line: its parent is not told them."""
    log = logging.getLogger("vllm")
    if any(handler.name == ERROR_FILE for handler in log.handlers):
        return
    handler = logging.FileHandler(path, encoding="utf-8")
    handler.name = ERROR_FILE
    handler.addFilter(lambda record: bool(record.exc_info and record.exc_info[1]))
    handler.setFormatter(_ExceptionLine())
    log.addHandler(handler)


def _end_with(parent: BaseProcess) -> None:
    """End this process when its parent is gone, killed perhaps: it would keep the GPU's memory for nobody."""
    parent.join()
    os._exit(1)


class _ExceptionLine(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        assert record.exc_info
        error = record.exc_info[1]
        return f"{type(error).__name__}: {' '.join(str(error).split())}"


def _dotted(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))
