"""Runs of either suite as one HTML file that opens from disk, asks no network for anything, and is written whole."""

from __future__ import annotations

import base64
import hashlib
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
from markupsafe import Markup, escape

from lmassay import __version__
from lmassay.errors import LmassayError
from lmassay.evidence import MARGINS
from lmassay.reports.page.batteries import refuse_unused
from lmassay.reports.page.opened import OpenedRun, open_run
from lmassay.reports.page.parts import RunPage, Section
from lmassay.reports.page.view import run_view, section_view
from lmassay.reports.page.words import counted, number
from lmassay.reports.page.xray import MOST_TASKS, xray_page
from lmassay.reports.page.xray_runs import xray_overview
from lmassay.storage.atomic import FULL, write_text
from lmassay.storage.runs import blaming

if TYPE_CHECKING:
    from lmassay.xray.task import Battery

#: More runs than this are no page that anybody reads, and would not fit into one a browser opens quickly.
MOST_RUNS = 40
#: In the order the page's one script is put together.
SCRIPTS = ("data.js", "tables.js", "grid.js", "main.js")
#: Raised by a table that is not what a run writes.
_TABLES = (OSError, pl.exceptions.PolarsError)


def write_report(
    runs: Sequence[Path],
    out: Path,
    *,
    force: bool = False,
    batteries: Sequence[Battery] = (),
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """Write one page about all `runs`.

    Parameters
    ----------
    runs : sequence of Path
        Run folders of either suite, at most `MOST_RUNS`; unfinished and failed ones are shown and marked.
    out : Path
        An HTML file; one that exists is replaced with `force` only.
    batteries : sequence of Battery
        Where the prompts of xray runs may be taken from; each must be the battery of one of the runs.
    progress : callable, optional
        Told (runs that are drawn, all runs).

    Raises
    ------
    LmassayError
        ``bad-request``, ``bad-run-folder``, ``out-folder-unwritable``, ``disk-full``; nothing is written then.
    """
    check_out(out, force=force)
    write_text(out, report_html(runs, batteries=batteries, progress=progress))


def check_out(out: Path, *, force: bool) -> None:
    """Refuse a place the page cannot be written to, before anything slow happens."""
    if out.is_dir():
        raise LmassayError("bad-request", f"{out} is a folder", "name a file, such as report.html")
    if out.suffix.lower() not in (".html", ".htm"):
        raise LmassayError("bad-request", f"{out.name} is no HTML file's name", "end it in .html")
    if out.exists() and not force:
        raise LmassayError("bad-request", f"{out} exists", "name another file, or replace it with --force")
    if not out.parent.is_dir():
        raise LmassayError("out-folder-unwritable", f"there is no folder {out.parent}", "make it, or name another")
    try:
        # By a real write: permissions do not tell what a file system refuses.
        with tempfile.TemporaryFile(dir=out.parent):
            pass
    except OSError as error:
        if error.errno in FULL:
            return
        raise LmassayError(
            "out-folder-unwritable",
            f"cannot write to {out.parent}: {error.strerror or error}",
            "name a file in another folder",
        ) from error


def report_html(
    runs: Sequence[Path],
    *,
    batteries: Sequence[Battery] = (),
    progress: Callable[[int, int], None] | None = None,
) -> str:
    """The page as a text."""
    if not runs:
        raise LmassayError("bad-request", "no run was named", "name one or more run folders")
    if len(runs) > MOST_RUNS:
        raise LmassayError(
            "bad-request",
            f"{len(runs):,} runs were named, and a report holds {MOST_RUNS} at most",
            "make several, or put them in a table with `lmassay xray compare` or `lmassay cot leaderboard`",
        )
    twice = [str(path) for path, n in Counter(path.resolve() for path in runs).items() if n > 1]
    if twice:
        raise LmassayError("bad-request", f"{twice[0]} is named twice", "name each run once")
    opened = [open_run(path) for path in runs]
    with blaming("a run's record", *_TABLES):
        refuse_unused(opened, batteries)
    pages = []
    for run in opened:
        pages.append(_page(run, limit=max(1, MOST_TASKS // len(runs)), batteries=batteries))
        if progress is not None:
            progress(len(pages), len(opened))
    names = told_apart([(page.name, page.folder) for page in pages])
    return rendered(pages, names, _overviews(opened, names))


def _page(run: OpenedRun, *, limit: int, batteries: Sequence[Battery]) -> RunPage:
    with blaming(run.path, *_TABLES):
        if run.suite == "xray":
            return xray_page(run, limit=limit, batteries=batteries)
        # A page of one suite should not load what the other needs.
        from lmassay.reports.page.cot import cot_page

        return cot_page(run)


def _overviews(runs: Sequence[OpenedRun], names: Sequence[str]) -> list[Section]:
    """What each suite says about its finished runs together."""
    done = [(run, name) for run, name in zip(runs, names, strict=True) if run.document is not None]
    found: list[Section | None] = []
    for suite in ("xray", "cot"):
        mine = [(run, name) for run, name in done if run.suite == suite]
        if len(mine) > 1:
            with blaming(f"the runs of {suite}", *_TABLES):
                found.append(_overview(suite, [run for run, _ in mine], [name for _, name in mine]))
    return [section for section in found if section is not None]


def _overview(suite: str, runs: Sequence[OpenedRun], names: Sequence[str]) -> Section | None:
    if suite == "xray":
        return xray_overview(runs, names)
    from lmassay.reports.page.cot_runs import cot_overview

    return cot_overview(runs, names)


def told_apart(named: Sequence[tuple[str, str]]) -> list[str]:
    """Names of (name, folder); of those that collide each gets its folder, and a number where that is not enough."""
    often = Counter(name for name, _ in named)
    names = [f"{name} ({folder})" if often[name] > 1 else name for name, folder in named]
    seen: Counter[str] = Counter()
    found = []
    for name in names:
        seen[name] += 1
        found.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return found


def rendered(pages: Sequence[RunPage], names: Sequence[str], overviews: Sequence[Section]) -> str:
    """Pages of runs, and sections over several of them, as the one file."""
    import jinja2

    style = _asset("page.css")
    script = "\n".join(_asset(name) for name in SCRIPTS)
    # Only the page's own script and style may run, whatever else came into it, and nothing may be fetched.
    policy = (
        f"default-src 'none'; script-src '{_digest(script)}'; style-src '{_digest(style)}'; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )
    environment = jinja2.Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    )
    environment.filters["coded"] = _coded
    views: list[dict[str, Any]] = [
        run_view(replace(page, name=name), f"r{i}") for i, (page, name) in enumerate(zip(pages, names, strict=True))
    ]
    return (
        environment.from_string(_asset("page.html.j2"))
        .render(
            title=views[0]["name"] if len(views) == 1 else counted(len(views), "run"),
            runs=views,
            overview=[section_view(section, f"o{i}") for i, section in enumerate(overviews)],
            style=Markup(style),
            script=Markup(script),
            policy=policy,
            margins=_margins(),
            version=__version__,
            n_runs=counted(len(views), "run folder"),
        )
        .strip()
    )


def _coded(text: str) -> Markup:
    """Escaped, with what stands between backticks as code."""
    pieces = str(escape(text)).split("`")
    if len(pieces) % 2 == 0:
        # One without a partner is a letter of its own.
        pieces[-2:] = ["`".join(pieces[-2:])]
    return Markup("".join(f"<code>{piece}</code>" if i % 2 else piece for i, piece in enumerate(pieces)))


def _margins() -> str:
    """What counts as too small a difference to matter, in words."""
    said = {"rate": "rates", "psi": "PSI", "g_mean2": "g-mean²", "auroc": "AUROC", "r2": "R²", "kl": "KL in nats",
            "cosine": "cosines"}  # fmt: skip
    alike: dict[float, list[str]] = {}
    for metric, margin in MARGINS.items():
        alike.setdefault(margin, []).append(said.get(metric, metric))
    return "; ".join(f"{number(margin)} for {', '.join(metrics)}" for margin, metrics in alike.items())


def _asset(name: str) -> str:
    return resources.files("lmassay.reports.page").joinpath("assets", name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
