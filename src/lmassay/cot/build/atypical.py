"""Tasks 6 and 7: rollouts that differ from what the model usually does on their question, in answer or in length."""

from __future__ import annotations

from dataclasses import dataclass, field

from lmassay.cot.build.balance import drawn, equal_classes, pairs_of_like_length
from lmassay.cot.build.replies import letter
from lmassay.cot.build.rules import AtypicalAnswer, AtypicalLength, Dropped
from lmassay.cot.build.sentences import n_words
from lmassay.cot.build.workshop import Rollout, Row, Workshop, kept_back
from lmassay.models.sampling import Sampling


@dataclass(frozen=True, slots=True)
class AnswerSettings:
    """How task 6 is built.

    Attributes
    ----------
    rollouts : int
        Per question.
    """

    rule: AtypicalAnswer = field(default_factory=AtypicalAnswer)
    sampling: Sampling = field(default_factory=Sampling)
    rollouts: int = 200


@dataclass(frozen=True, slots=True)
class LengthSettings:
    """How task 7 is built.

    Attributes
    ----------
    rollouts : int
        Per question.
    most_each : int
        Examples per class of an evaluation split, at most.
    """

    rule: AtypicalLength = field(default_factory=AtypicalLength)
    sampling: Sampling = field(default_factory=Sampling)
    rollouts: int = 200
    most_each: int = 100


def build_answer(shop: Workshop, settings: AnswerSettings) -> list[Row]:
    """Rows of task 6."""
    rows: list[Row] = []
    asked = [(q.id, q.text()) for q in shop.questions]
    for question, rollouts in zip(
        shop.questions, shop.rollouts(asked, settings.sampling, settings.rollouts), strict=True
    ):
        read = [(r, letter(r.answer, question.letters)) for r in shop.finished(rollouts)]
        answered = [(r, a) for r, a in read if a is not None]
        shop.drop(Dropped.NO_ANSWER, len(read) - len(answered))
        majority = settings.rule.majority([a for _, a in answered])
        if isinstance(majority, Dropped):
            shop.drop(majority, len(answered))
            continue
        shop.count("questions that qualified", 1)
        for label, ours in (("majority", True), ("minority", False)):
            some = [(r, a) for r, a in answered if (a == majority) is ours]
            few = drawn(some, settings.rule.each, shop.seed, "draw", name=_name)
            shop.drop(Dropped.NOT_DRAWN, len(some) - len(few))
            rows += [{
                "example_id": f"{question.id} {r.number}", "split": shop.split[question.id],
                "question_id": question.id, "label": label, "prompt": question.text(), "cot": r.cot, "answer": a,
                "majority_answer": majority,
            } for r, a in few]  # fmt: skip
    kept = equal_classes(
        rows,
        shop.seed,
        label=lambda r: r["label"],
        name=lambda r: r["example_id"],
        within=lambda r: r["question_id"],
    )
    shop.drop(Dropped.UNBALANCED, kept_back(kept, rows))
    return kept


def _name(answered: tuple[Rollout, str]) -> str:
    return f"{answered[0].question} {answered[0].number}"


def build_length(shop: Workshop, settings: LengthSettings) -> list[Row]:
    """Rows of task 7: training rows balanced by question, evaluation rows in pairs of like length."""
    rows: list[Row] = []
    asked = [(q.id, q.text()) for q in shop.questions]
    for question, rollouts in zip(
        shop.questions, shop.rollouts(asked, settings.sampling, settings.rollouts), strict=True
    ):
        ended = shop.finished(rollouts)
        lengths = [n_words(r.cot) for r in ended]
        labels = settings.rule.labels(lengths)
        if isinstance(labels, Dropped):
            shop.drop(labels, len(ended))
            continue
        shop.count("questions that qualified", 1)
        for rollout, length, label in zip(ended, lengths, labels, strict=True):
            if isinstance(label, Dropped):
                shop.drop(label)
                continue
            rows.append({
                "example_id": f"{question.id} {rollout.number}", "split": shop.split[question.id],
                "question_id": question.id, "label": label, "prompt": question.text(), "cot": rollout.cot,
                "words": length,
            })  # fmt: skip
    train = equal_classes(
        [r for r in rows if r["split"] == "train"],
        shop.seed,
        label=lambda r: r["label"],
        name=lambda r: r["example_id"],
        within=lambda r: r["question_id"],
    )
    held = pairs_of_like_length(
        [r for r in rows if r["split"] != "train"],
        shop.seed,
        label=lambda r: r["label"],
        name=lambda r: r["example_id"],
        length=lambda r: r["words"],
        bin=settings.rule.bin,
        within=lambda r: r["split"],
    )
    kept = train + _capped(held, settings.most_each, shop.seed)
    shop.drop(Dropped.NO_PARTNER, kept_back(kept, rows))
    return kept


def _capped(rows: list[Row], most: int, seed: int) -> list[Row]:
    kept: list[Row] = []
    for split in sorted({r["split"] for r in rows}):
        for label in ("long", "short"):
            some = [r for r in rows if r["split"] == split and r["label"] == label]
            kept += drawn(some, most, seed, "cap", name=lambda r: r["example_id"])
    return kept
