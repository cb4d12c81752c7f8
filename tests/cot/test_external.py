"""Export shows visible text only; predictions made elsewhere come out as a method of ours would, or are refused."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import jsonschema
import numpy as np
import polars as pl
import pytest
from made_cot import made_data

from lmassay.cli import main
from lmassay.cot.evaluate import evaluate
from lmassay.cot.export import export_task, template
from lmassay.cot.external import checked_scores, score_predictions
from lmassay.cot.task import OK
from lmassay.errors import LmassayError
from lmassay.examples import Column, VisibleExamples
from lmassay.methods.method import Method, check_training
from lmassay.storage.schema import schema

CANARY = "canary-5be1f2"


class Waits(Method):
    """Counts one word."""

    id = "waits"

    def fit(self, X, y, groups, validation, seed):
        check_training(y, self.kind)

    def score(self, X):
        return np.array([x.text("cot").count("wait") + len(x.text("cot")) / 1e4 for x in X])


@pytest.fixture(scope="module")
def data():
    made = made_data(n=60)
    # Rows that cannot be used are neither shown nor asked for.
    made["test"].status[:3] = "unlabelled"
    made["test"].y[:3] = np.nan
    return made


@pytest.fixture(scope="module")
def exported(data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("export") / "made"
    return folder, export_task(data, folder)


def answers(folder):
    """What someone elsewhere does: read the text, fill in the template."""
    said = {}
    for path in folder.glob("*.jsonl"):
        for line in path.read_text().splitlines():
            example = json.loads(line)
            text = " ".join(s["text"] for s in example["segments"] if s["kind"] == "cot")
            said[example["key"]] = text.count("wait") + len(text) / 1e4
    table = pl.read_parquet(folder / "predictions.parquet")
    return table.with_columns(score=pl.col("key").replace_strict(said, return_dtype=pl.Float64))


def test_an_export_has_the_visible_text_of_every_usable_row_and_a_template(data, exported):
    folder, made = exported
    assert sorted(p.name for p in folder.iterdir()) == sorted(made.files)
    for name, split in data.splits.items():
        lines = [json.loads(line) for line in (folder / f"{name}.jsonl").read_text().splitlines()]
        kept = split.examples.take(split.status == OK)
        assert made.rows[name] == len(lines) == (57 if name == "test" else 60)
        for line, example in zip(lines, kept, strict=True):
            assert line["key"] == str(example.key)
            assert [(s["kind"], s["text"]) for s in line["segments"]] == [(s.kind, s.text) for s in example.segments]
            assert set(line) == {"key", "segments"}
    table = pl.read_parquet(folder / "predictions.parquet")
    assert table.columns == ["split", "key", "score"]
    assert dict(table["split"].value_counts().iter_rows()) == {"validation": 60, "test": 57, "ood_test": 60}
    assert table["score"].null_count() == table.height


def test_no_hidden_field_and_no_label_is_in_any_file(tmp_path):
    made = made_data("interventional", n=40, canary=CANARY)
    files = export_task(made, tmp_path / "out").files
    content = b"".join((tmp_path / "out" / name).read_bytes() for name in files)
    assert CANARY.encode() not in content
    assert "train_labels.parquet" not in files
    assert not re.search(rb'"(label|y|group|question_id|p1)"', content)


def test_training_labels_are_written_when_asked_for_and_no_others(data, tmp_path):
    export_task(data, tmp_path / "out", train_labels=True)
    table = pl.read_parquet(tmp_path / "out" / "train_labels.parquet")
    assert set(table["key"]) == {str(k) for k in data["train"].examples.keys.tolist()}
    assert sorted(table["y"]) == sorted(data["train"].y.tolist())


def test_an_export_says_how_to_send_answers_back(exported):
    about = json.loads((exported[0] / "export.json").read_text())
    assert about["task"] == "made"
    assert "lmassay cot score made predictions.parquet --name NAME" in about["answers"]


def test_text_of_any_kind_is_read_back_as_it_was(tmp_path):
    texts = ["two\nlines\u2028three", "\u202eright to left", "bell \x07 and escape \x1b[31m", "\U0001f40d", ""]
    made = made_data(n=40)
    split = made["test"]
    cots = (texts * 8)[:40]
    odd = replace(split, examples=VisibleExamples(split.examples.keys, [Column("cot", pl.Series(cots))]))
    export_task(replace(made, splits={**made.splits, "test": odd}), tmp_path / "out")
    lines = (tmp_path / "out" / "test.jsonl").read_text()
    assert lines.isascii()
    assert [json.loads(line)["segments"][0]["text"] for line in lines.splitlines()] == cots


def test_a_folder_in_use_is_left_as_it_was(data, tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(LmassayError, match=r"not empty: it holds mine\.txt"):
        export_task(data, tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["mine.txt"]
    with pytest.raises(LmassayError) as error:
        export_task(data, tmp_path / "mine.txt" / "out")
    assert error.value.code == "out-folder-unwritable"


def test_predictions_made_elsewhere_score_as_the_same_method_would_here(data, exported):
    ours = evaluate(data, Waits)
    theirs = score_predictions(data, answers(exported[0]), name="elsewhere")
    for part in ("scores", "controls", "counts", "survives_its_controls", "redrawn"):
        assert theirs.document[part] == ours.document[part], part
    assert theirs.document["thresholds"]["elsewhere"] == ours.document["thresholds"]["waits"]
    assert theirs.document["evidence"] == ours.document["evidence"]
    assert theirs.document["identity"]["method"]["origin"] == "external"


def test_the_order_of_rows_and_the_kind_of_file_change_nothing(data, exported, tmp_path):
    table = answers(exported[0])
    expected = checked_scores(data, table, "it")
    mixed = table.sample(fraction=1, shuffle=True, seed=3)
    mixed.write_csv(tmp_path / "p.csv")
    mixed.write_parquet(tmp_path / "p.parquet")
    mixed.with_columns(pl.col("key").cast(pl.Int64)).write_ndjson(tmp_path / "p.jsonl")
    from lmassay.cot.external import _read

    for name in ("p.csv", "p.parquet", "p.jsonl"):
        assert checked_scores(data, _read(tmp_path / name), name) == expected


def test_an_empty_score_is_an_abstention_and_is_counted(data, exported, tmp_path):
    table = answers(exported[0]).with_columns(
        score=pl.when(pl.int_range(pl.len()).over("split") >= 5).then(pl.col("score"))
    )
    found = score_predictions(data, table, name="shy", out=tmp_path / "run")
    counts = found.document["counts"]["ood_test"]
    assert (counts["n_scored"], counts["n_undecided"], counts["statuses"]["abstained"]) == (55, 5, 5)
    for name, file in (("cot_run", "run.json"), ("cot_scores", "scores.json")):
        document = json.loads((tmp_path / "run" / file).read_text())
        jsonschema.Draft202012Validator(schema(name)).validate(document)
    with pytest.raises(LmassayError, match=r"method\.sha256") as error:
        score_predictions(data, answers(exported[0]), name="shy", out=tmp_path / "run")
    assert error.value.code == "run-folder-mismatch"


def _first(column, value, dtype=None):
    """The first test row's cell, put to another value."""
    here = (pl.col("split") == "test") & (pl.int_range(pl.len()).over("split") == 0)
    return pl.when(here).then(pl.lit(value, dtype=dtype)).otherwise(pl.col(column)).alias(column)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.drop("score"), "has no column score; it has split, key"),
        (lambda t: t.head(-2), "split ood_test: 58 rows for 60 examples; .* is missing"),
        (lambda t: t.filter(pl.col("split") != "ood_test"), "has no rows of the split ood_test, which has 60"),
        (lambda t: t.filter(pl.col("split") != "validation"), "has no rows of the split validation"),
        (lambda t: pl.concat([t, t.filter(split="test").head(1)]), "split test: key .* stands more than once"),
        (lambda t: t.with_columns(_first("key", "17")), "split test: '17' is no example of this data"),
        (lambda t: t.with_columns(_first("key", "a\x1b[31m")), "is no example of this data"),
        (lambda t: t.with_columns(_first("key", None, pl.String)), "is no example of this data"),
        (lambda t: t.with_columns(_first("score", float("nan"))), "is nan .1 such. — leave the score"),
        (lambda t: t.with_columns(_first("score", float("inf"))), "is inf"),
        (lambda t: t.with_columns(pl.col("score").cast(pl.String)), "scores of type String, not numbers"),
        (lambda t: t.with_columns(pl.col("key").cast(pl.Float64)), "keys of type Float64: they were rounded"),
        (lambda t: t.with_columns(_first("split", "train")), "rows of the split 'train'"),
        (lambda t: t.with_columns(_first("split", None, pl.String)), "rows of the split None"),
        (lambda t: t.with_columns(score=pl.lit(None)), "no example has a score"),
        (lambda t: t.clear(), "has no rows of the split validation"),
    ],
)
def test_a_table_that_does_not_fit_is_one_clear_line(data, exported, change, message):
    with pytest.raises(LmassayError, match=message) as error:
        score_predictions(data, change(answers(exported[0])), name="elsewhere")
    assert error.value.code == "bad-request"
    assert "\n" not in error.value.one_line()
    assert "\x1b" not in error.value.one_line()


@pytest.mark.parametrize("name", ["", "  ", "tfidf", "random", "a\nb", "x" * 81])
def test_a_name_must_be_one_that_tables_can_hold(data, exported, name):
    with pytest.raises(LmassayError):
        score_predictions(data, template(data), name=name)


def _command(capsys, *arguments):
    with pytest.raises(SystemExit) as stop:
        main([str(a) for a in arguments])
    return stop.value.code, capsys.readouterr()


def _own_file(path):
    """Data of one's own for task 3."""
    rng = np.random.default_rng(0)
    rows = []
    for split in ("train", "validation", "test", "ood_test"):
        for i in range(40):
            label = "positive" if i % 2 else "negative"
            words = " ".join(rng.choice(["so", "then", "thus"], 9)) + (" surely" if i % 2 and i % 10 else "")
            rows.append({"example_id": f"{split}{i}", "split": split, "question_id": f"{split}{i // 3}",
                         "label": label, "cot": words})  # fmt: skip
    pl.DataFrame(rows).write_ndjson(path)


def test_the_commands_go_from_text_to_a_run(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    _own_file(tmp_path / "mine.jsonl")
    own = ("--source", "mine.jsonl")
    status, out = _command(capsys, "cot", "export", "follow_up_confidence", "text", *own)
    assert status == 0
    assert "test: 40 examples" in out.out
    answers(tmp_path / "text").write_csv(tmp_path / "filled.csv")
    status, out = _command(capsys, "cot", "score", "3", "filled.csv", "--name", "my reader", "--llm", *own)
    assert status == 0
    assert "my reader on follow_up_confidence" in out.out
    assert "run folder: runs/cot-3-external-my_reader" in out.out.replace("head-", "")
    status, out = _command(capsys, "cot", "leaderboard", *(tmp_path / "runs").iterdir())
    assert status == 0
    assert "my reader (external)" in out.out
    for words in (("3", "none.csv"), ("3", "mine.txt"), ("3", "text/export.json")):
        status, out = _command(capsys, "cot", "score", *words, "--name", "x", *own)
        assert status == 2
        assert out.err.count("\n") == 1
    (tmp_path / "cut.parquet").write_bytes((tmp_path / "text" / "predictions.parquet").read_bytes()[:50])
    status, out = _command(capsys, "cot", "score", "3", "cut.parquet", "--name", "x", *own)
    assert status == 2
    assert "cannot be read" in out.err
