"""Every score of a run against a plain loop over the option scores, and what may not change it."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from itertools import pairwise, product
from random import Random
from statistics import mean

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made import battery, random_battery, task

from lmassay.xray.relabel import labels_of
from lmassay.xray.scored import ScoredBattery
from lmassay.xray.scores import compute_scores

SEED = 5
FAMILIES = ("binder_tracking", "theorem_pattern", "arithmetic_transform")
SHARED = "undecidable: shared first token"


def _counterbalanced(n_sets=20, k=4, n_depths=8, seed=0):
    """Sets of k prompts that share k options, two sets a template."""
    rng = np.random.default_rng(seed)

    def one(s, i, variant):
        family = FAMILIES[s % 3]
        return task(
            rng.normal(size=(k, n_depths)).cumsum(1),
            answer=i,
            name=f"{s:02d}/{i}",
            n_tokens=np.arange(k) % 3 + 1,
            variant=variant,
            template=f"{family}/{s // (6)}",
            set_id=f"set {s}",
            family=family,
            options=[f"{s} {o}" for o in range(k)],
        )

    def every(variant):
        return [one(s, i, variant) for s, i in product(range(n_sets), range(k))]

    groups = [
        task(rng.normal(size=(k, n_depths)), name=f"g{g}/{w}", template=f"g{g}", variant="paraphrase")
        for g, w in product(range(3), range(4))
    ]
    return battery(
        every("real"),
        semantics_break=every("semantics_break"),
        prompt_swap=every("prompt_swap"),
        paraphrase=groups,
    )


@cache
def _scores(**how):
    return compute_scores(_counterbalanced(), seed=SEED, **how)


class Plain:
    """The definitions, one task and one depth at a time."""

    def __init__(self, scored, *, drop_last_block=False):
        self.by_id = {v: {t.task_id: t for t in ts} for v, ts in scored.variants.items()}
        self.drop = drop_last_block

    def wins(self, one, label, *, raw=False):
        score = one.logprob if raw else one.logprob - one.neutral
        depths = [d for d in range(score.shape[1]) if not (self.drop and d == score.shape[1] - 2)]
        return [all(score[label, d] - score[o, d] > 1e-4 for o in range(len(score)) if o != label) for d in depths]

    def pools(self, one, role):
        wrong = [i for i in range(len(one.options)) if i != role]
        nearest = min(abs(int(one.n_tokens[i] - one.n_tokens[role])) for i in wrong)
        return wrong, [i for i in wrong if abs(int(one.n_tokens[i] - one.n_tokens[role])) == nearest]

    def psi_bar(self, one, role):
        share = [mean(self.wins(one, o)) for o in range(len(one.options))]
        return mean(share[role] - max(share[r], share[m]) for r, m in product(*self.pools(one, role)))

    def row(self, name):
        one, broken, swapped = (self.by_id[v][name] for v in ("real", "semantics_break", "prompt_swap"))
        labels = labels_of(one, SEED)
        won = {
            "real": self.wins(one, one.answer),
            "rl": self.wins(one, labels.random_label),
            "mt": self.wins(one, labels.matched_token),
            "sb": self.wins(broken, one.answer),
            "swap": self.wins(swapped, one.answer),
        }
        j = {c: mean(w) for c, w in won.items()}
        internal = {c: any(w[:-1]) for c, w in won.items()}
        wrong, matched = self.pools(one, one.answer)
        spans = {c: self._span(won[c]) for c in ("real", "rl", "mt")}
        sigma = int(spans["real"] and not (spans["rl"] or spans["mt"]))
        sigma -= int((spans["rl"] or spans["mt"]) and not spans["real"])
        psi = j["real"] - max(j["rl"], j["mt"])
        psi_bar = self.psi_bar(one, one.answer)
        return {
            "real_win": internal["real"],
            "real_win_strict": any(won["real"][: -1 if self.drop else -2]),
            "rl_win": internal["rl"],
            "rl_win_expected": mean(any(self.wins(one, o)[:-1]) for o in wrong),
            "mt_win": internal["mt"],
            "mt_win_expected": mean(any(self.wins(one, o)[:-1]) for o in matched),
            "sb_win": internal["sb"],
            "swap_win": internal["swap"],
            "final_accuracy": won["real"][-1],
            "final_accuracy_raw": self.wins(one, one.answer, raw=True)[-1],
            "psi": psi,
            "psi_positive": psi > 0,
            "psi_ext": psi + 0.3 * sigma,
            "psi_bar": psi_bar,
            "psi_excess": psi_bar - mean(self.psi_bar(one, r) for r in range(len(one.options))),
            "mt_exact": one.n_tokens[labels.matched_token] == one.n_tokens[one.answer],
            "mt_same_as_rl": labels.matched_token == labels.random_label,
            "mt_length_difference": int(one.n_tokens[labels.matched_token] - one.n_tokens[one.answer]),
        }

    def _span(self, won):
        distinct = won if self.drop else [*won[:-2], won[-1]]
        return any(a and b for a, b in pairwise(distinct))

    def rows(self):
        return {name: self.row(name) for name in self.by_id["real"]}


@pytest.mark.parametrize("depths", ["paper", "distinct"])
def test_every_mean_is_the_plain_loops(depths):
    rows = Plain(_counterbalanced(), drop_last_block=depths == "distinct").rows()
    found = _scores(depths=depths).scores
    names = list(next(iter(rows.values())))
    for name in names:
        assert found[name].value == pytest.approx(mean(float(r[name]) for r in rows.values()), abs=1e-12), name
        assert (found[name].n, found[name].n_clusters, found[name].status) == (80, 11, "ok")
        assert found[name].low <= found[name].value <= found[name].high


def test_distinct_depths_make_strict_and_plain_rates_equal():
    found = _scores(depths="distinct").scores
    assert found["real_win"].value == found["real_win_strict"].value


def test_families_and_groups_are_unweighted_means_of_means():
    scored, found = _counterbalanced(), _scores()
    rows = Plain(scored).rows()
    families = {
        f: mean(rows[t.task_id]["psi"] for t in scored.variants["real"] if t.family == f) for f in FAMILIES
    }  # fmt: skip
    assert {f: e.value for f, e in found.families.items()} == pytest.approx(families)
    logic = mean([families["binder_tracking"], families["theorem_pattern"]])
    assert found.scores["psi_logic"].value == pytest.approx(logic)
    assert found.scores["psi_gap"].value == pytest.approx(logic - families["arithmetic_transform"])
    assert found.scores["psi_gap"].status == "few_clusters"
    assert found.scores["psi_gap"].low < found.scores["psi_gap"].value < found.scores["psi_gap"].high


def test_groups_with_ten_templates_a_family_are_bootstrapped():
    found = compute_scores(_counterbalanced(n_sets=66), seed=0)
    gap = found.scores["psi_gap"]
    assert (gap.status, gap.n_clusters) == ("ok", 33)
    half = {f: (e.high - e.low) / 2 for f, e in found.families.items()}
    by_hand = (half["binder_tracking"] ** 2 / 4 + half["theorem_pattern"] ** 2 / 4 + half[FAMILIES[2]] ** 2) ** 0.5
    assert (gap.high - gap.low) / 2 == pytest.approx(by_hand, rel=0.1)


def test_xray_score_counts_tasks():
    rows = Plain(_counterbalanced()).rows()
    found = _scores()
    real = sum(r["real_win"] for r in rows.values())
    signs = [np.sign(real - sum(r[c] for r in rows.values())) for c in ("rl_win", "mt_win", "sb_win")]
    jaccard = mean(float(g.jaccard) for g in found.paraphrase_groups)
    assert found.scores["jaccard"].value == pytest.approx(jaccard)
    assert found.scores["xray_score"].value == sum(signs) + np.sign(jaccard - 0.5)


def test_evidence_pairs_each_control_with_the_signal():
    rows = Plain(_counterbalanced()).rows().values()
    found = {(r.signal, r.control): r for r in _scores().evidence}
    controls = {"random_label": "rl_win_expected", "matched_token": "mt_win_expected", "semantics_break": "sb_win"}
    for control, name in (controls | {"prompt_swap": "swap_win"}).items():
        row = found["real_win", control]
        assert row.difference == pytest.approx(mean(float(r["real_win"]) - float(r[name]) for r in rows))
        assert row.signal_value == pytest.approx(mean(float(r["real_win"]) for r in rows))
        assert row.low <= row.difference <= row.high
    excess = found["psi_bar", "expectation under no skill"]
    assert excess.difference == pytest.approx(mean(r["psi_excess"] for r in rows))
    stability = found["jaccard_strict", "wrong options"]
    assert stability.signal_value == pytest.approx(_scores().scores["jaccard_strict"].value)
    assert len(found) == 6


def test_the_table_of_tasks_holds_what_the_means_are_taken_over():
    rows = Plain(_counterbalanced()).rows()
    table = {r["task_id"]: r for r in _scores().to_dict()["tasks"]}
    assert set(table) == set(rows)
    for name, row in rows.items():
        assert table[name]["psi"] == pytest.approx(row["psi"])
        assert table[name]["psi_excess"] == pytest.approx(row["psi_excess"])
        assert table[name]["final_correct"] == row["final_accuracy"]


def test_a_skilled_model_survives_and_an_unskilled_one_does_not():
    scored = _counterbalanced()

    def skilled(one, variant):
        if variant != "real":
            return one
        score = one.logprob.copy()
        score[one.answer] += 50
        return replace(one, logprob=score)

    # Other prompts make the model answer something else: nothing of the signal is left.
    flat = {v: tuple(replace(t, logprob=np.zeros_like(t.logprob)) for t in ts) for v, ts in scored.variants.items()}
    better = replace(scored, variants={**flat, "real": tuple(skilled(t, "real") for t in scored.variants["real"])})
    found = compute_scores(better, seed=SEED)
    assert found.survives
    # The wordings are flat too: their row has nothing to say.
    assert [r.verdict for r in found.evidence] == ["survives"] * 5 + ["undecided (no group has a win)"]
    assert found.scores["psi_excess_p"].value == 1 / 10_001
    assert not _scores().survives
    assert _scores().scores["psi_excess_p"].value > 0.01


# ---- what may not change a number


def _comparable(scores):
    document = scores.to_dict()
    document["tasks"] = {r["task_id"]: r for r in document["tasks"]}
    document["paraphrase_groups"] = {g["group"]: g for g in document["paraphrase_groups"]}
    return document


def _changed(a, b, where=""):
    """Paths at which two documents differ by more than rounding."""
    if isinstance(a, dict) and isinstance(b, dict):
        return [w for k in {**a, **b} for w in _changed(a.get(k), b.get(k), f"{where}/{k}")]
    if isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        return [w for i, (x, y) in enumerate(zip(a, b, strict=True)) for w in _changed(x, y, f"{where}/{i}")]
    same = abs(a - b) < 1e-12 if isinstance(a, float) and isinstance(b, float) else a == b
    return [] if same else [where]


@settings(max_examples=8, deadline=None)
@given(st.integers(0, 1000), st.booleans())
def test_order_of_tasks_and_of_options_changes_no_score(seed, sets):
    random = Random(seed)
    scored = _counterbalanced(n_sets=12) if sets else random_battery(n=24)

    def turned(one):
        order = random.sample(range(len(one.options)), len(one.options))
        return replace(
            one,
            options=tuple(one.options[i] for i in order),
            answer=order.index(one.answer),
            logprob=one.logprob[order],
            neutral=one.neutral[order],
            n_tokens=one.n_tokens[order],
        )

    moved = {v: tuple(turned(t) for t in random.sample(ts, len(ts))) for v, ts in scored.variants.items()}
    one, other = (compute_scores(s, seed=SEED) for s in (scored, replace(scored, variants=moved)))
    changed = _changed(_comparable(one), _comparable(other))
    assert changed == []


@settings(max_examples=8, deadline=None)
@given(st.integers(1, 20))
def test_presence_of_other_tasks_changes_no_tasks_row(n):
    scored = _counterbalanced()
    fewer = replace(scored, variants={v: ts[: 4 * n] for v, ts in scored.variants.items()})
    rows = {r["task_id"]: r for r in _scores().to_dict()["tasks"]}
    for row in compute_scores(fewer, seed=SEED).to_dict()["tasks"]:
        assert row == rows[row["task_id"]]


def test_labels_handed_back_are_used_and_the_rest_drawn_anew():
    scored = _counterbalanced()
    labels = {t.task_id: labels_of(t, SEED) for t in scored.variants["real"]}
    assert compute_scores(scored, seed=SEED, labels=labels).to_dict() == _scores().to_dict()
    del labels["00/0"]
    assert compute_scores(scored, seed=SEED, labels=labels).to_dict() == _scores().to_dict()
    others = {name: replace(drawn, random_label=drawn.matched_token) for name, drawn in labels.items()}
    changed = compute_scores(scored, seed=SEED, labels=others).scores
    assert changed["mt_same_as_rl"].value > 0.9
    assert changed["psi_excess"].value == _scores().scores["psi_excess"].value


def test_two_seeds_draw_other_labels_and_leave_exact_figures_alone():
    one, other = _scores().scores, compute_scores(_counterbalanced(), seed=SEED + 1).scores
    assert one["rl_win"].value != other["rl_win"].value
    for name in ("real_win", "rl_win_expected", "mt_win_expected", "psi_bar", "psi_excess"):
        assert one[name].value == other[name].value


# ---- what cannot be had is named


def _without(*variants):
    scored = _counterbalanced()
    kept = {v: ts for v, ts in scored.variants.items() if v not in variants}
    return compute_scores(replace(scored, variants=kept), seed=SEED)


def test_a_phase_that_was_not_run_is_undefined_and_the_headline_cannot_be_had():
    found = _without("semantics_break", "prompt_swap", "paraphrase")
    for name in ("sb_win", "swap_win", "sb_gap_p", "jaccard", "jaccard_strict", "xray_score", "xray_strict"):
        assert (found.scores[name].value, found.scores[name].status) == (None, "undefined: phase not run")
    verdicts = {r.control: r.verdict for r in found.evidence}
    assert verdicts["semantics_break"] == verdicts["prompt_swap"] == "undecided (phase not run)"
    assert not found.survives
    assert found.scores["real_win"].value == _scores().scores["real_win"].value


def test_a_broken_prompt_that_cannot_be_scored_leaves_its_pair_out():
    scored = _counterbalanced()
    first, *rest = scored.variants["semantics_break"]
    first = replace(first, logprob=np.full_like(first.logprob, np.nan))
    found = compute_scores(replace(scored, variants={**scored.variants, "semantics_break": (first, *rest)}), seed=SEED)
    assert found.scores["sb_win"].n == 79
    assert {r.control: r.n for r in found.evidence}["semantics_break"] == 79
    assert found.scores["xray_score"].status == "ok"
    assert found.counts["n_scored"] == 80


def _flagged(share, flag=SHARED):
    """The battery with this share of the first family's tasks flagged."""
    scored = _counterbalanced()
    mine = [t.task_id for t in scored.variants["real"] if t.family == FAMILIES[0]]
    chosen = set(mine[: round(share * len(mine))])
    real = tuple(replace(t, flags=frozenset({flag})) if t.task_id in chosen else t for t in scored.variants["real"])
    return replace(scored, variants={**scored.variants, "real": real}), len(chosen), len(mine)


def test_undecidable_tasks_leave_the_denominators_and_are_counted_by_family():
    scored, n, _ = _flagged(0.25)
    found = compute_scores(scored, seed=SEED)
    assert (found.counts["n_total"], found.counts["n_scored"], found.counts["n_undecided"]) == (80, 80 - n, n)
    assert found.counts[f"undecided {FAMILIES[0]}"] == n
    assert found.scores["real_win"].n == 80 - n
    assert any("cannot be decided" in notice for notice in found.notices)


@pytest.mark.parametrize(("share", "status"), [(0.25, "undefined: shared first token"), (0.15, None)])
def test_a_family_under_four_fifths_decidable_is_undefined_and_so_is_the_gap(share, status):
    scored, _, _ = _flagged(share)
    found = compute_scores(scored, seed=SEED)
    for figure in (found.families[FAMILIES[0]], found.scores["psi_logic"], found.scores["psi_gap"]):
        assert (figure.value is None) == (status is not None)
        assert status is None or figure.status == status
    assert found.scores["psi_compute"].value is not None


def test_scores_that_are_no_numbers_are_errors_and_never_a_shared_token():
    scored = _counterbalanced()
    real = tuple(
        replace(t, logprob=np.full_like(t.logprob, np.nan)) if t.family == FAMILIES[0] else t
        for t in scored.variants["real"]
    )
    found = compute_scores(replace(scored, variants={**scored.variants, "real": real}), seed=SEED)
    n = found.counts["n_error"]
    assert n > 0
    assert found.counts["n_scored"] + n == 80
    assert found.families[FAMILIES[0]].status == "undefined: no data"
    assert found.scores["psi_gap"].status == "undefined: no data"
    assert any("not finite numbers" in notice for notice in found.notices)


def test_a_run_without_a_decidable_task_is_undefined_throughout():
    scored = _counterbalanced(n_sets=3)
    real = tuple(replace(t, flags=frozenset({SHARED})) for t in scored.variants["real"])
    found = compute_scores(ScoredBattery(scored.depths, "first-token", {"real": real}), seed=SEED)
    assert {e.value for e in found.scores.values()} == {None}
    assert all(e.status.startswith("undefined") for e in (*found.scores.values(), *found.families.values()))
    assert not found.survives


def test_tasks_outside_sets_are_announced():
    assert not any("exchangeable" in n for n in _scores().notices)
    (notice,) = compute_scores(random_battery(), seed=0).notices
    assert notice.startswith("null: assumes exchangeable options (40 of 40 tasks")


def test_all_options_tied_is_counted_and_won_by_nobody():
    tied = [task(np.ones((4, 6)), name=f"t{i}", template=f"t{i % 12}") for i in range(24)]
    found = compute_scores(battery(tied), seed=0)
    assert found.counts["all_tied_tasks"] == found.counts["tied_at_final"] == 24
    assert found.scores["real_win"].value == 0
    assert found.scores["psi_excess_p"].value == 1


def test_the_document_is_json_with_the_same_keys_whatever_was_run():
    full, bare = _scores().to_dict(), _without("semantics_break", "prompt_swap", "paraphrase").to_dict()
    json.dumps(full, allow_nan=False)
    json.dumps(bare, allow_nan=False)
    assert list(full["scores"]) == list(bare["scores"])
    nothing = compute_scores(battery([task(np.ones((4, 6)), flags=[SHARED])]), seed=0).to_dict()
    assert set(full["scores"]) == set(nothing["scores"])
