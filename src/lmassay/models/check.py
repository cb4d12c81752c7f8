"""The self-check: does this model behave as every measurement assumes? Refused with a figure if not."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from lmassay.errors import LmassayError
from lmassay.models.edits import Replace
from lmassay.models.engines import run_rows
from lmassay.models.readout import lens_logits
from lmassay.models.trace import Batch, returns_tuple, trace
from lmassay.models.tree import Continuations, Tree, plan

if TYPE_CHECKING:
    from lmassay.models.language_model import LanguageModel

_TOKENS = 8
#: A wrong mask moves log-probabilities by hundredths of a nat; rounding on random tokens stays within a few tolerances.
PACKING_SLACK = 5


@dataclass(frozen=True, slots=True)
class CheckReport:
    """Figures of one self-check, all in nats of log-probability.

    Attributes
    ----------
    lens_of_last_block : float
        Largest difference between the lens of the last block and the model's own output.
    identity_edit : float
        Largest change when a block's output is replaced by itself; exactly 0.
    right_padding : float
        Largest difference between a right-padded row and the row alone.
    packed : float or None
        Largest difference between packed branches and one sequence at a time; None where packing raised.
    tolerance : float
        What each may be at most (the identity edit: 0).
    """

    lens_of_last_block: float
    identity_edit: float
    right_padding: float
    packed: float | None
    tolerance: float

    def to_dict(self) -> dict[str, float | None]:
        """Plain figures by name."""
        return asdict(self)


def tolerance(dtype: torch.dtype, largest_logit: float) -> float:
    """Nats two routes may differ by: rounding of one head product in the body's own precision."""
    if torch.finfo(dtype).bits >= 32:
        return 1e-4
    return 4 * torch.finfo(dtype).eps * max(1.0, largest_logit)


@torch.inference_mode()
def self_check(model: LanguageModel) -> tuple[LanguageModel, CheckReport]:
    """Check the model on random tokens; returns it with `packing` decided, and the figures.

    Raises
    ------
    LmassayError
        ``model-failed-self-check`` with the figure; ``non-finite-logits``.
    """
    n_vocabulary = min(model.anatomy.embedding.num_embeddings, model.anatomy.head.out_features)
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(0, n_vocabulary, (2, _TOKENS), generator=generator).to(model.device)
    rows = torch.arange(2).repeat_interleave(_TOKENS)
    cols = torch.arange(_TOKENS).repeat(2)
    batch = _batch(ids, torch.ones_like(ids))
    middle = model.n_blocks // 2
    components = [
        f"block.{i}.{kind}"
        for i in range(model.n_blocks)
        for kind, parts in (("attention", model.anatomy.attention), ("mlp", model.anatomy.mlp))
        if parts[i] is not None
    ]
    seen = trace(model, batch, rows, cols, record_sites=components, logits=True)
    own = _log_probs(seen.logits)
    if not bool(torch.isfinite(own).all()):
        raise LmassayError(
            "non-finite-logits",
            f"{model.name}: NaN or infinite logits on random tokens in {model.dtype}",
            "use --dtype float32, or check the weights",
        )
    allowed = tolerance(model.dtype, float(seen.logits.abs().max()))  # type: ignore[union-attr]
    lens = _gap(own, _log_probs(lens_logits(model, seen.states[-1])))
    same = Replace(f"block.{middle}", rows, cols, seen.states[middle + 1])
    edited = trace(model, batch, rows, cols, (), edits=[same], logits=True)
    identity = _gap(own, _log_probs(edited.logits))
    padding = _right_padding(model, ids, own)
    for what, figure, limit in (
        ("the lens of its last block differs from its own output", lens, allowed),
        ("replacing a block's output by itself changes its output", identity, 0.0),
        ("a right-padded row differs from the row alone", padding, allowed),
    ):
        if not figure <= limit:
            raise LmassayError(
                "model-failed-self-check",
                f"{model.name}: {what} by {figure:.2g} nats (allowed: {limit:.2g})",
                "its architecture is not read rightly, so nothing is measured; report its family",
            )
    packed = _packing(model, n_vocabulary, generator)
    report = CheckReport(lens, identity, padding, packed, allowed)
    fits = packed is not None and packed <= PACKING_SLACK * allowed
    figures = {k: v for k, v in report.to_dict().items() if v is not None}
    return replace(model, packing=fits, tuple_blocks=returns_tuple(model, batch), numerics=figures), report


def _batch(ids: Tensor, mask: Tensor) -> Batch:
    return Batch(ids, mask, (mask.cumsum(1) - 1).clamp_min(0))


def _log_probs(logits: Tensor | None) -> Tensor:
    assert logits is not None
    return torch.log_softmax(logits.to(torch.promote_types(logits.dtype, torch.float32)).cpu(), -1)


def _gap(a: Tensor, b: Tensor) -> float:
    return float((a - b).abs().max())


def _right_padding(model: LanguageModel, ids: Tensor, own: Tensor) -> float:
    """The first row three tokens shorter, beside a full one: its log-probabilities against the full pass."""
    short = _TOKENS - 3
    mask = torch.ones_like(ids)
    mask[0, short:] = 0
    cols = torch.arange(short)
    seen = trace(model, _batch(ids, mask), torch.zeros_like(cols), cols, (), logits=True)
    return _gap(own[:short], _log_probs(seen.logits))


def _packing(model: LanguageModel, n_vocabulary: int, generator: torch.Generator) -> float | None:
    """Branches packed into one row against each in a row of its own, at the output."""
    ids = torch.randint(0, n_vocabulary, (8,), generator=generator).tolist()
    request = Continuations(tuple(ids[:4]), ((ids[4], ids[5], ids[7]), (ids[4], ids[6], ids[7]), (ids[6], ids[7])))
    (tree,) = plan(request, len(ids)).trees
    sequences = [[*request.context, *target[:-1]] for target in request.targets]
    width = max(map(len, sequences))
    padded = torch.tensor([ids + [0] * (width - len(ids)) for ids in sequences])
    mask = torch.tensor([[1] * len(ids) + [0] * (width - len(ids)) for ids in sequences])
    rows = torch.arange(len(sequences))
    cols = mask.sum(1) - 1
    alone = trace(model, _batch(padded.to(model.device), mask.to(model.device)), rows, cols, (), logits=True)
    try:
        states, context, _ = run_rows(model, [tree])
    except (TypeError, ValueError, RuntimeError, IndexError, LmassayError):
        # Families that derive positions or biases from a two-dimensional mask refuse a block mask in many ways.
        return None
    ends = [context[int((tree.edge_node == node).nonzero()[0][0])] for node in _ends(tree, sequences)]
    packed = _log_probs(lens_logits(model, states[-1][torch.stack(ends)]))
    return _gap(_log_probs(alone.logits), packed)


def _ends(tree: Tree, sequences: list[list[int]]) -> list[int]:
    """The node each sequence ends at."""
    ends = []
    for sequence in sequences:
        node = -1
        for token in sequence:
            node = next(n for n in range(len(tree)) if int(tree.parents[n]) == node and int(tree.tokens[n]) == token)
        ends.append(node)
    return ends
