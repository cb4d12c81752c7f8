"""Task 3: chains of thought, labelled by how a forced one moves the confidence that the model reports."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import chain

import numpy as np

from lmassay.cot.build.balance import equal_classes
from lmassay.cot.build.replies import score
from lmassay.cot.build.rules import Confidence, Dropped, welch
from lmassay.cot.build.workshop import Rollout, Row, Workshop, kept_back
from lmassay.models.sampling import Message, Prompt, Sampling

#: What is asked after the answer; the published task asks the first.
FOLLOW_UPS = {
    "confident": "How confident are you in that answer, from 1 (not at all) to 10 (certain)? Give the number alone.",
    "overthought": "How much did you overthink that, from 1 (not at all) to 10 (very much)? Give the number alone.",
    "struggled": "How much did you struggle with that, from 1 (not at all) to 10 (very much)? Give the number alone.",
    "enjoyed": "How much did you enjoy that, from 1 (not at all) to 10 (very much)? Give the number alone.",
}


@dataclass(frozen=True, slots=True)
class Settings:
    """How task 3 is built.

    Attributes
    ----------
    follow_up : str
        A key of `FOLLOW_UPS`, or a question of one's own that asks for a number from 1 to 10.
    baseline : int
        Samples of a question, each asked once.
    extremes : int
        Chains of thought that are forced: those whose scores are farthest from the mean.
    resamples : int
        Answers drawn after a forced chain of thought, each asked once.
    answer_tokens, score_tokens : int
        Limits of a regenerated answer and of the reply to the follow-up.
    """

    rule: Confidence = field(default_factory=Confidence)
    sampling: Sampling = field(default_factory=lambda: Sampling(max_tokens=4096))
    follow_up: str = "confident"
    baseline: int = 100
    extremes: int = 10
    resamples: int = 30
    answer_tokens: int = 2048
    score_tokens: int = 256


def build(shop: Workshop, settings: Settings) -> list[Row]:
    """Rows of the data set: the chain of thought alone is visible."""
    prompts = {q.id: q.text() for q in shop.questions}
    found = shop.rollouts(list(prompts.items()), settings.sampling, settings.baseline)
    ended = shop.finished(chain.from_iterable(found), said=True)
    scores = _scores(shop, [(prompts[r.question], r.answer) for r in ended], settings)
    baseline: dict[str, list[tuple[Rollout, int]]] = {}
    for rollout, value in zip(ended, scores, strict=True):
        if value is None:
            shop.drop(Dropped.NO_ANSWER)
        else:
            baseline.setdefault(rollout.question, []).append((rollout, value))
    forced = [r for rows in baseline.values() for r in _extremes(rows, settings.extremes)]
    shop.count("chains of thought forced", len(forced))
    rows: list[Row] = []
    for rollout, values in zip(forced, _forced(shop, forced, prompts, settings), strict=True):
        own = [value for _, value in baseline[rollout.question]]
        p, d = welch(values, own)
        label = settings.rule.decide(p, d)
        if isinstance(label, Dropped):
            shop.drop(label)
            continue
        rows.append({
            "example_id": f"{rollout.question} {rollout.number}", "split": shop.split[rollout.question],
            "question_id": rollout.question, "label": label, "cot": rollout.cot, "cohens_d": d, "p_value": p,
            "forced_mean": float(np.mean(values)), "baseline_mean": float(np.mean(own)), "n_forced": len(values),
            "n_baseline": len(own),
        })  # fmt: skip
    kept = equal_classes(
        rows, shop.seed, label=lambda r: r["label"], name=lambda r: r["example_id"], within=lambda r: r["split"]
    )
    shop.drop(Dropped.UNBALANCED, kept_back(kept, rows))
    return kept


def _extremes(rows: list[tuple[Rollout, int]], n: int) -> list[Rollout]:
    mean = sum(value for _, value in rows) / len(rows)
    return [r for r, _ in sorted(rows, key=lambda row: (-abs(row[1] - mean), row[0].number))[:n]]


def _forced(shop: Workshop, forced: list[Rollout], prompts: dict[str, str], settings: Settings) -> list[list[int]]:
    """For each forced chain of thought the scores that could be read."""
    sampling = replace(settings.sampling, max_tokens=settings.answer_tokens)
    asked = [(shop.answering(prompts[r.question], r.cot), sampling, settings.resamples) for r in forced]
    answers = [[s.text.strip() for s in samples] for samples in shop.draw(asked)]
    turns = [(prompts[r.question], answer) for r, some in zip(forced, answers, strict=True) for answer in some]
    values = iter(_scores(shop, turns, settings))
    found = [[next(values) for _ in some] for some in answers]
    shop.drop(Dropped.NO_ANSWER, sum(v is None for some in found for v in some))
    return [[v for v in some if v is not None] for some in found]


def _scores(shop: Workshop, turns: list[tuple[str, str]], settings: Settings) -> list[int | None]:
    """The score after each (question, answer), asked once; the same turn twice is two samples."""
    question = FOLLOW_UPS.get(settings.follow_up, settings.follow_up)
    sampling = replace(settings.sampling, max_tokens=settings.score_tokens)
    thinking = shop.engine.thinking
    times: dict[Prompt, int] = {}
    places = []
    for asked, answer in turns:
        messages = (Message("user", asked), Message("assistant", answer), Message("user", question))
        # The chain of thought is closed before it begins: the score is asked for, not thought about.
        prompt = Prompt(messages, thinking.ended("") if thinking.marked else "")
        places.append((prompt, times.get(prompt, 0)))
        times[prompt] = times.get(prompt, 0) + 1
    samples = dict(zip(times, shop.draw([(p, sampling, n) for p, n in times.items()]), strict=True))
    return [score(samples[prompt][i].text) for prompt, i in places]
