"""The page's section on examples: rows a method is most wrong about, and what a probe used of some, token by token."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from lmassay.cot.predictions import CHOOSING, VALIDATION
from lmassay.cot.probe_view import store_of
from lmassay.cot.probing import kept_method
from lmassay.cot.task import OWN
from lmassay.cot.terms import terms_of
from lmassay.errors import LmassayError
from lmassay.examples import VisibleExample
from lmassay.methods.contributions import Contributing, Contributions
from lmassay.reports.cot_figures import CotRun, method_of, threshold_of, wrong_rows
from lmassay.reports.page.parts import Example, Section, Table, Texts
from lmassay.reports.page.words import counted, number
from lmassay.storage.activations import KEPT, ActivationStore
from lmassay.storage.cache import cache_folder
from lmassay.storage.fetch import BUNDLED
from lmassay.storage.runs import PREDICTIONS, RUN

if TYPE_CHECKING:
    from lmassay.methods.activations import Activations

TITLE = "Examples"
#: Rows that are most wrong, by split.
MOST_WRONG = 20
#: Test examples that are scored to choose from, those that are shown, and tokens of one that are shown.
LOOKED_AT, SHOWN, TOKENS = 24, 3, 600
#: A reader's name -> ids -> the text of each.
TextOf = Callable[[list[int]], list[str]]


def example_section(folder: Path, run: CotRun) -> Section:
    """Rows on the wrong side, and texts with contributions where the run's activations are at hand."""
    parts: list[Any] = []
    parts += [part for part in (_wrong(run), _terms(run)) if part is not None]
    identity = run.document["identity"]
    if "activations" not in identity:
        intro = "" if parts else "There is no row to show."
        return Section("examples", TITLE, intro, parts)
    try:
        store = store_of(folder, dict(run.record), None)
        parts.append(token_texts(folder, run, store, _text_of(store.model)))
        intro = ""
    except LmassayError as error:
        task = identity["task"]["id"]
        intro = (
            f"What the probe used of each token is not shown: {error.what}. "
            f"`lmassay cot show {task} EXAMPLE --probe RUN --activations DIR --model MODEL` shows it of one example."
        )
    return Section("examples", TITLE, intro, parts)


def _wrong(run: CotRun) -> Table | None:
    own, task = method_of(run), run.document["identity"]["task"]["id"]
    rows = wrong_rows(run, own, MOST_WRONG)
    if not rows.height:
        return None
    regression = run.document["identity"]["task"]["kind"] == "regression"
    scored = run.predictions.filter(
        pl.col("method_id") == own, ~pl.col("split").is_in([VALIDATION, CHOOSING]), pl.col("score").is_not_null()
    )
    first = rows.row(0, named=True)
    if regression:
        reading = f"The largest error, {number(first['by'])} nats, is that of {first['example_id']} ({first['split']})."
        total = scored.height
    else:
        n = scored.filter(pl.col("decision").cast(pl.Float64) != pl.col("y_true"))
        total = n.height
        reading = (
            f"{own} decides {total:,} of {counted(scored.height, 'row')} wrongly; farthest on the wrong side is "
            f"{first['example_id']} ({first['split']}), {number(first['by'])} from the threshold."
        )
    title = "Largest errors" if regression else "Farthest on the wrong side of the threshold"
    source = " --source FILE" if run.document["identity"]["task"]["layout"] == OWN else ""
    note = f"`lmassay cot show {task} EXAMPLE{source}` shows the text of one."
    return Table("wrong", title, reading, rows, total, PREDICTIONS, note)


def _terms(run: CotRun) -> Table | None:
    terms = terms_of(run.record)
    if terms is None or not terms.height:
        return None
    heaviest = terms.row(0, named=True)
    regression = run.document["identity"]["task"]["kind"] == "regression"
    sides = ("raises the score", "lowers it") if regression else ("speaks for the positive class", "speaks against it")
    reading = (
        f"Heaviest is «{heaviest['term']}», weight {number(heaviest['weight'], 3)}: "
        f"it {sides[int(heaviest['weight'] < 0)]}."
    )
    every = run.record["choices"][method_of(run)].get("n_features")
    every = every if isinstance(every, int) else None
    note = "A weight is that of the word's TF-IDF, between 0 and 1; of either sign the heaviest are kept."
    return Table(
        "terms", "Words and pairs that weigh most", reading, terms.rename({"read_in": "read in"}), every, RUN, note
    )


def token_texts(folder: Path, run: CotRun, store: Activations, text_of: TextOf) -> Texts:
    """The test examples of highest and lowest score and the one nearest to the threshold, with their contributions.

    Raises
    ------
    LmassayError
        ``bad-request`` where the method does not say what it used, or the states it needs were not kept.
    """
    own = method_of(run)
    method = kept_method(folder, own, store)
    if not isinstance(method, Contributing):
        raise LmassayError("bad-request", f"method {own} does not say what it used", "choose another run")
    threshold = threshold_of(run, own)
    chosen = _chosen(method, _keys(store), threshold)
    if not chosen:
        raise LmassayError("bad-request", "no example of a test split has activations", "extract some")
    examples, what = [], ""
    for why, split, key in chosen:
        found: Contributions = method.contributions(VisibleExample(key, ()))
        ids = store.token_ids(key).tolist()
        pieces = _pieces(text_of(ids), found)
        decided = "" if threshold is None else f", called {'positive' if found.score > threshold else 'negative'}"
        facts = f"{split}; score {number(found.score, 3)}{decided}; {counted(len(ids), 'token')}"
        if len(pieces) < len(ids):
            facts += f", of which the {len(pieces):,} around the largest contribution are shown"
        examples.append(Example(f"{why}: example {key}", facts, pieces))
        what = found.what
    reading = (
        f"{counted(len(examples), 'example')} of the test splits as {own} read them in {store.model}: the weight of a "
        f"token is its {what}; above zero it speaks for the positive class."
    )
    note = f"Chosen among the first {LOOKED_AT} of each test split, in the order of a hash."
    return Texts("tokens", "What the probe used", reading, examples, note)


def _keys(store: Activations) -> list[tuple[str, int]]:
    """Split and key of some test examples; the order of keys is that of a hash."""
    if not isinstance(store, ActivationStore):
        return []
    held = store.examples().filter(pl.col("status") == KEPT, ~pl.col("split").is_in(["train", VALIDATION])).sort("key")
    some = held.group_by("split", maintain_order=True).head(LOOKED_AT).sort("split", maintain_order=True)
    return [(str(split), int(key)) for split, key in some.select("split", "key").iter_rows()]


def _chosen(method: Any, keys: Sequence[tuple[str, int]], threshold: float | None) -> list[tuple[str, str, int]]:
    score = np.array(method.score([VisibleExample(key, ()) for _, key in keys]), np.float64) if keys else np.zeros(0)
    known = np.flatnonzero(np.isfinite(score))
    if not len(known):
        return []
    places = [("highest score", int(known[score[known].argmax()])), ("lowest score", int(known[score[known].argmin()]))]
    if threshold is not None:
        places.append(("nearest to the threshold", int(known[np.abs(score[known] - threshold).argmin()])))
    seen: dict[int, str] = {}
    for why, at in places:
        seen.setdefault(at, why)
    return [(why, *keys[at]) for at, why in list(seen.items())[:SHOWN]]


def _pieces(texts: Sequence[str], found: Contributions) -> list[tuple[str, float | None]]:
    """Tokens with their contributions; of a long example those around the largest."""
    start, stop = 0, len(texts)
    if len(texts) > TOKENS:
        start = min(max(0, found.largest(1)[0] - TOKENS // 2), len(texts) - TOKENS)
        stop = start + TOKENS
    return [(text, float(value)) for text, value in zip(texts[start:stop], found.values[start:stop], strict=True)]


def _text_of(reader: str) -> TextOf:
    """Texts of a reader's tokens, by a tokenizer that is on this machine: a report fetches nothing.

    Raises
    ------
    LmassayError
        ``model-not-found``.
    """
    place = _local(reader)
    if place is None:
        raise LmassayError("model-not-found", f"the tokenizer of {reader} is not on this machine", "name its folder")
    from lmassay.models.open import open_tokenizer

    tokens = open_tokenizer(place)
    return lambda ids: [str(tokens.hf.decode([i])) for i in ids]


def _local(reader: str) -> str | None:
    """Where a reader's tokenizer is, without a network: a folder, a bundled model in the cache, a hub snapshot."""
    if reader in BUNDLED:
        return reader if (cache_folder() / "gguf" / BUNDLED[reader].sha256[:16]).is_dir() else None
    if Path(reader).is_dir():
        return reader
    if reader.count("/") != 1:
        return None
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        found = try_to_load_from_cache(reader, "tokenizer.json")
    except HFValidationError:
        return None
    return str(Path(found).parent) if isinstance(found, str) else None
