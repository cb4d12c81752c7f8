"""One number an example: what every test of the audit is made on."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Seen = Literal["visible", "hidden"]

#: Families whose change between splits is a change of format, not of content.
FORMAT = "format"


@dataclass(frozen=True, slots=True)
class Feature:
    """A number for every row.

    Attributes
    ----------
    name : str
    seen : {"visible", "hidden"}
        Whether it can be computed from what a method sees.
    family : str
        ``size``, ``shape``, ``format``, ``first words``, ``prompt``, ``suggestion``, ``inversion`` (visible);
        ``field``, ``order``, ``name`` (part of an id), ``pair`` (two fields together) (hidden).
    values : (n,) float64
        NaN where it does not exist.
    one_sided : bool
        Higher means positive by what other questions of the split say; the direction was not read off the same rows.
    also : tuple of str
        Other features that rank the rows of every split in the same way.
    of : tuple of str
        The fields that a feature of two fields is made of.
    """

    name: str
    seen: Seen
    family: str
    values: Floats
    one_sided: bool = False
    also: tuple[str, ...] = ()
    of: tuple[str, ...] = ()


def distinct(features: list[Feature], split: NDArray[np.int64]) -> list[Feature]:
    """Features that vary; those that rank every split's rows alike, forwards or backwards, as one.

    The first of them gives the name, so a hidden field that says what is visible stands under the visible feature.
    """
    seen: dict[tuple[bytes, bool], int] = {}
    kept: list[Feature] = []
    splits = [np.flatnonzero(split == s) for s in np.unique(split)]
    for feature in features:
        parts = [_ranks(feature.values[rows]) for rows in splits]
        if len(np.unique(feature.values[~np.isnan(feature.values)])) < 2:
            continue
        # One that varies between splits only is the same as others in every split, and different where they meet.
        constant = b"" if any(len(np.unique(p)) > 1 for p in parts) else feature.name.encode("utf-8", "surrogatepass")
        key = (b"\x1f".join(p.tobytes() for p in parts) + constant, feature.one_sided)
        if key in seen:
            first = kept[seen[key]]
            kept[seen[key]] = replace(first, also=(*first.also, feature.name))
            continue
        seen[key] = len(kept)
        kept.append(feature)
    return kept


def _ranks(values: Floats) -> NDArray[np.int32]:
    """Dense ranks from whichever end gives the first row the lower one; NaN is -1."""
    known = ~np.isnan(values)
    ranks = np.full(len(values), -1, np.int32)
    distinct_, place = np.unique(values[known], return_inverse=True)
    if len(place) and 2 * place[0] > len(distinct_) - 1:
        place = len(distinct_) - 1 - place
    ranks[known] = place
    return ranks
