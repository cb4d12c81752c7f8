"""Arguments and options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Model = Annotated[str, typer.Argument(help="A bundled name, folder, .gguf file or hub id.")]
Revision = Annotated[str | None, typer.Option(help="Branch, tag or commit on the hub.")]
Device = Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1, mps …")]
AcceptLicense = Annotated[bool, typer.Option("--accept-license", help="Accept the terms of a bundled model.")]
AllowPickle = Annotated[bool, typer.Option("--allow-pickle", help="Load pickled weights, which can run code.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]
Plain = Annotated[bool, typer.Option("--plain", help="ASCII only and no colour, for logs.")]
Task = Annotated[str, typer.Argument(help="A task's id or number, as `lmassay cot tasks` lists them.")]
Layout = Annotated[str, typer.Option(help="head, or post: the data as of April 2026.")]
Regime = Annotated[str | None, typer.Option(help="id or ood: the training set, for tasks 1 and 2 of the layout post.")]
Source = Annotated[Path | None, typer.Option(help="A Parquet or JSONL file, or demo: what comes with lmassay.")]
