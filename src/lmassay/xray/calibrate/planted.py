"""Models in which it is known where the answer appears and where it is lost.

A block whose two projections write nothing is the identity. Put before a skilled model's blocks, it leaves the
embedding's lens at every depth up to them; put after, it leaves the output's. A block that turns the residual stream
round makes the likeliest option the unlikeliest: what was known is lost, and one patch restores it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from lmassay.xray.calibrate.models import Stack, n_blocks_of

#: Times the normed residual that the reversing block takes off: more than the residual's own deviation, so that its
#: sign turns.
REVERSED = 100.0
_NUMBERED = re.compile(r"(\d+)\.(.*)")


def identity_block(stack: Mapping[str, Tensor]) -> Stack:
    """The tensors of a block like the stack's first that adds nothing to the residual stream."""
    block = {m[2]: t.clone() for name, t in stack.items() if (m := _NUMBERED.fullmatch(name)) and m[1] == "0"}
    for name in ("out", "down"):
        block[f"{name}.weight"] = torch.zeros_like(block[f"{name}.weight"])
        block[f"{name}.bias"] = torch.zeros_like(block[f"{name}.bias"])
    return block


def reversing_block(stack: Mapping[str, Tensor]) -> Stack:
    """A block that turns the residual stream round its mean: its final norm is the negative of what it was."""
    block = identity_block(stack)
    width, inner = block["up.weight"].shape[1:]
    up, down = torch.zeros(width, inner), torch.zeros(inner, width)
    # relu(h) - relu(-h) = h, so the two halves together pass the normed residual on.
    up[:, :width], up[:, width : 2 * width] = torch.eye(width), -torch.eye(width)
    down[:width], down[width : 2 * width] = -REVERSED * torch.eye(width), REVERSED * torch.eye(width)
    n_models = len(stack["tokens"])
    block["up.weight"], block["down.weight"] = up.expand(n_models, -1, -1), down.expand(n_models, -1, -1)
    block["ln2.weight"] = torch.ones_like(block["ln2.weight"])
    for name in ("up.bias", "ln2.bias"):
        block[name] = torch.zeros_like(block[name])
    return block


def with_prepended(stack: Mapping[str, Tensor], k: int) -> Stack:
    """`k` identity blocks before the model's own."""
    return _with_blocks(stack, [identity_block(stack)] * k, [])


def with_appended(stack: Mapping[str, Tensor], k: int) -> Stack:
    """`k` identity blocks after the model's own."""
    return _with_blocks(stack, [], [identity_block(stack)] * k)


def with_destroying_tail(stack: Mapping[str, Tensor]) -> Stack:
    """A reversing block after the model's own, and an identity block after that.

    The identity block stands last because carrying a state forward into the last block only reads that state.
    """
    return _with_blocks(stack, [], [reversing_block(stack), identity_block(stack)])


def _with_blocks(stack: Mapping[str, Tensor], before: Sequence[Stack], after: Sequence[Stack]) -> Stack:
    own = [
        {m[2]: t for name, t in stack.items() if (m := _NUMBERED.fullmatch(name)) and int(m[1]) == i}
        for i in range(n_blocks_of(stack))
    ]
    outside = {name: tensor for name, tensor in stack.items() if not _NUMBERED.fullmatch(name)}
    blocks = {f"{i}.{name}": t for i, block in enumerate([*before, *own, *after]) for name, t in block.items()}
    return outside | blocks


@dataclass(frozen=True, slots=True)
class RightPatch:
    """The one patch that restores what a destroying tail loses.

    Attributes
    ----------
    source : int
        Index among the depths: the output of the model's own last block.
    target : int
        Block whose output it replaces: the reversing one.
    """

    source: int
    target: int


def right_patch(original: Mapping[str, Tensor]) -> RightPatch:
    """Where the answer of `with_destroying_tail(original)` is restored.

    Carried from any other depth into the reversing block's output, a state comes out as the lens of that depth; carried
    into an earlier block, it is turned round all the same.
    """
    n = n_blocks_of(original)
    return RightPatch(source=n, target=n)


def expected_depths(original: Mapping[str, Tensor], *, prepended: int = 0, appended: int = 0) -> list[int]:
    """For each depth of the lengthened model, the depth of the original whose lens it must show.

    ``embed`` is 0, block i is i + 1, ``final`` comes last.
    """
    n = n_blocks_of(original)
    return [0] * (prepended + 1) + list(range(1, n + 1)) + [n] * appended + [n + 1]
