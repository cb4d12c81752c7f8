"""What a method may see of an example: typed segments of text and an opaque integer, and nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, overload

import numpy as np
from numpy.typing import NDArray

from lmassay.errors import LmassayError

if TYPE_CHECKING:
    import polars as pl

#: Kinds of segment, in the order in which they are shown.
KINDS = ("prompt", "option", "suggestion", "message", "cot", "answer")


@dataclass(frozen=True, slots=True)
class Segment:
    """One piece of visible text.

    Attributes
    ----------
    kind : str
        One of `KINDS`: ``prompt`` (what the subject was asked), ``option`` (a choice), ``suggestion`` (the answer that
        the prompt's intervention suggests), ``message`` (a turn of a conversation), ``cot`` (chain of thought, or the
        prefix of one), ``answer`` (what the subject answered).
    text : str
        As published; no white space folded.
    label : str or None
        The letter of an option, the role of a message.
    """

    kind: str
    text: str
    label: str | None = None


@dataclass(frozen=True, slots=True)
class VisibleExample:
    """One example as a method sees it.

    Attributes
    ----------
    key : int
        Opaque: a hash that says nothing about label, question or order.
    segments : tuple of Segment
    """

    key: int
    segments: tuple[Segment, ...]

    def of(self, *kinds: str) -> tuple[Segment, ...]:
        """The segments of these kinds, in order."""
        return tuple(s for s in self.segments if s.kind in kinds)

    def text(self, *kinds: str, separator: str = "\n\n") -> str:
        """The texts of these kinds (of all, when none is named), joined."""
        return separator.join(s.text for s in self.segments if not kinds or s.kind in kinds)


class Values(Protocol):
    """Cells of a column, wherever they are held."""

    def __len__(self) -> int: ...

    def pick(self, rows: NDArray[np.int64]) -> list[Any]:
        """The cells at `rows`, each a string, a list of ``{label, text}``, or None."""
        ...


class Cells:
    """Cells held by a polars series: strings, or lists of ``{label, text}``."""

    __slots__ = ("series",)

    def __init__(self, series: pl.Series) -> None:
        self.series = series

    def __len__(self) -> int:
        return len(self.series)

    def pick(self, rows: NDArray[np.int64]) -> list[Any]:
        """The cells at `rows`."""
        return self.series.gather(rows).to_list()


class Texts:
    """Texts in files of UTF-8, mapped into memory and decoded when asked for.

    Parameters
    ----------
    files : sequence of buffers
        Bytes that hold texts, one after another.
    file, start, size : (m,) integers
        Text i is ``files[file[i]][start[i] : start[i] + size[i]]``; a negative size is a missing text.
    """

    __slots__ = ("file", "files", "size", "start")

    def __init__(
        self,
        files: Sequence[Any],
        file: NDArray[np.int64],
        start: NDArray[np.int64],
        size: NDArray[np.int64],
    ) -> None:
        self.files, self.file, self.start, self.size = tuple(files), file, start, size

    def __len__(self) -> int:
        return len(self.size)

    def pick(self, rows: NDArray[np.int64]) -> list[str | None]:
        """The texts at `rows`.

        Raises
        ------
        LmassayError
            ``cot-data-broken`` where the bytes are no UTF-8.
        """
        spans = zip(self.file[rows].tolist(), self.start[rows].tolist(), self.size[rows].tolist(), strict=True)
        try:
            return [None if n < 0 else str(self.files[f][s : s + n], "utf-8") for f, s, n in spans]
        except UnicodeDecodeError as error:
            raise LmassayError(
                "cot-data-broken", "a text of the store is no UTF-8: the store is damaged", "import the data again"
            ) from error

    def bytes_at(self, rows: NDArray[np.int64]) -> list[bytes]:
        """The texts at `rows` as UTF-8; a missing one is empty."""
        spans = zip(self.file[rows].tolist(), self.start[rows].tolist(), self.size[rows].tolist(), strict=True)
        return [b"" if n < 0 else bytes(self.files[f][s : s + n]) for f, s, n in spans]


@dataclass(frozen=True, slots=True)
class Column:
    """One kind of segment for many examples.

    Attributes
    ----------
    kind : str
    values : Values
        (m,) cells: a string is one segment, a list of ``{label, text}`` any number, None none. A polars series will do.
    rows : (n,) int64 or None
        Example i reads cell ``rows[i]``, so that a prompt shared by a thousand examples is held once; negative: none.
        None: i.
    """

    kind: str
    values: Values
    rows: NDArray[np.int64] | None = None

    def __post_init__(self) -> None:
        if not hasattr(self.values, "pick"):
            object.__setattr__(self, "values", Cells(self.values))  # type: ignore[arg-type]

    def take(self, index: NDArray[np.int64]) -> Column:
        """The column of a selection of examples; no text is copied."""
        return Column(self.kind, self.values, index if self.rows is None else self.rows[index])

    def cells(self, index: NDArray[np.int64] | None = None) -> list[Any]:
        """(n,) cells in the order of the examples, or of a selection of them."""
        if self.rows is None:
            return self.values.pick(np.arange(len(self.values)) if index is None else index)
        rows = self.rows if index is None else self.rows[index]
        if (rows >= 0).all():
            return self.values.pick(rows)
        found = iter(self.values.pick(rows[rows >= 0]))
        return [next(found) if row >= 0 else None for row in rows]


class VisibleExamples(Sequence[VisibleExample]):
    """Many examples held as columns; a `VisibleExample` is made when one is asked for.

    Text as Python strings takes two to four bytes a character as soon as one character is not Latin; here it is UTF-8.

    Parameters
    ----------
    keys : (n,) int64
    columns : iterable of Column
        In the order in which segments are shown.
    """

    __slots__ = ("columns", "keys")

    def __init__(self, keys: NDArray[np.int64], columns: Iterable[Column]) -> None:
        self.keys = keys
        self.columns = tuple(columns)

    def __len__(self) -> int:
        return len(self.keys)

    @overload
    def __getitem__(self, index: int) -> VisibleExample: ...
    @overload
    def __getitem__(self, index: slice) -> VisibleExamples: ...
    def __getitem__(self, index: int | slice) -> VisibleExample | VisibleExamples:
        if isinstance(index, slice):
            return self.take(np.arange(len(self))[index])
        if not -len(self) <= index < len(self):
            raise IndexError(index)
        at = np.array([index % len(self)], dtype=np.int64)
        segments = [s for c in self.columns for s in _segments(c.kind, c.cells(at)[0])]
        return VisibleExample(int(self.keys[at[0]]), tuple(segments))

    def __iter__(self) -> Iterator[VisibleExample]:
        step = 1024
        for start in range(0, len(self), step):
            at = np.arange(start, min(start + step, len(self)), dtype=np.int64)
            cells = [c.cells(at) for c in self.columns]
            for offset, row in enumerate(at):
                segments = [s for c, of in zip(self.columns, cells, strict=True) for s in _segments(c.kind, of[offset])]
                yield VisibleExample(int(self.keys[row]), tuple(segments))

    def take(self, index: NDArray[Any] | Sequence[int]) -> VisibleExamples:
        """The examples at `index` (integers, or one boolean an example), in that order; no text is copied."""
        chosen = np.asarray(index)
        rows = np.flatnonzero(chosen) if chosen.dtype == np.bool_ else chosen.astype(np.int64)
        return VisibleExamples(self.keys[rows], (c.take(rows) for c in self.columns))

    @property
    def kinds(self) -> tuple[str, ...]:
        """Kinds of segment these examples can have."""
        return tuple(dict.fromkeys(c.kind for c in self.columns))


def texts(examples: Sequence[VisibleExample], *kinds: str, separator: str = "\n\n") -> list[str]:
    """(n,) the joined text of these kinds of each example, for any sequence of examples."""
    if isinstance(examples, VisibleExamples) and len(kinds) == 1:
        columns = [c for c in examples.columns if c.kind == kinds[0]]
        if len(columns) == 1:
            cells = columns[0].cells()
            if all(cell is None or isinstance(cell, str) for cell in cells):
                return [cell or "" for cell in cells]
    return [example.text(*kinds, separator=separator) for example in examples]


def _segments(kind: str, cell: Any) -> Iterator[Segment]:
    if isinstance(cell, str):
        yield Segment(kind, cell)
    elif cell is not None:
        for part in cell:
            yield Segment(kind, part["text"], part["label"])
