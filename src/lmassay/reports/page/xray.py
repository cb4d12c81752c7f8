"""The page of one xray run, from its folder alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from lmassay.errors import LmassayError
from lmassay.reports.page.opened import OpenedRun
from lmassay.reports.page.parts import RunPage, Section
from lmassay.reports.page.words import counted, number, span
from lmassay.reports.page.xray_maps import (
    family_section,
    paraphrase_section,
    seed_of,
    trajectory_section,
    win_section,
)
from lmassay.reports.page.xray_phases import ablation_section, geometry_section, patching_section
from lmassay.reports.page.xray_wins import WinMap, read_wins
from lmassay.storage.runs import LABELS, OPTIONS
from lmassay.xray.batteries import load_battery

if TYPE_CHECKING:
    from lmassay.xray.task import Battery

#: Most tasks the maps of one page draw.
MOST_TASKS = 10_000


def xray_page(opened: OpenedRun, *, limit: int = MOST_TASKS, batteries: Sequence[Battery] = ()) -> RunPage:
    """Everything a report says about one run.

    Parameters
    ----------
    limit : int
        Most tasks its map draws.
    batteries : sequence of Battery
        Where prompts may be taken from, beside the built-in batteries: a run folder holds none. A battery counts when
        its content is the run's.

    Raises
    ------
    LmassayError
        ``bad-run-folder``.
    """
    document, record = opened.document, opened.record
    sections: list[Section] = []
    if document is not None:
        sections.append(family_section(document))
    depths: tuple[str, ...] = ()
    if OPTIONS in opened.tables and LABELS in opened.tables:
        wins = read_wins(opened.path)
        depths = wins.depths
        prompts, why = _prompts(record, wins, batteries)
        sections.append(win_section(wins, document, prompts, limit=limit, why_no_prompts=why))
        sections.append(trajectory_section(wins, document, seed_of(record)))
    if document is not None:
        later = (
            patching_section(document, depths),
            ablation_section(document),
            geometry_section(document),
            paraphrase_section(document),
        )
        sections += [section for section in later if section is not None]
    return RunPage(
        name=f"{_short(record['model']['name'])} on {_short(record['identity']['battery']['name'])}",
        folder=str(opened.path),
        suite="xray",
        status=opened.status,
        headline=_headline(opened),
        survives=None if document is None else document["survives_its_controls"],
        evidence=() if document is None else document["evidence"],
        sections=sections,
        about=_about(record),
        notices=() if document is None else document["notices"],
    )


def _short(name: object) -> str:
    """A hub id or bundled name as it is; of a path the last part."""
    text = str(name)
    return (
        text if text.count("/") <= 1 and not text.startswith((".", "~", "/")) else text.rstrip("/").rpartition("/")[2]
    )


def _headline(opened: OpenedRun) -> str:
    document = opened.document
    if document is None:
        return "No result yet."
    scores = document["scores"]
    score, excess, p = scores["xray_score"], scores["psi_excess"], scores["psi_excess_p"]
    counts = document["counts"]
    parts = []
    if score["value"] is not None:
        parts.append(f"XRay Score {number(score['value'])} (from −4 to +4)")
    if excess["value"] is not None:
        said = (
            f"PSI above its expectation without skill {number(excess['value'])} {span(excess['low'], excess['high'])}"
        )
        parts.append(f"{said.strip()}, p = {number(p['value'], 3)}" if p["value"] is not None else said.strip())
    parts.append(f"{counts['n_scored']:,} of {counted(counts['n_total'], 'task')} scored")
    return "; ".join(parts) + "."


def _about(record: Mapping[str, Any]) -> list[tuple[str, str]]:
    identity, model = record["identity"], record["model"]
    settings, convention = identity["settings"], identity.get("convention") or {}
    size = [counted(model["n_blocks"], "block") if model.get("n_blocks") else "",
            f"{model['n_parameters']:,} parameters" if model.get("n_parameters") else ""]  # fmt: skip
    facts = [
        ("model", ", ".join(filter(None, (str(model["name"]), *size)))),
        ("battery", f"{identity['battery']['name']}, sha256 {str(identity['battery'].get('sha256', ''))[:12]}"),
        ("protocol", ", ".join(str(settings[k]) for k in ("protocol", "depths") if settings.get(k))),
        ("phases", ", ".join(settings.get("phases") or ())),
        ("lens", str(convention.get("lens", ""))),
        ("precision", str(convention.get("dtype", ""))),
        ("seed", str(settings.get("seed", ""))),
        ("started", str(record.get("started", ""))),
        ("finished", str(record.get("finished", ""))),
        ("versions", ", ".join(f"{name} {v}" for name, v in (record.get("packages") or {}).items())),
        ("notes", "; ".join(map(str, model.get("notes") or ()))),
        ("command", str(record.get("command", ""))),
    ]
    return [(name, value) for name, value in facts if value]


def _prompts(record: Mapping[str, Any], wins: WinMap, batteries: Sequence[Battery]) -> tuple[dict[str, str], str]:
    """Task id -> prompt, or why there is none. A name from a run's record is never opened as a file."""
    about = record["identity"]["battery"]
    named = str(about["name"])
    found = [*batteries]
    if "/" not in named and "." not in named:
        with suppress(LmassayError):
            found.append(load_battery(named, seed=seed_of(record)))
    for battery in found:
        outside = about.get("version") == "outside" and asks_the_same(battery, wins)
        if battery.content_hash == about.get("sha256") or outside:
            return {task.id: task.prompt for task in battery.tasks}, ""
    return {}, "Prompts are not kept in a run folder: name the battery's file with --battery to see them here."


def asks_the_same(battery: Battery, wins: WinMap) -> bool:
    """Whether each task has the options that were scored: scores made elsewhere know no digest of a battery."""
    known = {task.id: task.options for task in battery.tasks}
    scored: list[list[str]] = [[] for _ in range(wins.tasks.height)]
    for at, text in zip(wins.options["at"].to_list(), wins.options["option_text"].to_list(), strict=True):
        scored[at].append(text)
    return all(known.get(i) == tuple(texts) for i, texts in zip(wins.tasks["task_id"].to_list(), scored, strict=True))
