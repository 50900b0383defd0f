"""``python -m tests.fuzz [--seconds 120] [--seed N] [--keep FOLDER]``: read damaged files until the time is up."""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections import Counter
from pathlib import Path

from jina_ocr_loaders import JinaOCR
from tests.fuzz.fuzzing import LookingEngine, cases, examine


def main() -> int:
    """Print what came of the files; the exit status is 1 if there was a fault."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=120, help="how long")
    parser.add_argument(
        "--seed", type=int, default=int(time.time()), help="which files; by default other ones each time"
    )
    parser.add_argument("--keep", type=Path, default=Path("fuzz-findings"), help="where files with faults are kept")
    arguments = parser.parse_args()
    logging.disable(logging.CRITICAL)
    outcomes: Counter[str] = Counter()
    faults = 0
    slowest = 0.0
    end = time.monotonic() + arguments.seconds
    with JinaOCR(LookingEngine(), on_error="mark") as ocr:
        for case in cases(arguments.seed):
            if time.monotonic() > end:
                break
            verdict = examine(ocr, case.data)
            outcomes[verdict.outcome] += 1
            slowest = max(slowest, verdict.seconds)
            if verdict.fault or verdict.seconds > 10 or "worker_lost" in verdict.outcome:
                faults += verdict.fault is not None
                arguments.keep.mkdir(exist_ok=True)
                (arguments.keep / case.name).write_bytes(case.data)
                what = verdict.fault or verdict.outcome
                print(f"{case.name} ({case.sample}, {case.seed}, {verdict.seconds:.1f} s): {what}", flush=True)
    print(f"seed {arguments.seed}: {outcomes.total()} files, {faults} faults, slowest {slowest:.1f} s")
    for outcome, count in outcomes.most_common():
        print(f"{count:7} {outcome}")
    return faults > 0


if __name__ == "__main__":
    sys.exit(main())
