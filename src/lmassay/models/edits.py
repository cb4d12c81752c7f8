"""Edits of a forward pass: what takes the place of a site's output."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Replace:
    """Put `values` (n, d_model) at the n tokens (`rows`, `cols`) of a site."""

    site: str
    rows: Tensor
    cols: Tensor
    values: Tensor

    def apply(self, state: Tensor) -> Tensor:
        """(batch, tokens, d_model) with the tokens replaced."""
        edited = state.clone()
        edited[self.rows.to(state.device), self.cols.to(state.device)] = self.values.to(state)
        return edited


@dataclass(frozen=True)
class Zero:
    """Zero a site at all tokens: the sublayer's whole output, biases included."""

    site: str

    def apply(self, state: Tensor) -> Tensor:
        """(batch, tokens, d_model) zeros."""
        return torch.zeros_like(state)


@dataclass(frozen=True)
class Mean:
    """Put one `vector` (d_model,) at all tokens of a site."""

    site: str
    vector: Tensor

    def apply(self, state: Tensor) -> Tensor:
        """(batch, tokens, d_model), every token the same."""
        return self.vector.to(state).expand_as(state).clone()


@dataclass(frozen=True)
class Resample:
    """Put another task's states at all tokens of a site; `values` (batch, tokens, d_model) are already aligned."""

    site: str
    values: Tensor

    def apply(self, state: Tensor) -> Tensor:
        """(batch, tokens, d_model) of the donor.

        Raises
        ------
        ValueError
            If the donor's states have another shape: aligning them is the caller's decision.
        """
        if self.values.shape != state.shape:
            raise ValueError(f"donor states {tuple(self.values.shape)} do not fit site {tuple(state.shape)}")
        return self.values.to(state)


@dataclass(frozen=True)
class Columns:
    """Confine an edit to the columns `start` to `stop` of a site: one head's share of what attention projects."""

    edit: Zero | Mean | Resample
    start: int
    stop: int

    @property
    def site(self) -> str:
        """Where the edit takes place."""
        return self.edit.site

    def apply(self, state: Tensor) -> Tensor:
        """(batch, tokens, width) with the columns edited."""
        edited = state.clone()
        edited[..., self.start : self.stop] = self.edit.apply(state[..., self.start : self.stop])
        return edited


Edit = Replace | Zero | Mean | Resample | Columns
