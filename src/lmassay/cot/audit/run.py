"""The audit from end to end: features, tests, one correction over all of them, findings."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from lmassay.cot.audit.duplicates import Shared, continued, copied, shared_questions, shared_rows
from lmassay.cot.audit.features import Feature, distinct
from lmassay.cot.audit.fields import hidden_features
from lmassay.cot.audit.figures import ALPHA, Strength, holm
from lmassay.cot.audit.findings import AuditReport, Figure, Finding, Severity, SplitCount, ordered
from lmassay.cot.audit.folds import by_category, by_words
from lmassay.cot.audit.inputs import TRAIN, Audited, audited, is_ood
from lmassay.cot.audit.read import read_audited
from lmassay.cot.audit.shifts import TAIL, Vanished, words_near_the_end
from lmassay.cot.audit.surface import first_words, read_texts, stated_labels, surface_features
from lmassay.cot.audit.tested import (
    ALL,
    EVALUATION,
    SHIFT,
    WITHIN,
    Draws,
    Tested,
    balance_strengths,
    label_tests,
    shift_tests,
)
from lmassay.errors import LmassayError
from lmassay.measures.intervals import DRAWS

#: A feature is a finding when its corrected strength is above this: weaker ones are in the table.
FINDING_AT = 0.55
MAX_AUROC = 0.60
#: Two fields together are a finding of their own when they tell this much more than each.
PAIR_GAIN = 0.05

#: Checks of `duplicates` that make a score mean less than it seems to; the others are notes.
_WARNINGS = (
    "question ids", "question text", "the same text", "nearly the same text", "contradictory duplicates",
)  # fmt: skip
OTHER_TASK = "questions of another task"
_WORDS = {
    "question ids": "{n} of {of} questions stand in both",
    "question text": "{n} of {of} questions stand in both under other ids",
    "nearly the same question": "{n} pairs of questions have nearly the same text",
    "one question under several ids": "{n} of {of} question ids repeat the text of another",
    "empty text": "{n} of {of} rows show no text",
    "text of one word": "{n} of {of} rows show a single word",
    "duplicate texts": "{n} of {of} rows repeat a text",
    "contradictory duplicates": "{n} texts stand there under both labels",
    "the same text": "{n} of {of} rows have a text of the first split",
    "nearly the same text": "{n} of {of} rows have most of their sentences in one training row",
    "text that another row continues": "{n} of {of} rows: what comes after their end is shown in another row",
}


def audit_file(path: Path, task: str | None = None, **settings: object) -> AuditReport:
    """Audit a Parquet, JSONL or CSV file; see `audit` for settings and `lmassay.cot.audit.read` for its columns."""
    return audit(read_audited(path, task), **settings)  # type: ignore[arg-type]


def audit_task(task: str, layout: str = "head", regime: str | None = None, **settings: object) -> AuditReport:
    """Audit a task's imported data, with its published validation set; see `audit` for settings."""
    from lmassay.cot.load import load_task

    return audit(audited(load_task(task, layout, regime, validation="published")), **settings)  # type: ignore[arg-type]


def audit(
    data: Audited,
    *,
    max_auroc: float = MAX_AUROC,
    seed: int = 0,
    draws: int = DRAWS,
    progress: Callable[[int, int], None] | None = None,
) -> AuditReport:
    """Look for what gives the labels away, for what splits share, and for how they differ.

    Parameters
    ----------
    data : Audited
    max_auroc : float
        A visible feature whose Holm-corrected lower bound passes this is a leak.
    seed : int
        Of the bootstrap and the folds.
    draws : int
        Of questions.
    progress : callable or None
        Takes (features done, features).

    Raises
    ------
    LmassayError
        ``bad-request`` for a bound outside [.5, 1).
    """
    if not 0.5 <= max_auroc < 1:
        raise LmassayError("bad-request", f"--max-auroc is {max_auroc:g}", "give a number from 0.5 up to, not with, 1")
    name, reading = read_texts(data)
    drawn = Draws(data, seed, draws)
    features = _features(data, name, reading, seed)
    labelled = bool((~np.isnan(data.y)).any())
    tests = label_tests(data, features, drawn, progress or (lambda done, total: None)) if labelled else []
    tests += shift_tests(data, features, drawn)
    balance = balance_strengths(data, drawn)
    words = words_near_the_end(data, reading) if name else []
    figures, weak, n_tests = _corrected(tests, [b[0] for b in balance.values()], words, max_auroc)
    findings = [
        *_of_features(figures, features, max_auroc),
        *_of_balance(weak[: len(balance)], balance),
        *_of_words(weak[len(balance) :], words),
    ]
    shared = shared_questions(data)
    findings += _of_other_tasks([s for s in shared if s.check == OTHER_TASK])
    shared = [s for s in shared if s.check != OTHER_TASK]
    if name:
        shared += [*shared_rows(data, reading), *continued(data, reading), *copied(data, reading)]
    findings += [_of_shared(s) for s in shared]
    strongest = sorted(figures, key=lambda f: (f.scope == SHIFT, -f.strength, f.feature, f.split))
    return AuditReport(
        data.name,
        data.target,
        data.fingerprint,
        max_auroc,
        seed,
        draws,
        n_tests,
        tuple(_count(data, split, balance) for split in data.splits),
        ordered(findings),
        tuple(strongest),
        (*data.notes, *_unseen(data, name, labelled)),
    )


def _unseen(data: Audited, name: str, labelled: bool) -> list[str]:
    found = []
    if not name:
        found.append("no text is shown, so nothing was counted or compared in it")
    if not labelled:
        found.append("there are no labels, so only questions and texts were compared")
    if not data.evaluation:
        found.append("there is no split called train beside another, so splits were not compared")
    if not any(data.questions.values()):
        found.append("no question has a text, so questions were compared by id only")
    return found


def _features(data: Audited, name: str, reading: Sequence[str], seed: int) -> list[Feature]:
    found = surface_features(data, name, reading)
    if name:
        found += stated_labels(data, reading)
        begun = first_words(reading)
        found.append(by_words(data, f"{name}: first 20 words", "first words", begun, seed))
        for n in (1, 3):
            made = by_category(data, f"{name}: first {n} words", "visible", "first words",
                               [" ".join(b.split()[:n]) for b in begun], seed)  # fmt: skip
            found += [made] if made is not None else []
    if "prompt" in data.kinds or "message" in data.kinds:
        prompts = data.texts("prompt") if "prompt" in data.kinds else _first_turns(data)
        found.append(by_words(data, "prompt: words", "prompt", prompts, seed))
    return distinct(found + hidden_features(data, seed), data.split)


def _first_turns(data: Audited) -> list[str]:
    return [next((s.text for s in e.of("message")), "") for part in data.examples for e in part]


def _corrected(
    tests: Sequence[Tested], balance: Sequence[Strength], words: Sequence[Vanished], max_auroc: float
) -> tuple[list[Figure], list[float], int]:
    """Figures with corrected bounds; corrected p of each balance and each word; how many tests there are."""
    with_strength = [i for i, t in enumerate(tests) if t.strength is not None]
    family: list[Strength | float] = [s for i in with_strength if (s := tests[i].strength) is not None]
    family += [*balance, *(w.p for w in words)]
    null = min(FINDING_AT, max_auroc)
    some, more = holm(family, null), holm(family, max_auroc)
    place = {i: at for at, i in enumerate(with_strength)}
    figures = [t.figure((some[place[i]], more[place[i]]) if i in place else None) for i, t in enumerate(tests)]
    return figures, [c.p for c in some[len(with_strength) :]], len(family)


def _of_features(figures: Sequence[Figure], features: Sequence[Feature], max_auroc: float) -> list[Finding]:
    by_name = {f.name: f for f in features}
    held: dict[tuple[str, bool], list[Figure]] = defaultdict(list)
    for figure in figures:
        held[figure.feature, figure.scope == SHIFT].append(figure)
    strengths = {(f.feature, f.split, f.scope): f.strength for f in figures}
    for feature in features:
        # A field that only repeats another stands under that one's name.
        for name in feature.also:
            strengths |= {(name, f.split, f.scope): f.strength for f in held.get((feature.name, False), ())}
    found = []
    for (name, shifted), of in held.items():
        made_of = by_name[name].of if name in by_name else ()
        hits = [
            f
            for f in of
            if f.p_holm is not None
            and f.p_holm < ALPHA
            and not any(strengths.get((part, f.split, f.scope), 0.0) > f.strength - PAIR_GAIN for part in made_of)
        ]
        if hits:
            make = _shift if shifted else _leak
            found.append(make(name, by_name[name].also if name in by_name else (), of, hits, max_auroc))
    return found


def _leak(name: str, also: tuple[str, ...], of: list[Figure], hits: list[Figure], max_auroc: float) -> Finding:
    severity: Severity = "hidden"
    if hits[0].seen == "visible":
        over = any(f.strength_low is not None and f.strength_low > max_auroc for f in hits)
        severity = "leak" if over else "warning"
    check = "feature" if any(f.scope == ALL for f in hits) else "inside a question"
    shown = [f for f in of if f.scope == (ALL if check == "feature" else WITHIN) and f.auroc is not None]
    what = "AUROC " + ", ".join(f"{_short(f.auroc)} {f.split}{'*' if f in hits else ''}" for f in shown)
    inner = [f for f in hits if f.scope == WITHIN]
    if inner and check == "feature":
        what += "; inside a question " + ", ".join(f"{_short(f.auroc)} {f.split}*" for f in inner)
    exact = [f.split for f in hits if f.strength == 1 and f.scope == ALL]
    if exact:
        what += f"; the label exactly in {', '.join(exact)}"
    way = {f.split: (f.auroc or 0) > 0.5 for f in hits if f.scope == ALL}
    turned = [s for s in way if s != TRAIN and TRAIN in way and way[s] != way[TRAIN]]
    if turned:
        what += f"; the other way round in {TRAIN} than in {', '.join(turned)}"
    return Finding(severity, check, name, what, max(f.strength for f in hits), also, tuple(hits))


def _shift(name: str, also: tuple[str, ...], of: list[Figure], hits: list[Figure], max_auroc: float) -> Finding:
    severity: Severity = "note" if all(is_ood(f.split) for f in hits) else "warning"
    what = "tells the split from the training rows: AUROC " + ", ".join(f"{_short(f.auroc)} {f.split}" for f in hits)
    # Sizes after formats of the same strength: only a format can be mended.
    return Finding(severity, "format", name, what, max(f.strength for f in hits) - 1, also, tuple(hits))


def _short(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}".removeprefix("0")


def _of_balance(
    p: Sequence[float], balance: dict[str, tuple[Strength, float, float | None, float | None]]
) -> list[Finding]:
    return [
        Finding("note", "class balance", split, f"{share:.0%} of the rows are positive", abs(share - 0.5))
        for (split, (_, share, _, _)), corrected in zip(balance.items(), p, strict=True)
        if corrected < ALPHA
    ]


def _of_words(p: Sequence[float], words: Sequence[Vanished]) -> list[Finding]:
    found = []
    for word, corrected in zip(words, p, strict=True):
        if corrected < ALPHA and not word.rest:
            what = (
                f"in the last {TAIL} characters of {word.train:.1%} of the training rows "
                f"({word.positive:.1%} of the positive, {word.negative:.1%} of the negative) and of no other row"
            )
            found.append(Finding("warning", "words near the end", word.word, what, word.train - 1))
    return found


def _of_other_tasks(shared: Sequence[Shared]) -> list[Finding]:
    """One finding a split: the other tasks that have questions of it."""
    held: dict[str, list[Shared]] = defaultdict(list)
    for s in shared:
        held[s.where.partition(", ")[0]].append(s)
    found = []
    for split, of in held.items():
        of.sort(key=lambda s: -s.n)
        what = f"of {of[0].of} questions stand in another task: " + ", ".join(
            f"{s.n} in {s.where.partition(', ')[2]}" for s in of
        )
        found.append(Finding("note", OTHER_TASK, split, what, of[0].n / max(of[0].of, 1), of[0].names))
    return found


def _of_shared(shared: Shared) -> Finding:
    severity: Severity = "warning" if shared.check in _WARNINGS else "note"
    if shared.check in ("nearly the same question", "text that another row continues") and "," in shared.where:
        severity = "warning"
    what = _WORDS[shared.check].format(n=shared.n, of=shared.of)
    # A copy across splits stands before what a feature tells.
    return Finding(severity, shared.check, shared.where, what, 1 + shared.n / max(shared.of, 1), shared.names)


def _count(
    data: Audited, split: str, balance: dict[str, tuple[Strength, float, float | None, float | None]]
) -> SplitCount:
    rows = data.rows(split)
    y, groups = data.y[rows], data.groups[rows]
    known = ~np.isnan(y)
    names = np.unique(groups)
    labels = {g: len(np.unique(y[known & (groups == g)])) for g in names.tolist()}
    share = balance[split][1:] if split in balance else (None, None, None)
    return SplitCount(
        split,
        len(rows),
        int((y == 1).sum()),
        int((y == 0).sum()),
        int((~known).sum()),
        len(names),
        sum(n == 1 for n in labels.values()),
        *share,
    )


__all__ = ["ALL", "EVALUATION", "WITHIN", "audit", "audit_file", "audit_task"]
