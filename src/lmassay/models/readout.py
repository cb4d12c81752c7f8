"""From a residual state to logits: final norm, projection, head and the model's own soft-cap or scaling."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from lmassay.models.language_model import LanguageModel


def _wide(module: nn.Module, dtype: torch.dtype) -> nn.Module:
    """A copy of a small module (a norm, a projection) in the head's arithmetic.

    Made anew each time: one kept from before would outlive a change of the weights.
    """
    return copy.deepcopy(module).to(dtype)


def readout_dtype(model: LanguageModel) -> torch.dtype:
    """float32, or float64 where the body itself is float64."""
    return torch.promote_types(model.dtype, torch.float32)


def head_input(model: LanguageModel, states: Tensor) -> Tensor:
    """(n, d_model) residual states before the final norm -> (n, d_head) float32 or wider, as the head reads them.

    The statistics of the norm are those of the states given, never of another depth's.
    """
    dtype = readout_dtype(model)
    rows = states.to(model.anatomy.head.weight.device, dtype)
    for module in (model.anatomy.norm, model.anatomy.projection):
        if module is not None:
            rows = (module if model.dtype == dtype else _wide(module, dtype))(rows)
    return rows


def lens_logits(model: LanguageModel, states: Tensor) -> Tensor:
    """(n, d_model) residual states -> (n, vocabulary) logits in float32 or wider, over the whole vocabulary."""
    rows = head_input(model, states)
    head = model.anatomy.head
    bias = None if head.bias is None else head.bias.to(rows)
    return model.anatomy.finish(nn.functional.linear(rows, head.weight.to(rows), bias))
