"""The words that weigh most in a finished run, from its record: in the terminal, as JSON, and what is refused."""

from __future__ import annotations

import json

import pytest
from made_cot import made_data

from lmassay.cli import main
from lmassay.cot.evaluate import evaluate
from lmassay.cot.terms import terms_of_run
from lmassay.errors import LmassayError
from lmassay.storage.runs import RUN
from made_runs import changed, made_run


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "tfidf"
    evaluate(made_data(n=80), "tfidf", out=out)
    return out


def _features(capsys, *arguments):
    with pytest.raises(SystemExit) as stopped:
        main(["cot", "features", *map(str, arguments)])
    told = capsys.readouterr()
    return stopped.value.code, told.out, told.err


def test_they_stand_heaviest_first_as_the_run_kept_them(run):
    kept = json.loads((run / RUN).read_text())["choices"]["tfidf"]["terms"]
    found = terms_of_run(run)
    assert sorted(found.rows()) == sorted(tuple(row) for row in kept)
    assert found["weight"].abs().is_sorted(descending=True)


def test_the_command_prints_so_many_and_tells_the_same_as_json(run, capsys):
    code, printed, _ = _features(capsys, run, "--top", 3)
    assert code == 0
    code, told, _ = _features(capsys, run, "--top", 3, "--json")
    rows = json.loads(told)
    assert (code, len(rows)) == (0, 3)
    assert rows == terms_of_run(run).head(3).to_dicts()
    assert all(f"{row['weight']:+.3f}" in printed and row["term"] in printed for row in rows)


def test_show_names_what_was_chosen_and_leaves_the_words_to_that_command(run, capsys):
    with pytest.raises(SystemExit):
        main(["show", str(run)])
    said = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("tfidf chose"))
    assert "n_features = " in said
    assert "terms" not in said


def test_a_method_without_words_has_none_and_is_refused_by_the_command(tmp_path, capsys):
    out = tmp_path / "length"
    evaluate(made_data(n=80), "length", out=out)
    assert terms_of_run(out) is None
    code, _, err = _features(capsys, out)
    assert code != 0
    assert err.count("\n") == 1


def test_a_run_of_the_other_suite_is_named_as_such(tmp_path, capsys):
    code, _, err = _features(capsys, made_run(tmp_path, "small", "core50"))
    assert code != 0
    assert "is no run of a method" in err


@pytest.mark.parametrize(
    "kept", ["words", [["cot", "wait"]], [["cot", "wait", "heavy"]], [["cot", "wait", float("nan")]], 3]
)
def test_words_without_a_weight_are_refused(run, tmp_path, kept):
    copy = tmp_path / "copy"
    copy.mkdir()
    for file in run.iterdir():
        if file.is_file():
            (copy / file.name).write_bytes(file.read_bytes())
    changed(copy, lambda record: record["choices"]["tfidf"].update(terms=kept))
    with pytest.raises(LmassayError, match="bad-run-folder"):
        terms_of_run(copy)
