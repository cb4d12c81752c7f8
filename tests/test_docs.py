"""The documentation holds: links, error pages, columns, commands, files and snippets."""

from __future__ import annotations

import re
import shlex
import tomllib
from pathlib import Path

import click
import numpy as np
import polars as pl
import pytest
import typer

from lmassay.cli import app, main
from lmassay.errors import CODES
from tiny_models import tiny_hf, tiny_tokenizer

ROOT = Path(__file__).parent.parent
PAGES = [*ROOT.glob("*.md"), ROOT / "tests" / "README.md", *(ROOT / "docs").rglob("*.md")]
#: In a block with a prompt, or in an indented one.
COMMAND = re.compile(r"^\$ (lmassay .*)$", re.MULTILINE)
INDENTED = re.compile(r"^ {4}(lmassay [a-z].*)$", re.MULTILINE)
INLINE = re.compile(r"`(lmassay [a-z].*?)`")
SNIPPET = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https?:)([^)#]+)(?:#[^)]*)?\)")

commands = [(page, line) for page in PAGES for kind in (COMMAND, INDENTED) for line in kind.findall(page.read_text())]
inline = [(page, line) for page in PAGES for line in INLINE.findall(page.read_text())]
snippets = [(page, code) for page in PAGES for code in SNIPPET.findall(page.read_text())]


def _name(value):
    return str(value.relative_to(ROOT)) if isinstance(value, Path) else None


def _of(line):
    """The command a line names, with the words that follow its name."""
    command, words = typer.main.get_command(app), shlex.split(line)[1:]
    while hasattr(command, "commands"):
        assert words, f"{line} names a group"
        name = words.pop(0)
        assert name in command.commands, line
        command = command.commands[name]
    return command, words


def _blocks(page, kind):
    return re.findall(rf"^```{kind}\n(.*?)^```", (ROOT / "docs" / page).read_text(), re.MULTILINE | re.DOTALL)


def test_every_error_code_has_a_page_and_every_page_a_code():
    assert {page.stem for page in (ROOT / "docs" / "errors").glob("*.md")} == set(CODES)


@pytest.mark.parametrize("code", CODES)
def test_an_error_page_is_headed_by_its_code_and_says_what_to_do(code):
    text = (ROOT / "docs" / "errors" / f"{code}.md").read_text()
    assert text.startswith(f"# {code}\n")
    assert "**What to do.**" in text


def test_every_case_of_a_public_report_names_a_test_and_every_label_in_a_test_has_a_case():
    tests = ROOT / "tests"
    table = (tests / "README.md").read_text()
    for file, name in re.findall(r"`([\w/]+\.py)::(\w+)`", table):
        assert re.search(rf"def {name}\(", (tests / file).read_text()), f"{file}::{name}"
    used = {label for path in tests.rglob("test_*.py") for label in re.findall(r"\bI-\d+", path.read_text())}
    assert used <= set(re.findall(r"\bI-\d+", table))


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_links_lead_somewhere(page):
    for target in LINK.findall(page.read_text()):
        assert (page.parent / target).exists(), target


@pytest.mark.parametrize(("page", "line"), commands, ids=lambda v: v if isinstance(v, str) else None)
def test_a_command_in_the_docs_is_one_the_program_takes(page, line):
    command, words = _of(line)
    try:
        command.make_context(line, words)
    except click.ClickException as error:
        pytest.fail(f"{page.name}: {line}: {error.format_message()}")


@pytest.mark.parametrize(("page", "line"), inline, ids=lambda v: v if isinstance(v, str) else None)
def test_a_command_named_in_a_sentence_exists_with_its_options(page, line):
    command, words = _of(line)
    known = {option for p in command.params for option in (*p.opts, *p.secondary_opts)}
    assert {w for w in words if w.startswith("-")} <= known, page.name


def test_the_readme_names_every_command_and_no_other():
    text = (ROOT / "README.md").read_text()
    table = {" ".join(n.split()) for n in re.findall(r"`(lmassay(?: +[a-z]+(?:-[a-z]+)*)+)`", text)}

    def paths(command, prefix):
        for name, child in command.commands.items():
            if hasattr(child, "commands"):
                yield from paths(child, [*prefix, name])
            else:
                yield " ".join([*prefix, name])

    assert table == set(paths(typer.main.get_command(app), ["lmassay"]))


@pytest.mark.parametrize(("kind", "suffix"), [("json", ".jsonl"), ("yaml", ".yaml"), ("csv", ".csv")])
def test_the_example_batteries_are_read(kind, suffix, tmp_path):
    from lmassay.xray.batteries import load_battery

    (example,) = _blocks("battery.md", kind)
    path = tmp_path / f"mine{suffix}"
    path.write_text(example)
    assert load_battery(str(path)).tasks


def test_the_example_of_outside_scores_is_scored(tmp_path, monkeypatch, capsys):
    (example,) = _blocks("outside-scores.md", "csv")
    (tmp_path / "mine.csv").write_text(example)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as stop:
        main(["xray", "score", "mine.csv", "--name", "my-lens", "--json"])
    assert stop.value.code == 0
    assert '"n_scored": 1' in capsys.readouterr().out


@pytest.mark.tiny
@pytest.mark.parametrize(("page", "code"), snippets, ids=_name)
def test_a_snippet_in_the_docs_runs(page, code, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    namespace = {"__name__": "snippet"}
    exec(compile(code, str(page), "exec"), namespace)
    if "measure" in namespace:
        tiny_hf("gpt2").save_pretrained("tiny")
        tiny_tokenizer().save_pretrained("tiny")
        assert [row["signal"] for row in namespace["measure"]("tiny")] == ["real_win"] * 4 + [
            "psi_bar",
            "jaccard_strict",
        ]


@pytest.mark.real
@pytest.mark.slow
def test_the_readmes_commands_run_and_print_what_it_shows(tmp_path, monkeypatch, capsys):
    """In order and in one folder, with a small battery in place of a large balanced one."""
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "README.md").read_text()
    printed = ""
    for line in COMMAND.findall(text):
        words = re.sub(r"balanced:\d+", "balanced:4", line).split()[1:]
        with pytest.raises(SystemExit) as stop:
            main(words)
        out = capsys.readouterr()
        assert stop.value.code == 0, f"{line}\n{out.err}"
        printed += out.out
    rows = [_row(line) for line in printed.splitlines()]
    shown = [_row(line) for line in re.search(r"^```text\n(.*?)^```", text, re.MULTILINE | re.DOTALL)[1].splitlines()]
    assert len(shown) > 5
    for words, numbers in shown:
        # One decision of fifty may fall otherwise on another machine.
        near = [n for w, n in rows if w[:2] == words[:2] and len(n) == len(numbers)]
        assert any(_but_p(numbers) == pytest.approx(_but_p(n), abs=0.05) for n in near), words


def _evidence_shown(page):
    return re.search(r"^signal .*\n(?:.+\n)+?(?=\n|```)", (ROOT / page).read_text(), re.MULTILINE)[0]


def test_the_start_page_shows_the_table_that_the_readmes_test_holds():
    assert _evidence_shown("docs/start.md") == _evidence_shown("README.md")


@pytest.mark.tiny
def test_the_start_pages_commands_run_one_after_the_other(tmp_path, monkeypatch, capsys):
    """With a random model for the bundled one, and a file of made thoughts for the data that comes with the package."""
    monkeypatch.chdir(tmp_path)
    tiny_hf("llama").save_pretrained("tiny")
    tiny_tokenizer().save_pretrained("tiny")
    rng = np.random.default_rng(0)
    rows = [
        {
            "example_id": f"{split}-{i}",
            "split": split,
            "question_id": f"{split}-{i // 4}",
            "label": "long" if i % 2 else "short",
            "prompt": f"Question {i // 4}?",
            "cot": " ".join(rng.choice(["so", "then", "but", "wait"], rng.integers(5, 20) + 10 * (i % 2))),
        }
        for split in ("train", "validation", "test", "ood_test")
        for i in range(48)
    ]
    pl.DataFrame(rows).write_parquet("mine.parquet")
    instead = {
        "--source demo": "--source mine.parquet",
        "smollm2-135m": "tiny",
        "--blocks 12": "--blocks 1",
        "balanced:40": "balanced:4",
    }
    lines = COMMAND.findall((ROOT / "docs" / "start.md").read_text())
    assert all(any(old in line for line in lines) for old in instead)
    for line in lines:
        words = line
        for old, new in instead.items():
            words = words.replace(old, new)
        with pytest.raises(SystemExit) as stop:
            main(shlex.split(words)[1:])
        assert stop.value.code == 0, f"{line}\n{capsys.readouterr().err}"
    assert (tmp_path / "report.html").stat().st_size > 100_000  # bytes


def test_scripts_targets_and_extras_that_are_named_exist():
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    extras = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])
    for page in PAGES:
        text = page.read_text()
        for script, rest in re.findall(r"python ((?:benchmarks|examples)/[\w/]+\.py)([^`\n]*)", text):
            assert (ROOT / script).is_file(), f"{page.name}: {script}"
            source = (ROOT / script).read_text()
            for option in re.findall(r"--[a-z-]+", rest):
                assert option in source, f"{page.name}: {script} {option}"
        assert set(re.findall(r"(?:^|`)make ([a-z]+)", text, re.MULTILINE)) <= targets, page.name
        assert set(re.findall(r"lmassay\[(\w+)\]", text)) <= extras, page.name


def test_every_footgun_with_a_heading_has_a_demonstration():
    sections = re.split(r"^## ", (ROOT / "docs" / "footguns.md").read_text(), flags=re.MULTILINE)[1:]
    assert [s.splitlines()[0] for s in sections if not SNIPPET.search(s)] == ["And more"]
    assert all("assert" in SNIPPET.search(s)[1] for s in sections[:-1])


def _but_p(numbers):
    """An Evidence row's numbers without its p-value, the only one that a single decision may move far."""
    return numbers[:5] + numbers[6:]


def _row(line):
    """The words of a line, and its numbers."""
    cells = line.replace("[", " ").replace("]", " ").replace(",", " ").split()
    numbers = [float(c) for c in cells if re.fullmatch(r"-?\d+(?:\.\d+)?", c)]
    return [c for c in cells if not re.fullmatch(r"-?\d+(?:\.\d+)?", c)], numbers
