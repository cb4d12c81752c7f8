"""A finished run of either suite in a notebook: its evidence first, its tables, and a report's figures by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lmassay.errors import LmassayError, nearest
from lmassay.markup import html_table, run_html, verdicts
from lmassay.reports.page.opened import OpenedRun
from lmassay.reports.page.opened import open_run as opened_run
from lmassay.reports.page.parts import Chart
from lmassay.storage.runs import blaming

if TYPE_CHECKING:
    import polars as pl

    from lmassay.reports.page.parts import Part, RunPage


@dataclass(frozen=True)
class ShownRun:
    """A finished run.

    Attributes
    ----------
    opened : OpenedRun
        Its folder as it was read and checked.
    document : mapping
        ``scores.json``.
    """

    opened: OpenedRun
    document: Mapping[str, Any]

    @property
    def path(self) -> Path:
        """Its folder."""
        return self.opened.path

    @property
    def record(self) -> Mapping[str, Any]:
        """``run.json``."""
        return self.opened.record

    def __repr__(self) -> str:
        said = verdicts(row["verdict"] for row in self.document["evidence"])
        return f"<ShownRun {self.name}: evidence {said}>"

    def _repr_html_(self) -> str:
        """Evidence first, then what else there is."""
        d = self.document
        shown = run_html(self.name, d["survives_its_controls"], d["evidence"], d["scores"], d["notices"])
        rows = [(name, part.title, part.reading) for name, part in self._parts.items()]
        return shown + html_table("Figures and tables", ("id", "title", "reading"), rows, left=2)

    @property
    def name(self) -> str:
        """What was measured on what."""
        return self._page.name

    @property
    def survives(self) -> bool | None:
        """Whether the headline survives every control; None where nothing could be measured."""
        found: bool | None = self.document["survives_its_controls"]
        return found

    @property
    def evidence(self) -> pl.DataFrame:
        """A row for each signal and control."""
        import polars as pl

        return pl.DataFrame(self.document["evidence"], infer_schema_length=None)

    @property
    def scores(self) -> pl.DataFrame:
        """A row for each score."""
        import polars as pl

        rows = [{"score": name, **e} for name, e in self.document["scores"].items()]
        return pl.DataFrame(rows, infer_schema_length=None)

    @cached_property
    def _page(self) -> RunPage:
        with blaming(self.path):
            if self.document["suite"] == "cot":
                from lmassay.reports.page.cot import cot_page

                return cot_page(self.opened)
            from lmassay.reports.page.xray import xray_page

            return xray_page(self.opened)

    @cached_property
    def _parts(self) -> dict[str, Part]:
        return {part.id: part for section in self._page.sections for part in section.parts}

    @property
    def figures(self) -> dict[str, str]:
        """Names of the figures that `figure` draws, with what each says."""
        return {name: part.reading for name, part in self._parts.items() if isinstance(part, Chart)}

    def figure(self, name: str) -> Any:
        """A figure of the report as an Altair chart.

        Raises
        ------
        LmassayError
            ``bad-request`` with the nearest name.
        """
        if name not in self.figures:
            raise LmassayError("bad-request", f"no figure {name!r} of {self.name}", nearest(name, self.figures))
        part = self._parts[name]
        assert isinstance(part, Chart)
        return part.chart

    def rows(self, name: str) -> pl.DataFrame:
        """What a figure or table of the report is made of.

        Raises
        ------
        LmassayError
            ``bad-request`` with the nearest name.
        """
        known = {n: part.rows for n, part in self._parts.items() if hasattr(part, "rows")}
        if name not in known:
            raise LmassayError("bad-request", f"no table {name!r} of {self.name}", nearest(name, known))
        return known[name]


def open_run(path: Path | str) -> ShownRun:
    """A finished run of either suite.

    Raises
    ------
    LmassayError
        ``bad-run-folder`` where it is unfinished, altered or unreadable; ``bad-request`` for what is no path.
    """
    if not isinstance(path, (str, PathLike)):
        raise LmassayError("bad-request", f"{path!r} is no path", "name a run folder")
    found = opened_run(Path(path))
    if found.document is None:
        raise LmassayError("bad-run-folder", f"{path}: {found.status}", "run its command again to finish it")
    return ShownRun(found, found.document)
