"""What the audit looks at: all splits of a data set as one table, and the text of every question."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from lmassay.examples import texts

if TYPE_CHECKING:
    from collections.abc import Mapping

    import polars as pl

    from lmassay.cot.task import SplitData, TaskData
    from lmassay.examples import VisibleExamples

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

#: Columns that are the label, or were made from it by us.
LABEL_SIDE = ("example_id", "question_id", "label", "y", "status", "p1", "p0", "p_estimated")
TRAIN = "train"
#: How a question is known where its text is not at hand.
NO_TEXT = ""


@dataclass(frozen=True, slots=True)
class Audited:
    """A data set for the audit; row i of every (n,) array is the same example.

    Attributes
    ----------
    name : str
    splits : tuple of str
        ``train`` first where there is one.
    split : (n,) int64
        Place in `splits`.
    y : (n,) float64
        1, 0, or NaN without a label. Of a regression: whether the target is above the training rows' median.
    groups : (n,) int64
    examples : tuple of VisibleExamples
        Of each split, rows in the order of the table.
    hidden : polars.DataFrame
        n rows of everything that is not shown.
    label_words : tuple of str
        What the two classes are called: negative, positive.
    target : str
        What `y` says.
    questions : mapping of split to mapping of question id to text
    others : mapping of task id to set of str
        Folded question texts of other tasks at hand.
    notes : tuple of str
    fingerprint : str
    """

    name: str
    splits: tuple[str, ...]
    split: Ints
    y: Floats
    groups: Ints
    examples: tuple[VisibleExamples, ...]
    hidden: pl.DataFrame = field(repr=False)
    label_words: tuple[str, str]
    target: str
    questions: Mapping[str, Mapping[str, str]] = field(repr=False)
    others: Mapping[str, frozenset[str]] = field(default_factory=dict, repr=False)
    notes: tuple[str, ...] = ()
    fingerprint: str = ""

    def __len__(self) -> int:
        return len(self.y)

    def rows(self, split: str) -> Ints:
        """Rows of a split."""
        return np.flatnonzero(self.split == self.splits.index(split))

    @property
    def kinds(self) -> tuple[str, ...]:
        """Kinds of segment that are shown."""
        return tuple(dict.fromkeys(k for e in self.examples for k in e.kinds))

    def texts(self, *kinds: str) -> list[str]:
        """(n,) the joined text of these kinds."""
        return [t for e in self.examples for t in texts(e, *kinds)]

    @property
    def evaluation(self) -> tuple[str, ...]:
        """Splits that are not trained on; none where nothing is."""
        return tuple(s for s in self.splits if s != TRAIN) if TRAIN in self.splits else ()


def is_ood(split: str) -> bool:
    """Whether a split is meant to be of another kind than the training rows."""
    return split.startswith("ood")


def fold(text: str) -> str:
    """Letter case and white space made the same."""
    return " ".join(text.split()).casefold()


def audited(data: TaskData) -> Audited:
    """A loaded task, with question texts of the store where the task does not show them."""
    import polars as pl

    from lmassay.cot.audit.questions import other_questions, question_texts

    names = tuple(sorted(data.splits, key=lambda s: s != TRAIN))
    parts = [data.splits[s] for s in names]
    hidden = pl.concat([p.hidden for p in parts], how="diagonal_relaxed")
    y, target = _labels(data, [_as_labelled(p) for p in parts], names)
    words = (str(data.task.negative), str(data.task.positive)) if data.task.positive is not None else ("low", "high")
    return Audited(
        name=data.task.id,
        splits=names,
        split=np.repeat(np.arange(len(parts)), [len(p) for p in parts]),
        y=y,
        groups=np.concatenate([p.groups for p in parts]),
        examples=tuple(p.examples for p in parts),
        hidden=hidden,
        label_words=words,
        target=target,
        questions=question_texts(data),
        others=other_questions(data),
        notes=data.notes,
        fingerprint=data.fingerprint,
    )


def _as_labelled(split: SplitData) -> Floats:
    """Labels of all rows, whether they can be used or not: they are what is published."""
    return split.hidden["y"].cast(float).fill_null(np.nan).to_numpy().astype(np.float64)


def _labels(data: TaskData, parts: list[Floats], names: tuple[str, ...]) -> tuple[Floats, str]:
    y = np.concatenate(parts) if parts else np.zeros(0)
    if data.task.kind == "selection":
        return np.full(len(y), np.nan), "no label"
    if data.task.kind != "regression":
        return y, f"{data.task.positive} against {data.task.negative}"
    return above_median(y, parts[0] if names[0] == TRAIN else y)


def above_median(y: Floats, reference: Floats) -> tuple[Floats, str]:
    """A regression's target as two classes: above the reference rows' median, or not."""
    median = float(np.nanmedian(reference)) if (~np.isnan(reference)).any() else 0.0
    return np.where(np.isnan(y), np.nan, (y > median).astype(np.float64)), f"the target is above {median:.3g}"
