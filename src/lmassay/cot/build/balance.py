"""Balancing: which labelled candidates stay, drawn by hash, so that neither order nor other questions choose."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from typing import TypeVar

from lmassay import seeds

T = TypeVar("T")


def drawn(items: Sequence[T], n: int, seed: int, purpose: str, *, name: Callable[[T], str]) -> list[T]:
    """At most `n` items, those of the smallest hashes, in their order."""
    kept = {id(x) for x in sorted(items, key=lambda x: seeds.digest(seed, name(x), purpose))[:n]}
    return [x for x in items if id(x) in kept]


def equal_classes(
    items: Sequence[T],
    seed: int,
    *,
    label: Callable[[T], Hashable],
    name: Callable[[T], str],
    within: Callable[[T], Hashable] = lambda _: 0,
    most_apart: int = 0,
) -> list[T]:
    """Two classes of equal size in every stratum `within`, up to `most_apart`; the larger class is thinned by hash.

    A stratum of one class keeps at most `most_apart` items.
    """
    strata: dict[Hashable, dict[Hashable, list[T]]] = defaultdict(lambda: defaultdict(list))
    classes = sorted({label(x) for x in items}, key=str)
    for item in items:
        strata[within(item)][label(item)].append(item)
    kept: set[int] = set()
    for by_label in strata.values():
        sizes = [len(by_label.get(c, ())) for c in classes] if len(classes) == 2 else [0]
        for group in by_label.values():
            kept |= {id(x) for x in drawn(group, min(sizes) + most_apart, seed, "balance", name=name)}
    return [x for x in items if id(x) in kept]


def pairs_of_like_length(
    items: Sequence[T],
    seed: int,
    *,
    label: Callable[[T], Hashable],
    length: Callable[[T], int],
    name: Callable[[T], str],
    bin: int,  # noqa: A002 - the field's word for it
    within: Callable[[T], Hashable] = lambda _: 0,
) -> list[T]:
    """Items whose classes are equally frequent in every bin of length of every stratum."""
    return equal_classes(items, seed, label=label, name=name, within=lambda x: (within(x), length(x) // bin))


def splits_of(questions: Sequence[str], shares: Sequence[tuple[str, float]], seed: int) -> dict[str, str]:
    """Question -> split, in the order of their hashes: each split gets its share, and one question at least if it can.

    Parameters
    ----------
    shares : sequence of (split, share)
        Shares sum to 1.
    """
    ordered = sorted(set(questions), key=lambda q: seeds.digest(seed, q, "split"))
    counts = {name: max(1, round(share * len(ordered))) for name, share in shares[1:]}
    found: dict[str, str] = {}
    for name, n in counts.items():
        for question in ordered[: min(n, len(ordered) - 1)]:
            found[question] = name
        ordered = [q for q in ordered if q not in found]
    return found | dict.fromkeys(ordered, shares[0][0])
