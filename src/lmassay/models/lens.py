"""The lens: residual states read as log-probabilities of chosen tokens, never the whole vocabulary at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from lmassay.errors import FAILED_PART_WAY, LmassayError
from lmassay.models.readout import head_input
from lmassay.models.tuned_lens import translated

if TYPE_CHECKING:
    from lmassay.models.language_model import LanguageModel

#: Rows and vocabulary entries projected together. The weights as left factor of the product make it faster, the
#: blocks keep rows x vocabulary out of memory at no cost: see ``benchmarks/lens_block.py``.
ROWS = 512
VOCABULARY_BLOCK = 4096


@torch.inference_mode()
def target_log_probs(
    model: LanguageModel, states: Tensor, context: Tensor, target: Tensor, *, depths: Sequence[int] | None = None
) -> Tensor:
    """Log-probability of chosen next tokens under the model's lens, softmax over the whole vocabulary.

    Parameters
    ----------
    states : (n_depths, n, d_model)
        Residual states at n tokens.
    context : (n_targets,) int64
        Which of the n tokens each target follows.
    target : (n_targets,) int64
        Token ids.
    depths : sequence of int, optional
        Where the states were recorded, as indices into ``model.depths``; by default ``embed`` and every block.

    Returns
    -------
    (n_depths, n_targets) float64, nats, on the CPU

    Raises
    ------
    LmassayError
        ``non-finite-logits`` when a lens distribution has no finite normaliser.
    ValueError
        When it is not said where fewer states than there are depths were recorded, and the lens needs to know.
    """
    n_depths, n, _ = states.shape
    if depths is None:
        depths = range(n_depths)
        if model.lens is not None and n_depths != model.n_blocks + 1:
            raise ValueError(f"{n_depths} states for {model.n_blocks + 1} depths: a tuned lens needs `depths`")
    rows = torch.cat([head_input(model, translated(model, s, d)) for s, d in zip(states, depths, strict=True)])
    log_z = torch.cat([_log_normaliser(model, rows[at : at + ROWS]) for at in range(0, len(rows), ROWS)])
    if not bool(torch.isfinite(log_z).all()):
        depth = int((~torch.isfinite(log_z)).nonzero()[0, 0]) // n
        raise LmassayError(
            "non-finite-logits",
            f"{model.name}: NaN or infinite logits (recorded depth {depth} of {n_depths}, {model.dtype})",
            "check the weights with `lmassay models check`; in a 16-bit type, use --dtype float32",
            exit_status=FAILED_PART_WAY,
        )
    device = rows.device
    context, target = context.to(device), target.to(device)
    weight, bias = model.anatomy.head.weight[target].to(rows), model.anatomy.head.bias
    at_context = rows.view(n_depths, n, -1)[:, context]
    logits = torch.einsum("ltd,td->lt", at_context, weight)
    if bias is not None:
        logits = logits + bias[target].to(rows)
    logits = model.anatomy.finish(logits)
    return (logits.double() - log_z.view(n_depths, n)[:, context].double()).cpu()


def _log_normaliser(model: LanguageModel, rows: Tensor) -> Tensor:
    """(n,) log-sum-exp over the vocabulary for (n, d_head) head inputs, block by block of the vocabulary."""
    weight, bias = model.anatomy.head.weight, model.anatomy.head.bias
    columns = rows.t().contiguous()
    highest = torch.full((len(rows),), -torch.inf, dtype=rows.dtype, device=rows.device)
    total = torch.zeros_like(highest)
    for at in range(0, weight.shape[0], VOCABULARY_BLOCK):
        logits = weight[at : at + VOCABULARY_BLOCK].to(rows) @ columns
        if bias is not None:
            logits += bias[at : at + VOCABULARY_BLOCK, None].to(rows)
        logits = model.anatomy.finish(logits)
        now = torch.maximum(highest, logits.amax(0))
        total = total * torch.exp(highest - now) + logits.sub_(now).exp_().sum(0)
        highest = now
    return highest + total.log()
