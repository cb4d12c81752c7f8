"""Hidden features: every field that is not shown, the parts of every name, the order of rows, and fields in pairs."""

from __future__ import annotations

import re
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from lmassay.cot.audit.features import Feature
from lmassay.cot.audit.folds import by_category
from lmassay.cot.audit.inputs import LABEL_SIDE
from lmassay.cot.audit.surface import few_values

if TYPE_CHECKING:
    import polars as pl

    from lmassay.cot.audit.inputs import Audited

Floats = NDArray[np.float64]

#: Column that an audited file's rows are numbered in.
ROW = "_row"
#: Strings longer than this are text, not a field.
SHORT = 200
#: Fields that are looked at in pairs, at most; the first ones.
PAIRED = 12
_PART = re.compile(r"[A-Za-z]+|\d+")
#: Numbers of a name that are looked at, counted from its end.
NUMBERS = 2


def hidden_features(data: Audited, seed: int) -> list[Feature]:
    """Features of everything hidden; constant fields are left out later."""
    frame = data.hidden
    found: list[Feature] = []
    numbers: dict[str, Floats] = {}
    words: dict[str, list[str | None]] = {kind: list(data.texts(kind)) for kind in ("answer", "suggestion")
                                          if kind in data.kinds}  # fmt: skip
    for name in frame.columns:
        if name in LABEL_SIDE or name == ROW:
            continue
        series = frame[name]
        values = _numbers(series)
        if values is not None:
            numbers[name] = values
            found.append(Feature(name, "hidden", "field", values))
            found += _absent(name, values)
        elif (strings := _strings(series)) is not None:
            found += _of_strings(data, name, strings, seed)
            if len({v for v in strings if v is not None}) > 1:
                words.setdefault(name, strings)
    if "_file" not in frame.columns:
        for name in ("example_id", "question_id"):
            if name in frame.columns:
                found += _parts(data, name, frame[name].cast(str).to_list(), seed)
    found += _order(data)
    found += _differences(numbers)
    found += _equalities(words)
    return found


def _numbers(series: pl.Series) -> Floats | None:
    import polars as pl

    if not (series.dtype.is_numeric() or series.dtype == pl.Boolean):
        return None
    values = series.cast(float).fill_null(np.nan).to_numpy().astype(np.float64)
    return np.where(np.isfinite(values), values, np.nan)


def _strings(series: pl.Series) -> list[str | None] | None:
    import polars as pl

    if series.dtype != pl.String:
        return None
    longest = series.str.len_chars().max()
    return series.to_list() if isinstance(longest, int) and longest <= SHORT else None


def _absent(name: str, values: Floats) -> list[Feature]:
    absent = np.isnan(values)
    return [Feature(f"{name} is absent", "hidden", "field", absent.astype(np.float64))] if absent.any() else []


def _of_strings(data: Audited, name: str, values: list[str | None], seed: int) -> list[Feature]:
    found = []
    absent = np.array([v is None for v in values])
    if absent.any():
        found.append(Feature(f"{name} is absent", "hidden", "field", absent.astype(np.float64)))
    whole = by_category(data, name, "hidden", "field", values, seed)
    if whole is not None:
        found.append(whole)
        found += [
            Feature(f"{name} is {v!r}", "hidden", "field", np.array([float(x == v) for x in values]))
            for v in few_values([x or "" for x in values])
            if len({x for x in values if x}) > 2
        ]
    return found + _parts(data, name, values, seed)


def _parts(data: Audited, name: str, values: list[str | None], seed: int) -> list[Feature]:
    """The last numbers of a name, and its last word that is not the same everywhere."""
    parts = [_PART.findall(v or "") for v in values]
    found = []
    digits = [[p for p in of if p.isdigit()] for of in parts]
    for i in range(1, NUMBERS + 1):
        column = np.array([float(d[-i][-15:]) if len(d) >= i else np.nan for d in digits])
        place = "last number" if i == 1 else f"number {i} from the end"
        found.append(Feature(f"{name}: {place}", "hidden", "name", column))
        found.append(Feature(f"{name}: {place} is odd", "hidden", "name", column % 2))
    letters = [[p for p in of if not p.isdigit()] for of in parts]
    seen: set[tuple[str | None, ...]] = set()
    for i in (1, 2, 3, 4):
        column_ = [w[-i] if len(w) >= i else None for w in letters]
        made = by_category(data, f"{name}: word {i} from the end", "hidden", "name", column_, seed)
        if made is not None and tuple(column_) not in seen:
            seen.add(tuple(column_))
            found.append(made)
    return found


def _order(data: Audited) -> list[Feature]:
    """Where a row stands in its file; odd or even too, for rows that take turns."""
    if ROW not in data.hidden.columns:
        return []
    at = data.hidden[ROW].to_numpy().astype(np.float64)
    return [
        Feature("row number", "hidden", "order", at),
        Feature("row number is odd", "hidden", "order", at % 2),
    ]


def _differences(numbers: dict[str, Floats]) -> list[Feature]:
    """First less second, for fields neither of which is always the larger."""
    found = []
    for (a, x), (b, y) in combinations(list(numbers.items())[:PAIRED], 2):
        difference = x - y
        known = difference[~np.isnan(difference)]
        if len(known) and 0.01 < (known > 0).mean() < 0.99:
            found.append(Feature(f"{a} - {b}", "hidden", "pair", difference, of=(a, b)))
    return found


def _equalities(words: dict[str, list[str | None]]) -> list[Feature]:
    """Whether two fields say the same, for those that sometimes do."""
    found = []
    for (a, x), (b, y) in combinations(list(words.items())[:PAIRED], 2):
        if {a, b} == {"answer", "suggestion"}:
            # Both are shown, so it is a visible feature.
            continue
        same = np.array(
            [float(u == v) if u is not None and v is not None else np.nan for u, v in zip(x, y, strict=True)]
        )
        known = same[~np.isnan(same)]
        if len(known) and 0.01 < known.mean() < 0.99:
            found.append(Feature(f"{a} equals {b}", "hidden", "pair", same, of=(a, b)))
    return found
