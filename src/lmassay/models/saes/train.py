"""Train a small sparse autoencoder on a model's own states, by sae-lens, and keep it in that library's layout."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from lmassay.errors import LmassayError
from lmassay.measures.intervals import Estimate, Resampling, exact, mean_estimate
from lmassay.models.lens_text import Sequences, sequences
from lmassay.models.saes.explained import explained
from lmassay.models.saes.sae_lens import CONFIG, WEIGHTS, read
from lmassay.models.trace import Batch, trace
from lmassay.models.tuned_lens import width
from lmassay.seeds import derive, generator
from lmassay.storage.atomic import write_json, write_with
from lmassay.storage.held import LOCK, held_folder

if TYPE_CHECKING:
    from lmassay.models.language_model import LanguageModel
    from lmassay.models.saes.autoencoder import SparseAutoencoder

#: What we know of an autoencoder of our own, beside the files of sae-lens.
ABOUT = "lmassay.json"
#: Tokens of one forward pass.
BATCH_TOKENS = 1024
#: Characters read for each token wanted: more than most tokenizers make of one.
CHARACTERS = 8
_WARM_UP, _DECAY = 0.05, 0.5

#: Called with (units done, units in all): sequences read, then training steps.
Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class SaeSettings:
    """What decides an autoencoder besides model, block and text.

    Attributes
    ----------
    features, k : int
        How many there are, and how many are on at a token.
    tokens : int
        Of the text that are trained on, at most; their states are held in memory.
    passes : int
        How often each is seen.
    batch : int
        Tokens of one step.
    lr : float
        Of Adam; warmed up over a twentieth of the steps, and falling to zero over the second half.
    """

    features: int = 2048
    k: int = 32
    tokens: int = 200_000
    passes: int = 5
    batch: int = 2048
    lr: float = 1e-3
    seed: int = 0

    def __post_init__(self) -> None:
        counts = (self.features, self.k, self.tokens, self.passes, self.batch)
        if min(counts) < 1 or self.k > self.features or not 0 < self.lr < float("inf"):
            raise LmassayError(
                "bad-request",
                "--features, --k, --tokens, --passes, --batch and --lr are positive, and --k is at most --features",
                "leave them out for defaults",
            )


@dataclass(frozen=True, slots=True)
class TrainedSae:
    """An autoencoder and how good it is.

    Attributes
    ----------
    held_out : dict of str to Estimate
        ``explained`` (fraction of variance) and ``l0`` (features on at a token) on the held-out end of the text, with
        intervals over its sequences; ``dead``, the share of features that no training token switches on.
    """

    path: Path
    sha256: str
    held_out: dict[str, Estimate]
    n_tokens: int

    def to_dict(self) -> dict[str, Any]:
        """Plain fields."""
        return asdict(self) | {"path": str(self.path)}


def check_installed() -> None:
    """Refuse early where the library is missing.

    Raises
    ------
    LmassayError
        ``bad-request`` with the command that installs it.
    """
    if find_spec("sae_lens") is None:
        raise LmassayError(
            "bad-request", "training a sparse autoencoder needs sae-lens", "install it: pip install 'lmassay[sae]'"
        )


def train_sae(
    model: LanguageModel,
    text: str,
    block: int,
    out: Path,
    settings: SaeSettings,
    *,
    progress: Progress | None = None,
) -> TrainedSae:
    """Train a TopK autoencoder on the output of a block and leave its folder, which sae-lens reads as its own.

    The first token of every sequence is left out where the tokenizer puts none before a text: models park attention
    there, and its state is many times as long as any other.

    Parameters
    ----------
    out : Path
        Made if needed. An autoencoder trained in the same way that is already there is read.

    Raises
    ------
    LmassayError
        ``bad-request``, ``run-folder-mismatch``, ``run-folder-in-use``, ``out-folder-unwritable``, ``disk-full``.
    """
    check_installed()
    if not 0 <= block < model.n_blocks:
        raise LmassayError(
            "bad-request", f"{model.name} has no block {block}", f"its blocks are 0 to {model.n_blocks - 1}"
        )
    with _held(out):
        cut = sequences(model, text[: settings.tokens * CHARACTERS], settings.batch)
        identity = _identity(model, block, cut.sha256, settings)
        if (done := _finished(out, identity)) is not None:
            return done
        some = cut.train[: max(1, settings.tokens // cut.n_tokens)]
        n_steps = max(1, len(some) * cut.n_tokens * settings.passes // settings.batch)
        n_units = len(some) + n_steps

        def counted(done: int) -> None:
            if progress is not None:
                progress(done, n_units)

        states = _states(model, some, block, cut.n_prefix, counted)
        with tempfile.TemporaryDirectory(prefix=".training-", dir=out) as made:
            _trained(model, states, block, cut, settings, n_steps, Path(made), lambda n: counted(len(some) + n))
            for name in (WEIGHTS, CONFIG):
                write_with(out / name, lambda path, name=name: shutil.copyfile(Path(made) / name, path))  # type: ignore[misc]
        sae = read(out)
        held_out = _figures(sae, model, cut, states, block, settings.seed)
        n_tokens = held_out["explained"].n
        write_json(
            out / ABOUT,
            {
                "identity": identity,
                "sha256": sae.sha256,
                "held_out": {k: e.to_dict() for k, e in held_out.items()},
                "n_train_tokens": len(states),
                "sae_lens": version("sae-lens"),
            },
        )
        return TrainedSae(out, sae.sha256, held_out, n_tokens)


def _states(
    model: LanguageModel, ids: NDArray[np.int64], block: int, n_prefix: int, counted: Callable[[int], None]
) -> NDArray[np.float32]:
    """(n_tokens, width) states of (n, length) sequences after a block, sequence by sequence."""
    length, skipped = ids.shape[1], max(n_prefix, 1)
    kept = length - skipped
    found = np.empty((len(ids) * kept, width(model)), np.float32)
    at_once = max(1, BATCH_TOKENS // length)
    # Depth 0 is the embedding.
    depth = block + 1
    for start in range(0, len(ids), at_once):
        tokens = torch.from_numpy(ids[start : start + at_once]).to(model.device)
        batch = Batch(tokens, torch.ones_like(tokens), torch.arange(length, device=model.device).expand_as(tokens))
        rows = torch.arange(len(tokens)).repeat_interleave(kept)
        cols = torch.arange(skipped, length).repeat(len(tokens))
        seen = trace(model, batch, rows, cols, [depth]).states[0]
        found[start * kept : (start + len(tokens)) * kept] = seen.float().cpu().numpy()
        counted(start + len(tokens))
    return found


def _trained(
    model: LanguageModel,
    states: NDArray[np.float32],
    block: int,
    cut: Sequences,
    settings: SaeSettings,
    n_steps: int,
    made: Path,
    counted: Callable[[int], None],
) -> None:
    """Let sae-lens train on (n_tokens, width) states and save what it has in a folder."""
    from sae_lens import SAETrainer, TopKTrainingSAE, TopKTrainingSAEConfig
    from sae_lens.config import SAETrainerConfig
    from sae_lens.saes.sae import SAEMetadata

    about = SAEMetadata(
        model_name=model.name,
        hook_name=f"blocks.{block}.hook_resid_post",
        prepend_bos=cut.n_prefix > 0,
        context_size=int(cut.train.shape[1]),
    )
    config = TopKTrainingSAEConfig(
        d_in=states.shape[1],
        d_sae=settings.features,
        k=settings.k,
        # Found from the first batches, and folded into the weights at the end.
        normalize_activations="expected_average_only_in",
        metadata=about,
    )
    trainer_config = SAETrainerConfig(
        total_training_samples=n_steps * settings.batch,
        train_batch_size_samples=settings.batch,
        lr=settings.lr,
        # Where the decay to zero begins.
        lr_end=settings.lr,
        lr_warm_up_steps=round(n_steps * _WARM_UP),
        lr_decay_steps=round(n_steps * _DECAY),
        # A feature that no step of a tenth of the training switched on is helped.
        dead_feature_window=max(1, n_steps // 10),
        n_batches_for_norm_estimate=1,
    )
    with torch.random.fork_rng(devices=[]), _without_its_own_bar():
        torch.manual_seed(derive(settings.seed, "weights", "train-sae"))
        sae = TopKTrainingSAE(config)
        SAETrainer(cfg=trainer_config, sae=sae, data_provider=_batches(states, settings, counted)).fit()
    sae.save_inference_model(made)


def _batches(
    states: NDArray[np.float32], settings: SaeSettings, counted: Callable[[int], None]
) -> Iterator[torch.Tensor]:
    """Batches of tokens for ever, every pass in an order of its own."""
    step = turn = 0
    left = np.zeros(0, np.int64)
    while True:
        while len(left) < settings.batch:
            order = generator(settings.seed, f"pass.{turn}", "train-sae order").permutation(len(states))
            left, turn = np.concatenate([left, order]), turn + 1
        rows, left = left[: settings.batch], left[settings.batch :]
        yield torch.from_numpy(states[rows])
        step += 1
        counted(step)


@contextmanager
def _without_its_own_bar() -> Iterator[None]:
    """The library always draws a progress bar, which would be mixed into ours."""
    from functools import partial

    from sae_lens.training import sae_trainer

    before = sae_trainer.tqdm
    sae_trainer.tqdm = partial(before, disable=True)
    try:
        yield
    finally:
        sae_trainer.tqdm = before


def _figures(
    sae: SparseAutoencoder,
    model: LanguageModel,
    cut: Sequences,
    states: NDArray[np.float32],
    block: int,
    seed: int,
) -> dict[str, Estimate]:
    held_out = _states(model, cut.held_out, block, cut.n_prefix, lambda _: None)
    texts = np.split(held_out, len(cut.held_out))
    on = np.zeros(sae.n_features, np.bool_)
    for _, features in sae.encoded(states):
        on |= (features > 0).any(0).numpy()
    l0 = np.concatenate([(f > 0).sum(1).numpy() for _, f in sae.encoded(held_out)]).astype(np.float64)
    clusters = [f"{i:04d}" for i in np.repeat(np.arange(len(texts)), len(texts[0]))]
    resampling = Resampling(clusters, generator(seed, "held out", "train-sae l0"))
    return {
        "explained": explained(sae, texts, generator(seed, "held out", "train-sae interval")),
        "l0": mean_estimate(l0, resampling, title="features on at a token"),
        "dead": exact("share of features that no training token switches on", float((~on).mean()), len(on)),
    }


def _identity(model: LanguageModel, block: int, text_sha256: str, settings: SaeSettings) -> dict[str, Any]:
    """Everything that decides a parameter."""
    return {
        "weights_sha256": model.fingerprint.weights,
        "tokenizer_sha256": model.fingerprint.tokenizer,
        "text_sha256": text_sha256,
        "block": block,
        "dtype": model.convention()["dtype"],
        "attention": model.convention()["attention"],
        "settings": asdict(settings),
    }


def _finished(out: Path, identity: dict[str, Any]) -> TrainedSae | None:
    """The autoencoder that an earlier call left here, if it is this one."""
    if not (out / ABOUT).is_file():
        return None
    try:
        about = json.loads((out / ABOUT).read_text())
    except (OSError, ValueError):
        about = {}
    if about.get("identity") != identity:
        raise LmassayError(
            "run-folder-mismatch",
            f"{out} holds an autoencoder trained otherwise",
            "choose another --out, or delete the folder",
        )
    held_out = {name: Estimate(**figure) for name, figure in about["held_out"].items()}
    return TrainedSae(out, about["sha256"], held_out, held_out["explained"].n)


@contextmanager
def _held(out: Path) -> Iterator[None]:
    """Hold the folder for writing, made if needed, before anything slow happens."""
    ours = (CONFIG, WEIGHTS, ABOUT, LOCK)
    with held_folder(out, "choose another --out"):
        strangers = sorted(c.name for c in out.iterdir() if c.name not in ours and not c.name.startswith("."))
        if strangers:
            raise LmassayError(
                "bad-request", f"{out} is no folder for an autoencoder: it holds {strangers[0]}", "choose a new --out"
            )
        for leftover in out.glob(".training-*"):
            shutil.rmtree(leftover)
        for leftover in out.glob(".*.tmp"):
            leftover.unlink()
        yield
