"""Parts of a model that can be ablated: each block's attention and MLP output, and single attention heads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lmassay.errors import LmassayError

if TYPE_CHECKING:
    from lmassay.models.language_model import LanguageModel

ATTENTION, MLP, HEAD = "attention", "mlp", "head"


@dataclass(frozen=True, slots=True)
class Component:
    """What is replaced.

    Attributes
    ----------
    site : str
        Where, as `trace` names it.
    columns : tuple of int or None
        The head's share of a site that holds all heads side by side.
    """

    block: int
    kind: str
    head: int | None
    site: str
    columns: tuple[int, int] | None = None

    @property
    def name(self) -> str:
        """``block.<i>.attention``, ``block.<i>.mlp`` or ``block.<i>.head.<h>``."""
        return f"block.{self.block}.{self.kind}" + ("" if self.head is None else f".{self.head}")


def components_of(model: LanguageModel, *, heads: bool = False) -> list[Component]:
    """Every block's attention and MLP and, if asked for, every query head, block by block.

    Raises
    ------
    LmassayError
        ``model-not-supported`` when the architecture's attention or MLP was not found.
    """
    found = []
    for block in range(model.n_blocks):
        for kind, parts in ((ATTENTION, model.anatomy.attention), (MLP, model.anatomy.mlp)):
            if parts[block] is None:
                raise _not_found(model, block, kind)
            found.append(Component(block, kind, None, f"block.{block}.{kind}"))
        if heads:
            n_heads = model.hf.config.get_text_config().num_attention_heads
            width = _projected(model, block)
            if width % n_heads:
                raise _not_found(model, block, f"{n_heads} heads")
            size = width // n_heads
            found += [
                Component(block, HEAD, h, f"block.{block}.heads", (h * size, (h + 1) * size)) for h in range(n_heads)
            ]
    return found


def _projected(model: LanguageModel, block: int) -> int:
    """Width of what the attention's output projection reads."""
    projection = model.anatomy.out_projection[block]
    weight = getattr(projection, "weight", None)
    if projection is None or weight is None or weight.ndim != 2:
        raise _not_found(model, block, "attention's output projection")
    # GPT-2's Conv1D keeps its weight the other way round.
    return int(weight.shape[0] if type(projection).__name__ == "Conv1D" else weight.shape[1])


def _not_found(model: LanguageModel, block: int, what: str) -> LmassayError:
    return LmassayError(
        "model-not-supported",
        f"{model.name}: no {what} was found in block {block}",
        "leave the ablation phase out, or add a row to the family table",
    )
