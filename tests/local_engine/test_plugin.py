"""The plugin in vLLM's processes: for jina-ocr-v1, for a snapshot's own speculator, for models of no concern to it."""

import json
import logging
import os
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest

import local_engine
from local_engine import EngineSetupError, SnapshotError, plugin, snapshot


def run_python(code: str, *arguments: str, **environment: str) -> str:
    """Run a program in a fresh interpreter; return what it printed, log and all."""
    finished = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=280,
    )
    assert finished.returncode == 0, finished.stdout[-4000:]
    return finished.stdout


def result(output: str) -> Any:
    """What a program printed as its result, in JSON, somewhere between the lines of vLLM's log."""
    (line,) = [line for line in output.splitlines() if line.startswith("RESULT ")]
    return json.loads(line.removeprefix("RESULT "))


def test_importing_the_package_imports_nothing_heavy():
    """The names are there, and are looked up when they are used."""
    loaded = result(run_python("import json, local_engine, sys; print('RESULT', json.dumps(list(sys.modules)))"))
    heavy = {"vllm", "torch", "transformers", "PIL", "jina_ocr_loaders"}
    assert not heavy & {name.partition(".")[0] for name in loaded}
    assert set(local_engine.__all__) == set(local_engine._MODULES)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        local_engine.nothing  # noqa: B018


@pytest.mark.parametrize("version", ["0.26.0", "0.32.0", "0.32.1+cpu", "0.26.3.dev7+g123"])
def test_tested_versions_say_nothing(version, caplog):
    """vLLM 0.26 and 0.32 are what the engine was tested on."""
    plugin.check_vllm_version(version)
    assert not caplog.records


@pytest.mark.parametrize("version", ["0.27.1", "0.31.0"])
def test_versions_between_get_a_warning(version, caplog):
    """They may work, and the log says that nobody tried."""
    with caplog.at_level(logging.WARNING):
        plugin.check_vllm_version(version)
    assert version in caplog.text


@pytest.mark.parametrize("version", ["0.25.1", "0.33.0", "1.0.0", "0.9.2", "dev"])
def test_other_versions_are_refused(version):
    """The error names what is installed and what to install."""
    with pytest.raises(EngineSetupError, match=r"0\.26 to 0\.32.*pip install") as refusal:
        plugin.check_vllm_version(version)
    assert version in str(refusal.value)


@pytest.mark.engine
def test_vllm_finds_the_plugin():
    """Installing the package is all it takes: the entry point is there and leads to `register`."""
    (entry,) = [entry for entry in entry_points(group="vllm.general_plugins") if entry.value.startswith("local_engine")]
    assert entry.load() is plugin.register


@pytest.mark.engine
def test_registering_is_light_and_can_be_repeated():
    """In a process of vLLM it imports three small modules of ours, touches no other model, and can be repeated."""
    code = """
import json, sys
import vllm.engine.arg_utils
from vllm.model_executor.models.registry import ModelRegistry
before, modules = dict(ModelRegistry.models), set(sys.modules)
from local_engine.plugin import register
register(); once = dict(ModelRegistry.models)
register(); twice = dict(ModelRegistry.models)
print("RESULT", json.dumps({
    "imported": sorted(name for name in set(sys.modules) - modules),
    "others": all(once[name] is model for name, model in before.items()),
    "added": sorted(set(once) - set(before)),
    "repeated": once == twice,
}))
"""
    found = result(run_python(code, VLLM_PLUGINS="none"))
    assert found["imported"] == ["local_engine", "local_engine.errors", "local_engine.plugin"]
    assert found["others"]
    assert found["repeated"]
    assert found["added"] == sorted(plugin.ARCHITECTURES)


OTHER_MODEL = """
import json, sys
from vllm import LLM, SamplingParams
llm = LLM(sys.argv[1], dtype="float32", enforce_eager=True, max_model_len=256, skip_tokenizer_init=True)
greedy = SamplingParams(temperature=0, max_tokens=24, detokenize=False)
(output,) = llm.generate([{"prompt_token_ids": [5, 6, 7, 8]}], greedy, use_tqdm=False)
from vllm.model_executor.models.registry import ModelRegistry
print("RESULT", json.dumps([list(output.outputs[0].token_ids), "JinaOCRForCausalLM" in ModelRegistry.models,
                  [name for name in sys.modules if name.startswith("local_engine")]]))
"""


@pytest.mark.engine
def test_another_model_is_served_as_without_the_plugin(tmp_path):
    """A small Llama says the same with and without the plugin, which does not even import its model classes."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    sizes = {
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "vocab_size": 128,
    }
    LlamaForCausalLM(LlamaConfig(**sizes, max_position_embeddings=512)).save_pretrained(tmp_path)
    with_plugin, registered, modules = result(run_python(OTHER_MODEL, str(tmp_path)))
    without, unregistered, none = result(run_python(OTHER_MODEL, str(tmp_path), VLLM_PLUGINS="none"))
    assert with_plugin == without
    assert len(set(without)) > 1
    assert (registered, unregistered) == (True, False)
    assert modules == ["local_engine", "local_engine.errors", "local_engine.plugin"]
    assert none == []


TRAP = "import pathlib; pathlib.Path({marker!r}).write_text('ran'); raise SystemExit('code of the snapshot ran')"

CARD_RECIPE = """
import json, sys
from PIL import Image
from vllm import LLM
from local_engine import DEFAULT_OCR_PROMPT, log_spec_stats, register, vllm_llm_kwargs, vllm_sampling_params
register()
llm = LLM(**vllm_llm_kwargs(sys.argv[1], num_speculative_tokens=3, mtp_heads=1, mtp_recursive=True),
          enforce_eager=True, max_model_len=4096)
image = Image.new("RGB", (300, 200))
content = [{"type": "image_pil", "image_pil": image}, {"type": "text", "text": DEFAULT_OCR_PROMPT}]
outputs = llm.chat([{"role": "user", "content": content}], sampling_params=vllm_sampling_params(max_tokens=4096))
log_spec_stats(llm)
print("RESULT", json.dumps(outputs[0].outputs[0].text))
"""


@pytest.mark.engine
def test_the_cards_recipe_runs_and_no_code_of_the_snapshot(tmp_path):
    """The card's example gives the known text and the figures, and imports none of the Python files in the snapshot."""
    from local_engine.synthetic import write_snapshot

    written = write_snapshot(tmp_path / "snapshot")
    marker = tmp_path / "marker"
    names = ("modeling_deepseekocr", "deepseek_ocr_mtp", "processing_deepseek_ocr")
    for name in names:
        (written.path / f"{name}.py").write_text(TRAP.format(marker=str(marker)))
    classes = dict.fromkeys(("AutoConfig", "AutoModel", "AutoModelForCausalLM"), f"{names[0]}.DeepseekOCRForCausalLM")
    add_to_json(written.path / "config.json", auto_map=classes)
    add_to_json(written.path / "processor_config.json", auto_map={"AutoProcessor": f"{names[2]}.DeepseekOCRProcessor"})
    output = run_python(CARD_RECIPE, str(written.path), VLLM_LOGGING_LEVEL="INFO", VLLM_ENABLE_V1_MULTIPROCESSING="1")
    assert result(output) == written.text
    assert "SpecDecoding metrics: Mean acceptance length:" in output
    assert not marker.exists()


def add_to_json(path, **fields):
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


# Keeps the contract of the model card; what is behind it is this package's own, under the card's names.
CARD_MODULE = """
import os, pathlib, sys
from local_engine.fastmtp import JinaOCRDraft
from local_engine.synthetic_target import SyntheticTarget

class Target(SyntheticTarget):
    pass

class Draft(JinaOCRDraft):
    pass

def register():
    from vllm import ModelRegistry
    ModelRegistry.register_model("DeepseekOCRForCausalLMOCR", "deepseek_ocr_mtp:Target")
    ModelRegistry.register_model("EagleDeepSeekMTPModel", "deepseek_ocr_mtp:Draft")
    with open(os.path.join(os.path.dirname(__file__), "processes"), "a") as log:
        log.write(f"{os.getpid()} {os.path.dirname(__file__) in sys.path}\\n")

def vllm_llm_kwargs(model, num_speculative_tokens=3, mtp_heads=1, mtp_recursive=True):
    from local_engine import card
    kwargs = card.vllm_llm_kwargs(model, num_speculative_tokens, mtp_heads, mtp_recursive)
    kwargs["hf_overrides"] = {"architectures": ["DeepseekOCRForCausalLMOCR"]}
    draft = pathlib.Path(kwargs["speculative_config"]["model"])
    config = draft / "config.json"
    config.write_text(config.read_text().replace("EagleJinaOCRMTPModel", "EagleDeepSeekMTPModel"))
    return kwargs
"""

SNAPSHOT_SPECULATOR = """
import json, sys
from PIL import Image
from vllm import LLM
from local_engine import DEFAULT_OCR_PROMPT, vllm_llm_kwargs, vllm_sampling_params

if __name__ == "__main__":
    settings = {"dtype": "float32", "enforce_eager": True, "max_model_len": 2048}
    kwargs = vllm_llm_kwargs(sys.argv[1], 3, speculator="snapshot", **settings)
    llm = LLM(**kwargs)
    page = Image.new("RGB", (300, 200))
    content = [{"type": "image_pil", "image_pil": page}, {"type": "text", "text": DEFAULT_OCR_PROMPT}]
    (output,) = llm.chat([{"role": "user", "content": content}], vllm_sampling_params(400), use_tqdm=False)
    print("RESULT", json.dumps([output.outputs[0].text, kwargs["hf_overrides"]]))
"""


@pytest.mark.engine
def test_a_snapshots_own_speculator_is_used_in_every_process(tmp_path):
    """`speculator="snapshot"` runs the snapshot's module in vLLM's spawned processes too; `sys.path` is as it was."""
    from local_engine.synthetic import write_snapshot

    written = write_snapshot(tmp_path / "snapshot")
    (written.path / "deepseek_ocr_mtp.py").write_text(CARD_MODULE)
    environment = {
        "VLLM_ENABLE_V1_MULTIPROCESSING": "1",
        "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
        "XDG_CACHE_HOME": str(tmp_path / "cache"),  # the module changes what it finds there
    }
    text, overrides = result(run_python(SNAPSHOT_SPECULATOR, str(written.path), **environment))
    assert text == written.text
    assert overrides == {"architectures": ["DeepseekOCRForCausalLMOCR"]}
    processes = [line.split() for line in (written.path / "processes").read_text().splitlines()]
    assert len({pid for pid, _ in processes}) > 1
    assert {in_path for _, in_path in processes} == {"False"}


def test_running_the_snapshots_code_is_said(tmp_path, caplog, monkeypatch):
    """The log names the file whose code runs; a snapshot without one is an error that names it."""
    monkeypatch.delitem(sys.modules, "deepseek_ocr_mtp", raising=False)
    with pytest.raises(FileNotFoundError, match=r"has no deepseek_ocr_mtp\.py"):
        plugin.load_snapshot_speculator(tmp_path)
    (tmp_path / "deepseek_ocr_mtp.py").write_text("folder = __file__")
    with caplog.at_level(logging.WARNING):
        assert plugin.load_snapshot_speculator(tmp_path).folder == str(tmp_path / "deepseek_ocr_mtp.py")
    assert str(tmp_path / "deepseek_ocr_mtp.py") in caplog.text
    monkeypatch.delitem(sys.modules, "deepseek_ocr_mtp")


def test_a_directory_that_is_not_there_is_said(tmp_path):
    """Not taken for the name of a repository."""
    with pytest.raises(SnapshotError, match="there is no directory"):
        snapshot.resolve(tmp_path / "nothing")


def test_another_model_is_not_taken_for_a_snapshot(tmp_path):
    """The error names the directory and what it holds."""
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    with pytest.raises(SnapshotError, match="'llama'"):
        snapshot.resolve(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": ')
    with pytest.raises(SnapshotError, match="damaged"):
        snapshot.resolve(tmp_path)
    (tmp_path / "config.json").unlink()
    with pytest.raises(SnapshotError, match=r"no config\.json"):
        snapshot.resolve(tmp_path)


@pytest.mark.engine
@pytest.mark.parametrize("name", [*snapshot.NAMES, "someone/their-own-ocr"])
def test_weights_that_are_not_here_are_asked_for(name, tmp_path, monkeypatch):
    """No download starts by itself: the error has the command, the size and the licence."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    repository = snapshot.REPOSITORY if name in snapshot.NAMES else name
    with pytest.raises(SnapshotError, match=f"hf download {repository}"):
        snapshot.resolve(name)


def test_weights_are_asked_for_where_nothing_can_look_for_them(monkeypatch):
    """Without huggingface_hub, which comes with vLLM and Transformers, the error is the same kind, with the command."""
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(SnapshotError, match=f"hf download {snapshot.REPOSITORY}"):
        snapshot.resolve("jina-ocr-v1")


@pytest.mark.engine
def test_a_damaged_snapshot_is_said(snapshots, tmp_path):
    """A missing shard, no weights at all, and a file cut short: each is named."""
    source = snapshots(kind="cycle").path
    for name in os.listdir(source):
        if not name.endswith(".safetensors"):
            (tmp_path / name).write_bytes((source / name).read_bytes())
    shard = sorted(source.glob("*.safetensors"))[0].name
    with pytest.raises(SnapshotError, match=f"{shard}.* missing"):
        snapshot.tensor_files(tmp_path)
    (tmp_path / "model.safetensors.index.json").unlink()
    with pytest.raises(SnapshotError, match="no weights"):
        snapshot.tensor_files(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"\x00\x01")
    with pytest.raises(SnapshotError, match=r"model\.safetensors is damaged"):
        snapshot.tensor_files(tmp_path)


@pytest.mark.engine
def test_the_side_directory_is_made_once_and_follows_the_snapshot(snapshots, tmp_path):
    """The same snapshot gets the same directory, a changed one another; the snapshot itself stays as it was."""
    source, copy = snapshots(kind="cycle").path, tmp_path / "copy"
    copy.mkdir()
    for path in source.iterdir():
        if path.suffix == ".safetensors":
            (copy / path.name).symlink_to(path)
        else:
            (copy / path.name).write_bytes(path.read_bytes())
    before = {path.name: path.stat().st_mtime_ns for path in copy.iterdir()}
    first = snapshot.side_directory(copy)
    assert snapshot.side_directory(copy) == first
    assert {path.name: path.stat().st_mtime_ns for path in copy.iterdir()} == before
    linked = {path.name for path in (first / "draft").iterdir()} - {"config.json", "model.safetensors.index.json"}
    assert linked == {snapshot.tensor_files(copy)[name] for name in snapshot.DRAFT_TENSORS}
    config = json.loads((copy / "config.json").read_text())
    config["language_config"]["rope_theta"] = 5.0
    (copy / "config.json").write_text(json.dumps(config))
    assert snapshot.side_directory(copy) != first


@pytest.mark.engine
def test_the_cards_arguments(snapshots):
    """The card's defaults, but no remote code, and our own architectures; what the published head is not is refused."""
    folder = snapshots(kind="cycle").path
    kwargs = local_engine.vllm_llm_kwargs(folder)
    assert kwargs["speculative_config"]["method"] == "eagle"
    assert kwargs["speculative_config"]["num_speculative_tokens"] == 3
    assert kwargs["trust_remote_code"] is False
    assert kwargs["dtype"] == "bfloat16"
    assert Path(kwargs["speculative_config"]["model"]).joinpath("config.json").is_file()
    assert "speculative_config" not in local_engine.vllm_llm_kwargs(folder, num_speculative_tokens=0)
    assert local_engine.vllm_llm_kwargs(folder, dtype="float32", seed=1)["dtype"] == "float32"
    for wrong in ({"mtp_heads": 2}, {"mtp_recursive": False}, {"num_speculative_tokens": -1}):
        with pytest.raises(ValueError, match=r"mtp_heads|num_speculative_tokens"):
            local_engine.vllm_llm_kwargs(folder, **wrong)
