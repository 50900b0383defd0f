"""The examples as they stand, offline with the cpu engine, and the Python in our documents."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.data.marked_documents import marked_document
from tests.servers.hosted import page_text

ROOT = Path(__file__).parent.parent
EXAMPLES = ROOT / "examples"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Runs an example; pages of the sample that one has read are cached for the others."""
    environment = os.environ | {"JINA_OCR_ENGINE": "cpu", "JINA_OCR_CACHE_DIR": str(tmp_path_factory.mktemp("cache"))}
    environment = {name: value for name, value in environment.items() if not name.lower().endswith("_proxy")}

    def run(name, *arguments):
        command = [sys.executable, str(EXAMPLES / name), *map(str, arguments)]
        return subprocess.run(command, env=environment, text=True, capture_output=True, timeout=280)

    return run


@pytest.mark.parametrize("name", ["rag_llama_index.py", "rag_langchain.py"])
def test_search_finds_the_page(run, name):
    """A question in other words than the document's finds the page that answers it."""
    done = run(name, "Why are there birds on the tidal flats?", "How many snails were found in July?")
    assert done.returncode == 0, done.stderr
    assert re.findall(r"^--- page (\d)", done.stdout, re.MULTILINE) == ["1", "2"], done.stdout
    assert "12,902" in done.stdout


def test_search_without_a_question(run):
    """It asks one of its own rather than showing nothing."""
    done = run("rag_langchain.py")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("--- page 1")


def test_the_batch_without_files_says_how(run, tmp_path):
    """Its own words instead of a traceback; nothing is made."""
    for arguments in ([], [tmp_path / "out"]):
        done = run("batch.py", *arguments)
        assert done.returncode == 1
        assert "OUTPUT_FOLDER FILE..." in done.stderr
        assert "Traceback" not in done.stderr
    assert not (tmp_path / "out").exists()


def test_the_agent_reads_and_is_refused(run):
    """The rehearsal reads the sample's first page, and is told that it may not read more."""
    done = run("agent.py")
    assert done.returncode == 0, done.stderr
    assert "[page 1 of 2]" in done.stdout
    assert "not allowed" in done.stdout
    assert "root:" not in done.stdout


def test_the_batch(run, tmp_path):
    """Two files: one is read, one is not there; both are told, the status says it, the Markdown is written."""
    done = run("batch.py", tmp_path, EXAMPLES / "sample.pdf", tmp_path / "absent.pdf")
    assert done.returncode == 1, done.stderr
    assert "sample.pdf: {'ok': 2}" in done.stdout
    assert "absent.pdf: no such file" in done.stdout
    (written,) = tmp_path.glob("*.md")
    assert written.name.endswith("sample.pdf.md")
    assert "|" in written.read_text()


def blocks(path):
    """The Python of a document, piece by piece."""
    return re.findall(r"^```python\n(.*?)^```", path.read_text(), re.MULTILINE | re.DOTALL)


SNIPPETS = [
    pytest.param(code, id=f"{path.stem}-{n}")
    for path in (ROOT / "docs" / name for name in ("agents.md", "langchain.md", "llama-index.md"))
    for n, code in enumerate(blocks(path), 1)
]


@pytest.mark.parametrize("code", SNIPPETS)
def test_what_the_documents_show_works(code, server, tmp_path, monkeypatch, capsys):
    """Each snippet runs as it stands, where its files are there and a server is set up by the environment."""
    (tmp_path / "reports").mkdir()
    for name in ("report.pdf", "reports/annual.pdf"):
        (tmp_path / name).write_bytes(marked_document([1]))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JINA_OCR_BASE_URL", server.base_url)
    exec(compile(code, "snippet", "exec"), {})
    shown = capsys.readouterr().out
    if "annual.pdf" in code:
        assert page_text(1) in shown
        assert "not allowed" in shown
