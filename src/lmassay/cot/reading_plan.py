"""Which examples are read, in which shard each one stands, and what of it is kept: decided before any forward pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lmassay.cot.kept_tokens import STATUSES, Prepared, TokenRules, prepare
from lmassay.errors import LmassayError
from lmassay.storage.activations import KEPT

if TYPE_CHECKING:
    import polars as pl

    from lmassay.cot.scaffold import Scaffold
    from lmassay.cot.task import TaskData
    from lmassay.examples import VisibleExample
    from lmassay.models.language_model import LanguageModel

Progress = Callable[[int, int], None]
#: Texts tokenised at a time: what is held of all of them is a few numbers each.
PIECE = 64
#: Tokens read for one shard: about a minute of two cores and a small model, so that a kill costs little.
SHARD_TOKENS = 1 << 16


def reading_plan(
    data: TaskData,
    model: LanguageModel,
    scaffold: Scaffold,
    rules: TokenRules,
    *,
    shard_tokens: int = SHARD_TOKENS,
    progress: Progress | None = None,
) -> pl.DataFrame:
    """A row for each usable example of every split.

    ``key``, ``split``, ``status``; ``shard``, ``row``, ``start`` (where its states are; -1 where it has none);
    ``n_tokens`` kept, ``n_read`` by the model, ``n_spans``; ``n_shortened`` and ``n_truncated`` lost. Shards hold
    examples of like length, the longest first, and are the same however the work is shared out.

    Raises
    ------
    LmassayError
        ``prompt-too-long`` under the rule ``error``; ``bad-request`` when nothing is left to read.
    """
    import polars as pl

    total = sum(int(split.usable.sum()) for split in data.splits.values())
    columns: dict[str, list[Any]] = {name: [] for name in ("key", "split", "status")}
    numbers: list[tuple[int, ...]] = []
    for name, split in data.splits.items():
        for example, found in prepared(split.examples.take(split.usable), model, scaffold, rules):
            columns["key"].append(example.key)
            columns["split"].append(name)
            columns["status"].append(found.status)
            ok = found.status == KEPT
            numbers.append(
                (
                    len(found.kept) if ok else 0,
                    len(found.ids),
                    len(found.spans(example)) if ok else 0,
                    found.shortened,
                    found.truncated,
                )
            )
            if progress is not None and len(numbers) % PIECE == 0:
                progress(len(numbers), total)
    if progress is not None and total:
        progress(total, total)
    counted = np.array(numbers, dtype=np.int64).reshape(-1, 5)
    names = ("n_tokens", "n_read", "n_spans", "n_shortened", "n_truncated")
    frame = pl.DataFrame(columns | {n: counted[:, i] for i, n in enumerate(names)}, schema_overrides={"key": pl.Int64})
    _refuse(frame, data, model, rules)
    return _in_shards(frame, shard_tokens)


def prepared(
    examples: Sequence[VisibleExample], model: LanguageModel, scaffold: Scaffold, rules: TokenRules
) -> Iterator[tuple[VisibleExample, Prepared]]:
    """Examples as the reader gets them, tokenised in pieces."""
    for start in range(0, len(examples), PIECE):
        piece = list(examples[start : start + PIECE])
        for example, found in zip(piece, scaffold.tokenise(piece), strict=True):
            fixed = _fixed(found.ids, model)
            yield example, prepare(found, example, rules, fixed, model.context_length)


def _fixed(ids: NDArray[np.int32], model: LanguageModel) -> int:
    """Special tokens at the beginning of a text, which models lean on and truncation leaves alone."""
    prefix = model.tokens.prefix
    if prefix and tuple(ids[: len(prefix)].tolist()) == prefix:
        return len(prefix)
    bos = getattr(model.tokens.hf, "bos_token_id", None)
    return int(bool(len(ids)) and bos is not None and int(ids[0]) == bos)


def _refuse(frame: pl.DataFrame, data: TaskData, model: LanguageModel, rules: TokenRules) -> None:
    import polars as pl

    long = frame.filter(pl.col("status") == "too_long")
    if rules.over_length == "error" and long.height:
        worst = long.sort("n_read", descending=True).row(0, named=True)
        raise LmassayError(
            "prompt-too-long",
            f"{long.height} of {frame.height} texts of {data.task.id} are longer than the {model.context_length} "
            f"tokens of {model.name}: example {worst['key']} has {worst['n_read']}",
            "use --over-length skip or left-truncate (both are counted), or --max-cot-tokens, or another reader",
        )
    if not (frame["status"] == KEPT).any():
        counts = ", ".join(f"{n} {status}" for status, n in _by_status(frame).items()) or "there are no usable rows"
        raise LmassayError(
            "bad-request", f"{data.task.id}: no example has a token to keep ({counts})", "check --tokens and the data"
        )


def _in_shards(frame: pl.DataFrame, shard_tokens: int) -> pl.DataFrame:
    """Examples sorted by length and cut where their tokens pass the limit; those without states come last."""
    import polars as pl

    frame = frame.with_columns(_last=pl.col("status") != KEPT).sort(
        ["_last", "n_read", "key"], descending=[False, True, False]
    )
    here = ~frame["_last"].to_numpy()
    read = frame["n_read"].to_numpy()[here]
    _, shard = np.unique((np.cumsum(read) - read) // shard_tokens, return_inverse=True)
    first = np.r_[True, shard[1:] != shard[:-1]]
    order = np.arange(len(shard))
    row = order - np.maximum.accumulate(np.where(first, order, 0))
    kept = frame["n_tokens"].to_numpy()[here]
    before = np.cumsum(kept) - kept
    start = before - before[order - row]
    lacking = np.full(int((~here).sum()), -1)
    return frame.drop("_last").with_columns(
        pl.Series("shard", np.r_[shard, lacking], dtype=pl.Int32),
        pl.Series("row", np.r_[row, lacking], dtype=pl.Int32),
        pl.Series("start", np.r_[start, lacking], dtype=pl.Int64),
    )


def _by_status(frame: pl.DataFrame) -> dict[str, int]:
    found = dict(frame["status"].value_counts().rows())
    return {status: int(found[status]) for status in STATUSES if status in found}


def counts_of(plan: pl.DataFrame, data: TaskData) -> dict[str, Any]:
    """What became of every row of every split, and the tokens read, kept and lost."""
    import polars as pl

    splits: dict[str, dict[str, int]] = {}
    for name, split in data.splits.items():
        unusable = {status: n for status, n in split.counts.items() if status != KEPT}
        splits[name] = {**_by_status(plan.filter(split=name)), **unusable}
    kept = plan.filter(status=KEPT)
    tokens: dict[str, int] = {
        "read": int(kept["n_read"].sum()),
        "kept": int(kept["n_tokens"].sum()),
        "shortened": int(kept["n_shortened"].sum()),
        "shortened_examples": kept.filter(pl.col("n_shortened") > 0).height,
        "truncated": int(kept["n_truncated"].sum()),
        "truncated_examples": kept.filter(pl.col("n_truncated") > 0).height,
    }
    return {"splits": splits, "tokens": tokens, "n_shards": int(plan["shard"].max() or 0) + 1}  # type: ignore[arg-type]
