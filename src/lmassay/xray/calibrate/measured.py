"""One known-answer model through the suite: the figures a reader would go by."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from lmassay.xray.calibrate.models import Stack, initial, opened
from lmassay.xray.calibrate.skills import calibration_battery
from lmassay.xray.in_memory import plan_battery, score_battery
from lmassay.xray.run import Settings

if TYPE_CHECKING:
    from lmassay.xray.plan import RunPlan
    from lmassay.xray.task import Battery

#: Signals whose rows are kept; their controls have names of their own.
SIGNALS = ("real_win", "psi_bar")


@dataclass(frozen=True, slots=True)
class ModelResult:
    """What the suite says of one model.

    Attributes
    ----------
    kind : str
        Such as ``both`` or ``option_length``.
    index : int
        Within its kind.
    battery_seed : int
        Of the tested battery and of the suite's own draws.
    held_out_accuracy : float or None
        Of trained models, without prior.
    steps : int or None
        Trained for.
    rows : dict of str to str
        Control -> verdict of its Evidence row.
    """

    kind: str
    index: int
    group: str
    battery_seed: int
    n_tasks: int
    held_out_accuracy: float | None
    steps: int | None
    psi_excess: float
    psi_excess_p: float
    survives: bool
    rows: dict[str, str]
    xray_score: float
    psi: float
    psi_logic: float | None
    psi_compute: float | None
    real_win: float
    final_accuracy: float

    def to_dict(self) -> dict[str, Any]:
        """Plain fields."""
        return asdict(self)


def measured(
    stack: Stack,
    at: int,
    kind: str,
    index: int,
    group: str,
    battery_seed: int,
    *,
    battery: Battery | None = None,
    held_out_accuracy: float | None = None,
    steps: int | None = None,
) -> ModelResult:
    """Measure the model at `at` of a stack on the seed's battery, or on another."""
    model = opened(stack, at, name=f"{kind}-{index}")
    settings = Settings(seed=battery_seed)
    plan = _plan(group, battery_seed) if battery is None else None
    found = score_battery(model, battery or calibration_battery(group, battery_seed), settings, plan=plan)

    def value(name: str) -> float:
        estimate = found.scores[name].value
        # Every phase is run and every option has words of its own, so nothing of this is undefined.
        assert estimate is not None, name
        return float(estimate)

    return ModelResult(
        kind=kind,
        index=index,
        group=group,
        battery_seed=battery_seed,
        n_tasks=len(found.decided.tasks),
        held_out_accuracy=held_out_accuracy,
        steps=steps,
        survives=bool(found.survives),
        rows={row.control: row.verdict for row in found.evidence if row.signal in SIGNALS},
        psi_logic=found.scores["psi_logic"].value,
        psi_compute=found.scores["psi_compute"].value,
        **{
            name: value(name)
            for name in (
                "psi_excess",
                "psi_excess_p",
                "xray_score",
                "psi",
                "real_win",
                "final_accuracy",
            )
        },
    )


@cache
def _plan(group: str, battery_seed: int) -> RunPlan:
    """One plan for all models of a battery: they share tokenizer and context length."""
    model = opened(initial([0]))
    return plan_battery(model, calibration_battery(group, battery_seed), Settings(seed=battery_seed))
