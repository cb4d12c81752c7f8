"""What Tab offers for a value, by the name of the argument or option. No model library is loaded to answer."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from textwrap import shorten
from typing import Any, NamedTuple

#: What a shell sets when it starts the program to complete a line.
VARIABLE = "_LMASSAY_COMPLETE"
#: Looked through at most so many entries of a folder: a key press must not wait for a full disk.
ENTRIES = 2000
RUNS = "runs"
#: Characters of what a value is; longer ones would be broken into lines, which zsh takes for more values.
HELP = 60
BATTERIES = ("core50", "heldout54", "balanced:")
PHASES = ("real", "controls", "paraphrase", "patching", "ablation", "geometry", "all")

Words = Callable[[str], Iterable["Offer"]]


class Offer(NamedTuple):
    """One completion; the shells read these three."""

    value: str
    help: str | None = None
    type: str = "plain"


def fixed(*words: str) -> Words:
    """Any of a few words."""
    return lambda incomplete: [Offer(word) for word in words]


def listed(*words: str) -> Words:
    """Several of a few words, with commas between them; each once."""

    def offers(incomplete: str) -> list[Offer]:
        given = incomplete.split(",")[:-1]
        return [Offer(",".join([*given, word])) for word in words if word not in given]

    return offers


def models(incomplete: str) -> list[Offer]:
    """The bundled models; a folder or file is the shell's to complete."""
    from lmassay.storage.fetch import BUNDLED

    return [Offer(name, model.title) for name, model in BUNDLED.items()]


def batteries(incomplete: str) -> list[Offer]:
    """Names of batteries; N of the balanced one stays to be typed."""
    from importlib.metadata import entry_points

    # The batteries themselves load numpy, which takes longer than all the rest of an answer.
    installed = sorted(entry.name for entry in entry_points(group="lmassay.batteries"))
    return [Offer(name) for name in (*BATTERIES, *installed)]


def tasks(incomplete: str) -> list[Offer]:
    """Tasks of the cot suite with their questions."""
    from lmassay.cot.tasks import tasks as known

    return [Offer(task.id, shorten(task.question, HELP, placeholder="…")) for task in known()]


def methods(incomplete: str) -> list[Offer]:
    """Methods, controls, and the monitor."""
    from lmassay.methods.registry import known_methods

    return [Offer(name) for name in (*known_methods(), "monitor")]


def run_folders(incomplete: str) -> list[Offer]:
    """Folders that hold a run: in the folder begun; with none begun, in ``runs`` and here."""
    from lmassay.storage.runs import RUN

    head = incomplete.rpartition("/")[0]
    places = [Path(head or "/")] if "/" in incomplete else [Path(RUNS), Path()]
    found = []
    for place in places:
        with suppress(OSError), os.scandir(place) as entries:
            # As typed: "./runs/a" must not become "runs/a", which does not begin with what stands on the line.
            before = f"{head}/" if "/" in incomplete else "" if place == Path() else f"{place}/"
            for entry, _ in zip(entries, range(ENTRIES), strict=False):
                if not entry.name.startswith(".") and Path(entry.path, RUN).is_file():
                    found.append(before + entry.name)
    return [Offer(name) for name in sorted(found)]


#: Parameter, or command and parameter where a command has values of its own -> what is offered.
OFFERS: dict[str, Words] = {
    "model": models,
    "models": models,
    "battery": batteries,
    "task": tasks,
    "target": tasks,
    "analyse.task": fixed("answer_entropy", "compression"),
    "method": methods,
    "run": run_folders,
    "runs": run_folders,
    "probe": run_folders,
    "protocol": fixed("multi-token", "first-token", "first-distinct-token"),
    "phases": listed(*PHASES),
    "dtype": fixed("float32", "float64", "bfloat16", "float16"),
    "engine": fixed("packed", "cached", "plain"),
    "depths": fixed("paper", "distinct"),
    "lens": fixed("logit", "tuned"),
    "over_length": fixed("error", "skip"),
    "activations.over_length": fixed("error", "skip", "left-truncate"),
    "activations.tokens": fixed("all", "cot", "last"),
    "storage": fixed("bfloat16", "float16", "float32"),
    "ablation": fixed("mean", "zero", "resample"),
    "prior": fixed("edited", "clean"),
    "executor": fixed("local", "ray"),
    "layout": fixed("head", "post"),
    "regime": fixed("id", "ood"),
    "validation": fixed("published", "held_out"),
    "thinking": fixed("auto", "none"),
}


def attach(command: Any) -> None:
    """Give every parameter of a command and of its subcommands what is offered for it."""
    for child in getattr(command, "commands", {}).values():
        attach(child)
    for parameter in command.params:
        offers = OFFERS.get(f"{command.name}.{parameter.name}") or OFFERS.get(parameter.name)
        if offers is not None:
            parameter.shell_complete = _complete(offers)


def _complete(offers: Words) -> Callable[[Any, str], list[Offer]]:
    def complete(context: Any, incomplete: str) -> list[Offer]:
        # A broken package of someone's must not write a traceback into the line that is being typed.
        with suppress(Exception):
            return [offer for offer in offers(incomplete) if offer.value.startswith(incomplete)]
        return []

    return complete
