"""A finished run as another run's neighbour: its record and its scores, read once."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lmassay.markup import run_html, verdicts
from lmassay.storage.runs import read_record, read_scores


@dataclass(frozen=True, slots=True)
class FinishedRun:
    """What comparing runs reads of one of them.

    Attributes
    ----------
    record, document : dict
        ``run.json`` and ``scores.json``.
    """

    path: Path
    record: dict[str, Any]
    document: dict[str, Any]

    def __repr__(self) -> str:
        said = verdicts(row["verdict"] for row in self.document["evidence"])
        return f"<FinishedRun {self.model} on {self.battery}: evidence {said}>"

    def _repr_html_(self) -> str:
        """Evidence first, for a notebook."""
        d, name = self.document, f"{self.model} on {self.battery}"
        return run_html(name, d["survives_its_controls"], d["evidence"], d["scores"], d["notices"])

    @property
    def model(self) -> str:
        """The model's name, as the run was asked for it."""
        return str(self.record["model"]["name"])

    @property
    def battery(self) -> str:
        """The battery's name."""
        return str(self.record["identity"]["battery"]["name"])

    @property
    def n_blocks(self) -> int | None:
        """Transformer blocks; None for scores made elsewhere."""
        blocks: int | None = self.record["model"].get("n_blocks")
        return blocks

    @property
    def n_parameters(self) -> int | None:
        """Parameters, tied ones counted once; None for scores made elsewhere."""
        parameters: int | None = self.record["model"].get("n_parameters")
        return parameters

    @property
    def weights(self) -> tuple[str, ...]:
        """What tells two models apart, whatever path or name they were opened by."""
        model = self.record["identity"]["model"]
        digests = [str(value) for key, value in sorted(model.items()) if key not in ("name", "revision")]
        return tuple(digests) or (self.model, str(model.get("revision")))

    @property
    def tasks(self) -> list[dict[str, Any]]:
        """A row per scored task."""
        rows: list[dict[str, Any]] = self.document["tasks"]
        return rows


def read_finished(path: Path) -> FinishedRun:
    """Read a finished run.

    Raises
    ------
    LmassayError
        ``bad-run-folder``.
    """
    return FinishedRun(path, read_record(path), read_scores(path))
