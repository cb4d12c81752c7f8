"""Extractions in a terminal, and an example's tokens as a reader gets them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from rich.text import Text

from lmassay.cot.kept_tokens import STATUSES
from lmassay.reports.style import clean, console, table

if TYPE_CHECKING:
    from lmassay.cot.activations import Result
    from lmassay.cot.kept_tokens import Prepared
    from lmassay.examples import VisibleExample
    from lmassay.models.tokens import TokenizerView


def print_extraction(result: Result) -> None:
    """What was read, kept, skipped and lost; and how fast."""
    out = console()
    about, counts = result.record["about"], result.record["counts"]
    splits, tokens = counts["splits"], counts["tokens"]
    statuses = [*STATUSES, *sorted({s for split in splits.values() for s in split} - set(STATUSES))]
    statuses = [s for s in statuses if any(s in split for split in splits.values())]
    rows = [(name, *(split.get(s, 0) for s in statuses)) for name, split in splits.items()]
    out.print(table(f"Activations of {about['task']} by {about['model']}", ("split", *statuses), rows))
    kept = f"{tokens['read']:,} tokens read, {tokens['kept']:,} kept"
    out.print(clean(f"{kept}; blocks {_listed(about['blocks'])}, every token of {_listed(about['token_blocks'])}"))
    for name, why in (("shortened", "--max-cot-tokens"), ("truncated", "the context's length")):
        if tokens[f"{name}_examples"]:
            out.print(f"{tokens[f'{name}_examples']:,} examples lost {tokens[name]:,} tokens to {why}")
    for notice in [*result.record.get("notices", []), *about["notes"]]:
        out.print(clean(f"note: {notice}"))
    if result.resumed:
        out.print(f"{result.resumed} of {result.resumed + result.made} shards were already there")
    if result.made and result.record.get("timings"):
        took = result.record["timings"][-1]
        out.print(
            f"{took['tokens']:,} tokens in {took['seconds']:,} s: {took['tokens_per_s']:,} tokens/s, "
            f"{1e6 / max(took['tokens_per_s'], 1e-9) / 60:,.1f} minutes per million tokens"
        )
    if not result.finished:
        out.print("a share of the shards; put the shares together with `lmassay cot merge-activations`")
    out.print(clean(f"folder: {result.path}"))


def tokens_json(example: VisibleExample, found: Prepared, tokens: TokenizerView, context: int | None) -> dict[str, Any]:
    """The same tokens for a program: ids, the kind of segment of each (null: scaffold), whether its state is kept."""
    kept = np.isin(np.arange(len(found.ids)), found.kept)
    kinds = [example.segments[n].kind if n >= 0 else None for n in found.segment.tolist()]
    return {
        "status": found.status,
        "context_length": context,
        "shortened": found.shortened,
        "truncated": found.truncated,
        "tokens": [
            {"id": i, "text": _text(tokens, [i]), "segment": kind, "kept": k}
            for i, kind, k in zip(found.ids.tolist(), kinds, kept.tolist(), strict=True)
        ],
    }


def print_tokens(example: VisibleExample, found: Prepared, tokens: TokenizerView, *, full: bool) -> None:
    """A line for each run of tokens of one segment or of the scaffold, with how many there are and are kept."""
    out = console()
    kept = np.isin(np.arange(len(found.ids)), found.kept)
    out.print(
        f"{len(found.ids):,} tokens, {len(found.kept):,} kept, {found.shortened + found.truncated:,} lost"
        + ("" if found.status == STATUSES[0] else f"; {found.status}: no state is kept")
    )
    owner = found.segment
    first = np.flatnonzero(np.r_[True, owner[1:] != owner[:-1]]) if len(owner) else np.zeros(0, np.int64)
    for start, stop in zip(first.tolist(), [*first[1:].tolist(), len(owner)], strict=True):
        segment = example.segments[int(owner[start])] if owner[start] >= 0 else None
        name = "scaffold" if segment is None else segment.kind
        label = f" {segment.label}" if segment is not None and segment.label is not None else ""
        line = Text(f"[{name}", style="dim" if segment is None else "bold").append(clean(label)).append("] ")
        line.append(f"{start}–{stop - 1}: {int(kept[start:stop].sum())} of {stop - start} kept  ")
        pieces = [_text(tokens, [i]) for i in found.ids[start:stop].tolist()]
        if not full and len(pieces) > 24:
            pieces = [*pieces[:12], f"… {len(pieces) - 24} more …", *pieces[-12:]]
        line.append(clean("│".join(pieces)))
        out.print(line, soft_wrap=True)


def _text(tokens: TokenizerView, ids: list[int]) -> str:
    text: str = tokens.hf.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)
    return text


def _listed(blocks: list[int]) -> str:
    return ", ".join(map(str, blocks)) or "none"
