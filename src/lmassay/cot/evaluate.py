"""Evaluate a method on a task: fit, choose a threshold, score, hold against controls; in memory or in a run folder."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lmassay.cot.cap import capped
from lmassay.cot.fitting import check_data, controls_for, fit_and_score, made_method, method_kind
from lmassay.cot.predictions import (
    LABEL,
    LABEL_THRESHOLD,
    TRAIN,
    VALIDATION,
    MethodScores,
    predictions_frame,
    read_predictions,
    write_predictions,
)
from lmassay.cot.probing import attach, identity_of_activations, keep_method
from lmassay.cot.scores import CotScores, compute_scores
from lmassay.cot.slices import sliced
from lmassay.cot.task import TaskData
from lmassay.cot.tasks import find_task
from lmassay.errors import LmassayError
from lmassay.markup import run_html, verdicts
from lmassay.measures.classification import Point, choose_threshold
from lmassay.methods.constructor import plain_options
from lmassay.methods.method import MethodLike, method_hash
from lmassay.storage.atomic import write_json
from lmassay.storage.parts import Parts
from lmassay.storage.runs import PARTS, PREDICTIONS, REPLIES, SCORES, RunFolder, check_tables, claimed, read_scores

if TYPE_CHECKING:
    import polars as pl

    from lmassay.methods.activations import Activations

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

    def __repr__(self) -> str:
        task = self.document["identity"]["task"]["id"]
        said = verdicts(row.verdict for row in self.scored.evidence)
        return f"<Evaluation {self.scored.method} on {task}: evidence {said}>"

    def _repr_html_(self) -> str:
        """Evidence first, for a notebook."""
        name = f"{self.scored.method} on {self.document['identity']['task']['id']}"
        d = self.document
        return run_html(name, self.survives, d["evidence"], d["scores"], d["notices"])

    @property
    def survives(self) -> bool | None:
        """Whether every row of the headline figure survives; None where none could be measured."""
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
    activations: Path | str | Activations | None = None,
    train_cap: int | None = None,
    test_cap: int | None = None,
    options: Mapping[str, Any] | None = None,
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
    activations : path or Activations, optional
        What a method that reads activations reads: a folder of ``lmassay cot activations``.
    train_cap : int, optional
        At most so many training rows, for the method and its controls (`lmassay.cot.cap.capped`, seed 0).
    test_cap : int, optional
        At most so many rows of validation and of each test split (`lmassay.cot.slices.sliced`, seed 0).
    options : mapping, optional
        Arguments of the method's constructor.
    out : path, optional
        Run folder, made if needed. One that holds the same run unfinished is resumed; finished, it is read.

    Raises
    ------
    LmassayError
        ``bad-request``, ``method-failed``, the errors of loading a task, those of a run folder.
    """

    def loaded() -> TaskData:
        if isinstance(task, TaskData):
            found = task
        else:
            from lmassay.cot.load import load_task

            # Before its data is looked for: nothing about that would be any help.
            method_kind(find_task(task))
            found = load_task(task, layout, regime, source, validation=validation)
        found = found if test_cap is None else sliced(found, test_cap)
        return found if train_cap is None else capped(found, train_cap)

    if out is None:
        data = loaded()
        ready = _prepared(data, method, seed, activations, options)
        found = [fit_and_score(m, data, seed) for m in _counted(ready.methods, progress)]
        return _evaluated(data, found, ready, seed)
    with claimed(Path(out)) as folder:
        data = loaded()
        ready = _prepared(data, method, seed, activations, options)
        return _run(folder, data, ready, seed, command, progress)


@dataclass(frozen=True)
class _Ready:
    """The method and its controls, and everything that decides a number."""

    methods: list[MethodLike]
    notices: list[str]
    identity: dict[str, Any]
    about: dict[str, Any]


def _prepared(
    data: TaskData,
    method: str | type[Any] | MethodLike,
    seed: int,
    activations: Path | str | Activations | None,
    options: Mapping[str, Any] | None,
) -> _Ready:
    check_data(data)
    own = made_method(method, data, options)
    of_activations = attach(own, activations, data)
    controls, notices = controls_for(data, str(own.id))
    shared = [
        f"{n} {'question stands' if n == 1 else 'questions stand'} in both {a} and {b}:"
        " what is scored there was partly learnt"
        for (a, b), n in data.shared_groups.items()
        if a == TRAIN or (a == VALIDATION and b in data.test_splits)
    ]
    notices = [*shared, *of_activations, *notices]
    if any(_estimated(data[name].hidden) for name in data.test_splits):
        notices = [*notices, "p1 and p0 are estimates, and with them R and every figure of the minimal criterion"]
    identity = identity_of(data, str(own.id), method_hash(own), controls, seed)
    # Where scores come from that no method of ours made.
    identity["method"] |= getattr(own, "provenance", {})
    if options:
        identity["method"]["options"] = plain_options(options)
    identity |= identity_of_activations(own)
    about = {"activations": str(activations)} if isinstance(activations, Path | str) else {}
    return _Ready([own, *controls], notices, identity, about)


def _estimated(hidden: pl.DataFrame) -> bool:
    return "p_estimated" in hidden.columns and bool(hidden["p_estimated"].any())


def identity_of(
    data: TaskData, method_id: str, hashed: str, controls: Sequence[MethodLike], seed: int
) -> dict[str, Any]:
    """Everything that decides a cot run's numbers. The task's sha256 is that of its data without a cap on training."""
    caps = {name: n for name in ("train_cap", "test_cap") if (n := getattr(data, name)) is not None}
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
            "sha256": data.uncapped or data.fingerprint,
        },
        "method": {"id": method_id, "sha256": hashed},
        "controls": [{"id": str(c.id), "sha256": method_hash(c)} for c in controls],
        "settings": {"seed": seed, **caps},
    }


def _counted(methods: Sequence[MethodLike], progress: Progress | None) -> Any:
    for done, method in enumerate(methods):
        yield method
        if progress is not None:
            progress(done + 1, len(methods))


def _evaluated(data: TaskData, found: Sequence[MethodScores], ready: _Ready, seed: int) -> Evaluation:
    frame = predictions_frame(data, found, thresholds_of(data, found), seed)
    answers = found[0].answers
    scored = compute_scores(frame, kind=data.task.kind, ood_splits=data.ood_splits, seed=seed, answers=answers)
    document = scores_document(scored, ready.identity, [*ready.notices, *data.notes])
    table = getattr(ready.methods[0], "replies", None)
    if table is not None:
        from lmassay.cot.monitors.spread import replies_section

        document["monitor"] = replies_section(table(data), seed)
    return Evaluation(frame, scored, document)


def thresholds_of(data: TaskData, found: Sequence[MethodScores]) -> dict[str, Point]:
    """Method -> threshold from the validation rows on which it chose nothing; none in regression."""
    if data.task.kind == "regression":
        return {}
    validation = data[VALIDATION]
    thresholds = {}
    for one in found:
        if one.answers == LABEL:
            thresholds[one.method_id] = Point(LABEL_THRESHOLD)
            continue
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
    folder.bind(
        ready.identity, command=command, notices=notices, choices=chosen, counts=data_counts(data), **ready.about
    )
    if folder.done:
        return read_evaluation(folder.path, folder.record)
    parts = Parts(folder.path / PARTS, ["score", "choosing"])
    found = []
    try:
        for index, method in enumerate(_counted(ready.methods, progress)):
            one = _kept(parts, index, data, method)
            if one is None:
                one = fit_and_score(method, data, seed)
                if index == 0:
                    keep_method(method, folder.path)
                # Before the part: a part that is there has its choices in the record.
                folder.update(choices=folder.record["choices"] | {one.method_id: dict(one.choices)})
                parts.write(index, _content(data, method), _as_part(data, one))
            found.append(one)
        result = _evaluated(data, found, ready, seed)
        write_predictions(folder.path, result.predictions)
        # What a method has to keep beside its scores.
        keep = getattr(ready.methods[0], "keep", None)
        tables = [PREDICTIONS, *(keep(folder, data) if keep is not None else ())]
        write_json(folder.path / SCORES, result.document)
    except KeyboardInterrupt:
        folder.update(status="interrupted")
        raise
    except LmassayError:
        folder.update(status="failed")
        raise
    folder.finish(tables)
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
    answers = getattr(method, "answers", None)
    return MethodScores(str(method.id), method_hash(method), scores, pieces[0][:, 1] == 1, {}, answers)


def read_evaluation(path: Path, record: dict[str, Any]) -> Evaluation:
    """A finished run as it was."""
    return Evaluation(*_computed(path, record), read_scores(path))


def _computed(path: Path, record: dict[str, Any]) -> tuple[pl.DataFrame, CotScores]:
    frame = read_predictions(path)
    task = record["identity"]["task"]
    seed = record["identity"]["settings"]["seed"]
    answers = record["identity"]["method"].get("answers")
    return frame, compute_scores(frame, kind=task["kind"], ood_splits=task["ood_splits"], seed=seed, answers=answers)


def rescored(path: Path, record: dict[str, Any]) -> dict[str, Any]:
    """All scores again, from the run's table: thresholds from its validation rows, decisions from those.

    Raises
    ------
    LmassayError
        ``bad-run-folder`` when the table was altered or its thresholds are not those of its rows.
    """
    if record["identity"]["task"]["kind"] == "selection":
        from lmassay.cot.monitors.selection import rescored_selection

        return rescored_selection(path, record)
    check_tables(path, record)
    predictions, scored = _computed(path, record)
    held = dict(predictions.filter(split=VALIDATION).unique("method_id").select("method_id", "threshold").rows())
    for method, threshold in scored.thresholds.items():
        if held.get(method) != threshold["value"]:
            raise LmassayError(
                "bad-run-folder",
                f"{path}: the threshold of {method} is not that of its validation rows",
                "run its command again, in another folder",
            )
    document = scores_document(scored, record["identity"], record.get("notices", []))
    if REPLIES in record["tables"]:
        from lmassay.cot.monitors.spread import replies_section
        from lmassay.cot.monitors.told import read_replies

        document["monitor"] = replies_section(read_replies(path), record["identity"]["settings"]["seed"])
    return document
