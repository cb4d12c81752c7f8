"""What a task of the cot suite is, and what loading its data gives."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import polars as pl

    from lmassay.cot.release import Release
    from lmassay.examples import VisibleExamples

Kind = Literal["binary", "interventional", "regression", "selection"]
Layout = Literal["head", "post"]
Regime = Literal["id", "ood"]

#: The layout of data of one's own.
OWN = "own"
LAYOUTS: tuple[Layout, ...] = ("head", "post")
REGIMES: tuple[Regime, ...] = ("id", "ood")

#: What the status of a row may be; all but ``ok`` have y = NaN, and are counted, neither fitted nor scored.
OK = "ok"
STATUSES: dict[str, str] = {
    OK: "usable",
    "empty_cot": "the chain of thought is empty",
    "broken_rollout": "the chain of thought is a single word",
    "unlabelled": "the row has no label",
    "no_prompt": "the record's prompt is not among the prompts",
    "duplicate_id": "another record of the split has the same identity",
    "contradictory_duplicate": "the same visible text stands in the same split with the other label",
}


@dataclass(frozen=True, slots=True)
class CotTask:
    """One task: what is asked of which model, what a method may see, and how the answer is scored.

    Attributes
    ----------
    number : int
        Of the published tasks; 0 for a task from elsewhere.
    id : str
    question : str
        What a method has to tell.
    subject : str
        The model whose chain of thought is read.
    kind : str
        ``binary``; ``interventional`` (binary, with the rate of the behaviour with and without an intervention);
        ``regression``; ``selection`` (of sentences to keep).
    segments : tuple of str
        The allow-list: kinds of segment a method sees, in order. Nothing else of a record is visible.
    metric : str
        ``gmean2``, ``gmean2_mc``, ``r2`` or ``kl``.
    positive, negative : str or None
        The label words of the two classes.
    unit : str
        Of a regression target.
    label_rule : str
        How the label came about.
    quirks : tuple of str
        What a user of the data should know.
    release : Release or None
        The published files, for the nine published tasks.
    """

    number: int
    id: str
    question: str
    subject: str
    kind: Kind
    segments: tuple[str, ...]
    metric: str
    positive: str | None = None
    negative: str | None = None
    unit: str = ""
    label_rule: str = ""
    quirks: tuple[str, ...] = ()
    release: Release | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class SplitData:
    """One split; row i of every attribute is the same example. The order of rows is a hash: it tells nothing.

    Attributes
    ----------
    name : str
        ``train``, ``validation``, ``test``, ``ood_test`` or ``ood_test_1`` … .
    examples : VisibleExamples
        (n,) all that a method may see.
    y : (n,) float64
        1 positive, 0 negative, or the regression target; NaN where `status` is not ``ok`` (and for selection).
    groups : (n,) int64
        An opaque number for each question, the same in all splits.
    status : (n,) str
        A key of `STATUSES`.
    hidden : polars.DataFrame
        n rows for the evaluator only: ``example_id``, ``question_id``, ``label``, ``y`` (as labelled, whatever the
        status), ``p1``, ``p0`` (interventional tasks), ``p_estimated``, and every published field.
    """

    name: str
    examples: VisibleExamples
    y: NDArray[np.float64]
    groups: NDArray[np.int64]
    status: NDArray[np.str_]
    hidden: pl.DataFrame = field(repr=False)

    def __len__(self) -> int:
        return len(self.y)

    @property
    def usable(self) -> NDArray[np.bool_]:
        """(n,) rows whose status is ``ok``."""
        return np.asarray(self.status == OK)

    @property
    def counts(self) -> dict[str, int]:
        """Rows of each status that occurs."""
        return dict(sorted(Counter(self.status.tolist()).items()))


@dataclass(frozen=True, slots=True)
class TaskData:
    """A task's data under one layout (and regime).

    Attributes
    ----------
    task : CotTask
    layout, regime : str, str or None
        The regime is set for tasks 1 and 2 of the layout ``post`` only.
    splits : mapping of str to SplitData
        ``train``, ``validation``, then the test splits. Task 9 has one split, ``all``.
    fingerprint : str
        sha256 of the content, whatever it was imported from.
    validation : str
        ``published``, ``own`` (as a file of one's own names it) or ``held_out`` (training questions kept back).
    missing : tuple of str
        Kinds of segment the task allows but this data does not have, such as the text of published task 8.
    notes : tuple of str
        What a user of these figures must know.
    train_cap : int or None
        The most training rows that were let through (`lmassay.cot.cap`); None: all are there.
    uncapped : str
        The fingerprint without that cap, where there is one: validation and test rows are those of that data.
    test_cap : int or None
        The most rows of validation and of each test split (`lmassay.cot.slices`); None: all are there.
    whole : str
        The fingerprint without either cap, where test rows are capped.
    """

    task: CotTask
    layout: str
    regime: str | None
    splits: Mapping[str, SplitData]
    fingerprint: str
    validation: str = "published"
    missing: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    train_cap: int | None = None
    uncapped: str = ""
    test_cap: int | None = None
    whole: str = ""

    def __getitem__(self, split: str) -> SplitData:
        return self.splits[split]

    @property
    def test_splits(self) -> tuple[str, ...]:
        """Names of the splits a method is scored on."""
        return tuple(name for name in self.splits if name not in ("train", "validation"))

    @property
    def ood_splits(self) -> tuple[str, ...]:
        """Names of the test splits that are out of distribution; in the regime ``ood`` that is every one."""
        if self.regime == "ood":
            return self.test_splits
        return tuple(name for name in self.test_splits if name.startswith("ood"))

    @property
    def shared_groups(self) -> dict[tuple[str, str], int]:
        """How many questions two splits share, for pairs that share any."""
        names = list(self.splits)
        found = {
            (a, b): len(np.intersect1d(self.splits[a].groups, self.splits[b].groups))
            for i, a in enumerate(names)
            for b in names[i + 1 :]
        }
        return {pair: n for pair, n in found.items() if n}
