"""Settings found by measuring: what they are, where they come from, and that they can be overruled."""

import asyncio
import json
import logging
import os
import re
import shutil

import pytest

from local_engine import LocalEngine, settings, tune, tuning
from local_engine.errors import EngineSetupError

TABLE = re.compile(r"E=64,N=896,device_name=[\w-]+\.json")  # what vLLM looks for: experts, their width, the GPU


@pytest.mark.parametrize("path", sorted(tuning.TABLES.iterdir()), ids=lambda path: path.name)
def test_shipped_tables_cover_decoding_and_prefill(path):
    """vLLM takes the entry nearest to a step's tokens: each table has entries for decoding and for prefill."""
    assert TABLE.fullmatch(path.name)
    table = json.loads(path.read_text())
    assert set(map(int, table)) == {*tune.BATCH_SIZES, *tune.PREFILL_SIZES}
    keys = set(tune.candidates()[0])
    assert all(set(config) == keys for config in table.values())


def test_no_more_than_sixty_candidates_are_tried():
    """Tuning stays short, and no candidate needs more shared memory than the GPU has."""
    tried = tune.candidates()
    assert 0 < len(tried) <= 60
    assert len({tuple(config.items()) for config in tried}) == len(tried)


def test_a_table_of_the_users_own_comes_first(tmp_path, monkeypatch):
    """The folder that tuning writes to is used once it exists, the shipped tables until then."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert tuning.environment()["VLLM_TUNED_CONFIG_FOLDER"] == str(tuning.TABLES)
    tuning.tables_folder().mkdir(parents=True)
    assert tuning.environment()["VLLM_TUNED_CONFIG_FOLDER"] == str(tuning.tables_folder())
    assert os.fspath(tmp_path) in tuning.environment()["VLLM_TUNED_CONFIG_FOLDER"]


@pytest.fixture
def own_cache(tmp_path, monkeypatch):
    """A cache of the test's own, where nothing was tuned yet."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


def test_the_tuned_draft_length_is_for_its_model_and_device(own_cache, monkeypatch):
    """What was found for a model on a device is taken for it by any of its names, and for no other; else the card's."""
    assert tuning.draft_tokens("jina-ocr-v1").number == tuning.DRAFT_TOKENS
    tuning.keep_draft_tokens("jinaai/jina-ocr-v1", 1)
    tuning.keep_draft_tokens(own_cache, 0)
    found = tuning.draft_tokens("jina-ocr-v1")
    assert found.number == 1
    assert str(tuning.tuned_file()) in found.origin
    (own_cache / "link").symlink_to(own_cache)
    assert tuning.draft_tokens(own_cache / "link").number == 0
    assert tuning.draft_tokens("someone/their-own-ocr").number == tuning.DRAFT_TOKENS
    monkeypatch.setattr(tuning, "device", lambda: "NVIDIA H1")
    other = tuning.draft_tokens("jina-ocr-v1")
    assert other.number == tuning.DRAFT_TOKENS
    assert "engine tune" in other.origin


@pytest.mark.parametrize("content", ["", "{", "[]", '{"CPU": 3}', '{"CPU": {"jinaai/jina-ocr-v1": "x"}}'])
def test_a_damaged_file_of_tuned_settings_ends_nothing(own_cache, caplog, content):
    """The engine runs with the card's K, the log names the file, and the next tuning makes it anew."""
    tuning.tuned_file().parent.mkdir(parents=True)
    tuning.tuned_file().write_text(content)
    assert tuning.draft_tokens("jina-ocr-v1").number == tuning.DRAFT_TOKENS
    assert str(tuning.tuned_file()) in caplog.text
    tuning.keep_draft_tokens("jina-ocr-v1", 2)
    assert tuning.draft_tokens("jina-ocr-v1").number == 2


def test_a_handle_takes_the_tuned_draft_length_unless_told_another(own_cache):
    """Of two handles one says nothing and one says the tuned K: the same engine; another K is refused."""
    tuning.keep_draft_tokens(own_cache, 1)
    with LocalEngine(own_cache), LocalEngine(own_cache, num_speculative_tokens=1):
        for other in (0, 3):
            with pytest.raises(EngineSetupError, match=rf"num_speculative_tokens=1.*num_speculative_tokens={other}"):
                LocalEngine(own_cache, num_speculative_tokens=other)


@pytest.mark.parametrize(
    ("speeds", "best"),
    [
        ({0: (1, 10, 20), 1: (1.3, 12, 21), 3: (1.6, 14, 20.5)}, 3),
        ({0: (1, 10, 20), 1: (1.3, 12, 20), 3: (1.6, 14, 19.9)}, 1),  # 3 would be slower than no drafts at the last
        ({0: (1, 10, 20), 1: (0.9, 30, 60), 3: (0.5, 30, 60)}, 0),
        ({0: (1, 10, 20)}, 0),
    ],
)
def test_no_load_pays_for_the_drafts(speeds, best):
    """The K of largest gain is taken, of those that are slower than K = 0 at no load."""
    assert tune.fastest({k: dict(zip(("1", "32", "128"), v, strict=True)) for k, v in speeds.items()}) == best


def test_tuning_without_a_gpu_says_what_it_needs(tmp_path, monkeypatch):
    """Where no GPU is to be seen, tuning ends at once, in words, and writes nothing."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(EngineSetupError, match="NVIDIA GPU"):
        tune.tune_moe(tmp_path / "tables")
    assert not (tmp_path / "tables").exists()


@pytest.fixture(params=[False, True], ids=["gpu", "cpu"])
def vllm_for(request, monkeypatch):
    """vLLM as if built for a GPU, and for the CPU as it is here."""
    for module in (settings, tuning):
        monkeypatch.setattr(module, "on_cpu", lambda: request.param)
    return "cpu" if request.param else "gpu"


@pytest.mark.engine
@pytest.mark.usefixtures("vllm_for")
def test_settings_and_variables_are_vllms_own():
    """Every setting is a field of vLLM's `AsyncEngineArgs`, every variable one that vLLM reads."""
    from dataclasses import fields

    from vllm import envs
    from vllm.engine.arg_utils import AsyncEngineArgs

    assert set(tuning.engine_settings()) <= {field.name for field in fields(AsyncEngineArgs)}
    assert set(tuning.environment()) <= set(envs.environment_variables)


@pytest.mark.engine
def test_each_change_for_speed_can_be_switched_off(snapshots, own_cache, monkeypatch, vllm_for):
    """What docs/performance.md names wins over our settings, one by one, and so do variables that the user has set."""
    model = own_cache / "model"
    shutil.copytree(snapshots(kind="cycle").path, model, symlinks=True)
    config = json.loads((model / "config.json").read_text())
    del config["local_engine_architecture"]  # the mark of a tiny snapshot: this one is as the real one
    (model / "config.json").write_text(json.dumps(config))

    def arguments(**options):
        return settings.EngineSettings.of(model, **options).arguments(model)

    ours = arguments()
    assert ours["hf_overrides"]["architectures"] == [
        "JinaOCRFastForCausalLM" if vllm_for == "gpu" else "JinaOCRForCausalLM"
    ]
    assert ours["speculative_config"]["num_speculative_tokens"] == 3
    assert "speculative_config" not in arguments(num_speculative_tokens=0)
    for off in (
        {"hf_overrides": {"architectures": ["JinaOCRForCausalLM"]}},
        {"additional_config": {"vision_graphs": False}},
        {"additional_config": {"one_group_routing": False}},
        {"compilation_config": {}},
        {"additional_config": {"encode_ahead": False}},
        {"scheduler_cls": None, "worker_cls": "auto"},
        {"enforce_eager": True},
        {"distributed_executor_backend": "uni"},
        {"max_num_batched_tokens": 2048},
    ):
        assert arguments(engine_args=off) == ours | off
    monkeypatch.setenv("VLLM_USE_V2_MODEL_RUNNER", "0")
    monkeypatch.setenv("VLLM_TUNED_CONFIG_FOLDER", str(own_cache))
    with settings.default_environment(tuning.environment()):
        assert os.environ["VLLM_USE_V2_MODEL_RUNNER"] == "0"
        assert os.environ["VLLM_TUNED_CONFIG_FOLDER"] == str(own_cache)


@pytest.mark.engine
@pytest.mark.timeout(900)
def test_tuning_measures_each_draft_length_and_the_engine_takes_what_it_found(
    snapshots, page, own_cache, capsys, caplog
):
    """On real vLLM: K = 0 and 1 are measured on the user's snapshot and pages, and the engine says what it took."""
    model, image = str(snapshots(kind="cycle").path), own_cache / "page.png"
    page(300, 200).save(image)
    options = ["--drafts", "1", "--concurrency", "2", "--pages", "2", "--max-tokens", "24"]
    assert tune.main([model, str(image), *options]) == 0
    out = capsys.readouterr().out
    assert {"K = 0", "K = 1"} == {row.split(" | ")[0].strip("| ") for row in out.splitlines() if row.startswith("| K")}
    (found,) = json.loads(tuning.tuned_file().read_text()).values()
    assert found == {os.path.realpath(model): tuning.draft_tokens(model).number}
    assert f"K = {found[os.path.realpath(model)]}: {tuning.tuned_file()}" in out

    async def read():
        async with LocalEngine(model, max_num_seqs=2) as engine:
            await engine.transcribe(page(300, 200), max_tokens=24)
            return engine.metrics

    with caplog.at_level(logging.INFO, "local_engine"):
        metrics = asyncio.run(read())
    assert len(metrics.accepted) == tuning.draft_tokens(model).number
    assert str(tuning.tuned_file()) in caplog.text


@pytest.mark.engine
def test_a_snapshot_without_draft_head_has_nothing_to_tune(snapshots, capsys, own_cache):
    """It is said before anything is measured, and nothing is written."""
    assert tune.main([str(snapshots(kind="cycle", draft=None).path)]) == 1
    assert "no draft head" in capsys.readouterr().err
    assert not tuning.tuned_file().exists()
