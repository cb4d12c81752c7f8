"""Replies as scores: the method that the evaluator sees, and the table of replies that a run keeps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lmassay.cot.monitors.asking import Asking, labels_only, method_id
from lmassay.cot.monitors.prompts import FRAME_VERSION, wording_sha256
from lmassay.cot.monitors.templates import DISTRIBUTION as DISTRIBUTION_KIND
from lmassay.cot.monitors.templates import SELECTION, Template
from lmassay.cot.predictions import DISTRIBUTION, LABEL, PROBABILITY
from lmassay.examples import VisibleExamples
from lmassay.methods.method import (
    BINARY,
    MODEL,
    REGRESSION,
    Examples,
    Floats,
    Groups,
    Labels,
    Validation,
    check_training,
)
from lmassay.storage.atomic import parquet_bytes, write_bytes
from lmassay.storage.runs import REPLIES

if TYPE_CHECKING:
    import polars as pl

    from lmassay.cot.task import TaskData
    from lmassay.storage.runs import RunFolder

#: What replies are in a task of selection, beside `lmassay.cot.predictions`' kinds.
SENTENCES = "sentences"
SCHEMA_NAMES = ("split", "example_id", "group", "sample", "value", "why", "truncated", "input_tokens", "output_tokens")


@dataclass(frozen=True, slots=True)
class Reply:
    """One reply to one item.

    Attributes
    ----------
    split, key : str, int
    sample : int
        From 1, of several replies to the item.
    value : float
        NaN where it says nothing.
    why : str
        Why it says nothing.
    sentences : tuple of int
        In tasks of selection.
    truncated : int
        Characters left out of the item.
    input_tokens, output_tokens : int
    """

    split: str
    key: int
    sample: int
    value: float
    why: str
    sentences: tuple[int, ...] = ()
    truncated: int = 0
    input_tokens: int = 0
    output_tokens: int = 0


class Monitor:
    """A language model that was asked; a method of the evaluator's, whose scores are its replies.

    Parameters
    ----------
    template : Template
    asking : Asking
    model : str
        As Inspect names it: ``provider/name``.
    wording : str or None
        Digest of the words it was told, where they are not those of today.
    """

    title = "a language model, asked"
    sees = MODEL
    abstains = "its replies say nothing"

    def __init__(
        self, template: Template, asking: Asking, model: str, *, wording: str | None = None, structured: Any = None
    ) -> None:
        self.kind = REGRESSION if template.kind == DISTRIBUTION_KIND else BINARY
        self.id = method_id(asking, template, model)
        self.answers = _answers(asking, template)
        self.choices: Mapping[str, Any] = {}
        #: Tokens, and money where the provider says it, of all replies.
        self.usage: dict[str, Any] = {}
        self._about = {
            "model": model,
            "asking": asking.to_dict(),
            "structured": structured,
            "template_version": template.version,
            "frame_version": FRAME_VERSION,
            "wording_sha256": wording or wording_sha256(template, asking),
        }
        self._replies: list[Reply] = []
        self._scores: dict[int, float] = {}

    @property
    def provenance(self) -> dict[str, Any]:
        """What a run's identity says of it."""
        return {"origin": "monitor", "llm": True, "answers": self.answers, "monitor": self._about}

    def settings(self) -> dict[str, Any]:
        """What decides its replies."""
        return self._about

    def hear(self, replies: Iterable[Reply]) -> None:
        """Take the replies; an item whose replies mostly say nothing has no score."""
        self._replies = sorted(replies, key=lambda r: (r.split, r.key, r.sample))
        told: dict[int, list[float]] = {}
        for reply in self._replies:
            told.setdefault(reply.key, []).append(reply.value)
        self._scores = {key: mean_told(values) for key, values in told.items()}

    def fit(self, X: Examples, y: Labels, groups: Groups, validation: Validation, seed: int) -> None:
        """Nothing is learnt here."""
        check_training(y, self.kind)

    def score(self, X: Examples) -> Floats:
        """See `Method.score`."""
        keys = X.keys.tolist() if isinstance(X, VisibleExamples) else [x.key for x in X]
        return np.array([self._scores[key] for key in keys], np.float64)

    def keep(self, folder: RunFolder, data: TaskData) -> Sequence[str]:
        """Write the table of replies and what they cost into the run folder."""
        write_bytes(folder.path / REPLIES, parquet_bytes(self.replies(data)))
        folder.update(usage=self.usage)
        return [REPLIES]

    def replies(self, data: TaskData) -> pl.DataFrame:
        """A row for each reply."""
        import polars as pl

        rows: list[tuple[Any, ...]] = []
        ids: Mapping[str, Mapping[int, tuple[str, int]]] = {
            name: {
                key: (str(example), group)
                for key, example, group in zip(
                    split.examples.keys.tolist(),
                    split.hidden["example_id"].to_list(),
                    split.groups.tolist(),
                    strict=True,
                )
            }
            for name, split in data.splits.items()
        }
        for r in self._replies:
            example, group = ids[r.split][r.key]
            value = None if np.isnan(r.value) else r.value
            rows.append((r.split, example, group, r.sample, value, r.why, r.truncated, r.input_tokens, r.output_tokens))
        kinds = [pl.String, pl.String, pl.Int64, pl.Int64, pl.Float64, pl.String, pl.Int64, pl.Int64, pl.Int64]
        return pl.DataFrame(rows, schema=dict(zip(SCHEMA_NAMES, kinds, strict=True)), orient="row")


def _answers(asking: Asking, template: Template) -> str:
    """What its replies are."""
    if template.kind == SELECTION:
        return SENTENCES
    if template.kind == DISTRIBUTION_KIND:
        return DISTRIBUTION
    return LABEL if labels_only(asking, template) else PROBABILITY


def mean_told(values: Sequence[float]) -> float:
    """The mean of the replies that say something; NaN unless they are more than half of them."""
    told = [v for v in values if not np.isnan(v)]
    return float(np.mean(told)) if 2 * len(told) > len(values) else float("nan")


def read_replies(folder: Path) -> pl.DataFrame:
    """The table of a run's replies."""
    import polars as pl

    return pl.read_parquet(folder / REPLIES)
