"""One xray run: battery and model in, a run folder out; interrupted anywhere, it goes on where it stopped."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lmassay.errors import LmassayError, nearest
from lmassay.storage.atomic import write_json
from lmassay.storage.runs import PARTS, SCORES, RunFolder, check_tables, claimed, read_scores
from lmassay.xray.collect import Values, collect
from lmassay.xray.options import NEUTRAL_PROMPT, PROTOCOLS, PromptStyle, Protocol
from lmassay.xray.plan import PHASES, RunPlan, items_of, plan_run
from lmassay.xray.psi import SPAN
from lmassay.xray.scores import XRayScores, compute_scores
from lmassay.xray.tables import read_tables, write_tables

if TYPE_CHECKING:
    from lmassay.models.language_model import LanguageModel
    from lmassay.xray.task import Battery

ENGINES = ("packed", "cached", "plain")
DEPTHS = ("paper", "distinct")
OVER_LENGTH = ("error", "skip")
SUITE = "xray"

#: Called with (shards done, shards in all) after every shard.
Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Settings:
    """What decides a run's numbers besides model and battery.

    Attributes
    ----------
    phases : tuple of str
        Out of ``real``, ``controls``, ``paraphrase``. A headline score needs all of them; without, it is undefined.
    depths : {"paper", "distinct"}
    span : int
        Consecutive distinct depths that make a winning span stable.
    batch_tokens : int or None
        Tokens of one forward pass; changes speed and memory, and numbers only within rounding.
    """

    protocol: Protocol = "multi-token"
    phases: tuple[str, ...] = PHASES
    chat: bool = False
    depths: str = "paper"
    span: int = SPAN
    engine: str = "packed"
    over_length: str = "error"
    seed: int = 0
    batch_tokens: int | None = None

    def __post_init__(self) -> None:
        for name, value, known in (
            ("protocol", self.protocol, PROTOCOLS),
            ("depths", self.depths, DEPTHS),
            ("engine", self.engine, ENGINES),
            ("over-length", self.over_length, OVER_LENGTH),
            *(("phase", phase, PHASES) for phase in self.phases),
        ):
            if value not in known:
                raise LmassayError("bad-request", f"unknown {name} {value!r}", nearest(value, known))
        if "real" not in self.phases:
            raise LmassayError("bad-request", "a run without the real phase measures nothing", "add real to --phases")
        if self.span < 1 or (self.batch_tokens is not None and self.batch_tokens < 1):
            raise LmassayError("bad-request", "--span and --batch-tokens are positive", "leave them out for defaults")

    def identity(self) -> dict[str, Any]:
        """All but what changes numbers only within rounding."""
        fields = asdict(self)
        del fields["batch_tokens"]
        return fields | {"phases": [phase for phase in PHASES if phase in self.phases]}


@dataclass(frozen=True, slots=True)
class RunResult:
    """A finished run.

    Attributes
    ----------
    resumed_shards : int
        Shards found finished, which were not computed again.
    """

    path: Path
    scores: dict[str, Any]
    resumed_shards: int
    n_shards: int


def run_xray(
    open_it: Callable[[], LanguageModel],
    battery: Battery,
    out: Path,
    settings: Settings,
    *,
    command: str = "",
    progress: Progress | None = None,
) -> RunResult:
    """Run the suite on a model and leave a run folder.

    Parameters
    ----------
    open_it : callable
        Opens the model; called after the folder has been checked to be writable.
    out : Path
        Made if needed. A folder that holds the same run unfinished is resumed; finished, it is read.

    Raises
    ------
    LmassayError
        For everything a user can do something about.
    """
    with claimed(out) as folder:
        began = time.perf_counter()
        model = open_it()
        style = PromptStyle(model.tokens, settings.chat)
        plan = plan_run(
            items_of(battery, settings.phases, settings.seed),
            style,
            settings.protocol,
            context_length=model.context_length,
            over_length=settings.over_length,
        )
        folder.bind(
            _identity(model, battery, settings),
            command=command,
            settings=asdict(settings) | {"phases": list(settings.phases)},
            model=_about(model, style),
        )
        if folder.done:
            return RunResult(out, read_scores(out), len(plan.shards), len(plan.shards))
        opened = time.perf_counter()
        try:
            values, resumed = _score_shards(model, plan, folder, settings, progress)
            scored_at = time.perf_counter()
            scored = collect(plan, values, model.depths, settings.protocol)
            scores = compute_scores(scored, seed=settings.seed, span=settings.span, depths=settings.depths)
            tables = write_tables(out, scored, scores)
            document = scores_document(scores, folder.record)
            write_json(out / SCORES, document)
        except KeyboardInterrupt:
            folder.update(status="interrupted")
            raise
        except LmassayError:
            folder.update(status="failed")
            raise
        folder.finish(
            tables,
            counts=document["counts"],
            skipped=dict(plan.skipped),
            timings={
                "open_s": round(opened - began, 2),
                "score_s": round(scored_at - opened, 2),
                "statistics_s": round(time.perf_counter() - scored_at, 2),
            },
        )
        return RunResult(out, document, resumed, len(plan.shards))


def scores_document(scores: XRayScores, record: dict[str, Any]) -> dict[str, Any]:
    """The content of ``scores.json``; what the run's record has to say stands first among the notices."""
    document = {"schema_version": 1, "suite": SUITE, "identity": record["identity"], **scores.to_dict()}
    return document | {"notices": [*record.get("notices", []), *document["notices"]]}


def rescored(folder: Path, record: dict[str, Any]) -> dict[str, Any]:
    """All scores again, from the run's tables and without a model."""
    check_tables(folder, record)
    settings = record["identity"]["settings"]
    scored, labels = read_tables(folder, settings["protocol"], record.get("skipped", {}))
    scores = compute_scores(
        scored, seed=settings["seed"], span=settings["span"], depths=settings["depths"], labels=labels
    )
    return scores_document(scores, record)


def _identity(model: LanguageModel, battery: Battery, settings: Settings) -> dict[str, Any]:
    return {
        "suite": SUITE,
        "model": {"name": model.name, "revision": model.revision, **asdict(model.fingerprint)},
        "battery": {"name": battery.name, "version": battery.version, "sha256": battery.content_hash},
        "settings": settings.identity(),
        "convention": model.convention(),
    }


def _about(model: LanguageModel, style: PromptStyle) -> dict[str, Any]:
    return {
        "name": model.name,
        "family": model.anatomy.family,
        "n_blocks": model.n_blocks,
        "n_parameters": model.n_parameters,
        "context_length": model.context_length,
        "packing": model.packing,
        "self_check": model.numerics,
        "notes": list(model.notes),
        "neutral_prompt": style.render(NEUTRAL_PROMPT),
        "special_tokens": list(style.special),
    }


def _score_shards(
    model: LanguageModel, plan: RunPlan, folder: RunFolder, settings: Settings, progress: Progress | None
) -> tuple[Values, int]:
    from lmassay.models.engines import BATCH_TOKENS, score
    from lmassay.storage.parts import Parts

    parts = Parts(folder.path / PARTS, model.depths)
    values: dict[tuple[tuple[int, ...], tuple[int, ...]], np.ndarray[Any, np.dtype[np.float64]]] = {}
    resumed = 0
    for index, shard in enumerate(plan.shards):
        keys = [(request.context, target) for request in shard for target in request.targets]
        content = repr(keys)
        means = parts.read(index, content, len(keys))
        if means is None:
            batch_tokens = settings.batch_tokens or BATCH_TOKENS
            scored = score(model, shard, engine=settings.engine, batch_tokens=batch_tokens)
            means = np.stack([tokens.mean(0) for targets in scored for tokens in targets])
            _check_finite(model, means)
            parts.write(index, content, means)
        else:
            resumed += 1
        values.update(zip(keys, means, strict=True))
        if progress is not None:
            progress(index + 1, len(plan.shards))
    if parts.damaged:
        folder.update(damaged_parts=parts.damaged)
    return values, resumed


def _check_finite(model: LanguageModel, means: np.ndarray[Any, np.dtype[np.float64]]) -> None:
    if not np.isfinite(means).all():
        depth = model.depths[int(np.argwhere(~np.isfinite(means))[0, 1])]
        raise LmassayError(
            "non-finite-logits",
            f"{model.name}: a log-probability at {depth} is not a finite number ({model.dtype})",
            "use --dtype float32, or check the weights with `lmassay models check`",
        )
