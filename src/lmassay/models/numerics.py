"""How far option scores move with batch size, padding side and dtype."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from lmassay.errors import LmassayError
from lmassay.models.check import tolerance
from lmassay.models.engines import CACHED, PACKED, score
from lmassay.models.lens import target_log_probs
from lmassay.models.trace import Batch, trace
from lmassay.models.tree import Continuations

if TYPE_CHECKING:
    from lmassay.models.language_model import LanguageModel

PROMPTS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("7 plus 5 equals", (" 12", " 11", " 13", " 2")),
    ("The capital of France is", (" Paris", " London", " Rome", " a city")),
    ("Water freezes at a temperature of", (" 0", " 100", " zero degrees", " 32")),
    ("If A implies B, B implies C, then A implies", (" C", " D", " not A", " B and D")),
    ("The opposite of hot is", (" cold", " warm", " dry", " very hot")),
    ("Monday, Tuesday, Wednesday,", (" Thursday", " Friday", " Sunday", " and so on")),
    ("Let a = 3, b = a + 2. Then b equals", (" 5", " 3", " 2", " 6")),
    ("A triangle has this many sides:", (" three", " four", " 3", " ten")),
)
BATCH_SIZES = (4, 16)


@dataclass(frozen=True, slots=True)
class NumericsRow:
    """One way of running the model against one sequence per forward pass in float32.

    Attributes
    ----------
    largest_change : float
        Nats, over prompts, options and depths.
    changed_decisions : int
        (prompt, depth) pairs whose best option changed.
    exceeds : bool
        Whether a float32 row moved by more than the tolerance. Other dtypes are reported, not judged.
    """

    what: str
    largest_change: float
    changed_decisions: int
    n_decisions: int
    exceeds: bool

    def to_dict(self) -> dict[str, Any]:
        """Plain fields."""
        return asdict(self)


def numerics_table(model: LanguageModel) -> list[NumericsRow]:
    """Compare batches, padding on either side, the packed and cached engines, and half precision."""
    encode = model.tokens.encode
    requests = [
        Continuations((*model.tokens.prefix, *encode(prompt)), tuple(tuple(encode(option)) for option in options))
        for prompt, options in PROMPTS
    ]
    alone = _rows(model, requests, batch_size=1)
    found = [
        *((f"batch of {n}, right padding", _rows(model, requests, batch_size=n)) for n in BATCH_SIZES),
        ("batch of 4, left padding", _rows(model, requests, batch_size=4, left=True)),
        *((f"engine {e}", _means(score(model, requests, engine=e))) for e in _engines(model)),
    ]
    limit = tolerance(model.dtype, 1.0)
    rows = [_row(f"{what}, {_name(model.dtype)}", alone, values, limit) for what, values in found]
    for dtype in (torch.bfloat16, torch.float16):
        if dtype == model.dtype:
            continue
        half = _in_dtype(model, dtype)
        try:
            values = _rows(half, requests, batch_size=1)
        except (RuntimeError, LmassayError) as error:
            # A device without kernels for the type, or an overflow in it, is no finding about the model in its own.
            why = error.what if isinstance(error, LmassayError) else str(error).splitlines()[0][:60]
            rows.append(NumericsRow(f"{_name(dtype)}: {why}", float("nan"), 0, 0, False))
        else:
            rows.append(_row(f"one sequence at a time, {_name(dtype)}", alone, values, float("inf")))
    return rows


def _engines(model: LanguageModel) -> tuple[str, ...]:
    return (PACKED, CACHED) if model.packing else (CACHED,)


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _in_dtype(model: LanguageModel, dtype: torch.dtype) -> LanguageModel:
    """A copy of the model in another precision; the one in hand stays as it is."""
    import copy

    from lmassay.models.anatomy import take_apart

    hf = copy.deepcopy(model.hf).to(dtype)
    return replace(model, hf=hf, anatomy=take_apart(hf))


def _rows(
    model: LanguageModel, requests: Sequence[Continuations], *, batch_size: int, left: bool = False
) -> list[NDArray[np.float64]]:
    """Per request (n_options, n_depths) mean log-probabilities, one option a row, padded on the side asked for."""
    flat = [(r.context, target) for r in requests for target in r.targets]
    means: list[NDArray[np.float64]] = []
    for start in range(0, len(flat), batch_size):
        chunk = flat[start : start + batch_size]
        sequences = [[*context, *target[:-1]] for context, target in chunk]
        width = max(map(len, sequences))
        ids = torch.zeros(len(chunk), width, dtype=torch.int64)
        mask = torch.zeros_like(ids)
        rows: list[int] = []
        cols: list[int] = []
        targets: list[int] = []
        for row, ((context, target), sequence) in enumerate(zip(chunk, sequences, strict=True)):
            shift = width - len(sequence) if left else 0
            ids[row, shift : shift + len(sequence)] = torch.tensor(sequence)
            mask[row, shift : shift + len(sequence)] = 1
            for at, token in enumerate(target):
                rows.append(row)
                cols.append(shift + len(context) - 1 + at)
                targets.append(token)
        position = (mask.cumsum(1) - 1).clamp_min(0)
        batch = Batch(ids.to(model.device), mask.to(model.device), position.to(model.device))
        seen = trace(model, batch, torch.tensor(rows), torch.tensor(cols), range(model.n_blocks + 1))
        values = target_log_probs(model, seen.states, torch.arange(len(rows)), torch.tensor(targets)).numpy()
        owner = np.array(rows)
        means += [values[:, owner == row].mean(1) for row in range(len(chunk))]
    starts = np.cumsum([0, *(len(r.targets) for r in requests)])
    return [np.stack(means[a:b]) for a, b in pairwise(starts)]


def _means(scores: Sequence[Sequence[NDArray[np.float64]]]) -> list[NDArray[np.float64]]:
    """Per-token scores -> (n_options, n_blocks + 1) means, without the repeated ``final``."""
    return [np.stack([tokens.mean(0)[:-1] for tokens in targets]) for targets in scores]


def _row(what: str, a: Sequence[NDArray[np.float64]], b: Sequence[NDArray[np.float64]], limit: float) -> NumericsRow:
    largest = max(float(np.abs(x - y).max()) for x, y in zip(a, b, strict=True))
    changed = sum(int((x.argmax(0) != y.argmax(0)).sum()) for x, y in zip(a, b, strict=True))
    return NumericsRow(what, largest, changed, sum(x.shape[1] for x in a), largest > limit)
