"""What the machine offers, told from a real program on the PATH, without CUDA."""

import subprocess
import sys

import pytest

from local_engine.errors import EngineSetupError
from local_engine.hardware import GIB, GPU, check_gpu, check_memory, list_gpus, pages_in_cache


@pytest.fixture
def nvidia_smi(tmp_path, monkeypatch):
    """Put an `nvidia-smi` on the PATH that answers as the driver's does on a machine with two GPUs."""
    script = tmp_path / "nvidia-smi"
    script.write_text(
        "#!/bin/sh\n"
        'case "$*" in\n'
        "  *'-i 1'*) echo 'NVIDIA L4, 23034, 20000';;\n"
        "  *'-i 7'*) echo 'No devices were found'; exit 6;;\n"
        "  *) echo 'NVIDIA H200, 143771, 143000'; echo 'NVIDIA L4, 23034, 20000';;\n"
        "esac\n"
    )
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


@pytest.mark.usefixtures("nvidia_smi")
@pytest.mark.parametrize(
    ("visible", "names"),
    [
        (None, ["NVIDIA H200", "NVIDIA L4"]),
        ("1", ["NVIDIA L4"]),
        ("", []),
        ("-1", []),
        ("7", []),
    ],
)
def test_gpus_are_those_the_process_may_use(monkeypatch, visible, names):
    """All GPUs of the driver's list, with their memory in bytes, unless `CUDA_VISIBLE_DEVICES` picks some or none."""
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    gpus = list_gpus()
    assert [gpu.name for gpu in gpus] == names
    for gpu in gpus:
        assert 0 < gpu.free < gpu.total
        assert gpu.total % 2**20 == 0


def test_a_machine_without_driver_has_no_gpu(monkeypatch, tmp_path):
    """No `nvidia-smi` means no GPU, not an error."""
    monkeypatch.setenv("PATH", str(tmp_path))
    assert list_gpus() == []


def test_looking_for_gpus_imports_no_torch_and_no_vllm():
    """The look-up starts no CUDA and loads nothing heavy in the caller's process."""
    code = (
        "import sys; from local_engine.hardware import gpu_ready; gpu_ready(); "
        "print([name for name in ('torch', 'vllm', 'transformers', 'numpy') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def gpu(total, free):
    return GPU("NVIDIA L4", int(total * GIB), int(free * GIB))


@pytest.mark.parametrize(
    ("device", "share", "says"),
    [
        (gpu(8, 8), 0.85, ["9.3 GiB", "8.0 GiB", "larger GPU"]),
        (gpu(12, 12), 0.5, ["allows 6.0 GiB", "raise it to at least 0.78"]),
        (gpu(24, 12), 0.85, ["12.0 of 24.0 GiB", "lower gpu_memory_utilization to 0.50"]),
        (gpu(24, 4), 0.85, ["4.0 of 24.0 GiB", "end what holds the rest"]),
    ],
)
def test_too_little_gpu_memory_says_how_much_and_which_setting(device, share, says):
    """Each kind of shortage names what is needed, what is there, and the value that would do."""
    with pytest.raises(EngineSetupError) as caught:
        check_gpu(device, int(9.3 * GIB), share)
    for part in says:
        assert part in str(caught.value)


def test_the_advised_share_is_accepted():
    """Following the advice works: the share that a message names passes the check."""
    check_gpu(gpu(12, 12), int(9.3 * GIB), 0.78)
    check_gpu(gpu(24, 12), int(9.3 * GIB), 0.5)


@pytest.mark.parametrize(
    ("total", "pages"), [(8, 1), (12, 2), (24, 19), pytest.param(140.4, 188, id="H200, where vLLM said 191")]
)
def test_the_pages_that_a_gpu_has_room_for(total, pages):
    """Those of 10,240 tokens that the key-value cache holds beside weights and working memory."""
    assert pages_in_cache(gpu(total, total), 0.85) == pages


def test_too_little_memory_for_the_cpu_is_said():
    """vLLM on the CPU checks the machine's memory before it starts."""
    check_memory(2 * GIB, 3 * GIB)
    with pytest.raises(EngineSetupError, match=r"4\.0 GiB.*3\.0 GiB"):
        check_memory(4 * GIB, 3 * GIB)
