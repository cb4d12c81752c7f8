"""Samples by number: what is stored is returned, and only what is missing is drawn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lmassay import seeds
from lmassay.models.sampling import Engine, Message, Progress, Prompt, Sample, Sampling
from lmassay.storage.rollouts import SampleKey, StoredPrompt, StoredSample, settings_key

if TYPE_CHECKING:
    from lmassay.storage.rollouts import RolloutStore


@dataclass(frozen=True, slots=True)
class Wanted:
    """Samples 0 to ``n - 1`` of a prompt."""

    prompt: Prompt
    sampling: Sampling
    n: int


def drawn(
    store: RolloutStore,
    engine: Engine,
    prompt: Prompt,
    sampling: Sampling,
    n: int,
    seed: int,
    *,
    progress: Progress | None = None,
) -> list[Sample]:
    """Samples 0 to ``n - 1`` of one prompt; see `drawn_all`."""
    (found,) = drawn_all(store, engine, [Wanted(prompt, sampling, n)], seed, progress=progress)
    return found


def drawn_all(
    store: RolloutStore, engine: Engine, wanted: Sequence[Wanted], seed: int, *, progress: Progress | None = None
) -> list[list[Sample]]:
    """The samples of many prompts, each stored as it is finished, so that an interrupted call draws none again.

    Sample number i of a prompt has a seed of its own, ``derive(seed, prompt, "sample i")``: more samples, other
    prompts and another order of them change none.

    Parameters
    ----------
    seed : int
        Part of a sample's settings, so that two seeds give two sets of samples.
    """
    missing: dict[SampleKey, tuple[Prompt, Sampling, int]] = {}
    keys: list[list[SampleKey]] = []
    fingerprint = engine.fingerprint
    for one in wanted:
        prompt, settings = stored_prompt(one.prompt).key, settings_key(stored_settings(one.sampling, seed))
        keys.append([SampleKey(fingerprint, prompt, settings, number) for number in range(one.n)])
        for key in keys[-1]:
            if key not in store:
                own = seeds.derive(seed, prompt, f"sample {key.number}")
                missing[key] = (one.prompt, one.sampling, own)
    order = list(missing)

    def each(at: int, sample: Sample) -> None:
        prompt, sampling, _ = missing[order[at]]
        kept = StoredSample(sample.text, sample.n_tokens, sample.finish)
        settings = stored_settings(sampling, seed)
        store.add(fingerprint, stored_prompt(prompt), settings, order[at].number, kept)

    if missing:
        engine.sample(list(missing.values()), each=each, progress=progress)
        store.flush()
    return [[_sample(store, key) for key in own] for own in keys]


def stored_prompt(prompt: Prompt) -> StoredPrompt:
    """A prompt as it is stored."""
    return StoredPrompt(tuple((m.role, m.text) for m in prompt.messages), prompt.prefix)


def prompt_of(stored: StoredPrompt) -> Prompt:
    """A stored prompt as it is asked."""
    return Prompt(tuple(Message(role, text) for role, text in stored.messages), stored.prefix)


def stored_settings(sampling: Sampling, seed: int) -> dict[str, Any]:
    """All that decides a sample beside model, prompt and number."""
    return {
        "temperature": float(sampling.temperature),
        "top_p": float(sampling.top_p),
        "max_tokens": sampling.max_tokens,
        "stop": list(sampling.stop),
        "seed": seed,
    }


def _sample(store: RolloutStore, key: SampleKey) -> Sample:
    found = store.get(key)
    if found is None:
        raise RuntimeError(f"the engine did not draw sample {key.number} of prompt {key.prompt[:12]}")
    return Sample(found.text, found.n_tokens, found.finish)
