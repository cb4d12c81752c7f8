"""Option scores as tables: each score once, relabelling a table of labels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from lmassay.errors import LmassayError
from lmassay.storage.atomic import write_parquet
from lmassay.storage.runs import LABELS, OPTIONS
from lmassay.xray.relabel import MATCHED_TOKEN, RANDOM_LABEL, Labels
from lmassay.xray.scored import REAL, ScoredBattery, ScoredTask

if TYPE_CHECKING:
    from lmassay.xray.scores import XRayScores

OPTION_SCHEMA: dict[str, Any] = {
    "task_id": pl.String, "family": pl.String, "template": pl.String, "set": pl.String, "variant": pl.String,
    "option": pl.Int32, "option_text": pl.String, "depth": pl.String, "depth_index": pl.Int32,
    "logprob": pl.Float64, "neutral": pl.Float64, "score": pl.Float64, "n_tokens": pl.Int32,
    "n_prompt_tokens": pl.Int32, "flags": pl.List(pl.String),
}  # fmt: skip
LABEL_SCHEMA: dict[str, Any] = {
    "task_id": pl.String, "variant": pl.String, "condition": pl.String, "option": pl.Int32,
    "length_difference": pl.Int32,
}  # fmt: skip
OPTION_COLUMNS = tuple(OPTION_SCHEMA)
_TASKS_AT_ONCE = 256


def options_frame(scored: ScoredBattery) -> pl.DataFrame:
    """One row per variant, task, option and depth."""
    return pl.concat(list(_option_frames(scored)))


def _option_frames(scored: ScoredBattery) -> Iterator[pl.DataFrame]:
    """The table in pieces, so that a large battery's is never whole in memory."""
    for variant, tasks in scored.variants.items():
        for start in range(0, len(tasks), _TASKS_AT_ONCE):
            yield _option_rows(variant, tasks[start : start + _TASKS_AT_ONCE], scored.depths)


def _option_rows(variant: str, tasks: Sequence[ScoredTask], depths: Sequence[str]) -> pl.DataFrame:
    rows = [
        (t.task_id, t.family, t.template, t.set_id, variant, index, text, int(t.n_tokens[index]), t.n_prompt_tokens,
         sorted(t.flags))
        for t in tasks
        for index, text in enumerate(t.options)
    ]  # fmt: skip
    names = ("task_id", "family", "template", "set", "variant", "option", "option_text", "n_tokens",
             "n_prompt_tokens", "flags")  # fmt: skip
    frame = pl.DataFrame(rows, schema={name: OPTION_SCHEMA[name] for name in names}, orient="row")
    logprob = np.concatenate([task.logprob for task in tasks]).ravel()
    neutral = np.concatenate([task.neutral for task in tasks]).ravel()
    depth = pl.Series(np.tile(np.arange(len(depths), dtype=np.int32), frame.height))
    return (
        frame[np.repeat(np.arange(frame.height), len(depths))]
        .with_columns(
            depth=pl.Series(depths)[depth],
            depth_index=depth,
            logprob=pl.Series(logprob),
            neutral=pl.Series(neutral),
            score=pl.Series(logprob - neutral),
        )
        .select(OPTION_COLUMNS)
    )


def labels_frame(scored: ScoredBattery, scores: XRayScores) -> pl.DataFrame:
    """One row per task, variant and condition: which option plays the answer."""
    rows: list[tuple[str, str, str, int, int | None]] = []
    drawn = {m.task.task_id: m.labels for m in scores.decided.tasks}
    for variant, tasks in scored.variants.items():
        for task in tasks:
            rows.append((task.task_id, variant, REAL, task.answer, 0))
            if variant == REAL and (labels := drawn.get(task.task_id)) is not None:
                rows.append((task.task_id, variant, RANDOM_LABEL, labels.random_label, None))
                rows.append((task.task_id, variant, MATCHED_TOKEN, labels.matched_token, labels.length_difference))
    return pl.DataFrame(rows, schema=LABEL_SCHEMA, orient="row")


def write_tables(folder: Path, scored: ScoredBattery, scores: XRayScores) -> tuple[str, ...]:
    """Write ``options.parquet`` and ``labels.parquet``; returns their names."""
    write_parquet(folder / OPTIONS, _option_frames(scored), OPTION_SCHEMA)
    write_parquet(folder / LABELS, [labels_frame(scored, scores)], LABEL_SCHEMA)
    return OPTIONS, LABELS


def write_table(path: Path, frame: pl.DataFrame) -> None:
    """Write a phase's table."""
    write_parquet(path, [frame], frame.schema)


def read_tables(folder: Path, protocol: str, skipped: Mapping[str, str]) -> tuple[ScoredBattery, dict[str, Labels]]:
    """The run's scores and control labels.

    Raises
    ------
    LmassayError
        ``bad-run-folder`` when a table is missing, cut, or contradicts itself.
    """
    try:
        options = pl.read_parquet(folder / OPTIONS)
        labels = pl.read_parquet(folder / LABELS)
        if options.schema != OPTION_SCHEMA or labels.schema != LABEL_SCHEMA:
            raise _bad(f"{folder}: the tables do not have the columns they should")
        off = options.select((pl.col("score") - (pl.col("logprob") - pl.col("neutral"))).abs().max()).item()
        if off is not None and off > 1e-9:
            raise _bad(f"{folder}: scores differ from logprob - neutral")
        scored, drawn = scored_battery(options, labels, protocol, skipped), control_labels(labels)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise _bad(f"{folder}: {' '.join(str(error).split())[:160]}") from error
    for task in scored.variants[REAL]:
        mine = drawn.get(task.task_id)
        places = range(len(task.options))
        if mine is not None and not {mine.random_label, mine.matched_token} <= {i for i in places if i != task.answer}:
            raise _bad(f"{folder}: a control label of task {task.task_id} is none of its wrong options")
    return scored, drawn


def _bad(what: str) -> LmassayError:
    return LmassayError("bad-run-folder", what, "run its command again, in another folder")


def scored_battery(
    options: pl.DataFrame, labels: pl.DataFrame, protocol: str, skipped: Mapping[str, str]
) -> ScoredBattery:
    """Tables back to tasks, in the tables' order.

    Raises
    ------
    LmassayError
        ``bad-run-folder`` when a task's options or depths are not complete.
    """
    if REAL not in options["variant"]:
        raise _bad("no task was scored under its own prompt")
    depths = tuple(options.unique("depth_index").sort("depth_index")["depth"].to_list())
    answers = {
        (v, t): o for v, t, o in labels.filter(condition=REAL).select("variant", "task_id", "option").iter_rows()
    }
    n = len(depths)
    groups = options.select("variant", "task_id").unique(maintain_order=True).with_row_index("group")
    rows = options.join(groups, on=["variant", "task_id"], maintain_order="left").sort("group", "option", "depth_index")
    sizes = np.bincount(rows["group"].to_numpy(), minlength=groups.height)
    ends = np.cumsum(sizes)
    within = np.arange(rows.height) - np.repeat(ends - sizes, sizes)
    astray = (rows["option"].to_numpy() != within // n) | (rows["depth_index"].to_numpy() != within % n)
    incomplete = (sizes % n != 0) | (np.bincount(rows["group"].to_numpy(), astray, groups.height) > 0)
    logprob, neutral = (rows[name].to_numpy() for name in ("logprob", "neutral"))
    each = rows.gather_every(n)
    about = each.select("family", "template", "set", "flags", "n_prompt_tokens").rows()
    texts, n_tokens = each["option_text"].to_list(), each["n_tokens"].to_numpy().astype(np.int64)
    variants: dict[str, list[ScoredTask]] = {}
    for key, end, size, broken in zip(groups.select("variant", "task_id").rows(), ends, sizes, incomplete, strict=True):
        k = int(size) // n
        if broken or not 0 <= answers.get(key, -1) < k:
            raise _bad(f"task {key[1]} ({key[0]}) is not complete")
        first, last = int(end - size), int(end)
        family, template, set_id, flags, n_prompt_tokens = about[first // n]
        variants.setdefault(key[0], []).append(
            ScoredTask(
                task_id=key[1],
                family=family,
                template=template,
                set_id=set_id,
                variant=key[0],
                options=tuple(texts[first // n : last // n]),
                answer=answers[key],
                logprob=logprob[first:last].reshape(k, n),
                neutral=neutral[first:last].reshape(k, n),
                n_tokens=n_tokens[first // n : last // n],
                flags=frozenset(flags or ()),
                n_prompt_tokens=n_prompt_tokens,
            )
        )
    return ScoredBattery(depths, protocol, {name: tuple(tasks) for name, tasks in variants.items()}, dict(skipped))


def control_labels(labels: pl.DataFrame) -> dict[str, Labels]:
    """Task id -> labels drawn when the run was made."""
    drawn: dict[str, dict[str, Any]] = {}
    for row in labels.filter(variant=REAL).iter_rows(named=True):
        mine = drawn.setdefault(row["task_id"], {})
        mine[row["condition"]] = row["option"]
        if row["condition"] == MATCHED_TOKEN:
            mine["length_difference"] = row["length_difference"]
    whole: Sequence[str] = (REAL, RANDOM_LABEL, MATCHED_TOKEN)
    return {
        task: Labels(mine[REAL], mine[RANDOM_LABEL], mine[MATCHED_TOKEN], mine["length_difference"])
        for task, mine in drawn.items()
        if all(condition in mine for condition in whole)
    }
