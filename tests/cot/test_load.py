"""Loading a task: targets, statuses, what stays hidden, and what is refused."""

from __future__ import annotations

import math
from importlib.metadata import EntryPoint

import numpy as np
import polars as pl
import pytest
from json_tree import EXPORT
from made_release import made, write_export
from scipy.stats import entropy
from sklearn.metrics import roc_auc_score

import lmassay.cot.tasks as registry
from lmassay.cot.load import load_task, require_segments
from lmassay.cot.published import import_published
from lmassay.cot.tasks import cot_task, find_task, task_ids, tasks
from lmassay.errors import LmassayError
from lmassay.examples import KINDS

needs_export = pytest.mark.skipif(not EXPORT.is_dir(), reason="the published data is not beside this checkout")


@pytest.fixture(scope="module")
def made_store(tmp_path_factory):
    root = tmp_path_factory.mktemp("made")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LMASSAY_CACHE", str(root / "cache"))
        import_published(write_export(root / "export", made()))
        yield patch


@pytest.fixture(scope="module")
def real_store(tmp_path_factory):
    root = tmp_path_factory.mktemp("real")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LMASSAY_CACHE", str(root / "cache"))
        some = root / "some"
        for number in (2, 3, 4, 5, 7, 8):
            (some / f"task{number}").mkdir(parents=True)
            for path in (EXPORT / f"task{number}").glob("*.parquet"):
                if number != 2 or "train" not in path.name:
                    (some / f"task{number}" / path.name).symlink_to(path)
        import_published(some)
        yield patch


def test_there_are_nine_tasks_in_their_order():
    assert [t.number for t in tasks()] == list(range(1, 10))
    assert find_task("8").id == "answer_entropy"
    assert all(set(t.segments) <= set(KINDS) and t.label_rule and t.quirks for t in tasks())
    with pytest.raises(LmassayError, match="did you mean self_deletion") as refused:
        find_task("self_deletoin")
    assert refused.value.code == "unknown-task"


def test_two_tasks_of_one_name_are_refused():
    def compression():
        raise AssertionError

    with pytest.raises(ValueError, match="two tasks"):
        cot_task(compression)


def test_a_package_whose_task_cannot_be_imported_is_named(monkeypatch):
    broken = EntryPoint("reading_mind", "no_such_package:reading_mind", registry.ENTRY_POINTS)
    monkeypatch.setattr(registry, "entry_points", lambda group: [broken])
    registry._import_all.cache_clear()
    with pytest.raises(LmassayError, match=r"task 'reading_mind' \(no_such_package:reading_mind\) cannot be imported"):
        find_task("8")
    registry._import_all.cache_clear()


def test_nothing_imported_is_said(tmp_path, monkeypatch):
    monkeypatch.setenv("LMASSAY_CACHE", str(tmp_path))
    with pytest.raises(LmassayError, match="the store has nothing of this task") as refused:
        load_task("1")
    assert refused.value.code == "cot-data-missing"


@pytest.mark.parametrize("task_id", task_ids())
def test_rows_of_all_attributes_are_the_same_example(made_store, task_id):
    data = load_task(task_id, validation="published")
    words = data.task.release.words
    for split in data.splits.values():
        assert len(split) == len(split.examples) == len(split.groups) == len(split.status) == split.hidden.height
        assert split.examples.keys.tolist() == sorted(split.examples.keys.tolist())
        assert len(set(split.examples.keys.tolist())) == len(split)
        named = split.hidden["question_id"].to_list()
        assert len(set(zip(named, split.groups.tolist(), strict=True))) == len(set(named)) == len(set(split.groups))
        if words:
            expected = [words[type(next(iter(words)))(label)] for label in split.hidden["label"]]
            assert split.y.tolist() == expected == split.hidden["y"].to_list()
        if data.task.segments[-1] == "cot" or ("cot" in data.task.segments and "cot" not in data.missing):
            for example, file in zip(split.examples, split.hidden["_file"], strict=True):
                if "cot" not in data.missing:
                    number = int(file.removesuffix(".json").rpartition("_")[2])
                    assert example.text("cot").startswith(f"Thought {number} on {file.rpartition('_')[0]}")


@pytest.mark.parametrize("task_id", task_ids())
def test_only_segments_of_the_allow_list_are_visible(made_store, task_id):
    data = load_task(task_id)
    for split in data.splits.values():
        kinds = {s.kind for e in split.examples for s in e.segments}
        assert kinds == set(data.task.segments) - set(data.missing)


def test_layouts_and_regimes_that_do_not_fit_are_refused(made_store):
    for arguments, why in (
        (("1", "haed"), "did you mean head"),
        (("1", "post"), "two training sets"),
        (("1", "post", "odd"), "did you mean ood"),
        (("1", "head", "id"), "no regimes"),
        (("3", "post", "id"), "no regimes"),
    ):
        with pytest.raises(LmassayError, match=why):
            load_task(*arguments)
    with pytest.raises(LmassayError, match="the store has the layout head"):
        load_task("1", "post", "id")
    with pytest.raises(LmassayError, match="no validation set"):
        load_task("7", validation="none")


def test_tables_that_did_not_change_are_shared_and_the_notes_say_so(made_store):
    assert "imported as head" in load_task("3", "post").notes[0]
    with pytest.raises(LmassayError, match="split ood_test of the layout post"):
        load_task("4", "post")


def test_entropy_is_that_of_the_distribution_in_nats(made_store):
    split = load_task("8")["test"]
    assert len(split) == 8 * 3
    for y, pairs in zip(split.y, split.hidden["answer_distribution"].to_list(), strict=True):
        p = [pair["value"] for pair in pairs]
        assert y == pytest.approx(entropy(p), abs=1e-12)
    certain = split.y[[max(p["value"] for p in d) == 1 for d in split.hidden["answer_distribution"].to_list()]]
    assert certain.tolist() == [0.0] * len(certain)
    assert len(certain)


def test_a_text_method_on_published_task_8_is_told_what_is_missing(made_store):
    data = load_task("answer_entropy")
    require_segments(data, ["prompt"])
    with pytest.raises(LmassayError, match="published without the text of any chain of thought"):
        require_segments(data, ["cot"])


def test_the_held_out_validation_set_shares_no_question_and_no_row_is_lost(made_store):
    held, published = load_task("7"), load_task("7", validation="published")
    assert held.validation == "held_out"
    assert held.fingerprint != published.fingerprint
    assert not np.intersect1d(held["train"].groups, held["validation"].groups).size
    both = [*held["train"].hidden["example_id"], *held["validation"].hidden["example_id"]]
    assert sorted(both) == sorted(published["train"].hidden["example_id"])
    assert 0 < len(held["validation"]) < len(held["train"])
    again = load_task("7")
    assert again["validation"].hidden.equals(held["validation"].hidden)


def test_task_9_is_one_split_of_all_selectors(made_store):
    split = load_task("9")["all"]
    assert len(split) == 8 * 8
    assert np.isnan(split.y).all()
    assert split.hidden["token_kl"].null_count() == 64
    assert all(e.of("option")[1].text == "No" and e.of("option")[1].label == "B" for e in split.examples)


@needs_export
def test_unusable_rows_are_those_the_specification_counts(real_store):
    counts = {name: s.counts for name, s in load_task("3").splits.items()}
    assert counts == {
        "train": {"empty_cot": 5, "ok": 281},
        "validation": {"empty_cot": 6, "ok": 86},
        "test": {"empty_cot": 1, "ok": 85},
        "ood_test": {"ok": 88},
    }
    train = load_task("7", validation="published")["train"]
    texts = [e.text("cot") for e in train.examples]
    assert train.counts["broken_rollout"] == sum(len(t.split()) == 1 for t in texts) > 0
    assert np.isnan(train.y[train.status != "ok"]).all()


@needs_export
def test_contradictory_conversations_of_task_2_are_found(real_store):
    """5 texts in validation, 3 in test and 13 out of distribution stand under both labels."""
    store = {p.stem: pl.read_parquet(p) for p in (EXPORT / "task2").glob("task2_*test.parquet")}
    with pytest.raises(LmassayError, match="split train"):
        load_task("2")
    from lmassay.cot.split import make_split
    from lmassay.cot.store import read_manifest

    task, tables = find_task("2"), read_manifest()
    for split, expected in ((2, 3), (3, 13)):
        released = task.release.splits[split]
        made_ = make_split(task, released, tables[f"head/2/{released.folder}/records"], None)
        at_odds = made_.status == "contradictory_duplicate"
        assert len({e.text() for e, odd in zip(made_.examples, at_odds, strict=True) if odd}) == expected
        # An oracle that shares nothing: the conversations as strings, counted.
        frame = store[f"task2_{released.folder}"]
        by_text: dict[str, set[int]] = {}
        for messages, label in zip(frame["messages"].to_list(), frame["label"].to_list(), strict=True):
            by_text.setdefault(repr(messages), set()).add(label)
        assert sum(len(labels) == 2 for labels in by_text.values()) == expected
        rows = sum(len(by_text[repr(m)]) == 2 for m in frame["messages"].to_list())
        assert at_odds.sum() == rows


@needs_export
def test_rates_of_the_interventional_tasks(real_store):
    hidden = load_task("5")["test"].hidden
    assert hidden["p1"].equals(hidden["intv_rate"].rename("p1"))
    assert not hidden["p_estimated"].any()
    split = load_task("4")["test"]
    rows = split.hidden.filter(pl.col("y") == 1).to_dicts()
    pairs: dict[tuple[str, str], int] = {}
    for row in rows:
        pair = (row["anecdote_id"], row["variant"])
        pairs[pair] = pairs.get(pair, 0) + 1
    for row in rows:
        p1 = pairs[row["anecdote_id"], row["variant"]] / 50
        assert row["p1"] == pytest.approx(p1)
        assert row["p0"] == pytest.approx(max(0, p1 - row["prompts.switch_rate"]))
    assert split.hidden.filter(pl.col("y") == 0)["p1"].null_count() == (split.y == 0).sum()


@needs_export
def test_entropies_have_the_published_mean_and_variance(real_store):
    published = {
        "train": (13067, 0.779, 0.194), "validation": (2900, 0.693, 0.221), "test": (3522, 0.643, 0.200),
        "ood_test_1": (1089, 0.245, 0.177), "ood_test_2": (1119, 0.275, 0.164), "ood_test_3": (716, 0.032, 0.009),
    }  # fmt: skip
    for name, split in load_task("8").splits.items():
        n, mean, variance = published[name]
        assert len(split) == n
        assert split.y.mean() == pytest.approx(mean, abs=5e-4)
        assert split.y.var() == pytest.approx(variance, abs=5e-4)
        assert split.y.max() <= math.log(5)


@needs_export
@pytest.mark.parametrize("task_id", ["3", "4", "5", "7"])
def test_neither_order_nor_key_tells_the_label(real_store, task_id):
    for split in load_task(task_id).splits.values():
        y, usable = split.y[split.usable], split.usable
        spread = 3.3 * math.sqrt((len(y) + 1) / (12 * (y == 1).sum() * (y == 0).sum()))
        for score in (np.arange(len(split)), split.examples.keys):
            assert abs(roc_auc_score(y, score[usable]) - 0.5) < spread


@needs_export
def test_questions_that_two_splits_share_are_reported(real_store):
    """I-73: all 47 validation prompts of task 7 are training prompts; no other pair of splits shares any."""
    assert load_task("7", validation="published").shared_groups == {("train", "validation"): 47}
    assert load_task("7").shared_groups == {}
    assert [load_task(t).shared_groups for t in ("3", "4", "5", "8")] == [{}] * 4


@needs_export
def test_task_5s_trace_of_blocks_is_shown_as_text(real_store):
    example = load_task("5")["ood_test"].examples[0]
    assert example.text("cot").startswith("\nOkay")
    assert {s.kind for s in example.segments} == {"prompt", "option", "suggestion", "cot", "answer"}
