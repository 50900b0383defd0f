"""The README shows what happens."""

import re
import shutil
from pathlib import Path

import pytest

from jina_ocr_loaders import errors, settings
from tests.servers.hosted import page_text

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
SNIPPETS = re.findall(r"```python\n(.*?)```", README, re.S)


@pytest.mark.parametrize("code", SNIPPETS, ids=lambda code: code.split("import ")[-1].split()[0])
def test_each_snippet_runs_as_it_stands(code, server, tmp_path, monkeypatch, capsys):
    """From a folder that holds examples/sample.pdf, with a server set up by the environment."""
    (tmp_path / "examples").mkdir()
    shutil.copy(ROOT / "examples" / "sample.pdf", tmp_path / "examples")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JINA_OCR_BASE_URL", server.base_url)
    names: dict[str, object] = {}
    exec(compile(code, "README.md", "exec"), names)
    expected = page_text(None)
    if "documents" in names:
        assert [document.text for document in names["documents"]] == [expected] * 2
    else:
        assert capsys.readouterr().out.count(expected[:20]) >= 2
    assert len(server.requests) >= 2


def test_the_error_tree_is_the_one_there_is():
    """Every error class is in the README, and the README names no other."""
    tree = README[README.index("JinaOCRError\n├") :].partition("```")[0]
    classes = {name for name, value in vars(errors).items() if isinstance(value, type) and issubclass(value, Exception)}
    assert set(re.findall(r"\w+Error", tree)) - {"ValueError", "ImportError"} == classes


def test_the_options_it_lists_exist():
    """Each option in the table is one of the settings or of the calls."""
    table = README[README.index("| option |") :].partition("\n\n")[0]
    names = {name for line in table.splitlines() for name in re.findall(r"`([a-z_]+)`", line.split("|")[1])}
    assert names <= set(settings.OCRSettings.model_fields) | {"pages", "password"}
    assert len(names) > 8
