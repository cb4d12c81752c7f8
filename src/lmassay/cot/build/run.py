"""Build a task's data for a subject model, into a folder: data, stored rollouts, recipe, card."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lmassay.cot.build.balance import splits_of
from lmassay.cot.build.card import card
from lmassay.cot.build.registry import BUILDERS, Builder
from lmassay.cot.build.settings import configured, named
from lmassay.cot.build.workshop import Row, Workshop
from lmassay.cot.compression import OWN, SCHEMA
from lmassay.cot.tasks import find_task
from lmassay.errors import FAILED_PART_WAY, LmassayError, nearest
from lmassay.storage.atomic import parquet_bytes, write_bytes, write_json, write_text
from lmassay.storage.runs import first_difference

if TYPE_CHECKING:
    from lmassay.cot.build.asked_monitor import Monitor
    from lmassay.cot.build.prompts import Questions
    from lmassay.cot.build.workshop import Draw
    from lmassay.models.attended import Attended
    from lmassay.models.sampling import Engine

DATA, CELLS, RECIPE, CARD, ROLLOUTS = "data.parquet", "cells.parquet", "recipe.json", "README.md", "rollouts"
SHARES = (("train", 0.65), ("validation", 0.15), ("test", 0.20))
#: Draws of the audit's intervals.
AUDIT_DRAWS = 500


@dataclass(frozen=True)
class Built:
    """What came out.

    Attributes
    ----------
    folder : Path
    rows : int
    dropped : Counter of reason
    recipe : dict
    """

    folder: Path
    rows: int
    dropped: Counter[str]
    recipe: dict[str, Any]


def find_builder(task: str) -> tuple[str, Builder]:
    """The id of a task (or of a published task's number) and its builder.

    Raises
    ------
    LmassayError
        ``unknown-task``; ``bad-request`` for a task of another package, which has no builder.
    """
    found = find_task(task).id
    if found not in BUILDERS:
        raise LmassayError("bad-request", f"task {found} cannot be built", nearest(found, BUILDERS))
    return found, BUILDERS[found]


def generate(
    task: str,
    engine: Engine,
    questions: Questions,
    draw: Draw,
    folder: Path,
    *,
    seed: int = 0,
    options: Sequence[str] = (),
    attended: Attended | None = None,
    monitor: Monitor | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> Built:
    """Build a task's data into a folder that exists.

    Parameters
    ----------
    draw : callable
        Draws samples or takes them from a store.
    options : sequence of str
        ``NAME=VALUE``, see `lmassay.cot.build.settings`.
    attended : Attended, optional
        For the selectors by attention of task 9.
    monitor : Monitor, optional
        Who is asked by the selector ``monitor`` of task 9; the subject where nobody is named.

    Raises
    ------
    LmassayError
        ``bad-request`` for an option or an engine that lacks what the task needs; ``run-folder-mismatch`` where the
        folder holds another data set; ``nothing-built`` when no example qualified, after the card was written.
    """
    id_, builder = find_builder(task)
    lacking = [need for need in builder.needs if need not in engine.can]
    if lacking:
        raise LmassayError(
            "bad-request",
            f"task {id_} needs a subject that can do {' and '.join(lacking)}; {engine.name} cannot",
            "run the model in this process, or behind a server that returns log-probabilities and continues a prefix",
        )
    settings = configured(builder.settings, options)
    recipe = {
        "task": id_, "subject": {"name": engine.name, "fingerprint": engine.fingerprint,
                                 "thinking": engine.thinking.describe()},
        "questions": {"name": questions.name, "sha256": questions.sha256, "n": len(questions.items)},
        "seed": seed, "settings": named(settings), "version": version("lmassay"),
    }  # fmt: skip
    if monitor is not None:
        recipe["monitor"] = {"name": monitor.engine.name, "fingerprint": monitor.engine.fingerprint}
    _check_folder(folder, recipe)
    free = [q.id for q in questions.items if q.split is None]
    split = splits_of(free, SHARES, seed) | {q.id: q.split for q in questions.items if q.split is not None}
    shop = Workshop(engine, draw, questions.items, split, seed)
    rows = builder.build(shop, settings, *((attended, monitor) if id_ == "compression" else ()))
    dropped = Counter({str(why): n for why, n in shop.dropped.items()})
    recipe |= {"counts": shop.counts, "dropped": dict(dropped), "examples": len(rows)}
    rows = sorted(rows, key=_order)
    if rows:
        _write(folder, id_, rows, sorted(shop.examples, key=_order))
    say("auditing")
    write_text(folder / CARD, card(recipe, rows, dropped, _audited(folder, id_, rows, seed)))
    write_json(folder / RECIPE, recipe)
    if not rows:
        why = "; ".join(f"{reason}: {n}" for reason, n in dropped.most_common(3)) or "there was nothing to label"
        raise LmassayError(
            "nothing-built",
            f"no example of {id_} qualified ({why})",
            f"see {folder / CARD}, and give more questions or rollouts, or other thresholds by --option",
            exit_status=FAILED_PART_WAY,
        )
    return Built(folder, len(rows), dropped, recipe)


def _check_folder(folder: Path, recipe: dict[str, Any]) -> None:
    """A folder that holds a data set holds this one."""
    try:
        held = json.loads((folder / RECIPE).read_text())
    except FileNotFoundError:
        return
    except (OSError, ValueError) as error:
        raise LmassayError("bad-request", f"{folder / RECIPE} cannot be read: {error}", "name another --out") from error
    differing = first_difference({name: held.get(name) for name in recipe}, json.loads(json.dumps(recipe)))
    if differing is not None:
        name, old, new = differing
        raise LmassayError(
            "run-folder-mismatch", f"{folder} holds a data set with {name} = {old}, this one has {new}",
            "name another --out; --rollouts shares samples between data sets",
        )  # fmt: skip


def _order(row: Row) -> tuple[Any, ...]:
    """By nothing that could give a label away: names of split and question, then the example's own."""
    if "selector" in row:
        return row["selector"], row["question"], row["rollout"], row["prefix_length"], row["m"]
    return row["split"], row["question_id"], row["example_id"]


def _write(folder: Path, task: str, rows: list[Row], examples: list[Row]) -> None:
    import polars as pl

    if task == "compression":
        frame = pl.DataFrame(rows, infer_schema_length=None)
        frame = frame.with_columns(pl.col(name).cast(kind) for name, kind in {**SCHEMA, **OWN}.items())
        write_bytes(folder / CELLS, parquet_bytes(frame))
        # What the cells are of, for whoever chooses sentences next.
        rows = examples
    write_bytes(folder / DATA, parquet_bytes(pl.DataFrame(rows, infer_schema_length=None)))


def _audited(folder: Path, task: str, rows: list[Row], seed: int) -> Any:
    """The audit of the data, or why there is none."""
    from lmassay.cot.audit.run import audit_file

    if task == "compression":
        return "Selections are not labelled: there is nothing to audit."
    if not rows:
        return "There is nothing to audit."
    try:
        return audit_file(folder / DATA, task, draws=AUDIT_DRAWS, seed=seed)
    except LmassayError as error:
        return f"The data could not be audited: {error.what}."
