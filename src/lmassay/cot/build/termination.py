"""Task 1: prefixes of chains of thought, labelled by how soon resampled thinking ends."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

from lmassay.cot.build.balance import drawn, equal_classes, pairs_of_like_length
from lmassay.cot.build.rules import Dropped, Termination
from lmassay.cot.build.sentences import joined, n_words, sentences
from lmassay.cot.build.workshop import Rollout, Row, Workshop, kept_back
from lmassay.models.sampling import STOP, Sampling


@dataclass(frozen=True, slots=True)
class Settings:
    """How task 1 is built.

    Attributes
    ----------
    rollouts : int
        Per question.
    resamples : int
        Per evaluated prefix.
    candidates : int
        Prefixes tried per rollout, half of them among the last sentence ends.
    least_words, most_words : int
        Bounds of an evaluated prefix.
    bin : int
        Evaluated prefixes of both classes are equally frequent in every bin of so many words.
    """

    rule: Termination = field(default_factory=Termination)
    sampling: Sampling = field(default_factory=Sampling)
    rollouts: int = 48
    resamples: int = 50
    candidates: int = 8
    least_words: int = 375
    most_words: int = 2250
    bin: int = 375


@dataclass(frozen=True, slots=True)
class _Prefix:
    """A labelled prefix; the higher `strength`, the less obvious its label."""

    rollout: Rollout
    text: str
    label: str
    hidden: dict[str, Any]
    strength: float = 0.0

    @property
    def name(self) -> str:
        return f"{self.rollout.question} {self.rollout.number} {len(self.text)}"


def build(shop: Workshop, settings: Settings) -> list[Row]:
    """Rows of the data set: training prefixes by distance from the end, the others by resampling."""
    prompts = {q.id: q.text() for q in shop.questions}
    found = shop.rollouts(list(prompts.items()), settings.sampling, settings.rollouts)
    ended = shop.finished(chain.from_iterable(found), said=True)
    train = _by_distance([r for r in ended if shop.split[r.question] == "train"], settings.rule)
    kept = equal_classes(train, shop.seed, label=_label, name=_name)
    shop.drop(Dropped.UNBALANCED, kept_back(kept, train))
    kept += _by_resampling(shop, [r for r in ended if shop.split[r.question] != "train"], settings, prompts)
    return [
        {
            "example_id": f"{p.name}", "split": shop.split[p.rollout.question], "question_id": p.rollout.question,
            "label": p.label, "prompt": prompts[p.rollout.question], "cot": p.text, **p.hidden,
        }
        for p in kept
    ]  # fmt: skip


def _label(prefix: _Prefix) -> str:
    return prefix.label


def _name(prefix: _Prefix) -> str:
    return prefix.name


def _by_distance(rollouts: list[Rollout], rule: Termination) -> list[_Prefix]:
    found = []
    for rollout in rollouts:
        words = rollout.cot.split()
        for distance, label in rule.cuts(len(words)):
            hidden = {"distance_from_end": distance, "total_words": len(words)}
            found.append(_Prefix(rollout, " ".join(words[:-distance]), label, hidden))
    return found


def _by_resampling(
    shop: Workshop, rollouts: list[Rollout], settings: Settings, prompts: dict[str, str]
) -> list[_Prefix]:
    candidates = [(r, text) for r in rollouts for text in _candidates(shop, r, settings)]
    shop.count("prefixes resampled", len(candidates))
    # One token past the last that matters: a chain that goes on is then told from one that ends there.
    close = shop.engine.thinking.close
    sampling = replace(settings.sampling, max_tokens=settings.rule.after + 1, stop=(close,) if close else ())
    asked = [(shop.asking(prompts[r.question], text), sampling, settings.resamples) for r, text in candidates]
    labelled = []
    for (rollout, text), samples in zip(candidates, shop.draw(asked), strict=True):
        ends = [s.n_tokens if s.finish == STOP else None for s in samples]
        votes = [settings.rule.vote(end) for end in ends]
        yes, no = votes.count("yes"), votes.count("no")
        label = settings.rule.label(yes, no, len(votes))
        if isinstance(label, Dropped):
            shop.drop(label)
            continue
        at = [end for end, vote in zip(ends, votes, strict=True) if vote == "yes" and end is not None]
        mean = sum(at) / len(at) if at else 0.0
        hidden = {
            "yes_count": yes,
            "no_count": no,
            "total_resamples": len(votes),
            "mean_yes_position": mean,
        }
        labelled.append(_Prefix(rollout, text, label, hidden, mean if label == "yes" else -no))
    kept = _one_each(labelled)
    kept = equal_classes(kept, shop.seed, label=_label, name=_name, within=lambda p: p.rollout.question, most_apart=1)
    kept = pairs_of_like_length(
        kept, shop.seed, label=_label, name=_name, length=lambda p: n_words(p.text), bin=settings.bin,
        within=lambda p: shop.split[p.rollout.question],
    )  # fmt: skip
    shop.drop(Dropped.UNBALANCED, kept_back(kept, labelled))
    return kept


def _candidates(shop: Workshop, rollout: Rollout, settings: Settings) -> list[str]:
    """Prefixes that end with a sentence, within the bounds, and do not announce the answer."""
    parts = sentences(rollout.cot)
    allowed = []
    for k in range(1, len(parts)):
        text = joined(parts[:k])
        n = n_words(text)
        if n < settings.least_words:
            shop.drop(Dropped.TOO_SHORT)
        elif n > settings.most_words:
            shop.drop(Dropped.TOO_LONG)
        elif text.endswith("**Final Answer**") or "answer" in text[-100:].lower():
            shop.drop(Dropped.TELLING_END)
        else:
            allowed.append(text)
    late = allowed[-(settings.candidates // 2) :]
    early = drawn(
        allowed[: len(allowed) - len(late)],
        settings.candidates - len(late),
        shop.seed,
        "cut",
        name=lambda text: f"{rollout.question} {rollout.number} {len(text)}",
    )
    shop.drop(Dropped.NOT_DRAWN, len(allowed) - len(early) - len(late))
    return early + late


def _one_each(prefixes: list[_Prefix]) -> list[_Prefix]:
    """One prefix of each rollout at most, of the class its question has fewer of.

    In a class the least obvious one, of equals the longest.
    """
    by_question: dict[str, dict[int, dict[str, _Prefix]]] = defaultdict(lambda: defaultdict(dict))
    for prefix in sorted(prefixes, key=lambda p: (p.strength, len(p.text))):
        by_question[prefix.rollout.question][prefix.rollout.number][prefix.label] = prefix
    kept = []
    for rollouts in by_question.values():
        sizes = {"yes": 0, "no": 0}
        # Rollouts with a choice come last, when it is known what the others gave.
        for number in sorted(rollouts, key=lambda n: (len(rollouts[n]), n)):
            label = min(sorted(rollouts[number]), key=lambda word: sizes[word])
            sizes[label] += 1
            kept.append(rollouts[number][label])
    return kept
