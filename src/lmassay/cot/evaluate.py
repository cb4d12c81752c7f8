"""Evaluate a method on a task: fit, choose a threshold, score, hold against controls; in memory or in a run folder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lmassay.cot.fitting import check_data, controls_for, fit_and_score, made_method
from lmassay.cot.predictions import (
    VALIDATION,
    MethodScores,
    predictions_frame,
    read_predictions,
    write_predictions,
)
from lmassay.cot.scores import CotScores, compute_scores
from lmassay.cot.task import TaskData
from lmassay.errors import LmassayError
from lmassay.measures.classification import Point, choose_threshold
from lmassay.methods.method import MethodLike, method_hash
from lmassay.storage.atomic import write_json
from lmassay.storage.parts import Parts
from lmassay.storage.runs import PARTS, PREDICTIONS, SCORES, RunFolder, check_tables, claimed, read_scores

if TYPE_CHECKING:
    import polars as pl

SUITE = "cot"
SCORES_VERSION = 1

#: Called with (methods done, methods in all).
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Evaluation:
    """A method's figures on a task.

    Attributes
    ----------
    predictions : polars.DataFrame
        Every score of the method and its controls (validation included).
    scored : CotScores
    document : dict
        What ``scores.json`` holds.
    """

    predictions: pl.DataFrame
    scored: CotScores
    document: dict[str, Any]

    @property
    def survives(self) -> bool:
        """Whether every row of the headline figure survives."""
        return self.scored.survives

    @property
    def scores(self) -> pl.DataFrame:
        """A row for each method, split and figure."""
        import polars as pl

        rows = []
        for method, estimates in {self.scored.method: self.scored.scores, **self.scored.controls}.items():
            for key, e in estimates.items():
                split, _, figure = key.partition(".")
                rows.append({"method": method, "split": split, "figure": figure, **e.to_dict()})
        return pl.DataFrame(rows, infer_schema_length=None)

    @property
    def evidence(self) -> pl.DataFrame:
        """A row for each signal and control."""
        import polars as pl

        return pl.DataFrame([row.to_dict() for row in self.scored.evidence], infer_schema_length=None)


def evaluate(
    task: str | TaskData,
    method: str | type[Any] | MethodLike,
    *,
    layout: str = "head",
    regime: str | None = None,
    validation: str | None = None,
    source: Path | str | None = None,
    seed: int = 0,
    out: Path | str | None = None,
    command: str = "",
    progress: Progress | None = None,
) -> Evaluation:
    """Evaluate a method, with every control the task allows beside it.

    Parameters
    ----------
    task : str or TaskData
        A name is loaded by `lmassay.cot.load.load_task`, with `layout`, `regime`, `validation` and `source`.
    method : str, class or object
        A registered name; a class with ``fit`` and ``score``; or an object of one.
    out : path, optional
        Run folder, made if needed. One that holds the same run unfinished is resumed; finished, it is read.

    Raises
    ------
    LmassayError
        ``bad-request``, ``method-failed``, the errors of loading a task, those of a run folder.
    """

    def loaded() -> TaskData:
        if isinstance(task, TaskData):
            return task
        from lmassay.cot.load import load_task

        return load_task(task, layout, regime, source, validation=validation)

    if out is None:
        data = loaded()
        ready = _prepared(data, method, seed)
        found = [fit_and_score(m, data, seed) for m in _counted(ready.methods, progress)]
        return _evaluated(data, found, ready, seed)
    with claimed(Path(out)) as folder:
        data = loaded()
        return _run(folder, data, _prepared(data, method, seed), seed, command, progress)


@dataclass(frozen=True)
class _Ready:
    """The method and its controls, and everything that decides a number."""

    methods: list[MethodLike]
    notices: list[str]
    identity: dict[str, Any]


def _prepared(data: TaskData, method: str | type[Any] | MethodLike, seed: int) -> _Ready:
    check_data(data)
    own = made_method(method, data)
    controls, notices = controls_for(data, str(own.id))
    if any(_estimated(data[name].hidden) for name in data.test_splits):
        notices = [*notices, "p1 and p0 are estimates, and with them R and every figure of the minimal criterion"]
    identity = identity_of(data, str(own.id), method_hash(own), controls, seed)
    # Where scores come from that no method of ours made.
    identity["method"] |= getattr(own, "provenance", {})
    return _Ready([own, *controls], notices, identity)


def _estimated(hidden: pl.DataFrame) -> bool:
    return "p_estimated" in hidden.columns and bool(hidden["p_estimated"].any())


def identity_of(
    data: TaskData, method_id: str, hashed: str, controls: Sequence[MethodLike], seed: int
) -> dict[str, Any]:
    """Everything that decides a cot run's numbers."""
    return {
        "suite": SUITE,
        "task": {
            "id": data.task.id,
            "kind": data.task.kind,
            "layout": data.layout,
            "regime": data.regime,
            "validation": data.validation,
            "splits": list(data.test_splits),
            "ood_splits": list(data.ood_splits),
            "sha256": data.fingerprint,
        },
        "method": {"id": method_id, "sha256": hashed},
        "controls": [{"id": str(c.id), "sha256": method_hash(c)} for c in controls],
        "settings": {"seed": seed},
    }


def _counted(methods: Sequence[MethodLike], progress: Progress | None) -> Any:
    for done, method in enumerate(methods):
        yield method
        if progress is not None:
            progress(done + 1, len(methods))


def _evaluated(data: TaskData, found: Sequence[MethodScores], ready: _Ready, seed: int) -> Evaluation:
    frame = predictions_frame(data, found, thresholds_of(data, found), seed)
    scored = compute_scores(frame, kind=data.task.kind, ood_splits=data.ood_splits, seed=seed)
    return Evaluation(frame, scored, scores_document(scored, ready.identity, [*ready.notices, *data.notes]))


def thresholds_of(data: TaskData, found: Sequence[MethodScores]) -> dict[str, Point]:
    """Method -> threshold from the validation rows on which it chose nothing; none in regression."""
    if data.task.kind == "regression":
        return {}
    validation = data[VALIDATION]
    thresholds = {}
    for one in found:
        score = one.scores[VALIDATION]
        rows = validation.usable & ~one.choosing & np.isfinite(score)
        thresholds[one.method_id] = choose_threshold(validation.y[rows], score[rows])
    return thresholds


def scores_document(scored: CotScores, identity: dict[str, Any], notices: Sequence[str]) -> dict[str, Any]:
    """The content of ``scores.json``."""
    document = {"schema_version": SCORES_VERSION, "suite": SUITE, "identity": identity, **scored.to_dict()}
    return document | {"notices": [*notices, *document["notices"]]}


def _run(
    folder: RunFolder, data: TaskData, ready: _Ready, seed: int, command: str, progress: Progress | None
) -> Evaluation:
    chosen = dict(folder.record.get("choices", {})) if folder.record.get("identity") == ready.identity else {}
    notices = [*ready.notices, *data.notes]
    folder.bind(ready.identity, command=command, notices=notices, choices=chosen, counts=data_counts(data))
    if folder.done:
        return read_evaluation(folder.path, folder.record)
    parts = Parts(folder.path / PARTS, ["score", "choosing"])
    found = []
    try:
        for index, method in enumerate(_counted(ready.methods, progress)):
            one = _kept(parts, index, data, method)
            if one is None:
                one = fit_and_score(method, data, seed)
                # Before the part: a part that is there has its choices in the record.
                folder.update(choices=folder.record["choices"] | {one.method_id: dict(one.choices)})
                parts.write(index, _content(data, method), _as_part(data, one))
            found.append(one)
        result = _evaluated(data, found, ready, seed)
        write_predictions(folder.path, result.predictions)
        write_json(folder.path / SCORES, result.document)
    except KeyboardInterrupt:
        folder.update(status="interrupted")
        raise
    except LmassayError:
        folder.update(status="failed")
        raise
    folder.finish([PREDICTIONS])
    return result


def data_counts(data: TaskData) -> dict[str, dict[str, int]]:
    """Rows of each status, by split."""
    return {name: split.counts for name, split in data.splits.items()}


def _content(data: TaskData, method: MethodLike) -> str:
    return f"{data.fingerprint} {method.id} {method_hash(method)}"


def _as_part(data: TaskData, one: MethodScores) -> np.ndarray[Any, np.dtype[np.float64]]:
    scores = [one.scores[name] for name in (VALIDATION, *data.test_splits)]
    marks = [one.choosing.astype(np.float64), *(np.zeros(len(s)) for s in scores[1:])]
    return np.stack([np.concatenate(scores), np.concatenate(marks)], axis=1)


def _kept(parts: Parts, index: int, data: TaskData, method: MethodLike) -> MethodScores | None:
    names = (VALIDATION, *data.test_splits)
    sizes = [len(data[name]) for name in names]
    held = parts.read(index, _content(data, method), sum(sizes))
    if held is None:
        return None
    pieces = np.split(held, np.cumsum(sizes)[:-1])
    scores = {name: piece[:, 0] for name, piece in zip(names, pieces, strict=True)}
    return MethodScores(str(method.id), method_hash(method), scores, pieces[0][:, 1] == 1, {})


def read_evaluation(path: Path, record: dict[str, Any]) -> Evaluation:
    """A finished run as it was."""
    frame = read_predictions(path)
    task = record["identity"]["task"]
    seed = record["identity"]["settings"]["seed"]
    scored = compute_scores(frame, kind=task["kind"], ood_splits=task["ood_splits"], seed=seed)
    return Evaluation(frame, scored, read_scores(path))


def rescored(path: Path, record: dict[str, Any]) -> dict[str, Any]:
    """All scores again, from the run's table: thresholds from its validation rows, decisions from those.

    Raises
    ------
    LmassayError
        ``bad-run-folder`` when the table was altered or its thresholds are not those of its rows.
    """
    check_tables(path, record)
    found = read_evaluation(path, record)
    held = dict(found.predictions.filter(split=VALIDATION).unique("method_id").select("method_id", "threshold").rows())
    for method, threshold in found.scored.thresholds.items():
        if held.get(method) != threshold["value"]:
            raise LmassayError(
                "bad-run-folder",
                f"{path}: the threshold of {method} is not that of its validation rows",
                "run its command again, in another folder",
            )
    return scores_document(found.scored, record["identity"], record.get("notices", []))
