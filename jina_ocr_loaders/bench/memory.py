"""Memory of a process and all its children: PSS, in which shared pages count once."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import psutil


def peak_pss(command: list[str], interval: float = 0.05) -> tuple[float, float, str]:
    """Run a command and watch its process tree (Linux).

    Parameters:
        interval: seconds between two looks.

    Returns:
        Peak PSS in MB, seconds it ran, and its standard output.

    Raises:
        subprocess.CalledProcessError: it failed.
    """
    start = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        peak = 0
        tree = psutil.Process(process.pid)
        while process.poll() is None:
            peak = max(peak, sum(map(_pss, [process.pid, *_children(tree)])))
            time.sleep(interval)
        assert process.stdout is not None
        output = process.stdout.read()
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command, output)
    return peak / 1e6, time.perf_counter() - start, output


def python(code: str) -> list[str]:
    """The command that runs this code."""
    return [sys.executable, "-c", code]


def _children(tree: psutil.Process) -> list[int]:
    try:
        return [child.pid for child in tree.children(recursive=True)]
    except psutil.Error:
        return []


def _pss(pid: int) -> int:
    """Bytes; 0 for a process that has ended."""
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0
