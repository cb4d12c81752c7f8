"""Commands: parse, call, print. What a user sees when something is wrong is one line and an exit status."""

from __future__ import annotations

import io
import os
import re
import sys
from itertools import zip_longest
from typing import Annotated, Any

import typer

from lmassay import __version__
from lmassay.cli import (
    completion,
    cot,
    cot_activations,
    cot_analyse,
    cot_audit,
    cot_board,
    cot_features,
    cot_generate,
    cot_monitor,
    cot_run,
    demo,
    models,
    models_sae,
    report,
    runs,
    xray,
)
from lmassay.errors import BAD_REQUEST, FAILED_PART_WAY, LmassayError, nearest

#: What typer returns for a KeyboardInterrupt, where it does not raise Abort.
STOPPED = 130
OUT_OPTIONS = ("--out", "-o")

app = typer.Typer(
    name="lmassay",
    help="Does what you read inside a language model survive its controls?",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.add_typer(xray.app, name="xray")
app.add_typer(cot.app, name="cot")
cot_run.register(cot.app)
cot_analyse.register(cot.app)
cot_board.register(cot.app)
cot_features.register(cot.app)
cot_audit.register(cot.app)
cot_activations.register(cot.app)
cot_generate.register(cot.app)
cot_monitor.register(cot.app)
app.add_typer(models.app, name="models")
models_sae.register(models.app)
runs.register(app)
report.register(app)
demo.register(app)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"lmassay {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True)] = False,
) -> None:
    """Does what you read inside a language model survive its controls?"""


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit with its status."""
    arguments = sys.argv[1:] if arguments is None else arguments
    debug = "--debug" in arguments
    if debug:
        # Wherever it stands on the line, not only before the command's name.
        arguments = ["--debug", *(a for a in arguments if a != "--debug")]
    # A terminal that has no letter for a model's text still gets the table.
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    # Progress bars of libraries would be mixed into ours.
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    try:
        _refuse_empty_out(arguments)
        command = typer.main.get_command(app)
        if completion.VARIABLE in os.environ:
            completion.attach(command)
        status = command(arguments, standalone_mode=False)
        if status == STOPPED:
            raise KeyboardInterrupt
        sys.exit(status if isinstance(status, int) else 0)
    except LmassayError as error:
        if debug:
            raise
        _fail(f"error[{error.code}]: {error.one_line().removeprefix(f'{error.code}: ')}", error.exit_status)
    except (KeyboardInterrupt, typer.Abort):
        _fail("error[interrupted]: stopped — run the same command again to go on where it stopped", FAILED_PART_WAY)
    except BrokenPipeError:
        # The reader (head, less) has seen enough.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except Exception as error:
        if debug:
            raise
        if hasattr(error, "format_message"):
            # A usage error. Its class is click's, or that of the copy of click inside typer, by typer's version.
            _fail(_usage(error), BAD_REQUEST)
        why = " ".join(str(error).split())[:300]
        _fail(f"error: {type(error).__name__}: {why} — a fault of lmassay; --debug shows where", FAILED_PART_WAY)


def _refuse_empty_out(arguments: list[str]) -> None:
    """Refuse an --out of nothing, as of a shell's unset variable, before a path of it is the working directory."""
    # The last word has none after it.
    for word, after in zip_longest(arguments, arguments[1:]):
        name, equals, value = word.partition("=")
        if name in OUT_OPTIONS and (value if equals else after) == "":
            raise LmassayError("bad-request", f"{name} is empty", "name a folder or file, or . for this folder")


def _usage(error: Any) -> str:
    message = " ".join(error.format_message().split())
    context = getattr(error, "ctx", None)
    if type(error).__name__ == "NoArgsIsHelpError":
        return str(error.format_message())
    unknown = re.match(r"No such command '(.*?)'", message)
    if unknown and context is not None:
        hint = nearest(unknown.group(1), getattr(context.command, "commands", {}))
        return f"error[bad-request]: no command {unknown.group(1)!r} — {hint}"
    command = context.command_path if context is not None else "lmassay"
    return f"error[bad-request]: {message} — see `{command} --help`"


def _fail(line: str, status: int) -> None:
    print(line, file=sys.stderr)
    sys.exit(status)
