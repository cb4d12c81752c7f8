"""Task 9 asked of a language model: the sentences it named for each prefix, and what keeping only those costs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lmassay.cot.build.kept_costs import Choice, Cost, kept_costs, measuring
from lmassay.cot.build.prompts import Question
from lmassay.cot.build.sentences import sentences
from lmassay.cot.compression import DELETION, KEPT, LAST_M, SCHEMA, WHOLE
from lmassay.cot.compression_scores import CONTROLS, MEASURES, compression_report
from lmassay.cot.evaluate import SCORES_VERSION, SUITE, data_counts
from lmassay.cot.monitors.spread import replies_section
from lmassay.cot.monitors.told import read_replies
from lmassay.cot.task import TaskData
from lmassay.errors import LmassayError
from lmassay.evidence import survives_its_controls
from lmassay.measures.intervals import SHARE, Estimate, Resampling, mean_estimate, undefined
from lmassay.methods.method import method_hash
from lmassay.seeds import generator
from lmassay.storage.atomic import parquet_bytes, write_bytes, write_json
from lmassay.storage.runs import COMPRESSION, REPLIES, SCORES, check_tables, claimed, read_scores

if TYPE_CHECKING:
    import polars as pl

    from lmassay.cot.monitors.told import Monitor, Reply
    from lmassay.models.sampling import Engine

#: Every prefix is scored: nothing is learnt, so there is nothing to keep apart.
ALL = "all"
UNPARSED = "share of prefixes for which the reply names no M sentences; they count as keeping none"
NOT_MEASURED = "nobody measured what these sentences cost"
COLUMNS = (*SCHEMA, "rollout")


@dataclass(frozen=True)
class Selected:
    """What came of asking.

    Attributes
    ----------
    cells : polars.DataFrame
        As in ``compression.parquet``: a row for each prefix of the whole, of keeping none, of the last M, and of the
        sentences that were named; ``indices`` is null where the reply named none, and the cost is then that of keeping
        none.
    document : dict
        What ``scores.json`` holds.
    """

    cells: pl.DataFrame
    document: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Prefix:
    """A row of the data.

    Attributes
    ----------
    own : tuple of str
        Its sentences; the last `KEPT` are always kept.
    following : str or None
        The sentence after it, where the data has it (column ``next_sentence``).
    """

    key: int
    question: Question
    rollout: int
    own: tuple[str, ...]
    following: str | None

    @property
    def region(self) -> int:
        """Sentences to choose among."""
        return len(self.own) - KEPT


#: What choices of a prefix's sentences cost; one that nobody knows is left out.
Costs = Callable[[Prefix, Sequence[Choice]], Mapping[Choice, Cost]]


def prefixes_of(data: TaskData) -> Iterator[Prefix]:
    """Every prefix of the data, in all its splits."""
    for split in data.splits.values():
        questions = split.hidden["question_id"].cast(str).to_list()
        rollouts, following = (_column(split.hidden, name) for name in ("rollout", "next_sentence"))
        for row, example in enumerate(split.examples):
            options = tuple(segment.text for segment in example.of("option"))
            yield Prefix(
                example.key,
                Question(questions[row], example.text("prompt") or "", options),
                int(rollouts[row] or 0),
                tuple(sentences(example.text("cot") or "")),
                following[row],
            )


def _column(frame: pl.DataFrame, name: str) -> list[Any]:
    return frame[name].to_list() if name in frame.columns else [None] * frame.height


def known_costs(cells: pl.DataFrame) -> Costs:
    """What cells of the data (`lmassay.cot.own_cells.read_cells`) say of the same sentences, whoever chose them."""
    found: dict[tuple[str, int, int], dict[Choice, Cost]] = {}
    for question, rollout, length, m, indices, answer, token in cells.select(
        "question", "rollout", "prefix_length", "m", "indices", "answer_kl", "token_kl"
    ).iter_rows():
        choice = tuple(sorted(indices)) if indices is not None else tuple(range(m))
        found.setdefault((question, rollout, length), {})[choice] = Cost(answer, token)

    def of(prefix: Prefix, choices: Sequence[Choice]) -> Mapping[Choice, Cost]:
        there = found.get((prefix.question.id, prefix.rollout, len(prefix.own)), {})
        return {choice: there[choice] for choice in choices if choice in there}

    return of


def measured_costs(engine: Engine) -> Costs:
    """Costs measured by the subject itself."""
    shop = measuring(engine)

    def of(prefix: Prefix, choices: Sequence[Choice]) -> Mapping[Choice, Cost]:
        return kept_costs(shop, prefix.question, prefix.own, prefix.following, choices)

    return of


def run_selection(
    data: TaskData,
    monitor: Monitor,
    replies: Callable[[], list[Reply]],
    costs: Costs,
    m: int,
    *,
    about: Mapping[str, Any],
    seed: int = 0,
    out: Path | None = None,
    command: str = "",
) -> Selected:
    """Ask, look up or measure what the named sentences cost, and hold that against the controls.

    Parameters
    ----------
    replies : callable
        Asks; called once the run folder is claimed and its identity fits.
    about : mapping
        What else decides a number: where costs come from.
    """
    identity = identity_of(data, monitor, about, seed)
    with nullcontext() if out is None else claimed(out) as folder:
        if folder is not None:
            folder.bind(identity, command=command, notices=list(data.notes), choices={}, counts=data_counts(data))
            if folder.done:
                return Selected(_read(folder.path), read_scores(folder.path))
        try:
            told = {reply.key: reply for reply in replies()}
            cells = cells_of(list(prefixes_of(data)), told, costs, m, str(monitor.id))
            table = monitor.replies(data)
            document = document_of(cells, table, identity, seed, data.notes)
            if folder is not None:
                write_bytes(folder.path / COMPRESSION, parquet_bytes(cells))
                tables = [COMPRESSION, *monitor.keep(folder, data)]
                write_json(folder.path / SCORES, document)
                folder.finish(tables)
        except (KeyboardInterrupt, LmassayError) as error:
            if folder is not None:
                folder.update(status="failed" if isinstance(error, LmassayError) else "interrupted")
            raise
        return Selected(cells, document)


def identity_of(data: TaskData, monitor: Monitor, about: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """Everything that decides a number of the run."""
    cap = {} if data.test_cap is None else {"test_cap": data.test_cap}
    return {
        "suite": SUITE,
        "task": {
            "id": data.task.id, "kind": data.task.kind, "layout": data.layout, "regime": data.regime,
            "validation": data.validation, "splits": list(data.splits), "ood_splits": [], "sha256": data.fingerprint,
        },
        "method": {
            "id": str(monitor.id), "sha256": method_hash(monitor), **monitor.provenance, "options": dict(about),
        },
        "controls": [],
        "settings": {"seed": seed, **cap},
    }  # fmt: skip


def cells_of(
    prefixes: Sequence[Prefix], told: Mapping[int, Reply], costs: Costs, m: int, selector: str
) -> pl.DataFrame:
    """The run's table; a prefix with fewer than `m` sentences to choose among has no row."""
    import polars as pl

    rows = []
    for prefix in prefixes:
        if prefix.region < m:
            continue
        named = tuple(told[prefix.key].sentences) if prefix.key in told else ()
        last = tuple(range(prefix.region - m, prefix.region))
        cost = costs(prefix, [(), last, *([named] if named else [])])
        # A reply that names nothing keeps nothing, which is what it counts as.
        for name, kept, choice in (
            (DELETION, 0, ()), (LAST_M, m, last), (selector, m, named),
        ):  # fmt: skip
            of = cost.get(choice)
            rows.append(
                {
                    "question": prefix.question.id, "prefix_length": len(prefix.own), "n_region": prefix.region,
                    "m": kept, "selector": name, "indices": list(choice) if choice else None,
                    "answer_kl": None if of is None else of.answer_kl,
                    "token_kl": None if of is None else of.token_kl, "floored_mass": 0.0, "rollout": prefix.rollout,
                }
            )  # fmt: skip
        whole = {"selector": WHOLE, "m": prefix.region, "indices": None, "answer_kl": 0.0}
        rows.append({**rows[-1], **whole, "token_kl": 0.0 if rows[-1]["token_kl"] is not None else None})
    if not rows:
        raise LmassayError(
            "bad-request", f"no prefix has {m} sentences to choose among", "give a smaller number: --option m=3"
        )
    frame = pl.DataFrame(rows, schema={**SCHEMA, "rollout": pl.Int64})
    return frame.sort("selector", "question", "rollout", "prefix_length")


def document_of(
    cells: pl.DataFrame, replies: pl.DataFrame, identity: dict[str, Any], seed: int, notices: Sequence[str]
) -> dict[str, Any]:
    """``scores.json`` from the run's tables."""
    import polars as pl

    selector = identity["method"]["id"]
    report = compression_report(cells, seed=seed)
    mine = (pl.col("selector") != selector) | pl.col("indices").is_not_null()
    parsed = compression_report(cells.filter(mine), seed=seed)
    scores = _estimates(report.summary, selector)
    scores |= {f"{name}_parsed": e for name, e in _estimates(parsed.summary, selector).items()}
    asked = cells.filter(selector=selector)
    resampling = Resampling(asked["question"].to_list(), generator(seed, "unparsed", "cot compression"))
    scores["unparsed"] = mean_estimate(asked["indices"].is_null().to_numpy(), resampling, title=UNPARSED, within=SHARE)
    evidence = [row for row in report.evidence if row.signal.partition(".")[2] == selector]
    headline = [row for row in evidence if row.signal.partition(".")[0] == "answer_kl"]
    untold, unknown = (
        asked.filter(what).height
        for what in (pl.col("indices").is_null(), pl.col("indices").is_not_null() & pl.col("answer_kl").is_null())
    )
    few = replies.height - asked.height
    statuses = {"ok": asked.height - untold - unknown, "unparsed": untold, "not measured": unknown, "too short": few}
    return {
        "schema_version": SCORES_VERSION,
        "suite": SUITE,
        "identity": identity,
        "survives_its_controls": survives_its_controls(headline),
        "evidence": [row.to_dict() for row in evidence],
        "scores": {f"{ALL}.{name}": e.to_dict() for name, e in scores.items()},
        "controls": {
            name: {f"{ALL}.{figure}": e.to_dict() for figure, e in _estimates(report.summary, name).items()}
            for name in CONTROLS
        },
        "thresholds": {},
        "flags": {},
        "counts": {
            ALL: {
                "n_total": replies.height, "n_scored": statuses["ok"], "n_undecided": replies.height - statuses["ok"],
                "n_error": 0, "n_groups": asked["question"].n_unique(),
                "statuses": {name: n for name, n in statuses.items() if n},
            }
        },
        "redrawn": {},
        "notices": [*notices, *report.notices],
        "monitor": replies_section(replies, seed),
    }  # fmt: skip


def _estimates(summary: pl.DataFrame, selector: str) -> dict[str, Estimate]:
    rows = {r["measure"]: r for r in summary.filter(by="all", selector=selector).to_dicts()}
    found = {}
    for name, title in MEASURES.items():
        if (row := rows.get(name)) is not None and np.isfinite(row["mean"]):
            found[name] = Estimate(
                row["mean"], row["low"], row["high"], row["n"], title, row["n_questions"], row["status"]
            )
        elif name != "gain_per_sentence":
            found[name] = undefined(title, NOT_MEASURED)
    return found


def _read(path: Path) -> pl.DataFrame:
    import polars as pl

    return pl.read_parquet(path / COMPRESSION)


def rescored_selection(path: Path, record: dict[str, Any]) -> dict[str, Any]:
    """All scores again, from the run's tables.

    Raises
    ------
    LmassayError
        ``bad-run-folder`` when a table was altered.
    """
    check_tables(path, record)
    assert REPLIES in record["tables"]
    seed = record["identity"]["settings"]["seed"]
    return document_of(_read(path), read_replies(path), record["identity"], seed, record.get("notices", []))
