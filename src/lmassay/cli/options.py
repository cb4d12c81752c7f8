"""Arguments and options that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

Model = Annotated[str, typer.Argument(help="A bundled name, folder, .gguf file or hub id.")]
Revision = Annotated[str | None, typer.Option(help="Branch, tag or commit on the hub.")]
Device = Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1, mps …")]
AcceptLicense = Annotated[bool, typer.Option("--accept-license", help="Accept the terms of a bundled model.")]
AllowPickle = Annotated[bool, typer.Option("--allow-pickle", help="Load pickled weights, which can run code.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]
