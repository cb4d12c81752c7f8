"""What splits share, and texts that stand in a data set more than once."""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from lmassay.cot.audit.inputs import TRAIN, Audited, fold

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

Ints = NDArray[np.int64]

#: Cosine from which two questions' TF-IDF vectors are near-duplicates.
NEAR = 0.9
#: Questions with fewer words are compared for being equal only.
FEWEST_WORDS = 8
#: Share of a text's long sentences that must stand in one text of the other split.
SHARED = 0.8
#: Sentences of fewer words, and those of more texts of one split than this, say nothing about a copy.
LONG_SENTENCE, COMMON = 8, 5
#: A text needs this many such sentences.
FEWEST_SENTENCES = 4
#: Questions of two splits that are compared at once.
_BLOCK = 2000
_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")


@dataclass(frozen=True, slots=True)
class Shared:
    """What stands in two places.

    Attributes
    ----------
    check : str
    where : str
        A split, or two of them.
    n : int
    of : int
        How many there are to compare with.
    names : tuple of str
        Some of them, for a person to look at.
    """

    check: str
    where: str
    n: int
    of: int
    names: tuple[str, ...] = ()


def shared_questions(data: Audited) -> list[Shared]:
    """Questions two splits share: by id, by text, by nearly the same text; and by text inside one split."""
    found = []
    ids = _questions_of(data)
    text = {s: {q: fold(t) for q, t in data.questions.get(s, {}).items() if t.strip()} for s in data.splits}
    for a, b in combinations(data.splits, 2):
        where = f"{a}, {b}"
        same = sorted(ids[a] & ids[b])
        if same:
            found.append(Shared("question ids", where, len(same), len(ids[b]), tuple(same[:3])))
        both = set(text[a].values()) & set(text[b].values())
        names = sorted(q for q, t in text[b].items() if t in both and q not in ids[a])
        if names:
            found.append(Shared("question text", where, len(names), len(text[b]), tuple(names[:3])))
        near = near_questions(text[a], text[b])
        if near:
            found.append(
                Shared(
                    "nearly the same question", where, len(near), len(text[b]), tuple(f"{p} ~ {q}" for p, q in near[:3])
                )
            )
    for split in data.splits:
        held: dict[str, list[str]] = defaultdict(list)
        for q, t in text[split].items():
            held[t].append(q)
        twice = [names for names in held.values() if len(names) > 1]
        if twice:
            more = sum(len(names) - 1 for names in twice)
            named = tuple(" = ".join(sorted(names)[:3]) for names in twice[:3])
            found.append(Shared("one question under several ids", split, more, len(text[split]), named))
        near = near_questions(text[split], text[split])
        if near:
            named = tuple(f"{p} ~ {q}" for p, q in near[:3])
            found.append(Shared("nearly the same question", split, len(near), len(text[split]), named))
    for other, known in data.others.items():
        for split in data.splits:
            names = sorted(q for q, t in text[split].items() if t in known)
            if names:
                found.append(
                    Shared(
                        "questions of another task", f"{split}, {other}", len(names), len(text[split]), tuple(names[:3])
                    )
                )
    return found


def _questions_of(data: Audited) -> dict[str, set[str]]:
    names = np.array([str(q) for q in data.hidden["question_id"].to_list()], dtype=object)
    return {s: set(names[data.rows(s)].tolist()) for s in data.splits}


def near_questions(a: Mapping[str, str], b: Mapping[str, str]) -> list[tuple[str, str]]:
    """Pairs of questions whose texts differ and whose TF-IDF vectors have a cosine of `NEAR` or more."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    sides = [{q: t for q, t in side.items() if len(t.split()) >= FEWEST_WORDS} for side in (a, b)]
    if not all(sides):
        return []
    corpus = sorted({t for side in sides for t in side.values()})
    # Numbers are words too: often they are all that two questions differ in.
    vectoriser = TfidfVectorizer(token_pattern=r"(?u)\w+", ngram_range=(1, 2), sublinear_tf=True, dtype=np.float32)
    try:
        vectors = vectoriser.fit_transform([t.encode("utf-8", "replace").decode() for t in corpus])
    except ValueError:
        # Not a single word in any of them.
        return []
    at = {t: i for i, t in enumerate(corpus)}
    names = [list(side) for side in sides]
    rows = [np.array([at[t] for t in side.values()]) for side in sides]
    found = []
    for start in range(0, len(rows[0]), _BLOCK):
        cosine: csr_matrix = (vectors[rows[0][start : start + _BLOCK]] @ vectors[rows[1]].T).tocoo()
        for i, j, value in zip(cosine.row.tolist(), cosine.col.tolist(), cosine.data.tolist(), strict=True):
            p, q = names[0][start + i], names[1][j]
            if value >= NEAR and rows[0][start + i] != rows[1][j] and (a is not b or p < q):
                found.append((p, q))
    return sorted(found)


def digests(texts: Iterable[str]) -> NDArray[np.object_]:
    """(n,) hash of each folded text; empty for a text of no words."""
    found = []
    for text in texts:
        folded = fold(text)
        found.append(
            hashlib.blake2b(folded.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest() if folded else ""
        )
    return np.array(found, dtype=object)


def shared_rows(data: Audited, reading: Sequence[str]) -> list[Shared]:
    """Rows with the same text: in one split, under both labels, in two splits; rows that show nothing."""
    digest = digests(reading)
    found = []
    for split in data.splits:
        rows = data.rows(split)
        empty = [r for r in rows.tolist() if not digest[r]]
        short = [r for r in rows.tolist() if digest[r] and len(reading[r]) < 200 and len(reading[r].split()) == 1]
        for check, which in (("empty text", empty), ("text of one word", short)):
            if which and any(digest):
                found.append(Shared(check, split, len(which), len(rows), _ids(data, which)))
        held: dict[str, list[int]] = defaultdict(list)
        for r in rows.tolist():
            if digest[r]:
                held[digest[r]].append(r)
        twice = [of for of in held.values() if len(of) > 1]
        if twice:
            more = sum(len(of) - 1 for of in twice)
            found.append(Shared("duplicate texts", split, more, len(rows), _ids(data, [of[-1] for of in twice])))
        odds = [of for of in twice if len({v for v in data.y[of].tolist() if v == v}) > 1]
        if odds:
            found.append(
                Shared("contradictory duplicates", split, len(odds), len(rows), _ids(data, [o[0] for o in odds]))
            )
    for a, b in combinations(data.splits, 2):
        both = (set(digest[data.rows(a)]) & set(digest[data.rows(b)])) - {""}
        if both:
            rows_ = [r for r in data.rows(b).tolist() if digest[r] in both]
            found.append(Shared("the same text", f"{a}, {b}", len(rows_), len(data.rows(b)), _ids(data, rows_)))
    return found


def continued(data: Audited, reading: Sequence[str]) -> list[Shared]:
    """Rows whose text goes on in another row: what was hidden after its end is shown there.

    Between the training rows and another split it's a leak; inside an evaluation split only for a method that sees
    several rows at once; inside the training rows nothing.
    """
    held: dict[str, list[int]] = defaultdict(list)
    for row, text in enumerate(reading):
        held[fold(text)].append(row)
    order = sorted(held)
    pairs: dict[tuple[int, int], list[int]] = defaultdict(list)
    for at, text in enumerate(order):
        if len(text.split(" ", FEWEST_WORDS)) < FEWEST_WORDS:
            continue
        # In sorted order everything that begins with a text comes right after it.
        splits: set[int] = set()
        for after in range(at + 1, len(order)):
            longer = order[after]
            if not longer.startswith(text) or len(splits) == len(data.splits):
                break
            splits.update(data.split[held[longer]].tolist())
        for row in held[text]:
            for split in splits:
                pairs[int(data.split[row]), split].append(row)
    found = []
    for (cut, whole), rows in sorted(pairs.items()):
        a, b = data.splits[cut], data.splits[whole]
        if a == b == TRAIN:
            continue
        where = a if a == b else f"{a}, continued in {b}"
        found.append(Shared("text that another row continues", where, len(rows), len(data.rows(a)), _ids(data, rows)))
    return found


def copied(data: Audited, reading: Sequence[str]) -> list[Shared]:
    """Rows of which most long sentences stand in one row of the training split."""
    if not data.evaluation:
        return []
    sentences = {r: _sentences(reading[r]) for s in data.evaluation for r in data.rows(s).tolist()}
    wanted = set().union(*sentences.values())
    # The training rows may be many: of theirs only what another split has too is kept.
    trained: dict[int, list[int]] = defaultdict(list)
    for r in data.rows(TRAIN).tolist():
        for h in _sentences(reading[r]) & wanted:
            trained[h].append(r)
    exact = digests(reading)
    known = set(exact[data.rows(TRAIN)])
    found = []
    for split in data.evaluation:
        rows = data.rows(split).tolist()
        times: dict[int, int] = defaultdict(int)
        for r in rows:
            for h in sentences[r]:
                times[h] += 1
        hits = []
        for r in rows:
            own = [h for h in sentences[r] if times[h] <= COMMON and len(trained.get(h, ())) <= COMMON]
            if len(own) < FEWEST_SENTENCES or exact[r] in known:
                continue
            in_row: dict[int, int] = defaultdict(int)
            for h in own:
                for other in trained.get(h, ()):
                    in_row[other] += 1
            if in_row and max(in_row.values()) >= SHARED * len(own):
                hits.append(r)
        if hits:
            found.append(Shared("nearly the same text", f"{TRAIN}, {split}", len(hits), len(rows), _ids(data, hits)))
    return found


def _sentences(text: str) -> set[int]:
    return {hash(f) for s in _SENTENCE.split(text) if len((f := fold(s)).split()) >= LONG_SENTENCE}


def _ids(data: Audited, rows: Sequence[int]) -> tuple[str, ...]:
    ids = data.hidden["example_id"]
    return tuple(str(ids[r]) for r in rows[:3])
