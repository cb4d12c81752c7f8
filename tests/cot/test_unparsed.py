"""A language model's unparsed replies count as wrong; labels have no order; the rates stand beside the figures."""

from __future__ import annotations

import numpy as np
import pytest
from made_cot import made_data

from lmassay.cot.evaluate import evaluate, rescored
from lmassay.cot.figures import MANY_UNPARSED, MONITOR_TITLES, TITLES
from lmassay.cot.predictions import UNPARSED
from lmassay.measures.classification import choose_threshold
from lmassay.storage.runs import read_record


class Told:
    """Scores by key, as a language model's replies would be."""

    def __init__(self, scores, answers, kind="binary"):
        self.id, self.kind, self.answers, self.choices = "told", kind, answers, {}
        self.provenance = {"origin": "monitor", "llm": True, "answers": answers}
        self._scores = scores

    def fit(self, X, y, groups, validation, seed):
        pass

    def score(self, X):
        return np.array([self._scores[x.key] for x in X])


def told(data, answers, *, silent=0.0, seed=0):
    """Scores that know a little, NaN for a share of rows."""
    rng = np.random.default_rng(seed)
    scores = {}
    for split in data.splits.values():
        for key, y in zip(split.examples.keys.tolist(), split.y.tolist(), strict=True):
            p = float(np.clip(0.5 + 0.2 * (y - 0.5) + rng.normal() * 0.2, 0, 1))
            value = float(p > 0.5) if answers == "label" else p
            scores[key] = np.nan if rng.random() < silent else value
    return Told(scores, answers, "regression" if answers == "distribution" else "binary")


def value(found, name):
    return found.scored.scores[name].value


def status(found, name):
    return found.scored.scores[name].status


@pytest.fixture(scope="module")
def data():
    # Its figures are those of a binary task and more.
    return made_data("interventional")


@pytest.mark.parametrize("answers", ["label", "probability"])
@pytest.mark.parametrize("silent", [0.0, 0.05, 0.3, 1.0])
def test_headline_figures_count_unparsed_replies_as_wrong(data, answers, silent):
    method = told(data, answers, silent=silent)
    found = evaluate(data, method)
    split = data["test"]
    score = method.score(split.examples)
    val = method.score(data["validation"].examples)
    threshold = 0.5 if answers == "label" else choose_threshold(data["validation"].y, val).value
    if threshold is None:
        assert value(found, "test.g_mean2") is None
        return
    # A plain loop: a silent reply is no hit, whichever class it is of.
    right = {0: 0, 1: 0}
    parsed_right = {0: 0, 1: 0}
    for y, s in zip(split.y, score, strict=True):
        hit = not np.isnan(s) and (s > threshold) == (y == 1)
        right[int(y)] += hit
        parsed_right[int(y)] += hit
    n = {c: int((split.y == c).sum()) for c in (0, 1)}
    parsed = {c: int(((split.y == c) & ~np.isnan(score)).sum()) for c in (0, 1)}
    assert value(found, "test.tpr") == pytest.approx(right[1] / n[1])
    assert value(found, "test.tnr") == pytest.approx(right[0] / n[0])
    assert value(found, "test.g_mean2") == pytest.approx(right[1] * right[0] / (n[1] * n[0]))
    assert value(found, "test.unparsed") == pytest.approx(np.isnan(score).mean())
    if silent < 1:
        wanted = parsed_right[1] * parsed_right[0] / (parsed[1] * parsed[0])
        assert value(found, "test.g_mean2_parsed") == pytest.approx(wanted)
        assert value(found, "test.g_mean2_parsed") >= value(found, "test.g_mean2")
        called = (score > threshold).sum() / parsed_total(parsed)
        base = (split.y[~np.isnan(score)] == 1).mean()
        assert value(found, "test.positive_rate") == pytest.approx(called)
        assert value(found, "test.base_rate") == pytest.approx(base)
        assert value(found, "test.bias") == pytest.approx(called - base)
    for name in ("unparsed", "g_mean2_parsed", "bias"):
        e = found.scored.scores[f"test.{name}"]
        assert e.value is None or e.low <= e.value <= e.high


def parsed_total(parsed):
    return parsed[0] + parsed[1]


@pytest.mark.parametrize("silent", [0.0, 0.05, 0.3])
def test_auroc_is_of_parsed_confidences_and_undefined_above_a_tenth_unparsed(data, silent):
    from sklearn.metrics import roc_auc_score

    method = told(data, "probability", silent=silent)
    found = evaluate(data, method)
    score, y = method.score(data["test"].examples), data["test"].y
    known = ~np.isnan(score)
    for name in ("auroc", "within_auroc"):
        if 1 - known.mean() > 0.1:
            assert status(found, f"test.{name}") == MANY_UNPARSED
    if 1 - known.mean() <= 0.1:
        assert value(found, "test.auroc") == pytest.approx(roc_auc_score(y[known], score[known]), abs=1e-12)
        assert found.scored.scores["test.auroc"].n == known.sum()
        assert value(found, "test.g_mean2") <= value(found, "test.auroc")


def test_labels_have_a_threshold_of_their_own_and_no_order(data):
    found = evaluate(data, told(data, "label"))
    assert found.document["thresholds"]["told"] == {"value": 0.5, "status": "ok"}
    for name in ("auroc", "within_auroc", "oracle_g_mean2"):
        assert status(found, f"test.{name}") == "undefined: labels only"
    rows = [row for row in found.scored.evidence if row.metric == "auroc"]
    assert rows
    assert {row.verdict for row in rows} == {"undecided (labels only)"}
    assert value(found, "test.g_mean2") is not None


def test_unparsed_rows_do_not_move_the_threshold(data):
    method = told(data, "probability", silent=0.3)
    found = evaluate(data, method)
    val = method.score(data["validation"].examples)
    known = ~np.isnan(val)
    wanted = choose_threshold(data["validation"].y[known], val[known]).value
    assert found.document["thresholds"]["told"]["value"] == wanted


def test_the_table_says_unparsed_and_the_counts_add_up(data):
    method = told(data, "label", silent=0.3)
    found = evaluate(data, method)
    silent = int(np.isnan(method.score(data["test"].examples)).sum())
    counts = found.document["counts"]["test"]
    assert counts["statuses"][UNPARSED] == silent > 0
    assert counts["n_total"] == counts["n_scored"] + counts["n_undecided"] + counts["n_error"]
    assert "abstained" not in counts["statuses"]


def test_evidence_for_g_mean2_is_over_all_rows_and_for_auroc_over_parsed_ones(data):
    method = told(data, "probability", silent=0.05)
    found = evaluate(data, method)
    known = int((~np.isnan(method.score(data["test"].examples))).sum())
    for row in found.scored.evidence:
        if row.signal in ("test.g_mean2", "test.auroc") and row.p is not None:
            assert row.n == (120 if row.metric == "g_mean2" else known)


def test_controls_have_no_figures_of_replies(data):
    found = evaluate(data, told(data, "label", silent=0.3))
    for scores in found.scored.controls.values():
        assert not {name.partition(".")[2] for name in scores} & set(MONITOR_TITLES)


def test_a_run_of_replies_is_rescored_to_the_same(data, tmp_path):
    found = evaluate(data, told(data, "label", silent=0.2), out=tmp_path / "run")
    record = read_record(tmp_path / "run")
    assert record["identity"]["method"]["answers"] == "label"
    assert rescored(tmp_path / "run", record)["scores"] == found.document["scores"]


def test_an_unparsed_distribution_counts_as_the_farthest_entropy():
    data = made_data("regression", ood=("ood_1", "ood_2"))
    method = told(data, "distribution", silent=0.2)
    found = evaluate(data, method)
    y, score = data["test"].y, method.score(data["test"].examples)
    top = np.log(4)
    guess = [
        max(0.0, top, key=lambda end, t=t: abs(end - t)) if np.isnan(s) else s for t, s in zip(y, score, strict=True)
    ]
    wanted = 1 - np.mean((y - np.array(guess)) ** 2) / np.var(y)
    assert value(found, "test.r2") == pytest.approx(wanted)
    known = ~np.isnan(score)
    parsed = 1 - np.mean((y[known] - score[known]) ** 2) / np.var(y[known])
    assert value(found, "test.r2_parsed") == pytest.approx(parsed)
    assert status(found, "test.within_r2") == MANY_UNPARSED
    assert set(TITLES) & {name.partition(".")[2] for name in found.scored.scores} >= {"r2", "r2_normalised"}


def test_without_the_number_of_options_an_unparsed_distribution_leaves_r2_undefined():
    data = made_data("regression", ood=())
    for split in data.splits.values():
        object.__setattr__(split, "hidden", split.hidden.drop("n_options"))
    found = evaluate(data, told(data, "distribution", silent=0.2))
    assert status(found, "test.r2").startswith("undefined: replies are unparsed")
    assert evaluate(data, told(data, "distribution")).scored.scores["test.r2"].value is not None
