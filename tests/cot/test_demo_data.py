"""The data that comes with the package: small, readable by name, and made from questions that the repository makes."""

from __future__ import annotations

import json
import runpy
import shlex
from pathlib import Path

import polars as pl
import pytest
import typer

from lmassay.cli import app, main
from lmassay.cot.demo import DEMO, FOLDER, NOTE, ROLLOUTS, demo_file, demo_tasks
from lmassay.cot.load import load_task
from lmassay.errors import LmassayError
from lmassay.storage.rollouts import opened

ROOT = Path(__file__).parent.parent.parent
QUESTIONS = ROOT / "examples" / "questions"
RECIPES = json.loads((FOLDER / "recipes.json").read_text())
METHODS = [task for task in demo_tasks() if task != "compression"]


def test_all_of_it_is_under_five_megabytes():
    assert sum(path.stat().st_size for path in FOLDER.iterdir() if path.is_file()) < 5e6


def test_its_questions_are_those_the_script_makes():
    made = runpy.run_path(str(QUESTIONS / "make_demo.py"))["files"]()
    assert set(made) == {"demo.jsonl", "demo_arms.jsonl"}
    for name, text in made.items():
        assert (QUESTIONS / name).read_text() == text


def test_made_questions_have_four_different_options_and_one_is_right():
    script = runpy.run_path(str(QUESTIONS / "make_demo.py"))
    rows = {row["question_id"]: row for row in script["made"]()}
    assert len(rows) == len(script["KINDS"]) * script["EACH"]
    assert all(len(set(row["options"])) == 4 for row in rows.values())
    for row in rows.values():
        words, options = row["prompt"].rstrip("?.").split(), row["options"]
        if row["question_id"].startswith(("sum", "difference")):
            assert str(eval(" ".join(words[2:]))) in options
        elif row["question_id"].startswith("product"):
            assert str(int(words[2]) * int(words[4])) in options
        elif row["question_id"].startswith("letters"):
            assert str(len(words[-1])) in options


@pytest.mark.parametrize("task", METHODS)
def test_a_task_is_loaded_by_name_with_both_test_sets_and_no_broken_row(task):
    data = load_task(task, source=DEMO)
    assert data.notes[0] == NOTE
    assert {"train", "test"} <= set(data.splits)
    assert data.fingerprint == load_task(task, source=demo_file(task)).fingerprint
    assert sum(len(split) for split in data.splits.values()) == RECIPES[task]["examples"]
    assert not data.shared_groups


def test_the_tasks_that_have_no_data_are_named_with_the_reasons():
    lacking = sorted(set(RECIPES) - set(demo_tasks()))
    card = (FOLDER / "README.md").read_text()
    least = runpy.run_path(str(ROOT / "examples" / "demo_data.py"))["LEAST"]
    for task in RECIPES:
        assert f"## {task}\n" in card
    for task in lacking:
        assert RECIPES[task]["examples"] < least
        assert RECIPES[task]["dropped"]
        with pytest.raises(LmassayError, match="the demo data has nothing of"):
            load_task(task, source=DEMO)


def test_the_card_shows_commands_that_the_program_takes_with_the_options_of_the_recipes():
    lines = [line[2:] for line in (FOLDER / "README.md").read_text().splitlines() if line.startswith("$ lmassay ")]
    assert len(lines) == len(RECIPES)
    generate = typer.main.get_command(app).commands["cot"].commands["generate"]
    for line in lines:
        words = shlex.split(line)[3:]
        given = generate.make_context("generate", words).params
        recipe = RECIPES[given["task"]]
        for option in given["option"]:
            name, _, value = option.partition("=")
            held = recipe["settings"][name]
            shown = ",".join(map(str, held)) if isinstance(held, list) else str(held)
            assert shown == value or float(shown) == float(value), option
        assert Path(given["prompts"]).name == recipe["questions"]["name"]


def test_the_samples_can_be_taken_into_a_store(tmp_path):
    with opened(tmp_path / "rollouts") as store:
        n = store.import_parquet(FOLDER / f"{ROLLOUTS}.parquet")
        assert n == len(store) == pl.read_parquet(FOLDER / f"{ROLLOUTS}.parquet").height > 300


def test_a_method_runs_on_it_by_name(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as stop:
        main(["cot", "run", "atypical_length", "--source", "demo", "--method", "length", "--json"])
    out = capsys.readouterr()
    assert stop.value.code == 0, out.err
    assert json.loads(out.out)["evidence"]
    assert (tmp_path / "runs").is_dir()


@pytest.mark.parametrize("more", [("--layout", "post"), ("--validation", "published")])
def test_it_has_no_layout_and_no_other_validation_set(more, capsys):
    with pytest.raises(SystemExit) as stop:
        main(["cot", "run", "atypical_length", "--source", "demo", "--method", "length", *more])
    assert stop.value.code == 2
    assert "has no layout, regime or choice of validation sets" in capsys.readouterr().err
