"""Evaluation in memory: figures against scikit-learn and loops, and what a method can and cannot influence."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from made_cot import made_data
from sklearn.metrics import r2_score, roc_auc_score
from walking import reachable, said_by

from lmassay.cot.evaluate import evaluate
from lmassay.cot.fitting import fit_and_score
from lmassay.cot.task import CotTask
from lmassay.errors import LmassayError
from lmassay.measures.classification import choose_threshold
from lmassay.methods.method import Method, Validation, check_training, method_hash

CANARY = "canary-7c41e0"


class Waits(Method):
    """Counts one word and takes the logarithm, so that scores are many."""

    id = "waits"

    def fit(self, X, y, groups, validation, seed):
        check_training(y, self.kind)

    def score(self, X):
        return np.array([x.text("cot").count("wait") + len(x.text("cot")) / 1e4 for x in X])


@pytest.fixture(scope="module")
def data():
    return made_data()


@pytest.fixture(scope="module")
def found(data):
    return evaluate(data, Waits)


def test_figures_are_those_of_the_rows(data, found):
    method = Waits()
    scores = {name: method.score(split.examples) for name, split in data.splits.items()}
    threshold = choose_threshold(data["validation"].y, scores["validation"]).value
    assert found.document["thresholds"]["waits"] == {"value": threshold, "status": "ok"}
    for name in ("test", "ood_test"):
        y, s = data[name].y, scores[name]
        tpr, tnr = (s[y == 1] > threshold).mean(), (s[y == 0] <= threshold).mean()
        values = {k.partition(".")[2]: e.value for k, e in found.scored.scores.items() if k.startswith(name)}
        assert values["auroc"] == pytest.approx(roc_auc_score(y, s), abs=1e-12)
        assert values["tpr"] == pytest.approx(tpr, abs=1e-12)
        assert values["tnr"] == pytest.approx(tnr, abs=1e-12)
        assert values["g_mean2"] == values["g_mean2_retuned"] == pytest.approx(tpr * tnr, abs=1e-12)
        assert values["g_mean2"] <= values["oracle_g_mean2"] <= values["auroc"]


def test_drawing_validation_questions_too_widens_the_interval(found):
    given, retuned = (found.scored.scores[f"test.{name}"] for name in ("g_mean2", "g_mean2_retuned"))
    assert retuned.high - retuned.low > given.high - given.low


def test_the_table_holds_every_score_once_with_its_decision(data, found):
    table = found.predictions
    methods = ["waits", "random", "length", "position", "prompt_only", "shortcuts"]
    assert table["method_id"].unique(maintain_order=True).to_list() == methods
    assert table.height == len(methods) * 3 * 120
    assert table.n_unique(["method_id", "split", "example_id"]) == table.height
    mine = table.filter(method_id="waits", split="test")
    threshold = found.document["thresholds"]["waits"]["value"]
    assert mine["score"].to_list() == Waits().score(data["test"].examples).tolist()
    assert mine["decision"].to_list() == [int(s > threshold) for s in mine["score"]]
    assert set(mine["threshold"]) == {threshold}
    assert "train" not in table["split"]


def test_evidence_has_a_row_for_each_control_in_and_out_of_distribution(found):
    rows = {(r.signal, r.control) for r in found.scored.evidence}
    for part in ("test", "ood_test"):
        assert {c for s, c in rows if s == f"{part}.auroc"} == {
            "random", "length", "position", "prompt_only", "shortcuts",
        }  # fmt: skip
    for row in found.scored.evidence:
        assert row.difference == pytest.approx(row.signal_value - row.control_value)
        assert row.signal_value == found.scored.scores[row.signal].value
        assert row.control_value == found.scored.controls[row.control][row.signal].value
        assert row.low <= row.high
        assert row.p_holm >= row.p


def test_a_control_that_says_the_same_of_every_example_is_named_and_not_beaten(found):
    """No text here ends in punctuation and all have one sentence."""
    notices = found.document["notices"]
    assert "test.g_mean2 is not held against position: no_threshold" in notices
    assert "control agreement does not apply: the task shows no answer and suggestion" in notices


def test_a_method_is_held_against_the_other_controls_when_it_is_one(data):
    found = evaluate(data, "length")
    assert "length" not in found.scored.controls
    assert "random" in found.scored.controls
    assert not found.survives


def test_noise_does_not_survive():
    found = evaluate(made_data(signal=0.0), "tfidf")
    assert not found.survives
    assert {r.verdict for r in found.scored.evidence} & {"fails", "undecided"}


def test_a_perfect_method_survives():
    class Knows(Waits):
        id = "knows"

        def score(self, X):
            return np.array([float("wait" in x.text("cot")) for x in X])

    # Half the positives say so in the middle of a long text, where no shortcut looks.
    found = evaluate(made_data(n=400, n_questions=40, signal=1.0), Knows)
    assert found.scored.scores["test.g_mean2"].value == 1.0
    assert {r.verdict for r in found.scored.evidence if r.control != "shortcuts"} == {"survives"}


def _with(data, split, **changes):
    return replace(data, splits={**data.splits, split: replace(data[split], **changes)})


def test_changing_a_test_label_changes_no_threshold_and_no_score(data, found):
    """I-76."""
    other = evaluate(_with(data, "test", y=1 - data["test"].y), Waits)
    assert other.document["thresholds"] == found.document["thresholds"]
    assert other.predictions["score"].equals(found.predictions["score"])
    assert other.scored.scores["test.auroc"].value == pytest.approx(1 - found.scored.scores["test.auroc"].value)


def test_other_test_rows_change_nothing_that_was_fitted(data, found):
    """I-69."""
    other = made_data(seed=9)
    changed = evaluate(replace(data, splits={**data.splits, "test": other["test"]}), "tfidf")
    same = evaluate(data, "tfidf")
    split = {"split": "ood_test", "method_id": "tfidf"}
    assert changed.predictions.filter(**split)["score"].equals(same.predictions.filter(**split)["score"])
    assert changed.document["thresholds"] == same.document["thresholds"]


def test_order_of_rows_changes_no_figure(data, found):
    order = np.random.default_rng(1).permutation(120)
    test = data["test"]
    shuffled = _with(
        data,
        "test",
        examples=test.examples.take(order),
        y=test.y[order],
        groups=test.groups[order],
        hidden=test.hidden[order.tolist()],
    )
    assert evaluate(shuffled, Waits).scored.scores == found.scored.scores


def test_counts_add_up_and_unusable_rows_are_not_scored():
    """I-85."""

    class Abstains(Waits):
        id = "abstains"
        abstains = "short texts"

        def score(self, X):
            lengths = np.array([len(x.text("cot").split()) for x in X])
            return np.where(lengths < 10, np.nan, np.where(lengths > 28, np.inf, super().score(X)))

    data = made_data()
    status = data["test"].status.astype(object)
    status[:5] = "empty_cot"
    y = data["test"].y.copy()
    y[:5] = np.nan
    found = evaluate(_with(data, "test", status=status, y=y), Abstains)
    counts = found.document["counts"]["test"]
    assert counts["n_total"] == 120 == counts["n_scored"] + counts["n_undecided"] + counts["n_error"]
    assert counts["statuses"]["empty_cot"] == 5
    assert counts["statuses"]["abstained"] + 5 == counts["n_undecided"] > 5
    assert counts["statuses"]["not_finite"] == counts["n_error"] > 0
    assert found.scored.scores["test.auroc"].n == counts["n_scored"]
    # Held against controls on the rows that both scored.
    (row,) = [r for r in found.scored.evidence if r.control == "random" and r.signal == "test.auroc"]
    assert row.n == counts["n_scored"]
    assert row.control_value != found.scored.controls["random"]["test.auroc"].value


def test_scores_of_one_kind_leave_g_mean2_undefined_and_evidence_undecided(data):
    class Constant(Waits):
        id = "constant"

        def score(self, X):
            return np.zeros(len(X))

    found = evaluate(data, Constant)
    assert found.scored.scores["test.g_mean2"].status == "undefined: no_threshold"
    assert found.scored.scores["test.auroc"].value == 0.5
    assert {r.verdict for r in found.scored.evidence if r.metric == "g_mean2"} == {"undecided (no_threshold)"}
    assert not found.survives


def test_a_class_never_predicted_gives_zero_and_a_flag(data):
    class Low(Waits):
        """Its validation scores lie far above those of any test row."""

        id = "low"

        def score(self, X):
            shift = 100 if X[0].key == data["validation"].examples[0].key else 0
            return super().score(X) + shift

    found = evaluate(data, Low)
    assert found.scored.scores["test.g_mean2"].value == 0.0
    assert found.document["flags"]["test.g_mean2"] == ["never predicts class 1"]


def test_one_class_in_a_test_split_is_undefined_there_alone(data):
    found = evaluate(_with(data, "test", y=np.ones(120)), Waits)
    assert found.scored.scores["test.auroc"].status == "undefined: one class"
    assert found.scored.scores["ood_test.auroc"].value is not None


def test_few_questions_leave_the_verdict_open():
    found = evaluate(made_data(n_questions=6), Waits)
    assert {r.verdict for r in found.scored.evidence} == {"undecided (few_clusters)"}
    assert found.scored.scores["test.auroc"].status == "few_clusters"
    alone = evaluate(made_data(n_questions=1), Waits)
    assert alone.scored.scores["test.auroc"].status == "no interval: needs 3 clusters"
    assert {r.verdict for r in alone.scored.evidence} == {"undecided (too few questions to be drawn)"}


def test_interventional_tasks_get_the_minimal_criterion_beside_the_plain_figure():
    data = made_data("interventional")
    found = evaluate(data, Waits)
    s = found.scored.scores
    # p1 = .8 and p0 = .2 for every positive.
    assert s["test.effect_ratio"].value == pytest.approx(0.75)
    assert s["test.chance_mc"].value == pytest.approx(1 / 3)
    assert s["test.g_mean2_mc"].value == pytest.approx(min(1, s["test.tpr"].value / 0.75) * s["test.tnr"].value)
    assert "agreement" in found.scored.controls
    agree = np.array([x.text("answer") == x.text("suggestion") for x in data["test"].examples], float)
    expected = roc_auc_score(data["test"].y, agree)
    assert found.scored.controls["agreement"]["test.auroc"].value == pytest.approx(expected)


def test_a_figure_of_positives_counts_their_questions_alone():
    data = made_data("interventional")
    test = data["test"]
    with_positives = np.unique(test.groups)[:4]
    y = np.where(np.isin(test.groups, with_positives), test.y, 0.0)
    found = evaluate(_with(data, "test", y=y), Waits).scored.scores
    ratio = found["test.effect_ratio"]
    assert (ratio.n, ratio.n_clusters, ratio.status) == (int(y.sum()), 4, "few_clusters")
    assert found["test.auroc"].n_clusters == len(np.unique(test.groups))


def test_where_every_answer_is_the_suggested_one_agreement_is_no_control():
    found = evaluate(made_data("interventional", agree=False), Waits)
    assert "test.g_mean2 is not held against agreement: no_threshold" in found.document["notices"]


def test_regression_is_scored_by_r2_and_the_median_over_ood_sets():
    data = made_data("regression", ood=("ood_test_1", "ood_test_2", "ood_test_3"))
    found = evaluate(data, Waits)
    s = found.scored.scores
    own = {}
    for name in data.test_splits:
        guess = Waits("regression").score(data[name].examples)
        own[name] = r2_score(data[name].y, guess)
        assert s[f"{name}.r2"].value == pytest.approx(own[name], abs=1e-12)
        top = np.log(4)
        assert s[f"{name}.r2_normalised"].value == pytest.approx(r2_score(data[name].y / top, guess / top))
    assert s["ood.r2"].value == pytest.approx(np.median([own[n] for n in data.ood_splits]))
    assert {r.signal for r in found.scored.evidence} == {"test.r2", "ood.r2"}
    assert found.document["thresholds"] == {}


class Chooses(Waits):
    """Remembers which validation rows it was given."""

    id = "chooses"
    chooses_on_validation = True

    def fit(self, X, y, groups, validation, seed):
        self.seen = {x.key for x in validation.X}
        self.questions = set(validation.groups.tolist())


def test_a_threshold_comes_from_validation_rows_that_no_choice_was_made_on(data):
    method = Chooses()
    found = evaluate(data, method)
    mine = found.predictions.filter(method_id="chooses")
    validation = data["validation"]
    chosen = np.isin(validation.examples.keys, list(method.seen))
    assert mine.filter(split="choosing").height == chosen.sum() > 0
    assert set(validation.groups[~chosen].tolist()).isdisjoint(method.questions)
    rest = ~chosen
    expected = choose_threshold(validation.y[rest], method.score(validation.examples)[rest]).value
    assert found.document["thresholds"]["chooses"]["value"] == expected


@pytest.mark.parametrize("kind", ["binary", "interventional", "regression"])
def test_a_canary_in_every_hidden_field_is_nowhere_to_be_found_in_what_a_method_gets(kind):
    received = []

    class Spy(Waits):
        id = "spy"
        chooses_on_validation = True

        def fit(self, X, y, groups, validation, seed):
            assert isinstance(validation, Validation)
            received.extend([X, y, groups, validation, seed, *X, *validation.X])

        def score(self, X):
            received.extend([X, *X])
            return super().score(X)

    data = made_data(kind, n=40, canary=CANARY)
    assert CANARY in str(data["test"].hidden.rows())
    fit_and_score(Spy(kind if kind == "regression" else "binary"), data, 0)
    said = [said_by(item) for item in reachable(received)]
    assert any("hmm wait" in text for text in said)
    assert not any(CANARY in text for text in said)
    # Test labels are not handed out either, in whatever shape.
    floats = [item for item in reachable(received) if isinstance(item, np.ndarray) and item.dtype == np.float64]
    for split in data.test_splits:
        assert not any(a.shape == data[split].y.shape and (a == data[split].y).all() for a in floats)


def test_the_walk_finds_a_canary_that_is_there():
    """The test above can fail."""
    data = made_data(n=10, canary=CANARY)
    assert any(CANARY in said_by(i) for i in reachable([data["test"]]))


def test_a_method_that_writes_into_its_arguments_changes_nothing_of_ours(data):
    class Vandal(Waits):
        id = "vandal"

        def fit(self, X, y, groups, validation, seed):
            y[:] = 0
            groups[:] = 0
            validation.y[:] = 0

    before = {name: (split.y.copy(), split.groups.copy()) for name, split in data.splits.items()}
    evaluate(data, Vandal)
    for name, (y, groups) in before.items():
        assert (data[name].y == y).all()
        assert (data[name].groups == groups).all()


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (lambda n: np.zeros(n + 1), r"120 examples were scored with an array of shape \(121,\)"),
        (lambda n: np.zeros((n, 1)), r"shape \(120, 1\)"),
        (lambda n: ["high"] * n, "not numbers"),
        (lambda n: np.zeros(n, complex), "complex"),
        (lambda n: 1 / 0, "ZeroDivisionError"),
    ],
)
def test_what_is_no_score_is_refused_with_the_method_s_name(data, returned, message):
    class Broken(Waits):
        id = "broken"

        def score(self, X):
            return returned(len(X))

    with pytest.raises(LmassayError, match=message) as error:
        evaluate(data, Broken)
    assert (error.value.code, error.value.exit_status) == ("method-failed", 3)
    assert "method broken, score on validation" in error.value.what


def test_data_that_cannot_be_evaluated_are_refused_by_name(data):
    for name, message in (("train", "no split train"), ("validation", "no split validation")):
        fewer = replace(data, splits={k: v for k, v in data.splits.items() if k != name})
        with pytest.raises(LmassayError, match=message):
            evaluate(fewer, Waits)
    with pytest.raises(LmassayError, match="split train: the training rows hold one class"):
        evaluate(_with(data, "train", y=np.ones(120)), Waits)
    with pytest.raises(LmassayError, match="published without the text of any chain of thought"):
        evaluate(replace(data, missing=("cot",)), "tfidf")
    with pytest.raises(LmassayError, match="choosing sentences"):
        evaluate(replace(data, task=replace(data.task, kind="selection")), "tfidf")
    with pytest.raises(LmassayError, match="method agreement cannot run on task made: the task shows no answer"):
        evaluate(data, "agreement")
    with pytest.raises(LmassayError, match="did you mean tfidf"):
        evaluate(data, "tfdif")
    regression = made_data("regression")
    with pytest.raises(LmassayError, match="method agreement cannot do task made, which is regression"):
        evaluate(regression, "agreement")
    assert isinstance(data.task, CotTask)


def test_one_class_of_validation_leaves_every_threshold_undefined(data):
    found = evaluate(_with(data, "validation", y=np.ones(120)), Waits)
    assert found.scored.scores["test.g_mean2"].status == "undefined: no_threshold (validation: one class)"
    assert found.survives is None
    assert found.scored.scores["test.auroc"].value is not None


def test_results_are_frames_for_a_notebook(found):
    assert found.scores.filter(method="waits", split="test", figure="auroc").height == 1
    assert set(found.evidence.columns) >= {"signal", "control", "difference", "low", "high", "verdict"}


@pytest.mark.parametrize("name", ["shortcuts", "tfidf"])
def test_a_method_cannot_go_by_the_name_of_one_of_ours(data, name):
    """Else it would take the control's place, and survive it."""
    named = type("Named", (Waits,), {"id": name})
    for method in (named, named()):
        with pytest.raises(LmassayError, match=f"two methods are called '{name}'"):
            evaluate(data, method)


@pytest.mark.parametrize("thing", [5, dict, object()])
def test_what_is_no_method_is_refused(data, thing):
    with pytest.raises(LmassayError, match="is no method"):
        evaluate(data, thing)


def test_a_method_that_leaves_the_program_has_failed(data):
    class Leaves(Waits):
        def fit(self, X, y, groups, validation, seed):
            raise SystemExit(0)

    with pytest.raises(LmassayError, match="fit: SystemExit") as refused:
        evaluate(data, Leaves)
    assert refused.value.code == "method-failed"


def test_questions_that_splits_share_are_told(data):
    """I-73."""
    test = data["test"]
    shared = replace(test, groups=np.where(np.arange(len(test)) < 5, data["train"].groups[0], test.groups))
    leaky = replace(data, splits={**data.splits, "test": shared})
    assert "1 question stands in both train and test" in evaluate(leaky, Waits).document["notices"][0]
    assert not any("stand in both" in n for n in evaluate(data, Waits).document["notices"])


def test_an_edited_class_of_a_notebook_is_another_method():
    def cell(word, size):
        source = f"""
class Counts(Method):
    id = "counts"
    size = {size}
    def score(self, X):
        return [x.text("cot").count("{word}") for x in X]
"""
        held = {"Method": Method, "__name__": "nowhere"}
        exec(source, held)
        return method_hash(held["Counts"]())

    assert cell("wait", 1) == cell("wait", 1)
    assert len({cell("wait", 1), cell("hmm", 1), cell("wait", 2)}) == 3
