"""The paper's checkpoints measured again, each figure beside the paper's own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lmassay.errors import LmassayError, nearest
from lmassay.storage.runs import read_record
from lmassay.xray.batteries import load_battery
from lmassay.xray.compare import compare_runs
from lmassay.xray.conjectures import pooled_groups
from lmassay.xray.finished import read_finished
from lmassay.xray.paper_figures import (
    CHECKPOINTS,
    FAMILY,
    GROUP,
    HELD_OUT_GROUPS,
    INFORMATION,
    TREE,
    Checkpoint,
)
from lmassay.xray.patterns import HELD_OUT, TRAINING
from lmassay.xray.run import Progress, Settings, run_xray

if TYPE_CHECKING:
    from lmassay.models.language_model import LanguageModel

PHASES = ("real", "controls", "paraphrase")
DONE, MISSING, FAILED = "done", "missing", "failed"
#: Stands before every table: what a difference may mean.
OTHER_INSTANCES = (
    "the paper publishes its templates and five example prompts only: these are other instances of the same templates,"
    " so figures are expected near the paper's, not equal"
)

#: Opens a checkpoint from a folder or hub id.
Opener = Callable[[str], "LanguageModel"]


def chosen(only: Sequence[str]) -> tuple[Checkpoint, ...]:
    """The checkpoints of these names, in the paper's order; all of them without any.

    Raises
    ------
    LmassayError
        ``bad-request`` with the nearest name.
    """
    known = [c.name for c in CHECKPOINTS]
    for name in only:
        if name not in known:
            raise LmassayError("bad-request", f"the paper has no checkpoint {name!r}", nearest(name, known))
    return tuple(c for c in CHECKPOINTS if not only or c.name in only)


def reproduce(
    checkpoints: Sequence[Checkpoint],
    out: Path,
    open_it: Opener,
    *,
    models_dir: Path | None = None,
    held_out: bool = False,
    seed: int = 0,
    command: str = "",
    progress: Progress | None = None,
    begun: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """Run every checkpoint, and go on to the next where one fails.

    Each has a run folder ``<out>/<name>-<battery>``, resumed by the same call again.

    Parameters
    ----------
    models_dir : Path, optional
        A folder with a folder of each checkpoint's name; the hub without it.
    held_out : bool
        Also run ``heldout54`` on the three models the paper's patterns are taken over.
    begun : callable
        Called with a line before each run.

    Returns
    -------
    dict
        ``checkpoints`` (``status`` ``done``, ``missing`` or ``failed``, and ``figures`` beside the paper's),
        ``patterns`` and ``notices``.

    Raises
    ------
    LmassayError
        ``bad-request`` where `models_dir` is no folder.
    """
    if models_dir is not None and not models_dir.is_dir():
        raise LmassayError("bad-request", f"{models_dir} is no folder", "name the folder that holds the models")
    rows: list[dict[str, Any]] = []
    for checkpoint in checkpoints:
        batteries = (TRAINING, HELD_OUT) if held_out and checkpoint.held_out else (TRAINING,)
        for battery in batteries:
            run = out / f"{checkpoint.name}-{battery}"
            source = str(models_dir / checkpoint.name) if models_dir is not None else checkpoint.hub_id
            row: dict[str, Any] = {
                "name": checkpoint.name,
                "battery": battery,
                "protocol": checkpoint.protocol,
                "source": source,
                "run": str(run),
            }
            begun(f"{checkpoint.name} on {battery}")
            rows.append(row | _measured(checkpoint, battery, source, run, open_it, models_dir, seed, command, progress))
    notices = [OTHER_INSTANCES]
    blocks = {c.name: c.n_blocks for c in checkpoints}
    for row in rows:
        name, here = row["name"], row["n_blocks"]
        if here is not None and here != blocks[name]:
            notices.append(f"{name} has {here} blocks here, the paper's has {blocks[name]}: another model")
    patterns = _patterns(rows, seed)
    return {"checkpoints": rows, "patterns": patterns, "notices": list(dict.fromkeys(notices))}


def complete(document: dict[str, Any]) -> bool:
    """Whether every checkpoint asked for was measured."""
    return all(row["status"] == DONE for row in document["checkpoints"])


def _measured(
    checkpoint: Checkpoint,
    battery: str,
    source: str,
    run: Path,
    open_it: Opener,
    models_dir: Path | None,
    seed: int,
    command: str,
    progress: Progress | None,
) -> dict[str, Any]:
    nothing: dict[str, Any] = {"n_blocks": None, "n_parameters": None, "figures": [], "error": None}
    if models_dir is not None and not Path(source).is_dir():
        return nothing | {"status": MISSING, "error": f"no folder {source}"}
    settings = Settings(protocol=checkpoint.protocol, phases=PHASES, seed=seed)
    try:
        result = run_xray(
            lambda: open_it(source), load_battery(battery), run, settings, command=command, progress=progress
        )
    except LmassayError as error:
        return nothing | {"status": FAILED, "error": error.one_line()}
    except (MemoryError, RuntimeError) as error:
        # What torch raises where a model does not fit; the others may.
        why = " ".join(str(error).split())[:200] or type(error).__name__
        return nothing | {"status": FAILED, "error": why}
    about = read_record(run)["model"]
    published = checkpoint.figures if battery == TRAINING else checkpoint.held_out
    figures = [_beside(name, _figure(result.scores, name), paper) for name, paper in published.items()]
    blocks = {"n_blocks": about["n_blocks"], "n_parameters": about["n_parameters"]}
    return nothing | blocks | {"status": DONE, "figures": figures}


def _figure(document: dict[str, Any], name: str) -> dict[str, Any]:
    """A figure of a run by the name it has in `paper_figures`."""
    if name.startswith(FAMILY):
        found: dict[str, Any] | None = document["families"].get(name.removeprefix(FAMILY))
    elif name.startswith(GROUP):
        group = next((g for g in document["paraphrase_groups"] if g["group"] == name.removeprefix(GROUP)), None)
        found = None if group is None else {"value": group["jaccard"], "n": group["n_wordings"]}
    else:
        found = document["scores"].get(name)
    return found or {"value": None, "n": 0, "status": "undefined: not measured"}


def _beside(name: str, ours: dict[str, Any], paper: float) -> dict[str, Any]:
    value, low, high = ours["value"], ours.get("low"), ours.get("high")
    status = ours.get("status") or ("ok" if value is not None else "undefined: not measured")
    return {
        "figure": name, "value": value, "low": low, "high": high, "n": ours["n"], "paper": paper,
        "difference": None if value is None else value - paper,
        "paper_in_interval": None if low is None or high is None else low <= paper <= high,
        "status": status,
    }  # fmt: skip


def _patterns(rows: Sequence[dict[str, Any]], seed: int) -> dict[str, Any]:
    """The paper's patterns, where all the models they are taken over were measured."""
    wanted = {c.name for c in CHECKPOINTS if c.in_patterns}
    done = [row for row in rows if row["status"] == DONE and row["name"] in wanted]
    training = {row["name"] for row in done if row["battery"] == TRAINING}
    if training != wanted:
        lacking = ", ".join(c.name for c in CHECKPOINTS if c.in_patterns and c.name not in training)
        return {"status": f"undefined: they need {lacking}", "figures": []}
    runs = [Path(row["run"]) for row in done]
    found = compare_runs(runs, seed=seed)["patterns"]
    information = {row["feature"]: row for row in found["mutual_information"]["training"]}
    figures = []
    for feature, paper in INFORMATION.items():
        row = information[feature]
        # The published figure is a plug-in, the interval at hand that of the corrected value: it is moved along.
        bounds = {
            key: None if row[key] is None else row[key] + row["plug_in"] - row["corrected"] for key in ("low", "high")
        }
        figures.append(_beside(f"information:{feature}", row | bounds | {"value": row["plug_in"]}, paper))
    for which, paper in TREE.items():
        figures.append(_beside(f"tree:{which}", found["trees"]["all"][which]["accuracy"], paper))
    held = [read_finished(Path(row["run"])) for row in done if row["battery"] == HELD_OUT]
    if {run.path.name.removesuffix(f"-{HELD_OUT}") for run in held} == wanted:
        groups = pooled_groups(held, seed)
        figures += [
            _beside(f"held_out:{name}", groups[name].to_dict(), paper) for name, paper in HELD_OUT_GROUPS.items()
        ]
    return {"status": "ok", "figures": figures}
