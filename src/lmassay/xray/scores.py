"""From option scores to the XRay Score, PSI, their controls, and what all of it is worth."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np

from lmassay.evidence import Evidence, judged, no_evidence, paired_evidence, survives_its_controls
from lmassay.measures.intervals import Estimate, exact, mean_estimate, undefined
from lmassay.seeds import generator
from lmassay.xray.aggregates import family_psi, group_psi
from lmassay.xray.measured import Decided, Measured, measure
from lmassay.xray.null import role_null, sign_flip_p
from lmassay.xray.paraphrase import GroupStability, group_stability
from lmassay.xray.psi import SPAN
from lmassay.xray.relabel import Labels
from lmassay.xray.scored import ScoredBattery, ScoredTask
from lmassay.xray.signs import xray_score

NOT_RUN = "phase not run"
ASSUMES_EXCHANGEABLE = (
    "null: assumes exchangeable options (tasks stand in no counterbalanced sets);"
    " the prompt_swap row carries the verdict"
)


@dataclass(frozen=True, slots=True)
class XRayScores:
    """Everything `scores.json` holds.

    Attributes
    ----------
    scores, families : mapping of str to Estimate
    evidence : tuple of Evidence
    counts : mapping of str to int
        ``n_total = n_scored + n_undecided + n_error + n_skipped``, near ties, trajectory classes, flags.
    """

    scores: Mapping[str, Estimate]
    families: Mapping[str, Estimate]
    paraphrase_groups: tuple[GroupStability, ...]
    evidence: tuple[Evidence, ...]
    survives: bool
    counts: Mapping[str, int]
    notices: tuple[str, ...]
    decided: Decided

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready, in a fixed order."""
        return {
            "survives_its_controls": self.survives,
            "evidence": [row.to_dict() for row in self.evidence],
            "scores": {name: e.to_dict() for name, e in self.scores.items()},
            "families": {name: e.to_dict() for name, e in self.families.items()},
            "paraphrase_groups": [_group_dict(g) for g in self.paraphrase_groups],
            "counts": dict(self.counts),
            "notices": list(self.notices),
            "tasks": [m.row() for m in self.decided.tasks],
        }


def _group_dict(group: GroupStability) -> dict[str, Any]:
    return {
        "group": group.group,
        "family": group.family,
        "jaccard": None if group.jaccard is None else float(group.jaccard),
        "any_win": group.any_win,
        "win_rate": group.win_rate,
        "final_accuracy": group.final_accuracy,
        "n_wordings": group.n_wordings,
    }


def compute_scores(
    scored: ScoredBattery,
    *,
    seed: int,
    span: int = SPAN,
    depths: str = "paper",
    labels: Mapping[str, Labels] | None = None,
) -> XRayScores:
    """All scores of a run.

    Parameters
    ----------
    seed : int
        Of control labels, intervals and nulls; each draw is named by item and purpose.
    span : int
        Consecutive distinct depths that make a winning span stable.
    depths : {"paper", "distinct"}
        ``distinct`` drops the last block, whose lens is the output itself.
    labels : mapping of str to Labels, optional
        Control labels drawn earlier, by task id.
    """
    repeats_final = depths == "paper"
    if depths == "distinct":
        scored = without_last_block(scored)
    # Battery-level draws depend on the order of tasks, so that order is made the battery's content's own.
    decided = measure(scored, seed=seed, span=span, repeats_final=repeats_final, labels=labels)
    tasks = tuple(sorted(decided.tasks, key=lambda m: m.task.task_id))
    decided = replace(decided, tasks=tasks)
    groups = tuple(group_stability(scored.variants.get("paraphrase", ()), repeats_final=repeats_final))
    scores: dict[str, Estimate] = {}
    scores |= _rates(tasks, seed)
    scores |= _stability(groups)
    scores |= _signs(tasks, groups)
    totals = Counter(t.family for t in scored.variants["real"])
    families = family_psi(decided, totals, seed)
    scores |= _psi(tasks, seed)
    scores |= {f"psi_{name}": e for name, e in group_psi(decided, families, seed).items()}
    null_scores, counterbalanced = _null(tasks, seed)
    scores |= null_scores
    scores |= _matching(tasks, seed)
    evidence = judged(_evidence(tasks, seed))
    notices = [] if counterbalanced else [ASSUMES_EXCHANGEABLE]
    notices += _notices(scored, decided)
    return XRayScores(
        scores=scores,
        families=families,
        paraphrase_groups=groups,
        evidence=evidence,
        survives=survives_its_controls([row for row in evidence if row.signal == "real_win"]),
        counts=_counts(scored, decided),
        notices=tuple(notices),
        decided=decided,
    )


def without_last_block(scored: ScoredBattery) -> ScoredBattery:
    """The same scores without the last but one depth."""
    keep = [i for i in range(len(scored.depths)) if i != len(scored.depths) - 2]

    def cut(task: ScoredTask) -> ScoredTask:
        return replace(task, logprob=task.logprob[:, keep], neutral=task.neutral[:, keep])

    return replace(
        scored,
        depths=tuple(scored.depths[i] for i in keep),
        variants={name: tuple(map(cut, tasks)) for name, tasks in scored.variants.items()},
    )


def _clusters(tasks: Sequence[Measured]) -> tuple[list[str], list[str]]:
    """Templates, and the sets within them."""
    return [m.task.template for m in tasks], [m.task.set_id or m.task.task_id for m in tasks]


def _mean(tasks: Sequence[Measured], value: Callable[[Measured], float], name: str, title: str, seed: int) -> Estimate:
    templates, sets = _clusters(tasks)
    values = [value(m) for m in tasks]
    return mean_estimate(values, templates, sets=sets, title=title, rng=generator(seed, name, "interval"))


def _rates(tasks: Sequence[Measured], seed: int) -> dict[str, Estimate]:
    measures: dict[str, tuple[Callable[[Measured], float], str]] = {
        "real_win": (lambda m: m.won, "tasks whose answer wins at an internal depth"),
        "real_win_strict": (lambda m: bool(m.wins.internal_strict[m.labels.real]), "the same without the last block"),
        "rl_win": (lambda m: bool(m.wins.internal[m.labels.random_label]), "the same, a random wrong option as answer"),
        "rl_win_expected": (Measured.expected_random, "the same, expectation over all wrong options"),
        "mt_win": (lambda m: bool(m.wins.internal[m.labels.matched_token]), "the same, a wrong option of equal length"),
        "mt_win_expected": (Measured.expected_matched, "the same, expectation over the options of nearest length"),
        "final_accuracy": (lambda m: bool(m.wins.final[m.labels.real]), "tasks answered rightly at final"),
        "final_accuracy_raw": (lambda m: bool(m.wins.raw_final[m.labels.real]), "the same without prior normalisation"),
    }
    found = {name: _mean(tasks, value, name, title, seed) for name, (value, title) in measures.items()}
    for name, title, variant in (
        ("sb_win", "tasks whose answer wins internally under the broken prompt", "broken"),
        ("swap_win", "tasks whose answer wins internally under another task's prompt", "swapped"),
    ):
        run = [m for m in tasks if getattr(m, variant) is not None]

        def won(m: Measured, variant: str = variant) -> float:
            return float(getattr(m, variant).internal[m.labels.real])

        found[name] = _mean(run, won, name, title, seed) if run else undefined(title, NOT_RUN)
    return found


def _stability(groups: Sequence[GroupStability]) -> dict[str, Estimate]:
    title, strict = "mean Jaccard of won depths over wordings", "the same over groups with at least one win"
    usable = [g for g in groups if g.jaccard is not None]
    if not usable:
        reason = NOT_RUN if not groups else "every group has one wording"
        return {"jaccard": undefined(title, reason), "jaccard_strict": undefined(strict, reason)}
    winning = [g for g in usable if g.any_win]
    return {
        "jaccard": _group_mean(usable, title),
        "jaccard_strict": _group_mean(winning, strict) if winning else undefined(strict, "no group has a win"),
    }


def _group_mean(groups: Sequence[GroupStability], title: str) -> Estimate:
    return mean_estimate(
        [float(g.jaccard or 0) for g in groups],
        [g.group for g in groups],
        title=title,
        rng=generator(0, title, "interval"),
    )


def _signs(tasks: Sequence[Measured], groups: Sequence[GroupStability]) -> dict[str, Estimate]:
    title, strict = "XRay Score, -4 to +4", "XRay Score with the strict Jaccard"
    if not tasks or any(m.broken is None for m in tasks):
        reason = "no decidable task" if not tasks else NOT_RUN
        return {"xray_score": undefined(title, reason), "xray_strict": undefined(strict, reason)}
    usable = [g for g in groups if g.jaccard is not None]
    if not usable:
        return {"xray_score": undefined(title, NOT_RUN), "xray_strict": undefined(strict, NOT_RUN)}
    real = sum(m.won for m in tasks)
    controls = [
        sum(bool(m.wins.internal[m.labels.random_label]) for m in tasks),
        sum(bool(m.wins.internal[m.labels.matched_token]) for m in tasks),
        sum(bool(m.broken.internal[m.labels.real]) for m in tasks if m.broken is not None),
    ]

    def over(chosen: Sequence[GroupStability], name: str) -> Estimate:
        if not chosen:
            return undefined(name, "no group has a win")
        mean = sum((g.jaccard or Fraction(0) for g in chosen), Fraction()) / len(chosen)
        return exact(name, xray_score(real, controls, mean), len(tasks))

    return {"xray_score": over(usable, title), "xray_strict": over([g for g in usable if g.any_win], strict)}


def _psi(tasks: Sequence[Measured], seed: int) -> dict[str, Estimate]:
    measures: dict[str, tuple[Callable[[Measured], float], str]] = {
        "psi": (lambda m: m.psi.psi, "mean PSI"),
        "psi_positive": (lambda m: m.psi.psi > 0, "share of tasks with PSI > 0"),
        "psi_ext": (lambda m: m.psi.extended, "mean PSI with the stability term"),
        "psi_bar": (lambda m: m.psi_bar, "mean PSI over all control draws"),
        "psi_excess": (lambda m: m.psi_excess, "psi_bar above its expectation under no skill"),
    }
    return {name: _mean(tasks, value, name, title, seed) for name, (value, title) in measures.items()}


def _null(tasks: Sequence[Measured], seed: int) -> tuple[dict[str, Estimate], bool]:
    titles = {
        "psi_excess_p": "one-sided p of psi_excess, random answer roles",
        "rl_gap_p": "one-sided p of real_win above random_label, random answer roles",
        "mt_gap_p": "one-sided p of real_win above matched_token, random answer roles",
    }
    broken_title = "one-sided p of real_win above semantics_break, sign flips over tasks"
    if not tasks:
        return {name: undefined(title, "no decidable task") for name, title in titles.items()}, True
    statistics = {
        "psi_excess_p": [m.by_role - m.by_role.mean() for m in tasks],
        "rl_gap_p": [m.random_gap for m in tasks],
        "mt_gap_p": [m.matched_gap for m in tasks],
    }
    null = role_null([m.task for m in tasks], statistics, generator(seed, "battery", "role null"))
    found = {name: exact(title, null.p[name], len(tasks)) for name, title in titles.items()}
    differences = np.array([m.won - float(m.broken.internal[m.labels.real]) for m in tasks if m.broken is not None])
    found["sb_gap_p"] = (
        exact(broken_title, sign_flip_p(differences, generator(seed, "battery", "sign flips")), len(differences))
        if len(differences)
        else undefined(broken_title, NOT_RUN)
    )
    return found, null.counterbalanced


def _matching(tasks: Sequence[Measured], seed: int) -> dict[str, Estimate]:
    measures: dict[str, tuple[Callable[[Measured], float], str]] = {
        "mt_exact": (lambda m: m.labels.exact, "share of matched labels of exactly the answer's length"),
        "mt_same_as_rl": (
            lambda m: m.labels.matched_token == m.labels.random_label,
            "share of tasks whose matched label is the random one too",
        ),
        "mt_length_difference": (lambda m: m.labels.length_difference, "tokens, matched label minus answer"),
    }
    return {name: _mean(tasks, value, name, title, seed) for name, (value, title) in measures.items()}


def _evidence(tasks: Sequence[Measured], seed: int) -> list[Evidence]:
    def row(signal: str, control: str, metric: str, chosen: Sequence[Measured], first: Any, second: Any) -> Evidence:
        templates, sets = _clusters(chosen)
        return paired_evidence(
            signal,
            control,
            metric,
            [float(first(m)) for m in chosen],
            [float(second(m)) for m in chosen],
            templates,
            sets=sets,
            rng=generator(seed, f"{signal}/{control}", "evidence"),
        )

    rows = [
        row("real_win", "random_label", "rate", tasks, lambda m: m.won, Measured.expected_random),
        row("real_win", "matched_token", "rate", tasks, lambda m: m.won, Measured.expected_matched),
    ]
    for control, variant in (("semantics_break", "broken"), ("prompt_swap", "swapped")):
        run = [m for m in tasks if getattr(m, variant) is not None]
        rows.append(
            row("real_win", control, "rate", run, lambda m: m.won,
                lambda m, variant=variant: getattr(m, variant).internal[m.labels.real])
            if run
            else no_evidence("real_win", control, "rate", NOT_RUN)
        )  # fmt: skip
    rows.append(
        row("psi_bar", "expectation under no skill", "psi", tasks, lambda m: m.psi_bar, lambda m: m.by_role.mean())
    )
    return rows


def _counts(scored: ScoredBattery, decided: Decided) -> dict[str, int]:
    real = scored.variants["real"]
    counts = {
        "n_total": len(real) + len(scored.skipped),
        "n_scored": len(decided.tasks),
        "n_undecided": len(decided.undecidable),
        "n_error": len(decided.errors),
        "n_skipped": len(scored.skipped),
        "near_ties": sum(m.wins.near_ties for m in decided.tasks),
        "all_tied_tasks": sum(not m.wins.at.any() for m in decided.tasks),
        "tied_at_final": sum(not m.wins.final.any() for m in decided.tasks),
    }
    counts |= dict(sorted(Counter(m.row()["class"] for m in decided.tasks).items()))
    flags = Counter(f for variant in scored.variants.values() for t in variant for f in t.flags)
    return counts | {f"flag {name}": n for name, n in sorted(flags.items())}


def _notices(scored: ScoredBattery, decided: Decided) -> list[str]:
    notices = []
    if scored.skipped:
        share = len(scored.skipped) / (len(scored.skipped) + len(scored.variants["real"]))
        notices.append(f"{len(scored.skipped)} tasks ({share:.0%}) were left out: their prompts do not fit the context")
    if decided.undecidable:
        notices.append(f"{len(decided.undecidable)} tasks cannot be decided under the {scored.protocol} protocol")
    if decided.errors:
        notices.append(f"{len(decided.errors)} tasks have scores that are not finite numbers")
    no_rule = sum("tail_rule" in t.flags for t in scored.variants.get("semantics_break", ()))
    if no_rule:
        notices.append(
            f"{no_rule} prompts were broken by the tail rule for want of a number or of a rule of their family"
        )
    return notices
