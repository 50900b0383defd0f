"""Settings found by measuring: what they are, where they come from, and that they can be overruled."""

import json
import os
import re

import pytest

from local_engine import tuning
from local_engine.errors import EngineSetupError

TABLE = re.compile(r"E=64,N=896,device_name=[\w-]+\.json")  # what vLLM looks for: experts, their width, the GPU


@pytest.mark.parametrize("path", sorted(tuning.TABLES.iterdir()), ids=lambda path: path.name)
def test_shipped_tables_cover_decoding_and_prefill(path):
    """vLLM takes the entry nearest to a step's tokens: each table has entries for decoding and for prefill."""
    assert TABLE.fullmatch(path.name)
    table = json.loads(path.read_text())
    assert set(map(int, table)) == {*tuning.BATCH_SIZES, *tuning.PREFILL_SIZES}
    keys = set(tuning.candidates()[0])
    assert all(set(config) == keys for config in table.values())


def test_no_more_than_sixty_candidates_are_tried():
    """Tuning stays short, and no candidate needs more shared memory than the GPU has."""
    tried = tuning.candidates()
    assert 0 < len(tried) <= 60
    assert len({tuple(config.items()) for config in tried}) == len(tried)


def test_a_table_of_the_users_own_comes_first(tmp_path, monkeypatch):
    """The folder that tuning writes to is used once it exists, the shipped tables until then."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert tuning.environment()["VLLM_TUNED_CONFIG_FOLDER"] == str(tuning.TABLES)
    tuning.tables_folder().mkdir(parents=True)
    assert tuning.environment()["VLLM_TUNED_CONFIG_FOLDER"] == str(tuning.tables_folder())
    assert os.fspath(tmp_path) in tuning.environment()["VLLM_TUNED_CONFIG_FOLDER"]


def test_tuning_without_a_gpu_says_what_it_needs(tmp_path, monkeypatch):
    """Where no GPU is to be seen, tuning ends at once, in words, and writes nothing."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(EngineSetupError, match="NVIDIA GPU"):
        tuning.tune_moe(tmp_path / "tables")
    assert not (tmp_path / "tables").exists()


@pytest.mark.engine
def test_settings_and_variables_are_vllms_own():
    """Every setting is a field of vLLM's `AsyncEngineArgs`, every variable one that vLLM reads."""
    from dataclasses import fields

    from vllm import envs
    from vllm.engine.arg_utils import AsyncEngineArgs

    assert set(tuning.engine_settings()) <= {field.name for field in fields(AsyncEngineArgs)}
    assert set(tuning.environment()) <= set(envs.environment_variables)
