"""What the published release holds of a task: folders, record fields, counts, and what of a record may be shown."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lmassay.cot.schema import Field

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True, slots=True)
class Shown:
    """Where a kind of segment comes from.

    Attributes
    ----------
    kind : str
        One of `lmassay.examples.KINDS`.
    field : str
        Of the record, or of its prompt's record.
    of : str
        ``records`` or ``prompts``.
    words : mapping or None
        What a value is shown as, such as the letter a variant suggests.
    """

    kind: str
    field: str
    of: str = "records"
    words: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class ReleasedSplit:
    """One folder of records.

    Attributes
    ----------
    name : str
        What we call it: ``train``, ``validation``, ``test``, ``ood_test`` … .
    folder : str
        What it is called in the release (Part of every example's key).
    fields : tuple of Field
    records, positives : int
        How many the release has; positives is 0 where there are no classes.
    prompts : str
        Folder of the prompts; empty where they are not in folders.
    n_prompts : int
    layout : str
    regime : str or None
        The training regime the split belongs to, where there are two; None: to both.
    """

    name: str
    folder: str
    fields: tuple[Field, ...]
    records: int
    positives: int
    prompts: str
    n_prompts: int
    layout: str = "head"
    regime: str | None = None


@dataclass(frozen=True, slots=True)
class Release:
    """All of a task.

    Attributes
    ----------
    splits : tuple of ReleasedSplit
    prompt_fields : tuple of Field
    shown : tuple of Shown
        The allow-list, in the order in which segments are shown.
    label : str
        The field with the label; empty where there is none.
    words : mapping of label to number
        1 positive, 0 negative.
    question : str
        The field that names the question: the unit of every interval.
    prompt_key : tuple of str
        The fields by which a record finds its prompt.
    identity : tuple of str
        The fields that no two records of a split share.
    derive : callable or None
        Turns a split's records (label fields joined) into what the evaluator needs: target, p1, p0, one row an example.
    missing : tuple of str
        Kinds of segment that the task allows and the release lacks.
    held_out : float
        Share of training questions kept back for validation by default; 0: the published validation set is used.
    """

    splits: tuple[ReleasedSplit, ...]
    prompt_fields: tuple[Field, ...]
    shown: tuple[Shown, ...]
    label: str = "label"
    words: Mapping[str | int, float] = field(default_factory=dict)
    question: str = "question_id"
    prompt_key: tuple[str, ...] = ("question_id",)
    identity: tuple[str, ...] = ("question_id", "rollout_idx")
    derive: Callable[[pl.DataFrame], pl.DataFrame] | None = None
    missing: tuple[str, ...] = ()
    held_out: float = 0.0


def table_id(layout: str, number: int, folder: str, role: str) -> str:
    """Name of a table of the store, such as ``head/1/train/records``."""
    return f"{layout}/{number}/{folder or 'all'}/{role}"


def strings(*names: str) -> tuple[Field, ...]:
    """Required string fields."""
    return tuple(Field(name, "str") for name in names)


def integers(*names: str) -> tuple[Field, ...]:
    """Required integer fields."""
    return tuple(Field(name, "int") for name in names)


def floats(*names: str) -> tuple[Field, ...]:
    """Required float fields; whole numbers are taken too."""
    return tuple(Field(name, "float") for name in names)
