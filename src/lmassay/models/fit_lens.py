"""Fit a tuned lens: translators that bring each depth's distribution near the final one, from the identity on.

Minimised is KL(final ‖ lens), as in Belrose et al. (2023); each depth is a problem of its own, clipped on its own.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor
from torch.nn import functional

from lmassay.errors import FAILED_PART_WAY, LmassayError
from lmassay.measures.intervals import Estimate, Resampling, mean_estimate
from lmassay.models.lens_text import chosen, sequences, sequences_per_step
from lmassay.models.readout import lens_logits, readout_dtype
from lmassay.models.trace import Batch, trace
from lmassay.models.tuned_lens import CONFIG, LENS_TYPE, PARAMETERS, parameters_digest, unembedding_hash, width
from lmassay.seeds import generator
from lmassay.storage.atomic import write_json, write_with
from lmassay.storage.held import LOCK, held_folder

if TYPE_CHECKING:
    from lmassay.models.language_model import LanguageModel

CHECKPOINT = "fit.safetensors"
#: Rows projected onto the vocabulary together, one depth at a time.
ROWS = 256
#: Tokens of one forward pass.
BATCH_TOKENS = 1024
MOMENTUM = 0.9
#: A fit that is killed loses no more than this.
CHECKPOINT_SECONDS = 20.0

#: Called with (units done, units in all): steps, then held-out sequences.
Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class FitSettings:
    """What decides a lens besides model and text.

    Attributes
    ----------
    lr : float
        Of SGD with Nesterov momentum, falling to zero in a straight line; 1 is what the paper recommends.
    """

    steps: int = 100
    tokens_per_step: int = 512
    lr: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        if self.steps < 1 or self.tokens_per_step < 1 or not 0 < self.lr < float("inf"):
            raise LmassayError(
                "bad-request", "--steps, --tokens-per-step and --lr are positive", "leave them out for defaults"
            )


@dataclass(frozen=True, slots=True)
class FitResult:
    """A fitted lens.

    Attributes
    ----------
    held_out : dict of str to dict of str to Estimate
        Per depth ``before`` (the logit lens), ``after`` and ``change``: KL to the final distribution in nats, mean
        over held-out tokens, its interval over sequences.
    resumed_step : int
        Steps found done.
    """

    path: Path
    sha256: str
    held_out: dict[str, dict[str, Estimate]]
    n_tokens: int
    resumed_step: int

    @property
    def worse(self) -> tuple[str, ...]:
        """Depths at which the lens is surely further from the final distribution than the logit lens."""
        return tuple(d for d, e in self.held_out.items() if e["change"].low is not None and e["change"].low > 0)

    def to_dict(self) -> dict[str, Any]:
        """Plain fields."""
        return asdict(self) | {"path": str(self.path), "worse": list(self.worse)}


def fit_lens(
    model: LanguageModel,
    text: str,
    out: Path,
    settings: FitSettings,
    *,
    replace_other: bool = False,
    progress: Progress | None = None,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
) -> FitResult:
    """Fit a lens and leave its folder; stopped anywhere, the same call goes on where it stopped.

    Parameters
    ----------
    out : Path
        Made if needed. A lens fitted in the same way that is already there is read.
    replace_other : bool
        Whether a lens fitted otherwise may be replaced.

    Raises
    ------
    LmassayError
        ``bad-request``, ``run-folder-mismatch``, ``run-folder-in-use``, ``out-folder-unwritable``,
        ``non-finite-logits``.
    """
    with _held(out):
        cut = sequences(model, text, settings.tokens_per_step)
        identity = _identity(model, cut.sha256, settings)
        done = _finished(out, identity, replace_other=replace_other)
        if done is not None:
            return done
        per_step = sequences_per_step(settings.tokens_per_step, cut.n_tokens)
        fit = _Fit.started(model, out, identity)
        resumed, saved = fit.step, time.monotonic()
        n_units = settings.steps + len(cut.held_out)
        while fit.step < settings.steps:
            ids = cut.train[chosen(len(cut.train), per_step, fit.step, settings.seed)]
            fit.advance(ids, cut.n_prefix, settings)
            # The last step is kept too: held-out figures then are all that is left to do.
            if fit.step == settings.steps or time.monotonic() - saved >= checkpoint_seconds:
                fit.save()
                saved = time.monotonic()
            if progress is not None:
                progress(fit.step, n_units)
        values = np.empty((2, model.n_blocks, len(cut.held_out)))
        for i, row in enumerate(cut.held_out):
            values[:, :, i] = fit.divergences(row[None], cut.n_prefix)
            if progress is not None:
                progress(settings.steps + i + 1, n_units)
        held_out = _estimates(model, values, settings.seed)
        sha256 = fit.write(held_out, cut.n_tokens * len(cut.held_out))
        return FitResult(out, sha256, held_out, cut.n_tokens * len(cut.held_out), resumed)


@dataclass
class _Fit:
    """Translators under way, in the readout's precision, with the optimiser's momentum."""

    model: LanguageModel
    out: Path
    identity: dict[str, Any]
    weight: Tensor
    bias: Tensor
    momentum: tuple[Tensor, Tensor]
    step: int = 0

    @classmethod
    def started(cls, model: LanguageModel, out: Path, identity: dict[str, Any]) -> _Fit:
        """From the checkpoint of this very fit, or from the identity."""
        n, d = model.n_blocks, width(model)
        weight = torch.zeros(n, d, d, device=model.anatomy.head.weight.device, dtype=readout_dtype(model))
        bias = weight.new_zeros(n, d)
        fit = cls(model, out, identity, weight, bias, (weight.clone(), bias.clone()))
        # A checkpoint of another fit, or one that cannot be read, only costs its steps again.
        try:
            with safe_open(out / CHECKPOINT, "pt") as file:
                about = json.loads(file.metadata()["lmassay"])
                if about["identity"] == json.loads(json.dumps(identity)):
                    for name, tensor in fit._tensors().items():
                        tensor.copy_(file.get_tensor(name))
                    fit.step = int(about["step"])
        except (OSError, SafetensorError, KeyError, TypeError, ValueError):
            pass
        return fit

    def _tensors(self) -> dict[str, Tensor]:
        return {
            "weight": self.weight, "bias": self.bias,
            "momentum.weight": self.momentum[0], "momentum.bias": self.momentum[1],
        }  # fmt: skip

    def save(self) -> None:
        """Keep what another process needs to go on."""
        about = {"lmassay": json.dumps({"identity": self.identity, "step": self.step})}
        write_with(self.out / CHECKPOINT, lambda path: save_file(self._tensors(), path, about))

    def advance(self, ids: NDArray[np.int64], n_prefix: int, settings: FitSettings) -> None:
        """One step on (n, length) sequences."""
        gradients = torch.zeros_like(self.weight), torch.zeros_like(self.bias)
        n_tokens = ids.size - len(ids) * n_prefix
        for states, final in _states(self.model, ids, n_prefix):
            with torch.no_grad():
                goal = torch.softmax(lens_logits(self.model, final), -1)
            for depth, state in enumerate(states):
                for total, part in zip(gradients, self._gradients(depth, state, goal), strict=True):
                    total[depth] += part / n_tokens
        norm = (gradients[0].square().sum((1, 2)) + gradients[1].square().sum(1)).sqrt()
        if not bool(torch.isfinite(norm).all()):
            depth = int((~torch.isfinite(norm)).nonzero()[0, 0])
            raise LmassayError(
                "non-finite-logits",
                f"{self.model.name}: the lens at {self.model.depths[depth]} has no finite gradient (step {self.step})",
                "lower --lr, or use --dtype float32",
                exit_status=FAILED_PART_WAY,
            )
        # Each depth is held to a gradient of norm one, so that how one fits does not depend on how the others do.
        scale = 1 / norm.clamp_min(1)
        gradients[0].mul_(scale[:, None, None])
        gradients[1].mul_(scale[:, None])
        rate = settings.lr * (1 - MOMENTUM) * (1 - self.step / settings.steps)
        for tensor, momentum, gradient in zip((self.weight, self.bias), self.momentum, gradients, strict=True):
            momentum.mul_(MOMENTUM).add_(gradient)
            tensor.sub_(rate * (gradient + MOMENTUM * momentum))
        self.step += 1

    def _gradients(self, depth: int, state: Tensor, goal: Tensor) -> tuple[Tensor, ...]:
        """Of the cross-entropy from the final distribution, whose gradient is that of the divergence."""
        weight = self.weight[depth].detach().requires_grad_()
        bias = self.bias[depth].detach().requires_grad_()
        moved = state + functional.linear(state, weight, bias)
        loss = functional.cross_entropy(lens_logits(self.model, moved), goal, reduction="sum")
        return torch.autograd.grad(loss, (weight, bias))

    @torch.no_grad()
    def divergences(self, ids: NDArray[np.int64], n_prefix: int) -> NDArray[np.float64]:
        """(2, n_blocks): mean KL(final ‖ lens) in nats over (n, length) sequences, without translators and with."""
        total = np.zeros((2, len(self.weight)))
        for states, final in _states(self.model, ids, n_prefix):
            goal = torch.log_softmax(lens_logits(self.model, final), -1)
            for depth, state in enumerate(states):
                moved = state + functional.linear(state, self.weight[depth], self.bias[depth])
                for at, rows in enumerate((state, moved)):
                    log_q = torch.log_softmax(lens_logits(self.model, rows), -1)
                    total[at, depth] += float(functional.kl_div(log_q, goal, log_target=True, reduction="sum"))
        return np.asarray(total / (ids.size - len(ids) * n_prefix))

    def write(self, held_out: dict[str, dict[str, Estimate]], n_tokens: int) -> str:
        """Leave the lens; returns the digest of its parameters."""
        sha256 = parameters_digest(self.weight, self.bias)
        content = {}
        for depth in range(len(self.weight)):
            content[f"{depth}.weight"] = self.weight[depth].cpu().clone()
            content[f"{depth}.bias"] = self.bias[depth].cpu().clone()
        write_with(self.out / PARAMETERS, lambda path: save_file(content, path))
        config = {
            "base_model_name_or_path": self.model.name,
            "d_model": self.weight.shape[-1],
            "num_hidden_layers": len(self.weight),
            "bias": True,
            "base_model_revision": self.model.revision,
            "unembed_hash": unembedding_hash(self.model.anatomy.head.weight.float()),
            "lens_type": LENS_TYPE,
            "lmassay": {
                "weights_sha256": self.model.fingerprint.weights,
                "dtype": self.model.convention()["dtype"],
                "params_sha256": sha256,
                "identity": self.identity,
                "held_out": {
                    "n_tokens": n_tokens,
                    "depths": {d: {k: e.to_dict() for k, e in row.items()} for d, row in held_out.items()},
                },
            },
        }
        write_json(self.out / CONFIG, config)
        (self.out / CHECKPOINT).unlink(missing_ok=True)
        return sha256


def _states(model: LanguageModel, ids: NDArray[np.int64], n_prefix: int) -> Iterator[tuple[Tensor, Tensor]]:
    """(n_blocks, n, d_model) states of all depths but the last, and (n, d_model) of that, a few rows at a time."""
    length = ids.shape[1]
    at_once = max(1, BATCH_TOKENS // length)
    for start in range(0, len(ids), at_once):
        tokens = torch.from_numpy(ids[start : start + at_once]).to(model.device)
        batch = Batch(tokens, torch.ones_like(tokens), torch.arange(length, device=model.device).expand_as(tokens))
        rows = torch.arange(len(tokens)).repeat_interleave(length - n_prefix)
        cols = torch.arange(n_prefix, length).repeat(len(tokens))
        seen = trace(model, batch, rows, cols, range(model.n_blocks + 1)).states
        for first in range(0, seen.shape[1], ROWS):
            # Copies, for what is made in inference mode can have no gradient behind it.
            part = seen[:, first : first + ROWS].to(readout_dtype(model), copy=True)
            yield part[:-1], part[-1]


def _estimates(model: LanguageModel, values: NDArray[np.float64], seed: int) -> dict[str, dict[str, Estimate]]:
    """(2, n_blocks, n_sequences) mean divergences -> figures per depth."""
    n = values.shape[2]
    resampling = Resampling([f"{i:04d}" for i in range(n)], generator(seed, "held out", "fit-lens interval"))
    return {
        depth: {
            "before": mean_estimate(values[0, i], resampling, title="KL(final ‖ logit lens), nats"),
            "after": mean_estimate(values[1, i], resampling, title="KL(final ‖ tuned lens), nats"),
            "change": mean_estimate(values[1, i] - values[0, i], resampling, title="change in KL, nats"),
        }
        for i, depth in enumerate(model.depths[: model.n_blocks])
    }


def _identity(model: LanguageModel, text_sha256: str, settings: FitSettings) -> dict[str, Any]:
    """Everything that decides a parameter."""
    return {
        "weights_sha256": model.fingerprint.weights,
        "tokenizer_sha256": model.fingerprint.tokenizer,
        "text_sha256": text_sha256,
        "dtype": model.convention()["dtype"],
        "attention": model.convention()["attention"],
        "settings": asdict(settings),
    }


def _finished(out: Path, identity: dict[str, Any], *, replace_other: bool) -> FitResult | None:
    """The lens that an earlier call left here, if it is this one."""
    if not (out / CONFIG).is_file():
        return None
    try:
        own = json.loads((out / CONFIG).read_text()).get("lmassay") or {}
    except (OSError, ValueError):
        own = {}
    if own.get("identity") == identity and (out / PARAMETERS).is_file():
        held_out = {
            depth: {name: Estimate(**figure) for name, figure in row.items()}
            for depth, row in own["held_out"]["depths"].items()
        }
        n_steps = identity["settings"]["steps"]
        return FitResult(out, own["params_sha256"], held_out, own["held_out"]["n_tokens"], n_steps)
    if not replace_other:
        raise LmassayError(
            "run-folder-mismatch", f"{out} holds a lens fitted otherwise", "choose another --out, or delete the folder"
        )
    return None


@contextmanager
def _held(out: Path) -> Iterator[None]:
    """Hold the folder for writing, made if needed, before anything slow happens."""
    own = (CONFIG, PARAMETERS, CHECKPOINT, LOCK)
    there = sorted(child.name for child in out.iterdir()) if out.is_dir() else []
    for name in there:
        if name not in own and not (name.startswith(".") and name.endswith(".tmp")):
            raise LmassayError(
                "bad-request", f"{out} is no folder for a lens: it holds {name}", "choose a new one as --out"
            )
    with held_folder(out, "choose another --out"):
        for leftover in out.glob(".*.tmp"):
            leftover.unlink()
        yield
