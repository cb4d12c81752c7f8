"""What a page is made of: plain values that a suite computes and the page draws.

Every text in them is untrusted and is escaped when the page is written. Ids are unique within one `RunPage`; the page
puts the run's own prefix before them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import polars as pl
    from numpy.typing import NDArray

#: ``win``: 0 lost, 1 won, `UNDEFINED`. ``share``: 0 to 1. ``diverging``: around zero. ``amount``: from 0 upwards.
Scale = Literal["win", "share", "diverging", "amount"]
#: What stands in a layer of bytes where nothing was measured; a layer of floats has NaN there.
UNDEFINED = 255


@dataclass(frozen=True, slots=True)
class Chart:
    """A figure drawn by Altair.

    Attributes
    ----------
    reading : str
        One plain sentence that says what is seen, computed from the numbers.
    chart : altair chart
        Drawn as SVG when the page is written. Give each mark a ``tooltip``, or none.
    rows : DataFrame
        What is drawn, for the CSV download.
    note : str
        What was folded or sampled, and where the whole is; empty where nothing was.
    """

    id: str
    title: str
    reading: str
    chart: Any
    rows: pl.DataFrame
    note: str = ""


@dataclass(frozen=True, slots=True)
class Hover:
    """What a grid says about the cell under the pointer, beside its value.

    Attributes
    ----------
    texts : (n_rows,) str
        A text of each row, such as a prompt; empty where there is none.
    lines : (n_rows,) sequences of str
        Lines of each row, such as its options.
    values : (n_lines of all rows, n_columns) float, optional
        A value of each line at each column, the rows' lines one after another; NaN is undefined.
    unit : str
        Of the values.
    """

    texts: Sequence[str]
    lines: Sequence[Sequence[str]] = ()
    values: NDArray[Any] | None = None
    unit: str = ""


@dataclass(frozen=True, slots=True)
class Grid:
    """A heat map drawn on a canvas: rows × columns, in one or several layers, one of which is shown at a time.

    Attributes
    ----------
    layers : mapping of str to (n_rows, n_columns) uint8 or float
        Such as the real label and its controls; the first is shown first.
    sort_by : mapping of str to (n_rows,) sequence
        Numbers or texts that rows can be sorted by, beside the order given. None is undefined and sorts last.
    row_name, column_name, value_name : str
        What rows, columns and values are, for the CSV download and for screen readers.
    """

    id: str
    title: str
    reading: str
    row_labels: Sequence[str]
    column_labels: Sequence[str]
    layers: Mapping[str, NDArray[Any]]
    scale: Scale
    row_name: str
    column_name: str
    value_name: str
    sort_by: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    hover: Hover | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """A table that can be sorted.

    Attributes
    ----------
    rows : DataFrame
        Strings, numbers and booleans; null is shown as a dash.
    n_total : int, optional
        Rows of the whole table where `rows` holds a part of it.
    whole : str
        Where the whole table is, such as ``predictions.parquet``.
    """

    id: str
    title: str
    reading: str
    rows: pl.DataFrame
    n_total: int | None = None
    whole: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True)
class Example:
    """A text in pieces, each with the weight it has for a method, or None.

    Attributes
    ----------
    heading : str
        Such as the example's id.
    facts : str
        One line about it: label, score, decision.
    pieces : sequence of (str, float or None)
        In the text's order; joined they are the text.
    """

    heading: str
    facts: str
    pieces: Sequence[tuple[str, float | None]]


@dataclass(frozen=True, slots=True)
class Texts:
    """Examples, with what each token contributes."""

    id: str
    title: str
    reading: str
    examples: Sequence[Example]
    note: str = ""


Part = Chart | Grid | Table | Texts


@dataclass(frozen=True, slots=True)
class Section:
    """Parts under one heading; without parts, the introduction says why there are none."""

    id: str
    title: str
    intro: str = ""
    parts: Sequence[Part] = ()


@dataclass(frozen=True, slots=True)
class RunPage:
    """One run.

    Attributes
    ----------
    name : str
        Short, such as ``smollm2-135m on core50``; the page tells equal names apart.
    folder : str
        As the user named it.
    suite : str
        ``xray`` or ``cot``.
    status : str
        ``done``, or what a reader must know first: that the run is unfinished or failed, and what is missing.
    headline : str
        The result in a sentence.
    survives : bool or None
        None where it is not known.
    evidence : sequence of mapping
        Rows as in ``scores.json``.
    signals : mapping of str to str
        Words for the evidence's signals, controls and metrics, where the page should not print the bare name.
    about : sequence of (str, str)
        Facts about the run: model, data, settings, seed, versions.
    notices : sequence of str
        What a reader must know beside the figures.
    """

    name: str
    folder: str
    suite: str
    status: str
    headline: str
    survives: bool | None
    evidence: Sequence[Mapping[str, Any]]
    sections: Sequence[Section]
    signals: Mapping[str, str] = field(default_factory=dict)
    about: Sequence[tuple[str, str]] = ()
    notices: Sequence[str] = ()
