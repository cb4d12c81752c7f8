"""What a run's probe used of one example: its tokens with what each contributed to the score."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lmassay.cot.probing import kept_method, open_activations
from lmassay.errors import LmassayError
from lmassay.methods.contributions import Contributing, Contributions
from lmassay.storage.runs import finished_record, read_scores

if TYPE_CHECKING:
    from collections.abc import Callable

    from lmassay.cot.task import TaskData
    from lmassay.examples import VisibleExample
    from lmassay.methods.activations import Activations

#: Tokens on either side of one that is shown.
AROUND = 5


@dataclass(frozen=True)
class ProbeView:
    """One example as a probe read it.

    Attributes
    ----------
    method, reader : str
    split : str
    key : int
    threshold : float or None
        The run's; None where it has none.
    contributions : Contributions
    texts, kinds : tuple of str
        Of every kept token: its text, and the kind of segment it is in.
    """

    method: str
    reader: str
    split: str
    key: int
    threshold: float | None
    contributions: Contributions
    texts: tuple[str, ...]
    kinds: tuple[str, ...]

    def around(self, place: int) -> tuple[str, str]:
        """What stands before and after a token, `AROUND` tokens each."""
        first = max(0, place - AROUND)
        return "".join(self.texts[first:place]), "".join(self.texts[place + 1 : place + 1 + AROUND])

    def to_dict(self, n: int) -> dict[str, Any]:
        """JSON-ready, with the `n` largest contributions."""
        found = self.contributions
        return {
            "method": self.method,
            "reader": self.reader,
            "split": self.split,
            "key": self.key,
            "score": found.score,
            "threshold": self.threshold,
            "rest": found.rest,
            "what": found.what,
            "notes": list(found.notes),
            "n_tokens": len(self.texts),
            "tokens": [
                {"place": i, "text": self.texts[i], "kind": self.kinds[i], "contribution": float(found.values[i])}
                for i in found.largest(n)
            ],
        }


def run_of_probe(run: Path) -> dict[str, Any]:
    """The record of a finished run whose method reads activations.

    Raises
    ------
    LmassayError
        ``bad-run-folder``; ``bad-request`` for a run of another kind.
    """
    record = finished_record(run)
    if record["identity"].get("suite") != "cot" or "activations" not in record["identity"]:
        raise LmassayError(
            "bad-request", f"{run} is no run of a method that reads activations", "name one, such as of linear"
        )
    return record


def view_probe(
    run: Path,
    data: TaskData,
    split: str,
    example: VisibleExample,
    text_of: Callable[[str, list[int]], list[str]],
    activations: Path | Activations | None = None,
) -> ProbeView:
    """What a run's probe used of an example.

    Parameters
    ----------
    text_of : callable
        A reader's name and token ids -> the text of each token.
    activations : path or Activations, optional
        Default: where they were when the run was made.

    Raises
    ------
    LmassayError
        ``bad-request`` where the run is of another task or other activations, or cannot say what it used;
        ``bad-run-folder``.
    """
    record = run_of_probe(run)
    identity = record["identity"]
    if identity["task"]["id"] != data.task.id:
        raise LmassayError(
            "bad-request", f"{run} is a run on {identity['task']['id']}, not on {data.task.id}", "name its own task"
        )
    store = store_of(run, record, activations)
    name = str(identity["method"]["id"])
    method = kept_method(run, name, store)
    if not isinstance(method, Contributing):
        raise LmassayError("bad-request", f"method {name} does not say what it used", "choose another run")
    found = _whole(method.contributions(example), method, example)
    ids = store.token_ids(example.key).tolist()
    threshold = read_scores(run).get("thresholds", {}).get(name, {}).get("value")
    texts = tuple(text_of(store.model, ids))
    kinds = [""] * len(ids)
    for kind, start, stop in store.spans(example.key):
        kinds[start:stop] = [kind] * (stop - start)
    return ProbeView(name, store.model, split, example.key, threshold, found, texts, tuple(kinds))


def store_of(run: Path, record: dict[str, Any], activations: Path | Activations | None) -> Activations:
    """The activations a run was made from: those named, or else where they were then.

    Raises
    ------
    LmassayError
        ``bad-request`` where they are not known, or others.
    """
    where = activations if activations is not None else record.get("activations")
    if where is None:
        raise LmassayError("bad-request", f"{run} does not say where its activations are", "add --activations DIR")
    store = open_activations(where)
    if store.fingerprint != record["identity"]["activations"]["sha256"]:
        raise LmassayError(
            "bad-request",
            f"{where} holds other activations than those that {run} was made from",
            "name those, or run again",
        )
    return store


def _whole(found: Any, method: Any, example: VisibleExample) -> Contributions:
    """Contributions as they are, or of an array alone."""
    if isinstance(found, Contributions):
        return found
    score = float(method.score([example])[0])
    return Contributions(np.asarray(found, np.float64), score, None, "contribution as the method gives it")
