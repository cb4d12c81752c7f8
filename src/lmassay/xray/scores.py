"""From option scores to the XRay Score, PSI, their controls, and what all of it is worth."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np

from lmassay.evidence import Evidence, judged, no_evidence, paired_evidence, survives_its_controls
from lmassay.markup import run_html, verdicts
from lmassay.measures.intervals import (
    CHANGE,
    CHANGES,
    SHARE,
    Estimate,
    Range,
    Resampling,
    exact,
    mean_estimate,
    undefined,
)
from lmassay.seeds import generator
from lmassay.xray.aggregates import family_psi, group_psi, resampling_of
from lmassay.xray.measured import Controlled, Decided, Measured, measure
from lmassay.xray.null import role_null, sign_flip_p
from lmassay.xray.paraphrase import (
    NO_PAIR,
    NO_WIN,
    NOT_RUN,
    GroupStability,
    group_stability,
    resampling_of_groups,
    stability_evidence,
)
from lmassay.xray.psi import EXTENDED, SPAN
from lmassay.xray.relabel import Labels
from lmassay.xray.scored import PARAPHRASE, PROMPT_SWAP, REAL, SEMANTICS_BREAK, ScoredBattery, ScoredTask
from lmassay.xray.signs import xray_score

ASSUMES_EXCHANGEABLE = "null: assumes exchangeable options"


#: Of a task, with the title and the range of its mean.
Figures = Mapping[str, tuple[Callable[[Measured], float], str, Range | None]]

RATE_FIGURES: Figures = {
    "real_win": (lambda m: m.won, "tasks whose answer wins at an internal depth", SHARE),
    "real_win_strict": (lambda m: m.wins.internal_strict[m.labels.real], "the same without the last block", SHARE),
    "rl_win": (lambda m: m.wins.internal[m.labels.random_label], "the same, a random wrong option as answer", SHARE),
    "rl_win_expected": (lambda m: m.expected_random, "the same, expectation over all wrong options", SHARE),
    "mt_win": (lambda m: m.wins.internal[m.labels.matched_token], "the same, a wrong option of equal length", SHARE),
    "mt_win_expected": (
        lambda m: m.expected_matched,
        "the same, expectation over the options of nearest length",
        SHARE,
    ),
    "final_accuracy": (lambda m: m.wins.final[m.labels.real], "tasks answered rightly at final", SHARE),
    "final_accuracy_raw": (lambda m: m.wins.raw_final[m.labels.real], "the same without prior normalisation", SHARE),
}
#: Control that needs prompts of its own -> its rate and title.
VARIANT_RATES = {
    SEMANTICS_BREAK: ("sb_win", "tasks whose answer wins internally under the broken prompt"),
    PROMPT_SWAP: ("swap_win", "tasks whose answer wins internally under another task's prompt"),
}
PSI_FIGURES: Figures = {
    "psi": (lambda m: m.psi.psi, "mean PSI", CHANGE),
    "psi_positive": (lambda m: m.psi.positive, "share of tasks with PSI > 0", SHARE),
    "psi_ext": (lambda m: m.psi.extended, "mean PSI with the stability term", EXTENDED),
    "psi_bar": (lambda m: m.psi_bar, "mean PSI over all control draws", CHANGE),
    "psi_excess": (lambda m: m.psi_excess, "psi_bar above its expectation under no skill", CHANGES),
}
MATCHING_FIGURES: Figures = {
    "mt_exact": (lambda m: m.labels.exact, "share of matched labels of exactly the answer's length", SHARE),
    "mt_same_as_rl": (
        lambda m: m.labels.matched_token == m.labels.random_label,
        "share of tasks whose matched label is the random one too",
        SHARE,
    ),
    "mt_length_difference": (lambda m: m.labels.length_difference, "tokens, matched label minus answer", None),
}


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
    survives: bool | None
    counts: Mapping[str, int]
    notices: tuple[str, ...]
    decided: Decided

    def __repr__(self) -> str:
        said = verdicts(row.verdict for row in self.evidence)
        return f"<XRayScores of {self.counts['n_scored']} tasks: evidence {said}>"

    def _repr_html_(self) -> str:
        """Evidence first, for a notebook."""
        scores = {name: e.to_dict() for name, e in self.scores.items()}
        evidence = [row.to_dict() for row in self.evidence]
        return run_html(f"{self.counts['n_scored']} tasks", self.survives, evidence, scores, self.notices)

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
        "jaccard_wrong": None if group.jaccard_wrong is None else float(group.jaccard_wrong),
        "any_win": group.any_win,
        "win_rate": group.win_rate,
        "final_accuracy": group.final_accuracy,
        "n_wordings": group.n_wordings,
        "n_undecided": group.n_undecided,
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
    groups = tuple(group_stability(scored.variants.get(PARAPHRASE, ()), repeats_final=repeats_final))
    resampling = resampling_of(tasks, seed, "battery")
    families = family_psi(scored.variants[REAL], decided, seed)
    null_scores, n_exchangeable = _null(tasks, seed)
    scores = (
        _rates(tasks, resampling, seed)
        | _stability(groups, seed)
        | _signs(tasks, groups)
        | _means(tasks, PSI_FIGURES, resampling)
        | {f"psi_{name}": e for name, e in group_psi(families).items()}
        | null_scores
        | _means(tasks, MATCHING_FIGURES, resampling)
    )
    evidence = judged([*_evidence(tasks, resampling, seed), stability_evidence(groups, seed)])
    notices = []
    if n_exchangeable:
        notices.append(
            f"{ASSUMES_EXCHANGEABLE} ({n_exchangeable} of {len(tasks)} tasks stand in no counterbalanced set);"
            " the prompt_swap row carries the verdict"
        )
    notices += _notices(scored, decided)
    return XRayScores(
        scores=scores,
        families={name: family.estimate for name, family in families.items()},
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


def _means(tasks: Sequence[Measured], figures: Figures, resampling: Resampling) -> dict[str, Estimate]:
    return {
        name: mean_estimate([float(value(m)) for m in tasks], resampling, title=title, within=within)
        for name, (value, title, within) in figures.items()
    }


def _rates(tasks: Sequence[Measured], resampling: Resampling, seed: int) -> dict[str, Estimate]:
    found = _means(tasks, RATE_FIGURES, resampling)
    for control, (name, title) in VARIANT_RATES.items():
        run, under = _under(tasks, control)
        found[name] = (
            mean_estimate(
                [c.won for c in under], _narrowed(run, tasks, resampling, seed, control), title=title, within=SHARE
            )
            if run
            else undefined(title, NOT_RUN)
        )
    return found


def _under(tasks: Sequence[Measured], control: str) -> tuple[list[Measured], list[Controlled]]:
    """The tasks the control could be run for, and what it gave."""
    pairs = [(m, under) for m in tasks if (under := m.under(control)) is not None]
    return [m for m, _ in pairs], [under for _, under in pairs]


def _narrowed(
    run: Sequence[Measured], tasks: Sequence[Measured], resampling: Resampling, seed: int, control: str
) -> Resampling:
    """The battery's resamples, drawn anew only where a control could not be run for every task."""
    return resampling if len(run) == len(tasks) else resampling_of(run, seed, control)


def _stability(groups: Sequence[GroupStability], seed: int) -> dict[str, Estimate]:
    title, strict = "mean Jaccard of won depths over wordings", "the same over groups with at least one win"
    usable = [g for g in groups if g.jaccard is not None]
    if not usable:
        reason = NOT_RUN if not groups else NO_PAIR
        return {"jaccard": undefined(title, reason), "jaccard_strict": undefined(strict, reason)}
    winning = [g for g in usable if g.any_win]
    return {
        "jaccard": _group_mean(usable, title, seed),
        "jaccard_strict": _group_mean(winning, strict, seed) if winning else undefined(strict, NO_WIN),
    }


def _group_mean(groups: Sequence[GroupStability], title: str, seed: int) -> Estimate:
    return mean_estimate(
        [float(g.jaccard or 0) for g in groups], resampling_of_groups(groups, seed), title=title, within=SHARE
    )


def _signs(tasks: Sequence[Measured], groups: Sequence[GroupStability]) -> dict[str, Estimate]:
    title, strict = "XRay Score, -4 to +4", "XRay Score with the strict Jaccard"
    usable = [g for g in groups if g.jaccard is not None]
    paired, broken = _under(tasks, SEMANTICS_BREAK)
    if not (usable and broken):
        reason = NOT_RUN if tasks else "no decidable task"
        return {"xray_score": undefined(title, reason), "xray_strict": undefined(strict, reason)}
    real = sum(m.won for m in tasks)
    wins = [
        (real, sum(bool(m.wins.internal[m.labels.random_label]) for m in tasks)),
        (real, sum(bool(m.wins.internal[m.labels.matched_token]) for m in tasks)),
        (sum(m.won for m in paired), sum(c.won for c in broken)),
    ]

    def over(chosen: Sequence[GroupStability], name: str) -> Estimate:
        if not chosen:
            return undefined(name, NO_WIN)
        mean = sum((g.jaccard or Fraction(0) for g in chosen), Fraction()) / len(chosen)
        return exact(name, xray_score(wins, mean), len(tasks))

    return {"xray_score": over(usable, title), "xray_strict": over([g for g in usable if g.any_win], strict)}


def _null(tasks: Sequence[Measured], seed: int) -> tuple[dict[str, Estimate], int]:
    titles = {
        "psi_excess_p": "one-sided p of psi_excess, random answer roles",
        "rl_gap_p": "one-sided p of real_win above random_label, random answer roles",
        "mt_gap_p": "one-sided p of real_win above matched_token, random answer roles",
    }
    broken_title = "one-sided p of real_win above semantics_break, sign flips over tasks"
    if not tasks:
        titles["sb_gap_p"] = broken_title
        return {name: undefined(title, "no decidable task") for name, title in titles.items()}, 0
    statistics = {
        "psi_excess_p": [m.by_role - m.by_role.mean() for m in tasks],
        "rl_gap_p": [m.wins.internal - m.random_win for m in tasks],
        "mt_gap_p": [m.wins.internal - m.matched_win for m in tasks],
    }
    null = role_null([m.task for m in tasks], statistics, generator(seed, "battery", "role null"))
    found = {name: exact(title, null.p[name], len(tasks)) for name, title in titles.items()}
    differences = np.array([float(m.won) - c.won for m, c in zip(*_under(tasks, SEMANTICS_BREAK), strict=True)])
    found["sb_gap_p"] = (
        exact(broken_title, sign_flip_p(differences, generator(seed, "battery", "sign flips")), len(differences))
        if len(differences)
        else undefined(broken_title, NOT_RUN)
    )
    return found, null.n_exchangeable


def _evidence(tasks: Sequence[Measured], resampling: Resampling, seed: int) -> list[Evidence]:
    won = [float(m.won) for m in tasks]
    rows = [
        paired_evidence("real_win", "random_label", "rate", won, [m.expected_random for m in tasks], resampling),
        paired_evidence("real_win", "matched_token", "rate", won, [m.expected_matched for m in tasks], resampling),
    ]
    for control in VARIANT_RATES:
        run, under = _under(tasks, control)
        if not run:
            rows.append(no_evidence("real_win", control, "rate", NOT_RUN))
            continue
        mine = _narrowed(run, tasks, resampling, seed, control)
        rows.append(paired_evidence("real_win", control, "rate", [m.won for m in run], [c.won for c in under], mine))
    psi_bar, expected = [m.psi_bar for m in tasks], [float(m.by_role.mean()) for m in tasks]
    rows.append(paired_evidence("psi_bar", "expectation under no skill", "psi", psi_bar, expected, resampling))
    return rows


def _counts(scored: ScoredBattery, decided: Decided) -> dict[str, int]:
    real = scored.variants[REAL]
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
    families = {task.task_id: task.family for task in real}
    by_family = Counter(families[task_id] for task_id in decided.undecidable)
    counts |= {f"undecided {family}": n for family, n in sorted(by_family.items())}
    counts |= dict(sorted(Counter(m.row()["class"] for m in decided.tasks).items()))
    flags = Counter(f for variant in scored.variants.values() for t in variant for f in t.flags)
    return counts | {f"flag {name}": n for name, n in sorted(flags.items())}


def _notices(scored: ScoredBattery, decided: Decided) -> list[str]:
    notices = []
    if scored.skipped:
        share = len(scored.skipped) / (len(scored.skipped) + len(scored.variants[REAL]))
        notices.append(f"{len(scored.skipped)} tasks ({share:.0%}) were left out: their prompts do not fit the context")
    if decided.undecidable:
        notices.append(f"{len(decided.undecidable)} tasks cannot be decided under the {scored.protocol} protocol")
    if decided.errors:
        notices.append(f"{len(decided.errors)} tasks have scores that are not finite numbers")
    no_rule = sum("tail_rule" in t.flags for t in scored.variants.get(SEMANTICS_BREAK, ()))
    if no_rule:
        notices.append(
            f"{no_rule} prompts were broken by the tail rule for want of a number or of a rule of their family"
        )
    return notices
