"""One xray run: battery and model in, a run folder out; interrupted anywhere, it goes on where it stopped."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lmassay.errors import LmassayError, nearest
from lmassay.evidence import judged
from lmassay.markup import run_html, verdicts
from lmassay.storage.atomic import write_json
from lmassay.storage.runs import PARTS, SCORES, RunFolder, check_tables, claimed, read_scores
from lmassay.xray.ablation import KINDS, MEAN
from lmassay.xray.collect import Values, collect
from lmassay.xray.in_memory import check_finite, plan_battery
from lmassay.xray.options import NEUTRAL_PROMPT, PROTOCOLS, PromptStyle, Protocol
from lmassay.xray.phase import Measuring, PhaseScores
from lmassay.xray.phases import ALL, DEFAULT, LATER, PHASES, measure_phase, summarised
from lmassay.xray.psi import SPAN
from lmassay.xray.scores import XRayScores, compute_scores
from lmassay.xray.tables import read_tables, write_tables

if TYPE_CHECKING:
    from lmassay.models.language_model import LanguageModel
    from lmassay.xray.plan import RunPlan
    from lmassay.xray.scored import ScoredBattery
    from lmassay.xray.task import Battery

ENGINES = ("packed", "cached", "plain")
DEPTHS = ("paper", "distinct")
OVER_LENGTH = ("error", "skip")
SUITE = "xray"

PRIORS = ("edited", "clean")

#: Called with (phase, shards done, shards in all) after every shard.
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class Settings:
    """What decides a run's numbers besides model and battery.

    Attributes
    ----------
    phases : tuple of str
        Out of ``real``, ``controls``, ``paraphrase``, ``patching``, ``ablation``, ``geometry``, or ``all``. A headline
        score needs the first three; without, it is undefined.
    depths : {"paper", "distinct"}
    span : int
        Consecutive distinct depths that make a winning span stable.
    ablation : {"mean", "zero", "resample"}
        What takes the place of an ablated component's output.
    heads : bool
        Ablate single attention heads too.
    prior : {"edited", "clean"}
        Whether the neutral prompt is patched and ablated as the task is.
    batch_tokens : int or None
        Tokens of one forward pass; changes speed and memory, and numbers only within rounding.
    """

    protocol: Protocol = "multi-token"
    phases: tuple[str, ...] = DEFAULT
    chat: bool = False
    depths: str = "paper"
    span: int = SPAN
    engine: str = "packed"
    over_length: str = "error"
    seed: int = 0
    ablation: str = MEAN
    heads: bool = False
    prior: str = "edited"
    batch_tokens: int | None = None

    def __post_init__(self) -> None:
        if ALL in self.phases:
            object.__setattr__(self, "phases", PHASES)
        for name, value, known in (
            ("protocol", self.protocol, PROTOCOLS),
            ("depths", self.depths, DEPTHS),
            ("engine", self.engine, ENGINES),
            ("over-length", self.over_length, OVER_LENGTH),
            ("ablation", self.ablation, KINDS),
            ("prior", self.prior, PRIORS),
            *(("phase", phase, PHASES) for phase in self.phases),
        ):
            if value not in known:
                raise LmassayError("bad-request", f"unknown {name} {value!r}", nearest(value, known))
        if "real" not in self.phases:
            raise LmassayError("bad-request", "a run without the real phase measures nothing", "add real to --phases")
        if self.heads and "ablation" not in self.phases:
            raise LmassayError("bad-request", "--heads is of the ablation phase", "add ablation to --phases")
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

    def __repr__(self) -> str:
        said = verdicts(row["verdict"] for row in self.scores["evidence"])
        return f"<RunResult {self.path}: evidence {said}>"

    def _repr_html_(self) -> str:
        """Evidence first, for a notebook."""
        d = self.scores
        return run_html(str(self.path), d["survives_its_controls"], d["evidence"], d["scores"], d["notices"])


def run_xray(
    open_it: Callable[[], LanguageModel],
    battery: Battery,
    out: Path | str,
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
    out = Path(out)
    with claimed(out) as folder:
        began = time.perf_counter()
        model = open_it()
        style = PromptStyle(model.tokens, settings.chat)
        plan = plan_battery(model, battery, settings)
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
            scored, resumed = _scored(model, plan, folder, settings, progress)
            scored_at = time.perf_counter()
            scores = compute_scores(scored, seed=settings.seed, span=settings.span, depths=settings.depths)
            tables = write_tables(out, scored, scores)
            statistics = time.perf_counter() - scored_at
            later: dict[str, float] = {}
            for name in LATER:
                if name in settings.phases:
                    start = time.perf_counter()
                    measuring = _measuring(name, model, plan, scores, folder, settings, progress)
                    tables = (*tables, measure_phase(name, measuring, out))
                    later[f"{name}_s"] = round(time.perf_counter() - start, 2)
            start = time.perf_counter()
            phases = summarised(settings.phases, out, scores.decided, settings.seed)
            document = scores_document(scores, phases, folder.record)
            write_json(out / SCORES, document)
            statistics += time.perf_counter() - start
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
                **later,
                "statistics_s": round(statistics, 2),
            },
        )
        return RunResult(out, document, resumed, len(plan.shards))


def scores_document(scores: XRayScores, phases: Mapping[str, PhaseScores], record: dict[str, Any]) -> dict[str, Any]:
    """The content of ``scores.json``; what the run's record has to say stands first among the notices."""
    document = {"schema_version": 1, "suite": SUITE, "identity": record["identity"], **scores.to_dict()}
    rows = judged([row for phase in phases.values() for row in phase.evidence])
    figures = {name: e.to_dict() for phase in phases.values() for name, e in phase.scores.items()}
    notices = [notice for phase in phases.values() for notice in phase.notices]
    return document | {
        "evidence": [*document["evidence"], *(row.to_dict() for row in rows)],
        "scores": document["scores"] | figures,
        "phases": {name: dict(phase.details) for name, phase in phases.items()},
        "notices": [*record.get("notices", []), *document["notices"], *notices],
    }


def rescored(folder: Path, record: dict[str, Any]) -> dict[str, Any]:
    """All scores again, from the run's tables and without a model."""
    check_tables(folder, record)
    settings = record["identity"]["settings"]
    scored, labels = read_tables(folder, settings["protocol"], record.get("skipped", {}))
    scores = compute_scores(
        scored, seed=settings["seed"], span=settings["span"], depths=settings["depths"], labels=labels
    )
    phases = summarised(settings["phases"], folder, scores.decided, settings["seed"])
    return scores_document(scores, phases, record)


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


def _measuring(
    name: str,
    model: LanguageModel,
    plan: RunPlan,
    scores: XRayScores,
    folder: RunFolder,
    settings: Settings,
    progress: Progress | None,
) -> Measuring:
    from lmassay.models.engines import BATCH_TOKENS
    from lmassay.storage.parts import Parts

    return Measuring(
        model=model,
        plan=plan,
        decided=scores.decided,
        seed=settings.seed,
        batch_tokens=settings.batch_tokens or BATCH_TOKENS,
        options={"ablation": settings.ablation, "heads": settings.heads, "prior": settings.prior},
        parts=lambda columns: Parts(folder.path / PARTS / name, columns),
        progress=None if progress is None else partial(progress, name),
    )


def _scored(
    model: LanguageModel, plan: RunPlan, folder: RunFolder, settings: Settings, progress: Progress | None
) -> tuple[ScoredBattery, int]:
    values, resumed = _score_shards(model, plan, folder, settings, progress)
    return collect(plan, values, model.depths, settings.protocol), resumed


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
            check_finite(model, means)
            parts.write(index, content, means)
        else:
            resumed += 1
        values.update(zip(keys, means, strict=True))
        if progress is not None:
            progress("scoring", index + 1, len(plan.shards))
    if parts.damaged:
        folder.update(damaged_parts=parts.damaged)
    return values, resumed
