"""PSI: the share of depths the answer wins, above what relabelled options win of the same depths."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from lmassay.xray.relabel import Labels, Pools
    from lmassay.xray.scored import Floats
    from lmassay.xray.trajectories import Wins

#: Weight of the stability term in the extended score.
STABILITY = 0.3
#: Between which the extended score lies.
EXTENDED = (-1.0 - STABILITY, 1.0 + STABILITY)
SPAN = 2


@dataclass(frozen=True, slots=True)
class Psi:
    """PSI of one task.

    Attributes
    ----------
    j_real, j_random, j_matched : float
        Depths won, as a share of all depths, under each label.
    stability : int
        +1 where only the answer has a stable winning span, -1 where only a control has one, 0 otherwise.
    """

    j_real: float
    j_random: float
    j_matched: float
    stability: int

    @property
    def psi(self) -> float:
        """``J_real - max(J_random_label, J_matched_token)``."""
        return self.j_real - max(self.j_random, self.j_matched)

    @property
    def positive(self) -> bool:
        """Whether PSI > 0, by the counts behind the shares."""
        return self.j_real > max(self.j_random, self.j_matched)

    @property
    def extended(self) -> float:
        """``PSI + 0.3 sigma``."""
        return self.psi + STABILITY * self.stability


def psi_of(wins: Wins, labels: Labels, span: int = SPAN) -> Psi:
    """PSI of a task under its drawn labels."""
    share = wins.counts / wins.at.shape[1]
    stable = wins.stable(span)
    real, control = bool(stable[labels.real]), bool(stable[[labels.random_label, labels.matched_token]].any())
    return Psi(
        j_real=float(share[labels.real]),
        j_random=float(share[labels.random_label]),
        j_matched=float(share[labels.matched_token]),
        stability=int(real and not control) - int(control and not real),
    )


def psi_by_role(shares: Floats, pools: Pools) -> Floats:
    """Mean PSI over all control draws, for every option in the role of the answer.

    Parameters
    ----------
    shares : (n_options,) float64
        J of each option.

    Returns
    -------
    (n_options,) float64
        ``psi_bar`` of each role. The two draws are independent and may coincide; the matched pool is the role's own.
    """
    larger = np.maximum.outer(shares, shares)
    return np.asarray(shares - ((pools.random @ larger) * pools.matched).sum(1))
