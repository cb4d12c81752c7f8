"""Data of one's own: read as it says, refused where it does not fit."""

from __future__ import annotations

import json

import numpy as np
import polars as pl
import pytest

from lmassay.cot.evaluate import evaluate
from lmassay.cot.load import load_task
from lmassay.errors import LmassayError


def rows(n=12):
    return [
        {
            "example_id": f"e{i}", "split": ("train", "validation", "test")[i % 3], "question_id": f"q{i // 2}",
            "label": ("yes", "no")[i // 3 % 2], "prompt": f"Question {i // 2}?", "cot": f"Thought {i}. \u202eשלום",
            "distance": i,
        }
        for i in range(n)
    ]  # fmt: skip


def written(tmp_path, content, suffix=".jsonl"):
    path = tmp_path / f"mine{suffix}"
    if suffix == ".parquet":
        pl.DataFrame(content).write_parquet(path)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in content))
    return path


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_a_file_is_read_as_a_tasks_data(tmp_path, suffix):
    data = load_task("reasoning_termination", source=written(tmp_path, rows(), suffix))
    assert list(data.splits) == ["train", "validation", "test"]
    assert data.layout == "own"
    expected = {r["example_id"]: r for r in rows()}
    for split in data.splits.values():
        for example, name, y in zip(split.examples, split.hidden["example_id"], split.y, strict=True):
            assert example.text("cot") == expected[name]["cot"]
            assert y == float(expected[name]["label"] == "yes")
        assert "distance" in split.hidden.columns
    assert "distance" not in {s.kind for e in data["train"].examples for s in e.segments}


def test_without_validation_rows_a_fifth_of_the_training_questions_is_held_out_and_said(tmp_path):
    content = [r | {"split": "test" if r["split"] == "test" else "train"} for r in rows(60)]
    data = load_task("reasoning_termination", source=written(tmp_path, content))
    assert list(data.splits) == ["train", "validation", "test"]
    parts = [set(data[split].hidden["question_id"]) for split in ("train", "validation")]
    asked = {r["question_id"] for r in content if r["split"] == "train"}
    assert parts[0] | parts[1] == asked
    assert not parts[0] & parts[1]
    assert len(parts[1]) == round(len(asked) / 5)
    assert data.validation == "held_out"
    assert any("a fifth of the training questions" in note for note in data.notes)
    again = load_task("reasoning_termination", source=written(tmp_path, content[::-1]))
    assert {*again["validation"].hidden["example_id"]} == {*data["validation"].hidden["example_id"]}
    named = load_task("reasoning_termination", source=written(tmp_path, rows()))
    assert named.validation == "own"


@pytest.mark.parametrize("split", ["tset", "Train", "validation2", "dev", ""])
def test_a_split_of_no_known_name_is_refused_and_is_no_test_set(tmp_path, split):
    content = [r | {"split": split} if i == 5 else r for i, r in enumerate(rows())]
    with pytest.raises(LmassayError, match="names the split"):
        load_task("reasoning_termination", source=written(tmp_path, content))


@pytest.mark.parametrize("label", [1e200, -1e200, 10**400, float("1e308")])
def test_a_number_whose_square_is_infinite_is_no_label(tmp_path, label):
    content = [r | {"label": label if i == 3 else 0.5} for i, r in enumerate(rows())]
    with pytest.raises(LmassayError, match="cot-data-broken"):
        load_task("answer_entropy", source=written(tmp_path, content))


def test_a_file_without_rows_says_so(tmp_path):
    with pytest.raises(LmassayError, match="has no rows"):
        load_task("answer_entropy", source=written(tmp_path, []))


def test_training_rows_of_which_none_is_usable_are_counted_by_reason(tmp_path):
    content = [r | {"cot": "The same words.", "prompt": "The same question?"} for r in rows(60)]
    with pytest.raises(LmassayError, match=r"there are no training rows; \d+ of 20 rows: .*with the other label"):
        evaluate(load_task("reasoning_termination", source=written(tmp_path, content)), "length")


def test_choosing_sentences_is_no_task_for_a_method_whatever_its_data():
    for source in ("demo", "nowhere.jsonl"):
        with pytest.raises(LmassayError, match="about choosing sentences"):
            evaluate("compression", "tfidf", source=source)


def test_a_single_training_question_is_not_held_out(tmp_path):
    content = [r | {"split": "test" if i else "train"} for i, r in enumerate(rows())]
    assert "validation" not in load_task("reasoning_termination", source=written(tmp_path, content)).splits


def test_messages_options_and_numbers_are_read(tmp_path):
    content = [r | {"message": [{"role": "user", "content": "hi"}], "label": i % 2} for i, r in enumerate(rows())]
    data = load_task("self_deletion", source=written(tmp_path, content))
    (segment,) = data["train"].examples[0].segments
    assert (segment.kind, segment.label, segment.text) == ("message", "user", "hi")
    content = [r | {"label": i / 8, "option": [{"label": "A", "text": "I"}]} for i, r in enumerate(rows())]
    data = load_task("answer_entropy", source=written(tmp_path, content))
    assert sorted(data["train"].y) == [0, 3 / 8, 6 / 8, 9 / 8]
    assert data.missing == ()


def test_a_row_without_label_is_kept_counted_and_not_used(tmp_path):
    content = rows()
    content[0]["label"] = None
    train = load_task("1", source=written(tmp_path, content))["train"]
    assert train.counts == {"ok": 3, "unlabelled": 1}
    assert np.isnan(train.y[train.status == "unlabelled"]).all()


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"label": "perhaps"}, "'perhaps', which is not yes, no, 1 or 0"),
        ({"example_id": "e1"}, "'e1' more than once"),
        ({"cot": 3}, "line 1 cannot be read: cot is not text"),
        ({"question_id": None}, "without example_id, split or question_id"),
    ],
)
def test_rows_that_do_not_fit_are_refused(tmp_path, change, why):
    content = rows()
    content[0] |= change
    with pytest.raises(LmassayError, match=why):
        load_task("1", source=written(tmp_path, content))


def test_a_file_without_a_needed_column_or_split_is_refused(tmp_path):
    with pytest.raises(LmassayError, match="no column 'question_id'"):
        load_task("1", source=written(tmp_path, [{k: v for k, v in r.items() if k != "question_id"} for r in rows()]))
    with pytest.raises(LmassayError, match="needs the split train and a test split"):
        load_task("1", source=written(tmp_path, [r for r in rows() if r["split"] != "test"]))


def test_a_segment_of_another_type_is_refused(tmp_path):
    with pytest.raises(LmassayError, match="column cot is Int64, not text"):
        load_task("1", source=written(tmp_path, [r | {"cot": i} for i, r in enumerate(rows())], ".parquet"))
    with pytest.raises(LmassayError, match="an entry is not role and content"):
        load_task("2", source=written(tmp_path, [r | {"message": ["hi"], "label": 1} for r in rows()]))


def test_a_file_that_cannot_be_read_is_refused(tmp_path):
    path = written(tmp_path, rows(), ".parquet")
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(LmassayError, match="cannot be read"):
        load_task("1", source=path)
    path = written(tmp_path, rows())
    path.write_text(path.read_text()[:-30])
    with pytest.raises(LmassayError, match="cannot be read"):
        load_task("1", source=path)
    with pytest.raises(LmassayError, match="is no file"):
        load_task("1", source=tmp_path / "none.jsonl")
    (tmp_path / "mine.csv").write_text("a,b\n")
    with pytest.raises(LmassayError, match="ends in none of"):
        load_task("1", source=tmp_path / "mine.csv")


def test_rows_are_judged_as_published_ones_are(tmp_path):
    content = rows(24)
    content[0]["cot"], content[3]["cot"] = "", " word "
    # Rows 6 and 9 are training rows of both labels.
    content[6] |= {"prompt": "same", "cot": "the same thought"}
    content[9] |= {"prompt": "same", "cot": "the same thought"}
    train = load_task("reasoning_termination", source=written(tmp_path, content))["train"]
    found = dict(zip(train.hidden["example_id"], train.status.tolist(), strict=True))
    assert (found["e0"], found["e3"]) == ("empty_cot", "broken_rollout")
    assert found["e6"] == found["e9"] == "contradictory_duplicate"
    assert np.isnan(train.y[~train.usable]).all()


def test_a_question_that_is_no_number_is_refused(tmp_path):
    """I-84: rows without a question would become one question."""
    content = [r | {"question_id": float("nan") if i % 2 else float(i)} for i, r in enumerate(rows())]
    with pytest.raises(LmassayError, match="question_id is NaN"):
        load_task("reasoning_termination", source=written(tmp_path, content, ".parquet"))


@pytest.mark.parametrize("asked", [{"layout": "post"}, {"regime": "id"}, {"validation": "published"}])
def test_what_only_published_data_has_is_not_asked_of_ones_own(tmp_path, asked):
    with pytest.raises(LmassayError, match="has no layout, regime or choice of validation sets"):
        load_task("reasoning_termination", source=written(tmp_path, rows()), **asked)


def test_a_split_holds_no_text_of_another(tmp_path):
    data = load_task("reasoning_termination", source=written(tmp_path, rows()))
    held = {cell for c in data["train"].examples.columns for cell in c.values.pick(np.arange(len(c.values)))}
    assert not held & {r["cot"] for r in rows() if r["split"] != "train"}
