"""One forward pass over a batch: what to record, what to edit, and nothing kept beyond that."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from lmassay.errors import FAILED_PART_WAY, LmassayError
from lmassay.models.edits import Edit

if TYPE_CHECKING:
    from collections.abc import Iterator

    from transformers import PreTrainedModel

    from lmassay.models.language_model import LanguageModel


@dataclass(frozen=True)
class Batch:
    """Tokens with everything the model needs to place them.

    Attributes
    ----------
    input_ids : (batch, tokens) int64
    attention_mask : (batch, past + tokens) int64, or (batch, 1, tokens, tokens) additive float
        Two-dimensional with 1 for a token and 0 for padding, or added to the attention scores.
    position_ids : (batch, tokens) int64
    """

    input_ids: Tensor
    attention_mask: Tensor
    position_ids: Tensor


@dataclass(frozen=True)
class Trace:
    """What one forward pass left behind.

    Attributes
    ----------
    states : (n_depths, n, d_model)
        Residual stream at the recorded depths and tokens; ``final`` is the state the final norm reads.
    logits : (n, vocabulary) or None
        The model's own output at the recorded tokens, when asked for.
    sites : dict of str to (n, d_model)
        Outputs of the recorded components at the recorded tokens.
    """

    states: Tensor
    logits: Tensor | None
    sites: dict[str, Tensor]


@dataclass(frozen=True)
class Resume:
    """Begin after a block instead of at the embedding: blocks up to `block` are not run.

    Attributes
    ----------
    block : int
        The last block left out.
    states : (batch, tokens, d_model)
        Its output.
    """

    block: int
    states: Tensor


class _Reached(Exception):  # noqa: N818 - a signal, not an error
    """The last block has run and nothing after it was asked for."""


def site_module(model: LanguageModel, site: str) -> nn.Module:
    """The module whose output is the site ``block.<i>``, ``block.<i>.attention`` or ``block.<i>.mlp``.

    ``block.<i>.heads`` is what the attention's output projection reads: every head's share, side by side.

    Raises
    ------
    ValueError
        If the model has no such site.
    """
    parts = site.split(".")
    module: nn.Module | None = None
    if len(parts) in (2, 3) and parts[0] == "block" and parts[1].isdecimal() and int(parts[1]) < model.n_blocks:
        index = int(parts[1])
        if len(parts) == 2:
            module = model.anatomy.blocks[index]
        elif parts[2] == "attention":
            module = model.anatomy.attention[index]
        elif parts[2] == "mlp":
            module = model.anatomy.mlp[index]
        elif parts[2] == "heads":
            module = model.anatomy.out_projection[index]
    if module is None:
        raise ValueError(
            f"{model.name} has no site {site!r}; sites are embed, block.<i>, block.<i>.attention|mlp|heads"
        )
    return module


def _first(output: Any) -> Tensor:
    tensor: Tensor = output[0] if isinstance(output, tuple) else output
    return tensor


def _with_first(output: Any, tensor: Tensor) -> Any:
    return (tensor, *output[1:]) if isinstance(output, tuple) else tensor


@contextmanager
def _watch(
    model: LanguageModel, site: str, see: Callable[[Tensor], Tensor | None], fired: dict[str, int]
) -> Iterator[None]:
    """Show `see` the site's tensor during the forward pass; what it returns, if anything, takes its place."""
    fired[site] = 0
    if site == "embed" or site.endswith(".heads"):

        def before(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            fired[site] += 1
            named = not args
            state: Tensor = kwargs["hidden_states"] if named else args[0]
            edited = see(state)
            if edited is None:
                return None
            return (args, kwargs | {"hidden_states": edited}) if named else ((edited, *args[1:]), kwargs)

        read_by = model.anatomy.blocks[0] if site == "embed" else site_module(model, site)
        handle = read_by.register_forward_pre_hook(before, with_kwargs=True)
    else:

        def after(_: nn.Module, __: Any, output: Any) -> Any:
            fired[site] += 1
            edited = see(_first(output))
            return None if edited is None else _with_first(output, edited)

        handle = site_module(model, site).register_forward_hook(after)
    try:
        yield
    finally:
        handle.remove()


@contextmanager
def _skipped(model: LanguageModel, resume: Resume) -> Iterator[None]:
    """Put functions that only hand on the resumed states in the place of the blocks left out."""
    blocks = list(model.anatomy.blocks)[: resume.block + 1]

    def hand_on(*_: Any, **__: Any) -> Any:
        return (resume.states,) if model.tuple_blocks else resume.states

    # accelerate keeps a forward of its own on the instance; elsewhere there is none.
    before = [block.__dict__.get("forward") for block in blocks]
    for block in blocks:
        block.__dict__["forward"] = hand_on
    try:
        yield
    finally:
        for block, forward in zip(blocks, before, strict=True):
            if forward is None:
                del block.__dict__["forward"]
            else:
                block.__dict__["forward"] = forward


@torch.inference_mode()
def returns_tuple(model: LanguageModel, batch: Batch) -> bool:
    """Whether a block hands on a tuple, as in older architectures, or a plain tensor."""
    found = []

    def see(_: nn.Module, __: Any, output: Any) -> None:
        found.append(isinstance(output, tuple))
        raise _Reached

    handle = model.anatomy.blocks[0].register_forward_hook(see)
    try:
        with suppress(_Reached):
            model.hf(
                input_ids=batch.input_ids,
                attention_mask=batch.attention_mask,
                position_ids=batch.position_ids,
                use_cache=False,
            )
    finally:
        handle.remove()
    return found[0]


def _depth_site(model: LanguageModel, depth: int) -> str:
    """The site read for a depth: ``final`` is read where the last block hands over to the final norm."""
    return model.depths[min(depth, model.n_blocks)]


def _block_of(site: str) -> int:
    """The block a site belongs to; the embedding comes before the first."""
    parts = site.split(".")
    return int(parts[1]) if len(parts) > 1 and parts[1].isdecimal() else -1


def _cache_argument(hf: PreTrainedModel) -> str:
    """What the installed transformers calls the cache: ``past_key_values`` became ``cache`` within version 5."""
    return "cache" if "cache" in inspect.signature(hf.forward).parameters else "past_key_values"


@torch.inference_mode()
def trace(
    model: LanguageModel,
    batch: Batch,
    rows: Tensor,
    cols: Tensor,
    depths: Sequence[int] | None = None,
    *,
    edits: Sequence[Edit] = (),
    record_sites: Sequence[str] = (),
    logits: bool = False,
    cache: Any = None,
    resume: Resume | None = None,
) -> Trace:
    """Run the body once, apply the edits in order, and record the residual stream at chosen depths and tokens.

    The pass ends with the last block that is read or edited, before final norm and head, unless they are asked for.

    Parameters
    ----------
    rows, cols : (n,) int64
        The tokens recorded.
    depths : sequence of int, optional
        Indices into ``model.depths``; all of them by default.
    edits : sequence of Edit
        At one site an edit is seen by what is recorded there.
    record_sites : sequence of str
        Components recorded besides.
    logits : bool
        Also run final norm and head, and return the model's own logits at the recorded tokens.
    cache : transformers.Cache, optional
        Extended in place.
    resume : Resume, optional
        Leave the first blocks out; what is recorded or edited must come at or after the last of them.

    Raises
    ------
    LmassayError
        ``model-failed-self-check`` when a site was not reached exactly once.
    """
    wanted = tuple(range(len(model.depths))) if depths is None else tuple(depths)
    kept: dict[str, Tensor] = {}
    fired: dict[str, int] = {}
    by_site: dict[str, list[Edit]] = {}
    for edit in edits:
        by_site.setdefault(edit.site, []).append(edit)
    recorded = {_depth_site(model, d) for d in wanted} | set(record_sites)
    # Nothing after the deepest block that is read or edited is run, unless a cache is to be filled to the end.
    last = _depth_site(model, model.n_blocks)
    if cache is None and (asked := recorded | set(by_site)):
        last = f"block.{max(0, *map(_block_of, asked))}"

    def seer(site: str) -> Callable[[Tensor], Tensor | None]:
        def see(state: Tensor) -> Tensor | None:
            shape = state.shape
            if state.ndim == 2:
                # OPT flattens batch and tokens around its MLP.
                state = state.reshape(*batch.input_ids.shape, -1)
            edited = None
            for edit in by_site.get(site, ()):
                edited = edit.apply(state if edited is None else edited)
            if site in recorded:
                now = state if edited is None else edited
                kept[site] = now[rows.to(now.device), cols.to(now.device)]
            if site == last and not logits:
                raise _Reached
            return None if edited is None else edited.reshape(shape)

        return see

    output: Any = None
    with ExitStack() as stack:
        if resume is not None:
            stack.enter_context(_skipped(model, resume))
        for site in sorted(recorded | set(by_site) | {last}):
            stack.enter_context(_watch(model, site, seer(site), fired))
        extra: dict[str, Any] = {} if cache is None else {_cache_argument(model.hf): cache}
        with suppress(_Reached):
            output = model.hf(
                input_ids=batch.input_ids,
                attention_mask=batch.attention_mask,
                position_ids=batch.position_ids,
                use_cache=cache is not None,
                **extra,
            )
    for site, count in fired.items():
        if count != 1:
            raise LmassayError(
                "model-failed-self-check",
                f"{model.name}: {site} ran {count} times in one forward pass",
                "the architecture cannot be traced; try another model or report its family",
                exit_status=FAILED_PART_WAY,
            )
    device = model.anatomy.head.weight.device
    states = [kept[_depth_site(model, d)].to(device) for d in wanted]
    empty = torch.empty(0, len(rows), model.anatomy.embedding.embedding_dim, device=device)
    return Trace(
        states=torch.stack(states) if states else empty,
        logits=None if output is None else output.logits[rows.to(output.logits.device), cols.to(output.logits.device)],
        sites={site: kept[site] for site in record_sites},
    )
