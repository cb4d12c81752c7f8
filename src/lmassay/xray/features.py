"""What a pattern may rest on: a row of features per model and task, and whether its PSI is above zero."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lmassay.measures.intervals import Resampling
from lmassay.seeds import generator

if TYPE_CHECKING:
    from lmassay.xray.finished import FinishedRun

#: Feature -> whether it is computed from wins, as the target is. In the order in which they are printed.
FEATURES = {
    "n_real_win_layers": True,
    "stability_bonus": True,
    "j_real": True,
    "j_rl": True,
    "j_mt": True,
    "j_sb": True,
    "final_correct": True,
    "family": False,
    "answer_n_tokens": False,
    "prompt_n_tokens": False,
    "n_blocks": False,
}
NAMES = "family"
ONE_CLASS = "PSI is above zero {} rows"
NO_ROWS = "no row"


@dataclass(frozen=True, slots=True)
class Rows:
    """The tasks of several runs.

    Attributes
    ----------
    target : (n,) bool
        PSI > 0.
    columns : dict of str to (n,) list
        Each feature; None where a row has no such value.
    templates : tuple of str
        Unit of every interval; the same template under another model is in the same unit.
    """

    target: NDArray[np.bool_]
    columns: dict[str, list[Any]]
    templates: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.target)

    @property
    def one_class(self) -> str | None:
        """Why nothing can be told apart here, if so."""
        if not len(self):
            return NO_ROWS
        if self.target.all() or not self.target.any():
            return ONE_CLASS.format("in all" if self.target.all() else "in none of the")
        return None

    def known(self, feature: str) -> NDArray[np.bool_]:
        """(n,) where the feature has a value."""
        return np.array([value is not None for value in self.columns[feature]], np.bool_)

    def resampling(self, seed: int, purpose: str, where: NDArray[np.bool_] | None = None) -> Resampling:
        """Resamples of the rows' templates."""
        kept = self.templates if where is None else [t for t, w in zip(self.templates, where, strict=True) if w]
        return Resampling(kept, generator(seed, purpose, "interval"))


def rows_of(runs: Sequence[FinishedRun]) -> Rows:
    """One row per run and scored task, in an order that neither the runs' nor the tasks' changes."""
    pairs = [(run, row) for run in runs for row in run.tasks]
    pairs.sort(key=lambda pair: (pair[1]["task_id"], pair[0].weights, pair[0].model))
    columns: dict[str, list[Any]] = {
        name: [run.n_blocks if name == "n_blocks" else row.get(name) for run, row in pairs] for name in FEATURES
    }
    # PSI is a difference of two shares of the same number of depths: equal counts give exactly 0.
    target = np.array([row["psi"] > 0 for _, row in pairs], np.bool_)
    return Rows(target, columns, tuple(row["template"] for _, row in pairs))
