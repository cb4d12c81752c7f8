"""Option scores of a whole run in memory: what the engine yields and what every score is computed from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

#: Under what prompt a task was scored.
REAL, SEMANTICS_BREAK, PROMPT_SWAP, PARAPHRASE = "real", "semantics_break", "prompt_swap", "paraphrase"
#: Variants that share the battery's task ids, so that leaving a task out leaves it out everywhere.
TASK_VARIANTS = (REAL, SEMANTICS_BREAK, PROMPT_SWAP)
VARIANTS = (*TASK_VARIANTS, PARAPHRASE)


@dataclass(frozen=True, slots=True)
class ScoredTask:
    """One task under one variant of its prompt.

    Attributes
    ----------
    logprob : (n_options, n_depths) float64
        Mean log-probability of the option's scored tokens given the prompt, in nats per token.
    neutral : (n_options, n_depths) float64
        The same given the neutral prompt.
    n_tokens : (n_options,) int64
        Tokens scored per option.
    template : str
        Unit of every interval.
    flags : frozenset of str
        ``boundary_shift``, ``prior_mismatch``, ``undecidable: shared first token``, ...
    n_prompt_tokens : int or None
        Tokens before the options, special ones included; None where the scores were made elsewhere and do not say.
    """

    task_id: str
    family: str
    template: str
    set_id: str | None
    variant: str
    options: tuple[str, ...]
    answer: int
    logprob: Floats
    neutral: Floats
    n_tokens: Ints
    flags: frozenset[str] = frozenset()
    n_prompt_tokens: int | None = None

    @property
    def score(self) -> Floats:
        """(n_options, n_depths) prior-normalised scores, nats per token."""
        return self.logprob - self.neutral

    @property
    def undecidable(self) -> bool:
        """Whether the protocol cannot tell the options apart (the task leaves every denominator)."""
        return any(flag.startswith("undecidable") for flag in self.flags)

    @property
    def finite(self) -> bool:
        """Whether every score is a number."""
        return bool(np.isfinite(self.score).all())


@dataclass(frozen=True, slots=True)
class ScoredBattery:
    """All variants of all tasks of one run.

    Attributes
    ----------
    depths : tuple of str
        ``embed``, ``block.0`` … ``block.{n-1}``, ``final``.
    variants : mapping of str to tuple of ScoredTask
        ``real`` and, as far as the phases ran, ``semantics_break``, ``prompt_swap`` (the battery's tasks) and
        ``paraphrase`` (task_id ``<group>/<k>``, template ``<group>``).
    skipped : mapping of str to str
        Task id -> reason, for tasks left out on the user's word (over-length prompts).
    """

    depths: tuple[str, ...]
    protocol: str
    variants: Mapping[str, tuple[ScoredTask, ...]]
    skipped: Mapping[str, str] = field(default_factory=dict)
