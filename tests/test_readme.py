"""The README shows what happens."""

import re
import shlex
import shutil
from pathlib import Path

import pytest
import typer

from jina_ocr_loaders import cli, errors, settings
from tests.servers.hosted import page_text

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
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
    assert set(re.findall(r"\w+Error", tree)) - {"ValueError", "ImportError", "FileNotFoundError"} == classes


def test_the_options_it_lists_exist():
    """Each option in the table is one of the settings or of the calls."""
    table = README[README.index("| option |") :].partition("\n\n")[0]
    names = {name for line in table.splitlines() for name in re.findall(r"`([a-z_]+)`", line.split("|")[1])}
    assert names <= set(settings.OCRSettings.model_fields) | {"pages", "password"}
    assert len(names) > 8


def commands(group, *path):
    """All commands below a group: their words, and the options of each (None: it hands them on)."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, *path, name)
        else:
            options = {option for parameter in command.params for option in parameter.opts}
            yield (*path, name), None if command.context_settings.get("allow_extra_args") else options


def test_the_commands_it_shows_are_the_ones_there_are():
    """Each command that README and docs show has those options, and none of the commands is left out."""
    known = dict(commands(typer.main.get_command(cli.app)))
    text = "\n".join(path.read_text(encoding="utf-8") for path in DOCUMENTS)
    shown = set()
    for line in re.findall(r"(?:^|`)jina-ocr ([^`#\n]*[^`#\n ])", text, re.M):
        words = shlex.split(line.partition(" | ")[0])
        if words == ["--help"]:
            continue
        command = next((tuple(words[:n]) for n in (2, 1) if tuple(words[:n]) in known), ("read",))
        shown.add(command)
        options = {word.strip("[]") for word in words if re.match(r"\[?-.", word)}
        assert known[command] is None or options <= known[command], line
    assert shown == set(known)


def test_its_links_lead_somewhere():
    """Relative links of README and docs name files, and headings where they name one."""
    for path in DOCUMENTS:
        for link in re.findall(r"\]\(([^)\s]+)\)", path.read_text(encoding="utf-8")):
            if not link.startswith("http"):
                name, _, heading = link.partition("#")
                target = path.parent / name if name else path
                assert target.exists(), (path.name, link)
                titles = re.findall(r"^#+ (.+)", target.read_text(encoding="utf-8"), re.M) if heading else []
                assert not heading or heading in [title.lower().replace(" ", "-") for title in titles], (
                    path.name,
                    link,
                )
