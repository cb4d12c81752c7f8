"""``lmassay cot activations`` and ``lmassay cot merge-activations``: a reader's states, once for every probe."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lmassay.cli.finished import default_out
from lmassay.cli.options import AcceptLicense, AllowPickle, Device, Json, Layout, Regime, Revision, Source, Task
from lmassay.cli.progress import shown_stages
from lmassay.cli.where import Address, ExecutorName, Gpus, Workers, chosen_executor

if TYPE_CHECKING:
    from lmassay.cot.activations import Result
    from lmassay.examples import VisibleExample


def register(app: typer.Typer) -> None:
    """Add the commands to the application."""
    app.command()(activations)
    app.command()(merge_activations)


def activations(
    task: Task,
    model: Annotated[str, typer.Option(help="The reader: a bundled name, folder, .gguf file or hub id.")],
    blocks: Annotated[str, typer.Option(help="Blocks whose states are pooled, as in 8,16,24.")],
    token_blocks: Annotated[
        str | None, typer.Option(help="Of those, the blocks whose state at every token is kept; none; default: all.")
    ] = None,
    tokens: Annotated[str, typer.Option(help="all visible tokens, cot: of the chain of thought, or last.")] = "all",
    max_cot_tokens: Annotated[
        int | None, typer.Option(help="A longer chain of thought loses its beginning before the reader gets it.")
    ] = None,
    train_cap: Annotated[int | None, typer.Option(help="The most training rows: balanced, whole questions.")] = None,
    test_cap: Annotated[
        int | None, typer.Option(help="The most rows of validation and of each test split, spread over questions.")
    ] = None,
    over_length: Annotated[
        str, typer.Option(help="error, skip or left-truncate: texts longer than the reader's context.")
    ] = "error",
    storage: Annotated[str, typer.Option(help="Of token states: bfloat16, float16 or float32.")] = "bfloat16",
    batch_tokens: Annotated[int | None, typer.Option(min=1, help="Tokens of one forward pass.")] = None,
    layout: Layout = "head",
    regime: Regime = None,
    validation: Annotated[
        str | None, typer.Option(help="published or held_out; by default the task's own choice.")
    ] = None,
    source: Source = None,
    seed: Annotated[int, typer.Option(help="Of the training rows that a cap leaves.")] = 0,
    revision: Revision = None,
    device: Device = None,
    dtype: Annotated[str | None, typer.Option(help="float32 (default), float64, bfloat16 or float16.")] = None,
    device_map: Annotated[str | None, typer.Option(help="auto: spread a model that is larger than one card.")] = None,
    accept_license: AcceptLicense = False,
    allow_pickle: AllowPickle = False,
    trust_remote_code: Annotated[
        bool, typer.Option("--trust-remote-code", help="Run code that comes with the model.")
    ] = False,
    share: Annotated[
        str | None, typer.Option("--shard", metavar="i/n", help="Make only share i of n, counted from 1.")
    ] = None,
    executor: ExecutorName = "local",
    address: Address = None,
    workers: Workers = 1,
    gpus: Gpus = 0,
    out: Annotated[Path | None, typer.Option(help="Folder; resumed if it holds this extraction unfinished.")] = None,
    as_json: Json = False,
) -> None:
    """Keep a reader model's states at the visible tokens of a task's examples, for every probe that follows."""
    from lmassay.cot.activations import extract_activations
    from lmassay.cot.extraction import Asked, DataSource
    from lmassay.cot.kept_tokens import TokenRules
    from lmassay.executors.share import parse_share
    from lmassay.models.source import ModelSource

    rules = TokenRules(tokens, max_cot_tokens, over_length)
    chosen = _numbers(blocks, "--blocks")
    if token_blocks is None:
        of_tokens = () if tokens == "last" else chosen
    else:
        of_tokens = () if token_blocks == "none" else _numbers(token_blocks, "--token-blocks")
    asked = Asked(chosen, of_tokens, rules, storage, batch_tokens)
    part = parse_share(share) if share is not None else None
    place = chosen_executor(executor, address, workers, gpus)
    path = out or default_out("activations", task, source.stem if source else layout, regime or "", Path(model).name)
    with shown_stages() as progress:
        result = extract_activations(
            DataSource(task, layout, regime, str(source) if source else None, validation, train_cap, seed, test_cap),
            ModelSource(model, revision, device, dtype, device_map, trust_remote_code, allow_pickle, accept_license),
            asked,
            path,
            executor=place,
            share=part,
            command=" ".join(["lmassay", *sys.argv[1:]]),
            progress=progress,
        )
    _show(result, as_json=as_json)


def merge_activations(
    out: Annotated[Path, typer.Argument(help="Folder of the whole; may be one of the parts.")],
    parts: Annotated[list[Path], typer.Argument(help="Folders that shares were made in.")],
    as_json: Json = False,
) -> None:
    """Put the shares of one extraction together, each shard verified by its hash."""
    from lmassay.cot.activations import merge_activations as merge

    _show(merge(out, parts, command=" ".join(["lmassay", *sys.argv[1:]])), as_json=as_json)


def show_tokens(found: VisibleExample, model: str | None, *, full: bool, as_json: bool) -> None:
    """Print an example token by token, as a reader gets it: whose each token is, and whether its state is kept."""
    from lmassay.cot.kept_tokens import TokenRules
    from lmassay.cot.reading_plan import prepared
    from lmassay.cot.scaffold import Scaffold
    from lmassay.errors import LmassayError
    from lmassay.models.source import ModelSource
    from lmassay.reports.cot_activations import print_tokens, tokens_json

    if model is None:
        raise LmassayError("bad-request", "tokens are those of a reader", "name it with --model")
    reader = ModelSource(model).open()
    ((_, own),) = prepared([found], reader, Scaffold(reader.tokens), TokenRules(over_length="skip"))
    if as_json:
        typer.echo(json.dumps(tokens_json(found, own, reader.tokens, reader.context_length), indent=1))
    else:
        print_tokens(found, own, reader.tokens, full=full)


def _numbers(text: str, option: str) -> tuple[int, ...]:
    from lmassay.errors import LmassayError

    words = [word.strip() for word in text.split(",") if word.strip()]
    if not words or not all(word.isascii() and word.isdecimal() for word in words):
        raise LmassayError("bad-request", f"{option} {text!r}", "write numbers of blocks with commas, as in 8,16,24")
    return tuple(int(word) for word in words)


def _show(result: Result, *, as_json: bool) -> None:
    if as_json:
        about: dict[str, Any] = {"path": str(result.path), "finished": result.finished}
        about |= {"resumed": result.resumed, "made": result.made}
        typer.echo(json.dumps(about | {k: result.record.get(k) for k in ("about", "counts", "timings")}, indent=1))
        return
    from lmassay.reports.cot_activations import print_extraction

    print_extraction(result)
