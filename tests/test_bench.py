"""The benchmarks run on documents of a few pages and give sane figures. How fast anything is, no test says."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.error
import urllib.request
import venv
from pathlib import Path

import pypdfium2
import pytest

from jina_ocr_loaders.bench import __main__ as bench
from jina_ocr_loaders.bench import baselines, contenders, peers, server, throughput
from jina_ocr_loaders.bench.document import make_pdf, make_scan
from jina_ocr_loaders.bench.memory import peak_pss, python

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="PSS is read from /proc")


def test_the_documents_have_their_pages() -> None:
    """Text pages carry their number as text; a scan's pages are one image each and no text."""
    with pypdfium2.PdfDocument(make_pdf(12)) as document:
        assert len(document) == 12
        assert document[10].get_textpage().get_text_range().startswith("Page 11\r\n")
    with pypdfium2.PdfDocument(make_scan(2)) as document:
        assert len(document) == 2
        assert [type(thing) for thing in document[1].get_objects()] == [pypdfium2.PdfImage]
        assert document[1].get_textpage().count_chars() == 0


def ask(url: str, **fields: object) -> str:
    """The body of the server's answer."""
    request = urllib.request.Request(f"{url}/chat/completions", json.dumps(fields).encode())
    with urllib.request.urlopen(request, timeout=30) as answer:
        return str(answer.read().decode())


def test_the_server_streams_answers_whole_and_fails_as_told() -> None:
    """It answers as it is asked, with the same text; of three requests the third is a 500."""
    with server.running(fail_every=3) as url:
        assert json.loads(ask(url))["choices"][0]["message"]["content"] == server.TEXT
        *events, usage, done = ask(url, stream=True).removesuffix("\n\n").split("\n\n")
        with pytest.raises(urllib.error.HTTPError, match="500"):
            ask(url)
    chunks = [json.loads(event.removeprefix("data: "))["choices"][0] for event in events]
    assert "".join(chunk["delta"].get("content", "") for chunk in chunks) == server.TEXT
    assert chunks[-1]["finish_reason"] == "stop"
    assert json.loads(usage.removeprefix("data: "))["usage"]["completion_tokens"] > 0
    assert done == "data: [DONE]"


@pytest.mark.parametrize("measure", [throughput.slow_server, throughput.instant_server])
def test_throughput_compares_with_a_bare_loop(measure: object) -> None:
    """Both read all pages, the ratio is that of the two, and no document is left open."""
    found = measure(pages=3, repeats=1)  # type: ignore[operator]
    assert found.ours > 0
    assert found.baseline > 0
    assert found.ratio == pytest.approx(found.ours / found.baseline)
    if measure is throughput.slow_server:
        assert found.first_page > 1.0, "the server takes 1.0 s"
    assert not baselines._open


@linux_only
def test_peak_memory_counts_children() -> None:
    """What a child allocates counts, and a command that fails is an error."""
    child = "import time; data = b'x' * 80_000_000; time.sleep(0.5)"
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}], check=True); print('done')"
    peak, seconds, output = peak_pss(python(code))
    assert 80 < peak < 160
    assert seconds > 0.5
    assert output == "done\n"
    with pytest.raises(subprocess.CalledProcessError):
        peak_pss(python("raise SystemExit(3)"))


@linux_only
def test_the_memory_benchmark_reads_all_pages(tmp_path: Path) -> None:
    """Its row names the file and says how many pages were read."""
    pdf = tmp_path / "three.pdf"
    pdf.write_bytes(make_pdf(3))
    ((what, figure, beside),) = bench.memory(pdf)
    assert what == "three.pdf: peak PSS"
    assert figure.endswith(" MB")
    assert beside.startswith("3 pages")


def test_the_import_benchmark_gives_milliseconds() -> None:
    """One row."""
    ((_, figure, beside),) = bench.imports(None)
    assert figure.endswith(" ms")
    assert beside == "median of 11"


def test_an_unknown_benchmark_is_refused() -> None:
    """The message lists those that there are."""
    with pytest.raises(SystemExit, match=r"no benchmark 'fast'.*slow, instant, memory, import, peers"):
        bench.main(["fast"])


@linux_only
def test_contenders_run_side_by_side(tmp_path: Path) -> None:
    """Those whose packages are here read every page; of the others it says what to install."""
    venv.create(tmp_path / "bare")  # has no packages at all
    bare = str(tmp_path / "bare" / "bin" / "python")
    names = ["jina", "gather", "langchain", "docling"]
    rows = list(peers.compare(names, {"langchain": bare, "docling": bare}, pages=3, delay=0.0))
    assert [row[0] for row in rows] == names
    for _, speed, peak, lost, troubled in rows[:2]:
        assert speed.endswith(" pages/s")
        assert peak.endswith(" MB")
        assert lost == troubled == "0 of 3"
    for name, speed, missing, *_ in rows[2:]:
        assert speed == "not run"
        assert missing.endswith(f" is not installed: pip install {peers.NEEDS[name]}")
    assert set(peers.NEEDS) == set(contenders.CONTENDERS)


def test_a_contender_that_raises_has_lost_its_pages(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """A file that is no PDF: no page, and the name of the error."""
    (tmp_path / "x.pdf").write_bytes(b"no PDF")
    contenders.main("gather", "http://127.0.0.1:1/v1", str(tmp_path / "x.pdf"))
    found = json.loads(capsys.readouterr().out)
    assert (found["pages"], found["failure"]) == (0, "PdfiumError")
    assert peers._lost(found, 7) == "7 of 7 (PdfiumError)"
