"""Runs that are to stand side by side: read, and refused when they were measured differently."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lmassay.cot.compared import Measured, measure
from lmassay.cot.evaluate import Evaluation
from lmassay.cot.figures import median_figures
from lmassay.cot.predictions import CHOOSING, VALIDATION, read_predictions, rows_by_method
from lmassay.cot.scores import MEDIANS, OOD
from lmassay.errors import LmassayError
from lmassay.methods.method import MODEL
from lmassay.methods.registry import CONTROLS, load_method
from lmassay.seeds import generator
from lmassay.storage.runs import check_tables, finished_record, read_scores

if TYPE_CHECKING:
    import polars as pl

Floats = NDArray[np.float64]

#: What all runs of a leaderboard share, and what those of one task and regime share beside it.
SHARED, BY_TASK = ("layout",), ("validation", "sha256")
WORDS = {"sha256": "data"}
METHOD, CONTROL, EXTERNAL, PUBLISHED = "method", "control", "external", "published"


@dataclass(frozen=True)
class BoardRun:
    """A finished run.

    Attributes
    ----------
    name : str
        Its folder, or what it is called when it is in memory.
    document : dict
        ``scores.json``.
    predictions : callable
        Reads the table when draws are wanted.
    """

    name: str
    document: Mapping[str, Any]
    predictions: Callable[[], pl.DataFrame]

    @property
    def task(self) -> Mapping[str, Any]:
        """The identity's task."""
        found: Mapping[str, Any] = self.document["identity"]["task"]
        return found

    @property
    def method(self) -> Mapping[str, Any]:
        """The identity's method."""
        found: Mapping[str, Any] = self.document["identity"]["method"]
        return found

    @property
    def kind(self) -> str:
        """``method``, ``control`` or ``external``."""
        if self.method.get("origin") == EXTERNAL:
            return EXTERNAL
        return CONTROL if self.method["id"] in CONTROLS else METHOD

    @property
    def label(self) -> str:
        """What its row is called: the method, and in brackets what else tells it from other runs of that method."""
        if self.kind == EXTERNAL:
            return _bracketed(str(self.method["id"]), [EXTERNAL, *self._capped])
        reader = self.document["identity"].get("activations", {}).get("reader")
        options = [f"{k}={_short(v)}" for k, v in self.method.get("options", {}).items()]
        return _bracketed(str(self.method["id"]), [*([str(reader)] if reader else []), *self._capped, *options])

    def control_label(self, name: str) -> str:
        """The row of one of its controls, which learnt from the same training rows and is scored on the same others."""
        return _bracketed(name, self._capped)

    @property
    def _capped(self) -> list[str]:
        settings = self.document["identity"]["settings"]
        return [f"{cap}={settings[cap]}" for cap in ("train_cap", "test_cap") if cap in settings]

    @property
    def llm(self) -> bool:
        """Whether the method is a language model that was asked."""
        if "llm" in self.method:
            return bool(self.method["llm"])
        try:
            return bool(getattr(load_method(self.method["id"]), "sees", "") == MODEL)
        except LmassayError:
            # A method of a package that is not installed here, or one that was never registered.
            return False

    @property
    def parts(self) -> dict[str, str | None]:
        """Where the figures in (``id``) and out of distribution (``ood``) stand among the scores."""
        ood = list(self.task["ood_splits"])
        inside = [name for name in self.task["splits"] if name not in ood]
        return {
            "id": inside[0] if len(inside) == 1 else None,
            "ood": OOD if len(ood) > 1 else ood[0] if ood else None,
        }

    def draws(self) -> dict[str, Measured]:
        """Every figure's bootstrap draws, by method: those the scores' own intervals come from."""
        frame = self.predictions()
        task, seed = self.task, self.document["identity"]["settings"]["seed"]
        named = "/".join(str(frame[c][0]) for c in ("task", "layout", "regime"))
        found = {}
        for name, rows in rows_by_method(frame).items():
            splits = [s for s in rows if s not in (VALIDATION, CHOOSING)]
            answers = self.method.get("answers") if name == self.method["id"] else None
            one = measure(
                rows, splits, task["kind"], lambda s: generator(seed, f"{named}/{s}", "cot bootstrap"), answers
            )
            ood = [s for s in splits if s in task["ood_splits"]]
            if len(ood) > 1:
                one.figures[OOD] = median_figures([one.figures[s] for s in ood], MEDIANS[task["kind"]])
            found[name] = one
        return found


def read_runs(sources: Sequence[Path | str | Evaluation], *, paired_regimes: bool) -> list[BoardRun]:
    """Finished runs of folders, or evaluations in memory, that may stand in one table.

    Parameters
    ----------
    paired_regimes : bool
        Whether the two training sets of tasks 1 and 2 (layout post) may make one row, as the published figures do.

    Raises
    ------
    LmassayError
        ``runs-not-comparable`` naming the field and both values; ``bad-run-folder``; ``bad-request`` for none, or two
        runs of one method on one task.
    """
    if not sources:
        raise LmassayError("bad-request", "a leaderboard needs a run", "name the folders of finished cot runs")
    runs = [_read(source, i) for i, source in enumerate(sources)]
    for run in runs[1:]:
        for field in SHARED:
            _same(runs[0], run, field)
    regimes = [run for run in runs if run.task["regime"] is not None]
    for run in regimes[1:]:
        if not paired_regimes:
            _same(regimes[0], run, "regime")
    seen: dict[tuple[Any, ...], BoardRun] = {}
    first: dict[tuple[Any, ...], BoardRun] = {}
    for run in runs:
        cell = run.task["id"], run.task["regime"]
        for field in BY_TASK:
            _same(first.setdefault(cell, run), run, field)
        key = *cell, run.kind, run.label
        if (other := seen.setdefault(key, run)) is not run:
            raise LmassayError(
                "bad-request",
                f"{other.name} and {run.name} are both runs of {run.label} on {run.task['id']}",
                "name one of them",
            )
    return runs


def _read(source: Path | str | Evaluation, index: int) -> BoardRun:
    if isinstance(source, Evaluation):
        frame = source.predictions
        return BoardRun(f"evaluation {index + 1}", source.document, lambda: frame)
    path = Path(source)
    record = finished_record(path)
    suite = record.get("identity", {}).get("suite")
    if suite != "cot":
        raise LmassayError(
            "runs-not-comparable", f"{path} is a run of the suite {suite}, not of cot", "name runs of lmassay cot run"
        )
    if record["identity"]["task"]["kind"] == "selection":
        raise LmassayError(
            "runs-not-comparable",
            f"{path} holds selections of sentences, which have no threshold and no classes",
            "compare it with `lmassay show`; its cells stand beside others by `lmassay cot analyse compression`",
        )
    check_tables(path, record)
    return BoardRun(str(path), read_scores(path), lambda: read_predictions(path))


def _same(one: BoardRun, other: BoardRun, field: str) -> None:
    first, second = (str(run.task[field])[:16] for run in (one, other))
    if one.task[field] != other.task[field]:
        raise LmassayError(
            "runs-not-comparable",
            f"{one.name} and {other.name} differ in {WORDS.get(field, field)}: {first} and {second}",
            "make one leaderboard for each",
        )


def _bracketed(name: str, about: Sequence[str]) -> str:
    return f"{name} ({', '.join(about)})" if about else name


def _short(value: Any) -> str:
    """An option's value in a label; of a path its last part."""
    return "+".join(map(_short, value)) if isinstance(value, list) else str(value).rstrip("/").rpartition("/")[2]
