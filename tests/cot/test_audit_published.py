"""On the published data the audit finds, without being told a field's name, what the specification lists."""

from __future__ import annotations

import functools

import pytest
from json_tree import EXPORT

from lmassay.cot.audit.run import audit_task
from lmassay.cot.published import import_published

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not EXPORT.is_dir(), reason="the published data is not beside this checkout"),
]


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    root = tmp_path_factory.mktemp("audited")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LMASSAY_CACHE", str(root))
        import_published(EXPORT)
        yield functools.cache(functools.partial(audit_task, draws=500))


def named(report, check, name):
    return [f for f in report.findings if f.check == check and name in (f.subject, *f.also)]


#: Task, feature, split in which it is significant, pairs of rows it is taken over.
TOLD = [
    ("1", "distance_from_end", "train", "all"),
    ("1", "yes_count", "evaluation", "all"),
    ("1", "no_count", "evaluation", "all"),
    ("1", "mean_yes_position", "evaluation", "all"),
    ("1", "prefix_idx", "train", "all"),
    ("1", "prefix_idx", "evaluation", "all"),
    ("1", "_file: last number", "evaluation", "all"),
    ("2", "sample_idx", "validation", "within"),
    ("2", "sample_idx", "test", "within"),
    ("2", "sample_idx", "ood_test", "within"),
    ("2", "_file: last number", "test", "within"),
    ("3", "cohens_d", "test", "all"),
    ("3", "forced_mean - baseline_mean", "test", "all"),
    ("4", "label_detailed", "test", "all"),
    ("4", "prompts.switch_rate", "test", "all"),
    ("4", "prompts.effect_classification", "ood_test", "all"),
    ("4", "is_sycophantic", "ood_test", "all"),
    ("4", "answer agrees with the suggestion", "ood_test", "all"),
    ("4", "chain of thought: words", "test", "all"),
    ("5", "direction is 'suggest_minority'", "test", "all"),
    ("5", "pair_key: word 1 from the end is 'minority'", "test", "all"),
    ("5", "_file: word 2 from the end is 'minority'", "test", "all"),
    ("5", "switch_rate", "test", "all"),
    ("5", "ctrl_rate", "test", "all"),
    ("5", "label_detailed", "test", "all"),
    ("5", "chain of thought: words", "test", "all"),
    ("6", "is_majority", "test", "all"),
    ("6", "answer equals majority_answer", "test", "all"),
    ("7", "z_score", "test", "all"),
    ("7", "prompt_mean_length", "test", "all"),
    ("7", "prompt_mean_length", "ood_test", "all"),
    ("7", "token_length", "train", "all"),
]


@pytest.mark.parametrize(("task", "feature", "split", "scope"), TOLD)
def test_a_field_that_gives_the_label_away_is_found(report, task, feature, split, scope):
    found = named(report(task), "feature", feature) + named(report(task), "inside a question", feature)
    assert (split, scope) in {(f.split, f.scope) for finding in found for f in finding.figures}


#: Task, check, where, beginning of what is said.
SHARED = [
    ("2", "contradictory duplicates", "validation", "5 texts"),
    ("2", "contradictory duplicates", "test", "3 texts"),
    ("2", "contradictory duplicates", "ood_test", "13 texts"),
    ("2", "duplicate texts", "validation", "6 of 120"),
    ("2", "duplicate texts", "test", "10 of 222"),
    ("2", "duplicate texts", "ood_test", "15 of 100"),
    ("3", "empty text", "train", "5 of 286"),
    ("3", "empty text", "validation", "6 of 92"),
    ("3", "one question under several ids", "ood_test", "5 of 32"),
    ("6", "one question under several ids", "test", "1 of 53"),
    ("7", "question ids", "train, validation", "47 of 47"),
    ("7", "one question under several ids", "train", "1 of 51"),
    ("7", "duplicate texts", "train", "7 of 2444"),
    ("5", "questions of another task", "ood_test", "of 20 questions stand in another task: 20 in atypical_answer"),
]


@pytest.mark.parametrize(("task", "check", "where", "what"), SHARED)
def test_what_stands_twice_is_found_and_counted(report, task, check, where, what):
    (found,) = [f for f in report(task).findings if f.check == check and f.subject == where]
    assert found.what.startswith(what)


@pytest.mark.parametrize("split", ["validation", "test", "ood_test"])
@pytest.mark.parametrize("feature", ["has a line break", "ends in a sentence's punctuation"])
def test_the_flattened_training_texts_of_task_1_are_found(report, feature, split):
    (found,) = named(report("1"), "format", f"chain of thought: {feature}")
    assert split in {f.split for f in found.figures}


def test_the_direction_of_task_5_has_the_g_mean2_the_specification_gives(report):
    held = {f.split: f.g_mean2 for f in report("5").figures if "minority" in f.feature and f.scope == "all"}
    for split, expected in (("train", 0.845), ("validation", 0.863), ("test", 0.819), ("ood_test", 0.723)):
        assert held[split] == pytest.approx(expected, abs=0.001)


def test_prefix_idx_points_the_other_way_in_training(report):
    (found,) = named(report("1"), "feature", "prefix_idx")
    assert "the other way round in train than in" in found.what


@pytest.mark.parametrize("task", ["1", "2", "3", "6"])
def test_tasks_whose_length_is_controlled_have_no_leak_by_length_outside_training(report, task):
    name = "conversation: words" if task == "2" else "chain of thought: words"
    of = [f for f in report(task).figures if f.feature == name and f.scope == "all" and f.split != "train"]
    assert len(of) == 4
    assert all(f.strength_low <= 0.6 for f in of)


@pytest.mark.parametrize("task", ["8", "9"])
def test_tasks_without_text_are_audited_and_say_so(report, task):
    assert any("no text is shown" in n for n in report(task).notes)
