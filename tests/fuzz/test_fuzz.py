"""Damaged files: no crash of the caller, no hang, no exception that is not ours. ``make fuzz`` tries more of them."""

from __future__ import annotations

import itertools

import pytest

from jina_ocr_loaders import JinaOCR
from tests.fuzz.fuzzing import LookingEngine, cases, examine

FILES = 1000  # some 20 seconds on two quiet cores


@pytest.mark.parametrize("seed", range(4))
def test_damaged_files_are_read_or_refused(seed):
    """The same damaged files each time: a result that agrees with itself, or an error that can be shown."""
    with JinaOCR(LookingEngine(), on_error="mark") as ocr:
        for case in itertools.islice(cases(seed), FILES // 4):
            verdict = examine(ocr, case.data)
            assert verdict.fault is None, f"{case.sample}, {case.seed}: {verdict.fault}"
