"""Who wins where, from a run's tables: arrays over tasks and depths, without an object for each of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from lmassay.errors import LmassayError
from lmassay.measures.intervals import SHARE, Resampling, mean_estimate
from lmassay.seeds import generator
from lmassay.storage.runs import LABELS, OPTIONS
from lmassay.xray.relabel import MATCHED_TOKEN, RANDOM_LABEL
from lmassay.xray.scored import PROMPT_SWAP, REAL, SEMANTICS_BREAK
from lmassay.xray.trajectories import WIN_LEAD

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lmassay.xray.scored import Floats, Ints

#: Conditions in the order they are shown, and what they are called.
CONDITIONS: Mapping[str, str] = {
    REAL: "right answer",
    RANDOM_LABEL: "random wrong option",
    MATCHED_TOKEN: "wrong option of equal length",
    SEMANTICS_BREAK: "broken prompt",
    PROMPT_SWAP: "another task's prompt",
}


@dataclass(frozen=True, slots=True)
class WinMap:
    """All decidable tasks of a run, in the table's order.

    Attributes
    ----------
    tasks : DataFrame
        ``task_id``, ``family``, ``template``, ``set``, ``n_prompt_tokens``, ``flags``.
    leads : dict of str to (n_tasks, n_depths) float64
        By condition: lead over the best other option of the option that plays the answer, nats; NaN where the
        condition was not measured.
    options : DataFrame
        A row per task and option: ``at`` (index into tasks), ``option``, ``option_text``, ``n_tokens``.
    scores : (n_rows of options, n_depths) float64
        Under the task's own prompt.
    labels : dict of str to (n_tasks,) int64
        The option that plays the answer, by condition that shares the task's prompt.
    n_left_out : int
        Tasks that cannot be decided, or whose scores are no numbers.
    """

    tasks: pl.DataFrame
    depths: tuple[str, ...]
    leads: dict[str, Floats]
    options: pl.DataFrame
    scores: Floats
    labels: dict[str, Ints]
    n_left_out: int

    def won(self, condition: str) -> NDArray[np.uint8]:
        """(n_tasks, n_depths) 0, 1, or 255 where the condition was not measured."""
        lead = self.leads[condition]
        return np.where(np.isnan(lead), 255, lead > WIN_LEAD).astype(np.uint8)


def read_wins(run: Path) -> WinMap:
    """Wins of every task under every condition the run measured.

    Raises
    ------
    LmassayError
        ``bad-run-folder`` where a table is missing, cut, or not complete.
    """
    try:
        table = pl.scan_parquet(run / OPTIONS)
        labels = pl.read_parquet(run / LABELS)
        about = (
            table.filter(pl.col("variant") == REAL, pl.col("depth_index") == 0, pl.col("option") == 0)
            .select("task_id", "family", "template", "set", "n_prompt_tokens", "flags")
            .collect()
        )
        depths = table.select("depth_index", "depth").unique().sort("depth_index").collect()["depth"].to_list()
        undecidable = about.select(
            pl.col("flags").list.eval(pl.element().str.starts_with("undecidable")).list.any().fill_null(False)
        ).to_series()
        tasks = about.filter(~undecidable)
        scored = {name: _scored(table, tasks, name, len(depths)) for name in (REAL, SEMANTICS_BREAK, PROMPT_SWAP)}
    except (OSError, pl.exceptions.PolarsError) as error:
        raise _bad(run, " ".join(str(error).split())[:160]) from error
    rows, scores = scored[REAL]
    finite = np.ones(tasks.height, np.bool_)
    np.logical_and.at(finite, rows["at"].to_numpy(), np.isfinite(scores).all(1))
    leads, answers = {}, {}
    for condition in CONDITIONS:
        variant = condition if condition in (SEMANTICS_BREAK, PROMPT_SWAP) else REAL
        shared = condition if variant == REAL else REAL
        played = tasks.select("task_id").join(
            labels.filter(variant=variant, condition=shared).select("task_id", "option"),
            on="task_id", how="left", maintain_order="left",
        )["option"]  # fmt: skip
        leads[condition] = _leads_of(*scored[variant], played, tasks.height)
        if variant == REAL:
            answers[condition] = played.fill_null(-1).to_numpy().astype(np.int64)
    keep = np.flatnonzero(finite)
    new_place = np.full(tasks.height, -1)
    new_place[keep] = np.arange(len(keep))
    place = new_place[rows["at"].to_numpy()]
    return WinMap(
        tasks=tasks[keep],
        depths=tuple(depths),
        leads={name: lead[keep] for name, lead in leads.items() if not np.isnan(lead[keep]).all()},
        options=rows.with_columns(at=pl.Series(place)).filter(pl.Series(place >= 0)),
        scores=scores[place >= 0],
        labels={name: a[keep] for name, a in answers.items()},
        n_left_out=about.height - len(keep),
    )


def _bad(run: Path, why: str) -> LmassayError:
    return LmassayError("bad-run-folder", f"{run}: {why}", "run its command again, in another folder")


def _scored(table: pl.LazyFrame, tasks: pl.DataFrame, variant: str, n_depths: int) -> tuple[pl.DataFrame, Floats]:
    """The options of a variant, task by task, and their (n_options of all tasks, n_depths) scores."""
    places = tasks.select("task_id").with_row_index("at").with_columns(pl.col("at").cast(pl.Int64))
    rows = (
        table.filter(pl.col("variant") == variant)
        .select("task_id", "option", "depth_index", "score", "option_text", "n_tokens")
        .join(places.lazy(), on="task_id")
        .sort("at", "option", "depth_index")
        .collect()
    )
    if rows.height % n_depths or (
        rows.height and (rows["depth_index"].to_numpy().reshape(-1, n_depths) != np.arange(n_depths)).any()
    ):
        raise pl.exceptions.ShapeError(f"{OPTIONS}: a task of variant {variant} is not complete")
    each = rows.gather_every(n_depths).select("at", "option", "option_text", "n_tokens")
    return each, rows["score"].to_numpy().reshape(-1, n_depths)


def _leads_of(options: pl.DataFrame, scores: Floats, played: pl.Series, n_tasks: int) -> Floats:
    """(n_tasks, n_depths) lead of the option played over the best other; NaN where there is none.

    As `lmassay.xray.trajectories.leads` has it, for tasks of any numbers of options at once.
    """
    found = np.full((n_tasks, scores.shape[1]), np.nan)
    if not options.height:
        return found
    at = options["at"].to_numpy()
    starts = np.flatnonzero(np.r_[True, at[1:] != at[:-1]])
    group = np.repeat(np.arange(len(starts)), np.diff(np.r_[starts, len(at)]))
    best = np.maximum.reduceat(scores, starts, axis=0)
    is_best = scores == best[group]
    second = np.maximum.reduceat(np.where(is_best, -np.inf, scores), starts, axis=0)
    second = np.where(np.add.reduceat(is_best, starts, axis=0) > 1, best, second)
    with np.errstate(invalid="ignore"):
        lead = np.where(is_best, best[group] - second[group], scores - best[group])
    wanted = options["option"].to_numpy() == played.fill_null(-1).to_numpy()[at]
    # A score that is no number leaves its task undefined at every depth, as the run's own figures do.
    broken = np.zeros(n_tasks, np.bool_)
    np.logical_or.at(broken, at, ~np.isfinite(scores).all(1))
    found[at[wanted]] = lead[wanted]
    found[broken] = np.nan
    return found


def by_depth(wins: WinMap, seed: int) -> pl.DataFrame:
    """A row per condition and depth: share of tasks won and mean lead, each with a 95 % interval over templates."""
    rows: list[dict[str, Any]] = []
    for condition in wins.leads:
        known = np.flatnonzero(~np.isnan(wins.leads[condition]).any(1))
        mine = wins.tasks[known]
        sets = mine["set"].to_list()
        resampling = Resampling(
            mine["template"].to_list(),
            generator(seed, f"report {condition}", "intervals by depth"),
            # A task that stands in no set is a set of its own.
            sets=[s or task for s, task in zip(sets, mine["task_id"].to_list(), strict=True)] if any(sets) else None,
        )
        for index, depth in enumerate(wins.depths):
            lead = wins.leads[condition][known, index]
            share = mean_estimate((lead > WIN_LEAD).astype(np.float64), resampling, title="share won", within=SHARE)
            mean = mean_estimate(lead, resampling, title="mean lead, nats")
            rows.append({
                "condition": CONDITIONS[condition], "depth": depth, "depth_index": index,
                "won": share.value, "won_low": share.low, "won_high": share.high,
                "lead": mean.value, "lead_low": mean.low, "lead_high": mean.high, "n": share.n,
                "n_clusters": share.n_clusters, "status": share.status,
            })  # fmt: skip
    return pl.DataFrame(rows, infer_schema_length=None)
