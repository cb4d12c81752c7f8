"""What the paper measured: its eight checkpoints, their figures, and those of its patterns over three of them.

Source of every figure: T. Nagy, *Where Does Mathematical Skill Live?* (2026, DOI 10.5281/zenodo.22033071).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lmassay.xray.options import Protocol

#: Names that a figure may have: a score, ``family:<family>`` or ``paraphrase:<group>`` of a run's scores.
FAMILY, GROUP = "family:", "paraphrase:"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A model of the paper.

    Attributes
    ----------
    hub_id : str
        Where the hub has it; in a local folder it goes by `name`.
    figures, held_out : dict of str to float
        Published figures on ``core50`` and on ``heldout54``, by the names our scores have.
    in_patterns : bool
        Whether the paper's mutual information and tree are taken over it.
    """

    name: str
    hub_id: str
    protocol: Protocol
    n_blocks: int
    figures: dict[str, float] = field(default_factory=dict)
    held_out: dict[str, float] = field(default_factory=dict)
    in_patterns: bool = False


_RATES = ("real_win", "rl_win", "mt_win", "sb_win", "jaccard", "xray_score")
_PSI = (
    "family:binder_tracking", "family:theorem_pattern", "family:proof_closure", "family:arithmetic_transform",
    "family:algebra_simplification", "psi_logic", "psi_compute", "psi_gap",
)  # fmt: skip
_FIRST = ("psi", "psi_positive", "psi_logic", "psi_compute", "psi_gap")
_HELD = ("family:binder_tracking", "family:theorem_pattern", "family:proof_closure")


def _named(names: tuple[str, ...], *values: float) -> dict[str, float]:
    return dict(zip(names, values, strict=True))


CHECKPOINTS: tuple[Checkpoint, ...] = (
    Checkpoint(
        "distilgpt2", "distilbert/distilgpt2", "multi-token", 6,
        _named(_RATES, 0.50, 0.66, 0.62, 0.48, 0.64, 0)
        | _named(_PSI, -0.19, -0.22, -0.44, -0.22, -0.33, -0.2813, -0.2772, -0.004)
        | {"paraphrase:transitivity": 0.17},
        _named(_HELD, -0.65, 0.13, -0.04),
        in_patterns=True,
    ),
    Checkpoint(
        "gpt2", "openai-community/gpt2", "multi-token", 12,
        _named(_RATES, 0.46, 0.68, 0.78, 0.52, 0.53, -2)
        | _named(_PSI, 0.14, -0.21, -0.43, -0.35, -0.21, -0.1667, -0.2843, 0.118)
        | {"paraphrase:transitivity": 0.20},
        _named(_HELD, -0.35, -0.04, 0.07),
        in_patterns=True,
    ),
    Checkpoint(
        "gpt2-medium", "openai-community/gpt2-medium", "multi-token", 24,
        _named(_RATES, 0.64, 0.80, 0.80, 0.68, 0.46, -4)
        | _named(_PSI, 0.27, 0.08, 0.13, -0.37, -0.33, 0.1602, -0.3483, 0.509)
        | {"paraphrase:transitivity": 0.83},
        _named(_HELD, -0.54, 0.01, -0.07),
        in_patterns=True,
    ),
    Checkpoint(
        "gpt2-large", "openai-community/gpt2-large", "multi-token", 36,
        _named(_PSI, 0.16, -0.04, -0.09, -0.27, -0.31, 0.0110, -0.2888, 0.300),
    ),
    Checkpoint("pythia-70m", "EleutherAI/pythia-70m", "first-token", 6,
               _named(_FIRST, -0.1100, 0.34, -0.1139, -0.1328, 0.0189)),
    Checkpoint("pythia-160m", "EleutherAI/pythia-160m", "first-token", 12,
               _named(_FIRST, -0.1771, 0.28, -0.1409, -0.2336, 0.0927)),
    Checkpoint("pythia-410m", "EleutherAI/pythia-410m", "first-token", 24,
               _named(_FIRST, -0.2154, 0.20, -0.0224, -0.2520, 0.2295)),
    Checkpoint("pythia-1b", "EleutherAI/pythia-1b", "first-token", 16,
               _named(_FIRST, -0.1000, 0.32, 0.0525, -0.2303, 0.2828)),
)  # fmt: skip

#: Plug-in mutual information with PSI > 0 on the training rows, nats.
INFORMATION = {
    "n_real_win_layers": 0.4577,
    "stability_bonus": 0.4354,
    "j_real": 0.3485,
    "j_mt": 0.0894,
    "family": 0.0620,
}
#: Accuracy of the tree on all features.
TREE = {"training": 0.98, "held_out": 0.86}
#: Held-out PSI over the three models: what conjecture C2 turns on.
HELD_OUT_GROUPS = {"logic": -0.088, "compute": -0.106}
