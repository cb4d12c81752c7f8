"""Models without the skill: untrained ones, and untrained ones whose weights are changed to follow a surface cue.

A cue is written into the weights exactly, not trained. One direction of the residual stream is cleared of everything
else; the position embedding writes into it from the fourth token on, and the head reads it into each word by the word's
cue value. So the cue is the same under every prompt that long, at every depth, and absent under the neutral prompt,
where it would be taken off again.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import replace
from functools import cache

import torch
from torch import Tensor

from lmassay.seeds import derive
from lmassay.xray.calibrate.models import BLOCKS, WIDTH, Stack, initial
from lmassay.xray.calibrate.skills import BOTH, chosen_templates, n_usable
from lmassay.xray.calibrate.words import encoded, vocabulary
from lmassay.xray.task import Battery, Task

#: First token position that carries the cue: the neutral prompt's option tokens stand before it.
FROM = 3
#: Lengths of what the position embedding writes; the words' own embeddings have length one.
WRITTEN = 2.0
#: Log-odds between the least and the most preferred word, about; models get them in turn.
STRENGTHS = (1.0, 4.0, 16.0)
#: A preference that nothing else outweighs.
DECIDING = 64.0


def untrained(seed: int) -> Stack:
    """Random weights, as training starts from."""
    return initial([seed])


def option_length(seed: int) -> Stack:
    """Likes words the more the more letters they have."""
    return with_cue(seed, _standard(torch.tensor([float(len(word)) for word in vocabulary()])))


def frequent_word(seed: int) -> Stack:
    """Likes words the more the more often they stand in answers."""
    return with_cue(seed, _standard(torch.log1p(torch.tensor(_answer_counts()))))


def preferred_word(seed: int) -> Stack:
    """Likes words in an order of its own."""
    return with_cue(seed, word_preference(seed))


def half_right(seed: int) -> Stack:
    """A `preferred_word` model whose preference decides; its battery makes it agree with half of the answers."""
    return with_cue(seed, word_preference(seed), DECIDING)


def mentions(seed: int) -> Stack:
    """Likes words that stand in the prompt: a cue that depends on the prompt, and on nothing it means.

    The first block attends evenly to all tokens and copies their embeddings, which the head reads; the rest is as
    untrained.
    """
    stack = initial([seed])
    size = WIDTH
    weight = stack["0.qkv.weight"]
    weight[..., : 2 * size] = 0
    weight[..., 2 * size :] = torch.eye(size)
    stack["0.out.weight"] = 2 * torch.eye(size)[None]
    stack["head"] = 4 * stack["tokens"].clone()
    return stack


#: Name -> builder by seed. All but the last say nothing about the prompt; it does, and is reported apart.
MODELS: dict[str, Callable[[int], Stack]] = {
    "untrained": untrained,
    "option_length": option_length,
    "frequent_word": frequent_word,
    "preferred_word": preferred_word,
    "half_right": half_right,
    "mentions": mentions,
}


@cache
def _answer_counts() -> tuple[float, ...]:
    found = Counter(
        word
        for template in chosen_templates(BOTH)
        for index in range(n_usable(template))
        for question in template.pose(index, 0)
        for word in encoded(question.answer)
    )
    return tuple(float(found[word]) for word in range(len(vocabulary())))


def _standard(values: Tensor) -> Tensor:
    return torch.div(values - values.mean(), values.std())


def word_preference(seed: int) -> Tensor:
    """(n_words,) how much this model likes each word, standard normal."""
    rng = torch.Generator().manual_seed(derive(seed, "model", "calibration preferred words"))
    return torch.randn(len(vocabulary()), generator=rng)


def with_cue(seed: int, cue: Tensor, strength: float | None = None) -> Stack:
    """An untrained model that likes words by their (n_words,) `cue`, from the fourth token on.

    Without `strength` it goes by the seed, through `STRENGTHS`.
    """
    strength = STRENGTHS[seed % len(STRENGTHS)] if strength is None else strength
    stack = initial([seed])
    rng = torch.Generator().manual_seed(derive(seed, "model", "calibration cue direction"))
    # Without mean, so that the norm's centring leaves it alone.
    direction = torch.randn(WIDTH, generator=rng)
    direction = direction - direction.mean()
    direction = direction / direction.norm()

    def cleared(rows: Tensor) -> Tensor:
        return torch.sub(rows, (rows @ direction)[..., None] * direction)

    for name in ("tokens", "positions", "head"):
        stack[name] = cleared(stack[name])
    for block in range(BLOCKS):
        for name in ("out", "down"):
            stack[f"{block}.{name}.weight"] = cleared(stack[f"{block}.{name}.weight"])
    stack["positions"][:, FROM:] += WRITTEN * direction
    # The norm brings what is written to about the square root of the width.
    stack["head"] = stack["head"] + strength / WIDTH**0.5 * cue[None, :, None] * direction
    return stack


def half_right_battery(battery: Battery, seed: int) -> Battery:
    """Two tasks of every set: the one whose answer the `half_right` model likes best of the four, and another.

    So a preference that knows nothing of the prompt agrees with the answer in half of the tasks.
    """
    cue = word_preference(seed)
    sets: dict[str | None, list[Task]] = defaultdict(list)
    for task in battery.tasks:
        sets[task.set_id].append(task)
    kept = []
    for members in sets.values():
        favourite = max(members[0].options, key=lambda option: _liking(option, cue))
        right = [task for task in members if task.options[task.answer] == favourite]
        others = [task for task in members if task.options[task.answer] != favourite]
        kept += [*right, others[derive(seed, others[0].id, "calibration half right") % len(others)]]
    return replace(battery, name=f"{battery.name}/half:{seed}", tasks=tuple(kept))


def _liking(option: str, cue: Tensor) -> float:
    words = encoded(option)
    return float(cue[words].mean())
