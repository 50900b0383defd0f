"""`python -m local_engine` and the self-test."""

import asyncio
import subprocess
import sys
from dataclasses import replace

import pytest

from local_engine.__main__ import main
from local_engine.engine import LocalEngine
from local_engine.errors import EngineSetupError
from local_engine.hardware import vllm_version
from local_engine.selftest import read_under_load, selftest

engine = pytest.mark.engine
pytestmark = pytest.mark.timeout(900)


@pytest.fixture
def image(page, tmp_path):
    path = tmp_path / "page.png"
    page(300, 200).save(path)
    return str(path)


@engine
def test_the_command_line_reads_one_page_with_vllm(snapshots, image, capsys):
    """As the card's example.py: the text on standard output, and nothing else; counts and figures on the other."""
    snapshot = snapshots(kind="cycle")
    assert main(["--backend", "vllm", "--image", image, "--model", str(snapshot.path), "--max-tokens", "60"]) == 0
    out, err = capsys.readouterr()
    assert out.endswith("\n")
    assert len(out) > 100
    assert snapshot.text.startswith(out[:-1])
    assert "length: " in err
    assert "60 out" in err
    assert "drafts accepted" in err


@engine
def test_the_self_test_passes_on_a_good_engine_and_fails_on_other_figures():
    """Text and acceptance as built pass; a wrong page, or a draft that stops being right at position 2, does not."""
    options = {"engine_args": {"enforce_eager": True, "max_model_len": 2048}}
    report = selftest(num_speculative_tokens=2, **options)
    assert report.ok, str(report)
    assert report.device == "CPU"
    assert report.metrics.pages == 3
    assert "the engine works here" in str(report)

    assert not replace(report, wrong_pages=1).ok
    worse = replace(report.metrics, accepted=(report.expected[0], 0))
    assert not replace(report, metrics=worse).ok
    assert "does NOT work" in str(replace(report, metrics=worse))


@engine
def test_the_self_test_under_load_compares_every_page():
    """Under load all pages have the known text; a text that is not, an error, or no page at all fails the test."""
    report = selftest(
        num_speculative_tokens=2, seconds=2, max_num_seqs=4, engine_args={"enforce_eager": True, "max_model_len": 2048}
    )
    assert report.ok, str(report)
    assert report.load.pages > 0
    assert report.metrics.pages == 3
    assert "4 at once" in str(report)
    assert not replace(report, load=replace(report.load, wrong=1)).ok
    assert not replace(report, load=replace(report.load, lost=1)).ok
    assert not replace(report, load=replace(report.load, pages=0)).ok
    assert "WRONG text on 1" in str(replace(report.load, wrong=1))


@engine
def test_a_wrong_text_under_load_is_found(snapshots):
    """Each page that says something else than the known text is counted, and each that a dead engine cannot read."""
    snapshot = snapshots(kind="cycle")
    other = replace(snapshot, text=f"not {snapshot.text}")
    options = {"enforce_eager": True, "max_model_len": 2048}

    async def read():
        async with LocalEngine(snapshot.path, num_speculative_tokens=0, engine_args=options) as engine:
            loaded = await read_under_load(engine, other, 0.5, 2)
        return loaded, await read_under_load(engine, snapshot, 0.2, 2)

    wrong, closed = asyncio.run(read())
    assert wrong.pages == wrong.wrong > 0
    assert closed.lost > 0
    assert closed.pages == 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--image", "nowhere.png"], "nowhere.png"),
        (["--backend", "transformers", "--image", "IMAGE", "--model", "/nowhere"], "trust_remote_code"),
        pytest.param(["serve", "/nowhere"], "/nowhere", marks=engine),
    ],
)
def test_what_is_missing_is_said_in_one_line(image, capsys, arguments, says):
    """A missing image, permission or snapshot gives status 1 and a sentence, not a traceback."""
    assert main([image if argument == "IMAGE" else argument for argument in arguments]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert says in err
    assert "Traceback" not in err


@pytest.mark.parametrize("module", ["local_engine", "local_engine.benchmark", "local_engine.tune"])
def test_python_m_runs_the_command_line(module, tmp_path):
    """Each module that is run by its name does what its `main` does: a page or snapshot that is missing is status 1."""
    arguments = ["--image", str(tmp_path / "no")] if module == "local_engine" else [str(tmp_path / "no")]
    done = subprocess.run([sys.executable, "-m", module, *arguments], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1), done.stderr


@pytest.mark.skipif(vllm_version() is not None, reason="vLLM is installed here")
@pytest.mark.parametrize("arguments", [["serve"], ["--image", "IMAGE", "--model", "SNAPSHOT"]])
def test_without_vllm_the_command_that_installs_it_is_shown(image, tmp_path, capsys, arguments):
    """Where vLLM is not installed, server and reader say so, and how to install it."""
    (tmp_path / "config.json").write_text('{"model_type": "deepseek_vl_v2", "language_config": {}}')
    (tmp_path / "model.safetensors").write_bytes(b"\2\0\0\0\0\0\0\0{}")
    paths = {"IMAGE": image, "SNAPSHOT": str(tmp_path)}
    assert main([paths.get(argument, argument) for argument in arguments]) == 1
    assert 'pip install "jina-ocr-loaders[vllm]"' in capsys.readouterr().err


@pytest.mark.skipif(vllm_version() is not None, reason="vLLM is installed here")
def test_without_vllm_the_self_test_says_so_before_it_writes_anything():
    """Where vLLM is not installed, the self-test names the command that installs it."""
    with pytest.raises(EngineSetupError, match=r'pip install "jina-ocr-loaders\[vllm\]"'):
        selftest()
