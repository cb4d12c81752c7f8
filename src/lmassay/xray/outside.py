"""Option scores made elsewhere, held against the same controls, nulls and verdicts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl

from lmassay.errors import LmassayError, nearest
from lmassay.storage.atomic import write_json
from lmassay.storage.fingerprint import combined, file_sha256
from lmassay.storage.runs import SCORES, claimed
from lmassay.xray.batteries import load_battery
from lmassay.xray.psi import SPAN
from lmassay.xray.run import DEPTHS, SUITE, scores_document
from lmassay.xray.scored import REAL, VARIANTS, ScoredBattery
from lmassay.xray.scores import compute_scores
from lmassay.xray.tables import OPTION_COLUMNS, scored_battery, write_tables

#: Rounding of a probability of one.
ABOVE_ZERO = 1e-6
NEEDED = ("task_id", "option", "depth", "logprob")
#: Asked for where no battery gives them.
DESCRIBED = ("family", "option_text", "answer")
#: Read as text whatever they look like: a CSV reader takes options such as 12 for numbers.
TEXTS = ("task_id", "family", "template", "set", "variant", "option_text", "depth")
FAULTS_SHOWN = 10


def score_file(
    path: Path, out: Path, *, battery: str | None, name: str, depths: str, seed: int, command: str = ""
) -> dict[str, Any]:
    """Score a table of log-probabilities and leave a run folder.

    One row per task, option and depth, with columns ``task_id``, ``option`` (index), ``depth`` (in the order of the
    first task's rows) and ``logprob`` (nats per token). Optional: ``neutral`` (the same after a neutral prompt; 0
    without), ``n_tokens`` (1 without), ``n_prompt_tokens``, ``variant`` (``real`` without; ``semantics_break``,
    ``prompt_swap``, ``paraphrase``), ``template``, ``set``. A battery gives families, texts and answers by task id;
    without one the table needs ``family``, ``option_text`` and ``answer`` (index).

    Raises
    ------
    LmassayError
        ``bad-option-scores`` with every fault found; ``bad-request``; the errors of a run folder.
    """
    if depths not in DEPTHS:
        raise LmassayError("bad-request", f"unknown depths {depths!r}", nearest(depths, DEPTHS))
    table = _read(path)
    missing = [c for c in NEEDED if c not in table.columns]
    if battery is None:
        missing += [c for c in DESCRIBED if c not in table.columns]
    if missing:
        raise _bad(path, [f"columns missing: {', '.join(missing)}"])
    if battery is not None:
        table = _described(table, battery, seed, path)
    scored, notices = _to_battery(table, path)
    if depths == "distinct" and len(scored.depths) < 3:
        raise _bad(path, ["--depths distinct drops the last but one depth, so it needs three or more"])
    with claimed(out) as folder:
        folder.bind(
            {
                "suite": SUITE,
                "model": {"name": name, "revision": None, "scores_sha256": file_sha256(path)},
                "battery": {"name": battery or path.stem, "version": "outside", "sha256": _battery_hash(scored)},
                "settings": {"protocol": "outside", "chat": None, "depths": depths, "span": SPAN, "seed": seed,
                             "phases": sorted(scored.variants)},
                "convention": {"dtype": None},
            },
            command=command,
            notices=notices,
            model={"name": name, "n_blocks": None, "n_parameters": None, "notes": []},
        )  # fmt: skip
        scores = compute_scores(scored, seed=seed, depths=depths)
        tables = write_tables(out, scored, scores)
        document = scores_document(scores, {}, folder.record)
        write_json(out / SCORES, document)
        folder.finish(tables, counts=document["counts"], skipped={})
    return document


def _battery_hash(scored: ScoredBattery) -> str:
    """Digest of what was asked, whoever answered: two methods' scores on one battery can be compared."""
    return combined(
        (f"{variant}/{t.task_id}", repr((t.family, t.template, t.set_id, t.options, t.answer)))
        for variant, tasks in scored.variants.items()
        for t in tasks
    )


def _read(path: Path) -> pl.DataFrame:
    readers = {".parquet": pl.read_parquet, ".csv": pl.read_csv, ".jsonl": pl.read_ndjson, ".ndjson": pl.read_ndjson}
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise _bad(path, [f"files are {', '.join(readers)}"])
    try:
        table: pl.DataFrame = reader(path)  # type: ignore[operator]
        return table.cast({c: pl.String for c in TEXTS if c in table.columns})
    except (OSError, pl.exceptions.PolarsError) as error:
        raise _bad(path, [" ".join(str(error).split())[:200]]) from error


def _bad(path: Path, faults: list[str]) -> LmassayError:
    more = f"; and {len(faults) - FAULTS_SHOWN} more" if len(faults) > FAULTS_SHOWN else ""
    return LmassayError(
        "bad-option-scores", f"{path.name}: {'; '.join(faults[:FAULTS_SHOWN])}{more}", "mend the table; nothing was run"
    )


def _described(table: pl.DataFrame, battery: str, seed: int, path: Path) -> pl.DataFrame:
    """Add families, texts and answers from a battery."""
    tasks = load_battery(battery, seed=seed).tasks
    known = pl.DataFrame(
        [(t.id, i, text, t.family, t.template, t.set_id, t.answer) for t in tasks for i, text in enumerate(t.options)],
        schema={"task_id": pl.String, "option": pl.Int64, "option_text": pl.String, "family": pl.String,
                "template": pl.String, "set": pl.String, "answer": pl.Int64},
        orient="row",
    )  # fmt: skip
    if not table["option"].dtype.is_integer():
        raise _bad(path, ["column option must hold indices, counted from 0"])
    strangers = table.join(known, on="task_id", how="anti")["task_id"].unique().to_list()
    if strangers:
        raise _bad(path, [f"task {t!r} is not in battery {battery}" for t in sorted(map(str, strangers))])
    own = table.drop([c for c in known.columns if c in table.columns and c not in ("task_id", "option")])
    return own.cast({"option": pl.Int64}).join(known, on=["task_id", "option"], how="left", maintain_order="left")


def _to_battery(table: pl.DataFrame, path: Path) -> tuple[ScoredBattery, list[str]]:
    notices = []
    defaults: dict[str, Any] = {"variant": REAL, "neutral": 0.0, "n_tokens": 1, "set": None, "template": None,
                                "n_prompt_tokens": None}  # fmt: skip
    if "neutral" not in table.columns:
        notices.append("no neutral log-probabilities were given: scores are not prior-normalised")
    if "n_tokens" not in table.columns:
        notices.append("no token counts were given: every option counts as equally long")
    table = table.with_columns([pl.lit(v).alias(c) for c, v in defaults.items() if c not in table.columns])
    table = table.with_columns(
        pl.col("template").fill_null(pl.col("task_id")), flags=pl.lit([], dtype=pl.List(pl.String))
    )
    faults = list(_faults(table))
    if faults:
        raise _bad(path, faults)
    order = table["depth"].unique(maintain_order=True).to_list()
    table = table.with_columns(
        depth_index=pl.col("depth").replace_strict({d: i for i, d in enumerate(order)}, return_dtype=pl.Int32),
        score=pl.col("logprob") - pl.col("neutral"),
        logprob=pl.col("logprob").cast(pl.Float64),
        neutral=pl.col("neutral").cast(pl.Float64),
    )
    labels = table.unique(["variant", "task_id"], maintain_order=True).select(
        "task_id", "variant", condition=pl.lit(REAL), option=pl.col("answer")
    )
    return scored_battery(table.select(OPTION_COLUMNS), labels, "outside", {}), notices


def _faults(table: pl.DataFrame) -> Iterator[str]:
    """Everything wrong with the rows, by task."""
    if not table.height:
        yield "the table is empty"
        return
    if not table["logprob"].dtype.is_numeric() or not table["neutral"].dtype.is_numeric():
        yield "logprob and neutral must be numbers"
        return
    for column in ("logprob", "neutral"):
        above = table.filter(pl.col(column) > ABOVE_ZERO)
        if above.height:
            yield (
                f"{column} is above zero in {above.height} rows (task {above['task_id'][0]!r}): a log-probability never"
                " is; were losses given?"
            )
            return
    if not table["option"].dtype.is_integer() or not table["answer"].dtype.is_integer():
        yield "option and answer must be indices, counted from 0"
        return
    if not table["n_tokens"].dtype.is_integer() or not (table["n_tokens"] > 0).all():
        yield "n_tokens must be whole numbers from 1"
        return
    lengths = table["n_prompt_tokens"].drop_nulls()
    if len(lengths) and not (lengths.dtype.is_integer() and (lengths >= 0).all()):
        yield "n_prompt_tokens must be whole numbers from 0"
        return
    # An option that the battery does not have has no description; it is named below.
    described = table.filter(pl.col("option_text").is_not_null())
    empty = [c for c in (*NEEDED, "variant", "n_tokens") if table[c].has_nulls()]
    empty += [c for c in ("family", "answer") if described[c].has_nulls()]
    if empty:
        yield f"empty cells in {', '.join(empty)}"
        return
    variants = table["variant"].unique().to_list()
    for unknown in sorted(set(variants) - set(VARIANTS)):
        yield f"unknown variant {unknown!r}: {nearest(unknown, VARIANTS)}"
    if REAL not in variants:
        yield "no row of variant real"
    n_depths = table["depth"].n_unique()
    if n_depths < 2:
        yield "at least two depths are needed, the last of them the model's own output"
    grouped = table.group_by("variant", "task_id", maintain_order=True).agg(
        rows=pl.len(),
        cells=pl.struct("option", "depth").n_unique(),
        options=pl.col("option").n_unique(),
        top=pl.col("option").max(),
        bottom=pl.col("option").min(),
        answer=pl.col("answer").first(),
        answers=pl.col("answer").n_unique(),
        unknown=pl.col("option_text").is_null().any(),
    )
    for row in grouped.iter_rows(named=True):
        what = f"task {row['task_id']!r} ({row['variant']})"
        if row["unknown"]:
            yield f"{what}: an option the battery does not have"
        elif row["cells"] != row["rows"]:
            yield f"{what}: {row['rows'] - row['cells']} rows stand twice"
        elif row["bottom"] != 0 or row["top"] != row["options"] - 1 or row["rows"] != row["options"] * n_depths:
            yield f"{what}: {row['rows']} rows, expected {row['options']} options at each of {n_depths} depths"
        elif row["options"] < 2:
            yield f"{what}: fewer than two options"
        elif row["answers"] != 1 or not 0 <= row["answer"] < row["options"]:
            yield f"{what}: the answer is not among the options"
