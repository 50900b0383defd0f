"""The command line, run as a user runs it."""

import json
import os
import signal
import subprocess
import sys
from textwrap import dedent

import pytest

from tests.servers import hosted
from tests.servers.hosted import marked_pdf, page_text


@pytest.fixture
def run(server, tmp_path):
    """Run jina-ocr in an empty folder against the test's server; returns (exit status, stdout, stderr)."""

    def run(*args, stdin=None, **environment):
        variables = {
            "JINA_OCR_BASE_URL": server.base_url,
            "JINA_API_KEY": "jina_secret",
            "NO_COLOR": "1",
            "COLUMNS": "200",
        }
        done = subprocess.run(
            [sys.executable, "-m", "jina_ocr_loaders", *args],
            input=stdin,
            capture_output=True,
            cwd=tmp_path,
            timeout=120,
            check=False,
            env={**os.environ, "PYTHONPATH": os.getcwd(), **variables, **environment},
        )
        assert b"jina_secret" not in done.stdout + done.stderr
        assert b"Traceback" not in done.stderr
        return done.returncode, done.stdout.decode(errors="surrogateescape"), done.stderr.decode()

    (tmp_path / "two.pdf").write_bytes(marked_pdf(2))
    return run


def test_a_file_alone_is_read_to_markdown(run):
    """``jina-ocr FILE`` is ``jina-ocr read FILE``: Markdown on stdout, what was spent on stderr, status 0."""
    status, out, err = run("two.pdf")
    assert (status, out) == (0, f"{page_text(1)}\n\n{page_text(2)}\n")
    assert "2 pages read" in err
    assert run("read", "two.pdf")[:2] == (status, out)
    assert "1 page read" in run("two.pdf", "--pages", "1")[2]


def test_standard_input_and_pages(run):
    """- is standard input; --pages counts from 1."""
    assert run("-", "--pages", "2", stdin=marked_pdf(2))[:2] == (0, page_text(2) + "\n")


def test_json_is_the_document_and_jsonl_its_pages(run):
    """json: one object for one file, an array for several; jsonl: one page a line."""
    one = json.loads(run("two.pdf", "--format", "json")[1])
    assert [page["markdown"] for page in one["pages"]] == [page_text(1), page_text(2)]
    assert one["counts"] == {"ok": 2}
    assert len(json.loads(run("two.pdf", "two.pdf", "--format", "json")[1])) == 2
    lines = run("two.pdf", "two.pdf", "--format", "jsonl")[1].splitlines()
    assert [json.loads(line)["number"] for line in lines] == [1, 2, 1, 2]


def test_output_goes_to_a_file_or_a_folder(run, tmp_path):
    """One input, one file; several inputs, or a name that ends in a slash, a folder; equal names are told apart."""
    assert run("two.pdf", "-o", "out.md")[:2] == (0, "")
    assert (tmp_path / "out.md").read_text() == f"{page_text(1)}\n\n{page_text(2)}\n"
    assert run("two.pdf", "-o", "one/")[:2] == (0, "")
    assert (tmp_path / "one" / "two.pdf.md").read_text() == (tmp_path / "out.md").read_text()
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "two.pdf").write_bytes(marked_pdf([7]))
    assert run("two.pdf", "x/two.pdf", "-o", "folder")[0] == 0
    assert sorted(path.name for path in (tmp_path / "folder").iterdir()) == ["two.pdf.2.md", "two.pdf.md"]
    assert (tmp_path / "folder" / "two.pdf.2.md").read_text() == page_text(7) + "\n"


def test_a_document_is_never_overwritten(run, server, tmp_path):
    """--output that names an input, by whatever path, is wrong usage: the input stays as it is, nothing is sent."""
    (tmp_path / "link").symlink_to("two.pdf")
    before = (tmp_path / "two.pdf").read_bytes()
    assert run("two.pdf", "-o", "./two.pdf")[0] == 2
    assert run("no.pdf", "two.pdf", "-o", "link")[0] == 2
    assert (tmp_path / "two.pdf").read_bytes() == before
    assert not server.requests


def test_an_older_output_stays_when_nothing_is_read(run, server, tmp_path):
    """With a wrong key the file of the last run is as it was; a good run replaces it."""
    old = tmp_path / "out.md"
    old.write_text("old, and longer than what comes after it, by far" * 10)
    server.otherwise = hosted.status(401)
    assert run("two.pdf", "-o", "out.md")[0] == 1
    assert old.read_text().startswith("old")
    server.otherwise = hosted.ok()
    assert run("two.pdf", "-o", "out.md")[0] == 0
    assert old.read_text() == f"{page_text(1)}\n\n{page_text(2)}\n"


def test_an_output_that_cannot_be_written_is_said_before_anything_is_sent(run, server, tmp_path):
    """No such folder: one line, status 1. A file where a folder should be: wrong usage."""
    status, out, err = run("two.pdf", "-o", "absent/out.md")
    assert (status, out) == (1, "")
    assert err == "cannot write absent/out.md: No such file or directory\n"
    (tmp_path / "file").touch()
    assert run("two.pdf", "two.pdf", "-o", "file")[0] == 2
    assert not server.requests


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs Linux's /dev/full")
def test_a_full_disk_ends_the_run(run):
    """What cannot be written is one line and status 1, and the pages in flight are given up quietly."""
    status, _, err = run("two.pdf", "-o", "/dev/full")
    assert status == 1
    assert err.startswith("cannot write")
    assert err.count("\n") == 1


def test_exit_status_3_when_a_page_failed_or_was_cut(run, server):
    """What could be read is written; stderr names file, page and reason."""
    server.script_page(2, hosted.status(422))
    status, out, err = run("two.pdf")
    assert (status, out) == (3, page_text(1) + "\n")
    assert "two.pdf, page 2" in err
    assert "422" in err
    server.script_page(2, *[hosted.ok("cut", finish_reason="length")] * 2)
    status, out, err = run("two.pdf")
    assert (status, out) == (3, f"{page_text(1)}\n\ncut\n")
    assert "token limit" in err


def test_exit_status_1_when_nothing_was_read(run, server):
    """A missing file, a wrong key: an error on stderr, nothing on stdout."""
    status, out, err = run("no.pdf")
    assert (status, out) == (1, "")
    assert "no.pdf" in err
    server.otherwise = hosted.status(401)
    assert run("two.pdf", "two.pdf", "two.pdf")[:2] == (1, "")
    assert len(server.requests) <= 2  # of six: one alone, and on a busy machine the other page beside it


def test_one_bad_file_does_not_keep_the_others(run):
    """The second of three is missing: the other two are written, status 3."""
    status, out, err = run("two.pdf", "no.pdf", "two.pdf", "--pages", "1")
    assert (status, out.count(page_text(1))) == (3, 2)
    assert "no.pdf" in err


def test_a_document_that_is_refused_does_not_keep_the_others(run):
    """Too many pages for --max-pages is that document's error, not the engine's."""
    status, out, err = run("two.pdf", "-", "--max-pages", "1", stdin=marked_pdf([7]))
    assert (status, out) == (3, page_text(7) + "\n")
    assert "max_pages" in err


@pytest.mark.parametrize(
    "args",
    [
        *(["--pages", "x"], ["--engine", "x"], ["--on-error", "x"], ["--format", "x"], ["--nope"]),
        *(["--stream", "-o", "x"], ["--stream", "--format", "json"]),
    ],
)
def test_exit_status_2_for_wrong_usage(run, server, args):
    """A wrong option is said before anything is opened."""
    status, out, err = run("two.pdf", *args)
    assert (status, out) == (2, "")
    assert "--" in err
    assert not server.requests


def test_a_port_that_there_is_not(run):
    """It is refused: the system would take it for another, modulo 65,536, and nobody would find the server."""
    status, _, err = run("mcp", "--http", "--port", "99999")
    assert status == 2
    assert "--port" in err


def test_a_missing_extra_is_one_line(run, tmp_path):
    """A command whose package is not there says what to install: status 1, no traceback."""
    (tmp_path / "absent").mkdir()
    (tmp_path / "absent" / "mcp.py").write_text("raise ModuleNotFoundError(\"No module named 'mcp'\")")
    status, _, err = run("mcp", PYTHONPATH=f"{tmp_path / 'absent'}{os.pathsep}{os.getcwd()}")
    assert status == 1
    assert err.count("\n") == 1
    assert "jina-ocr-loaders[mcp]" in err


def test_a_name_with_surrogates_is_read_and_written(run, tmp_path):
    """File names that are no text in any encoding work."""
    name = b"na\xffme.pdf"
    (tmp_path / os.fsdecode(name)).write_bytes(marked_pdf([5]))
    status, out, _ = run(os.fsdecode(name), "--format", "md")
    assert (status, out) == (0, page_text(5) + "\n")
    assert run(os.fsdecode(name), os.fsdecode(name), "-o", "folder")[0] == 0
    assert len(list((tmp_path / "folder").iterdir())) == 2


@pytest.mark.parametrize("moment", ["importing", "reading"])
def test_ctrl_c_ends_it_without_a_word(server, tmp_path, moment):
    """Status 130 and no traceback, while the program is still being imported as well as while it reads."""
    (tmp_path / "two.pdf").write_bytes(marked_pdf(2))
    code = """
        import signal, sys
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job starts with Ctrl-C ignored
        class Interrupt:
            def find_spec(self, name, *_):
                if name == "typer":
                    signal.raise_signal(signal.SIGINT)
        if sys.argv.pop() == "importing":
            sys.meta_path.insert(0, Interrupt())
        from jina_ocr_loaders.__main__ import main
        main()
    """
    server.otherwise = hosted.stall()
    variables = {"JINA_OCR_BASE_URL": server.base_url, "PYTHONPATH": os.getcwd()}
    process = subprocess.Popen(
        [sys.executable, "-c", dedent(code), "two.pdf", moment],
        cwd=tmp_path,
        env={**os.environ, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    if moment == "reading":
        assert server.received.wait(60)
        process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err.strip()) == (130, b"", b"")


def test_version_and_help(run):
    """--version prints it; bare help lists the commands."""
    status, out, _ = run("--version")
    assert (status, out.split()[0]) == (0, "jina-ocr")
    assert all(word in run("--help")[1] for word in ("read", "estimate", "doctor", "cache"))


def test_streaming_prints_the_text(run, server):
    """--stream prints each page as it comes, one after the other; one that fails does not keep the next."""
    status, out, _ = run("two.pdf", "--stream")
    assert (status, out) == (0, f"{page_text(1)}\n\n{page_text(2)}\n\n")
    server.script_page(1, hosted.status(422))
    status, out, err = run("two.pdf", "--stream")
    assert (status, out.strip()) == (3, page_text(2))
    assert "two.pdf, page 1" in err


@pytest.mark.parametrize("format", ["md", "json", "jsonl"])
def test_pages_before_an_error_are_written(run, server, format):
    """Credit that ends on page 2 does not cost page 1, in whatever form it is asked for."""
    server.script_page(2, hosted.status(402))
    status, out, err = run("two.pdf", "--concurrency", "1", "--format", format)
    text = page_text(1) if format == "md" else json.dumps(page_text(1), ensure_ascii=False)
    assert (status, text in out, "402" in err) == (3, True, True)
    if format == "json":
        assert [page["number"] for page in json.loads(out)["pages"]] == [1]


@pytest.mark.parametrize("behaviour", [hosted.ok("Half a", finish_reason="length"), hosted.loop(3)])
def test_a_streamed_page_that_is_cut_counts(run, server, behaviour):
    """--stream says so with the page, and in the exit status, as without it."""
    server.script_page(2, behaviour)
    status, out, err = run("two.pdf", "--stream")
    assert (status, out.startswith(page_text(1))) == (3, True)
    assert "two.pdf, page 2" in err


def test_estimate_prices_without_spending(run, server):
    """estimate: pages, tokens and dollars; no page is sent."""
    (expected,) = json.loads(run("estimate", "two.pdf", "--json")[1])
    assert expected["pages"] == 2
    assert expected["input_tokens"] == sum(expected["image_tokens"]) + expected["input_tokens"] - sum(
        expected["image_tokens"]
    )
    assert expected["cost"] == pytest.approx((expected["input_tokens"] * 0.5 + expected["output_tokens"] * 2) / 1e6)
    assert not server.requests
    assert "$" in run("estimate", "two.pdf")[1]


def test_max_pages_and_max_cost_refuse_before_spending(run, server):
    """A budget that is too small: status 1, nothing sent."""
    assert run("two.pdf", "--max-pages", "1")[0] == 1
    assert run("two.pdf", "--max-cost", "0.000001")[0] == 1
    assert not server.requests


def test_the_cache_serves_the_second_run(run, server, tmp_path):
    """With JINA_OCR_CACHE_DIR a second run sends nothing; info counts, clear empties."""
    folder = {"JINA_OCR_CACHE_DIR": str(tmp_path / "cache")}
    first = run("two.pdf", **folder)
    assert run("two.pdf", **folder)[:2] == first[:2]
    assert len(server.requests) == 2
    assert "2 pages" in run("cache", "info", **folder)[1]
    assert "2 pages removed" in run("cache", "clear", **folder)[1]
    assert json.loads(run("cache", "info", "--json", **folder)[1])["pages"] == 0


def test_doctor_says_what_is_ready_and_how_to_get_the_rest(run):
    """Each engine with a command that gets it; the key is seen, never shown."""
    status, out, _ = run("doctor", "--json")
    findings = {finding["name"]: finding for finding in json.loads(out)}
    assert status == 0
    assert findings["engine auto"]["detail"] == "would be hosted"
    assert findings["key"]["detail"] == "seen in JINA_API_KEY"
    assert findings["server"]["ok"]
    assert findings["renderer"]["ok"]
    assert all(finding["fix"] for finding in findings.values() if finding["ok"] is False)
    assert "engine cpu" in run("doctor")[1]


def test_the_shell_completes_commands(run):
    """The script that --install-completion installs asks the program, and it answers with its commands."""
    assert "_JINA_OCR_COMPLETE=complete_bash" in run(_JINA_OCR_COMPLETE="source_bash")[1]
    words = {"COMP_WORDS": "jina-ocr est", "COMP_CWORD": "1"}
    assert run(_JINA_OCR_COMPLETE="complete_bash", **words)[1].split() == ["estimate"]
