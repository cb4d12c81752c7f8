"""The authors' published scores, read from a file of one's own: they are no part of this package."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from lmassay.cot.tasks import tasks
from lmassay.errors import LmassayError

COLUMNS = ("task", "method", "metric", "id", "ood")
METRICS = ("gmean2", "auroc", "r2")
#: Tasks whose published training and test data is that of the layout post only.
POST_ONLY = (1, 2)
#: The published data of a task may be another than ours, which nothing published can settle.
UNSETTLED = {
    4: "user_preference: which out-of-distribution set the published figures used is unknown",
    8: "answer_entropy: the published figures are a median over four test sets, of which three are published",
}
_LLM = re.compile(r"\bLLMs?\b")
_BINARY = re.compile(r"^(?P<shots>.*LLMs) \((?P<reply>binary|conf)\)$")


@dataclass(frozen=True, slots=True)
class PublishedCell:
    """One published figure.

    Attributes
    ----------
    method : str
        Of an LLM that gave both, the variant with confidence holds the AUROC: the other has none.
    llm : bool
    task : str
        Our id.
    number : int
    figure : str
        Our name: ``g_mean2_mc`` in tasks 4 and 5, as the published captions say.
    part : {"id", "ood"}
    value : float
    """

    method: str
    llm: bool
    task: str
    number: int
    figure: str
    part: str
    value: float


def read_published(path: Path) -> list[PublishedCell]:
    """The cells of ``results_summary.csv`` of the published repository.

    Raises
    ------
    LmassayError
        ``bad-request`` naming the line that does not fit.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is no UTF-8"
        raise _bad(path, f"cannot be read: {why}") from error
    rows = list(csv.DictReader(text.splitlines()))
    if not rows or not set(COLUMNS) <= set(rows[0]):
        raise _bad(path, f"needs rows with the columns {', '.join(COLUMNS)}")
    known = {task.number: task for task in tasks() if task.number}
    confident = {m["shots"] for row in rows if (m := _BINARY.match(str(row["method"]))) and m["reply"] == "conf"}
    found: list[PublishedCell] = []
    for line, row in enumerate(rows, start=2):
        number = re.match(r"(\d+)_", str(row["task"]))
        task = known.get(int(number[1])) if number else None
        if task is None or row["metric"] not in METRICS:
            raise _bad(path, f"line {line}: no task and metric of ours in {row['task']!r}, {row['metric']!r}")
        figure = {"auroc": "auroc", "r2": "r2"}.get(row["metric"]) or (
            "g_mean2_mc" if task.kind == "interventional" else "g_mean2"
        )
        method = f"{row['method']} (conf)" if figure == "auroc" and row["method"] in confident else row["method"]
        found += [
            PublishedCell(
                method, bool(_LLM.search(method)), task.id, task.number, figure, part, _number(path, line, row[part])
            )
            for part in ("id", "ood")
            if row[part] not in ("", None)
        ]
    _check_once(path, found)
    return found


def _number(path: Path, line: int, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise _bad(path, f"line {line}: {text!r} is no number")
    return value


def _check_once(path: Path, cells: Iterable[PublishedCell]) -> None:
    seen = set()
    for cell in cells:
        key = (cell.method, cell.task, cell.figure, cell.part)
        if key in seen:
            raise _bad(path, f"gives {cell.method}, {cell.task}, {cell.figure} twice")
        seen.add(key)


def _bad(path: Path, what: str) -> LmassayError:
    return LmassayError("bad-request", f"{path.name} {what}", "give results_summary.csv of the published repository")
