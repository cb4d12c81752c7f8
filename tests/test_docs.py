"""The documentation holds: links, error pages, commands and snippets."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import typer

from lmassay.cli import app
from lmassay.errors import CODES

ROOT = Path(__file__).parent.parent
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
COMMAND = re.compile(r"^\$ (lmassay .*)$", re.MULTILINE)
SNIPPET = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https?:)([^)#]+)(?:#[^)]*)?\)")

commands = [(page, line) for page in PAGES for line in COMMAND.findall(page.read_text())]
snippets = [(page, code) for page in PAGES for code in SNIPPET.findall(page.read_text())]


def _name(value):
    return value.name if isinstance(value, Path) else None


def test_every_error_code_has_a_page_and_every_page_a_code():
    assert {page.stem for page in (ROOT / "docs" / "errors").glob("*.md")} == set(CODES)


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_links_lead_somewhere(page):
    for target in LINK.findall(page.read_text()):
        assert (page.parent / target).exists(), target


@pytest.mark.parametrize(("page", "line"), commands, ids=lambda v: v if isinstance(v, str) else None)
def test_a_command_in_the_docs_is_one_the_program_takes(page, line):
    command, words = typer.main.get_command(app), shlex.split(line)[1:]
    while hasattr(command, "commands"):
        name = words.pop(0)
        assert name in command.commands, line
        command = command.commands[name]
    known = {option for p in command.params for option in (*p.opts, *p.secondary_opts)}
    assert {w.split("=")[0] for w in words if w.startswith("-")} <= known, line


@pytest.mark.tiny
@pytest.mark.parametrize(("page", "code"), snippets, ids=_name)
def test_a_snippet_in_the_docs_runs(page, code, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(compile(code, str(page), "exec"), {"__name__": "snippet"})


def test_the_readme_names_every_command():
    text = (ROOT / "README.md").read_text()

    def paths(command, prefix):
        for name, child in command.commands.items():
            yield from paths(child, [*prefix, name]) if hasattr(child, "commands") else [[*prefix, name]]

    for path in paths(typer.main.get_command(app), ["lmassay"]):
        assert " ".join(path) in text, path
