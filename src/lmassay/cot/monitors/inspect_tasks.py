"""A task of ours as one of Inspect's: its items as a dataset, how they are asked, how replies are scored."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from inspect_ai import Epochs, Task
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.model import (
    ChatMessage,
    ChatMessageAssistant,
    ChatMessageSystem,
    ChatMessageUser,
    ModelOutput,
    ResponseSchema,
)
from inspect_ai.scorer import Score, Scorer, Target, scorer
from inspect_ai.solver import Generate, Solver, TaskState, solver
from inspect_ai.util import JSONSchema

from lmassay.cot.monitors.asking import Asking, check_asking, labels_only
from lmassay.cot.monitors.inspect_metrics import UNTOLD, auroc, g_mean2, replies_told, unparsed
from lmassay.cot.monitors.prompts import FRAME_VERSION, Prompt, made_prompt, wording_sha256
from lmassay.cot.monitors.replies import Parsed, parse
from lmassay.cot.monitors.shots import Shots
from lmassay.cot.monitors.structured import holds_to_schema, reply_schema
from lmassay.cot.monitors.templates import BINARY, SELECTION, Template, template_for
from lmassay.cot.predictions import TRAIN
from lmassay.cot.slices import asked_rows, asked_splits
from lmassay.seeds import derive

if TYPE_CHECKING:
    from lmassay.cot.task import SplitData, TaskData

#: In a log's metadata, where what `import_log` needs stands.
ABOUT = "lmassay"
#: Why a reply cannot be told, beside the reasons of `lmassay.cot.monitors.replies`.
TOO_LONG, FILTERED, CUT = "longer than the model's context", "refused by the provider", "cut at the limit of tokens"


def monitor_task(data: TaskData, asking: Asking, *, structured: bool | None = None, limit: int | None = None) -> Task:
    """The task of asking about every usable row that is scored.

    Parameters
    ----------
    structured : bool or None
        Whether to hold the model to a schema of the reply; None: where its provider can.
    limit : int or None
        What the data was sliced to, for the record.

    Raises
    ------
    LmassayError
        ``bad-request``.
    """
    template = template_for(data.task)
    check_asking(asking, template)
    shots = Shots(data[TRAIN], template, asking) if asking.shots else None
    about = about_task(data, asking, limit=limit, structured=structured)
    about["shots"] = shots.keys if shots is not None else []
    return Task(
        dataset=MemoryDataset(list(_samples(data, template, asking, shots)), name=data.task.id),
        solver=ask(data.task.id, asking.to_dict(), structured),
        scorer=said(data.task.id, asking.to_dict()),
        epochs=Epochs(asking.samples, replies_told()),
        metadata={ABOUT: about},
        name=data.task.id,
        version=template.version,
    )


def about_task(
    data: TaskData, asking: Asking, *, limit: int | None = None, structured: bool | None = None
) -> dict[str, Any]:
    """What a log must say so that its replies can be scored later."""
    template = template_for(data.task)
    return {
        "task": data.task.id,
        "layout": data.layout,
        "regime": data.regime,
        "validation": data.validation,
        "data_sha256": data.fingerprint,
        "limit": limit,
        "asking": asking.to_dict(),
        "template_version": template.version,
        "frame_version": FRAME_VERSION,
        "wording_sha256": wording_sha256(template, asking),
        "structured": structured,
    }


def _samples(data: TaskData, template: Template, asking: Asking, shots: Shots | None) -> Iterator[Sample]:
    for name in asked_splits(data):
        split = data[name]
        rows = asked_rows(split, data.task.kind)
        for row, example in zip(rows.tolist(), split.examples.take(rows), strict=True):
            chosen = shots.of(example, int(split.groups[row])) if shots is not None else ()
            prompt = made_prompt(template, asking, example, [(s.example, s.reply) for s in chosen])
            yield Sample(
                id=f"{name}/{example.key}",
                input=_messages(prompt) or "(not asked)",
                target=_target(template, split, row),
                metadata=_metadata(name, split, row, prompt, [str(s.example.key) for s in chosen]),
            )


def _messages(prompt: Prompt) -> list[ChatMessage]:
    made = {"system": ChatMessageSystem, "user": ChatMessageUser, "assistant": ChatMessageAssistant}
    return [made[turn.role](content=turn.text) for turn in prompt.turns]


def _target(template: Template, split: SplitData, row: int) -> str:
    y = float(split.y[row])
    if math.isnan(y):
        return ""
    return template.words[0 if y == 1 else 1] if template.kind == BINARY else f"{y:.6g}"


def _metadata(name: str, split: SplitData, row: int, prompt: Prompt, shots: Sequence[str]) -> dict[str, Any]:
    y = float(split.y[row])
    return {
        "split": name,
        "key": str(int(split.examples.keys[row])),
        "group": str(int(split.groups[row])),
        "y": None if math.isnan(y) else y,
        "skipped": prompt.skipped,
        "truncated": prompt.truncated,
        "letters": list(prompt.letters),
        "n_region": prompt.n_region,
        "shots": list(shots),
    }


@solver
def ask(task: str, asking: dict[str, Any], structured: bool | None = None) -> Solver:
    """Ask about an item, unless it is left out by rule."""
    how, template = Asking.from_dict(asking), _template(task)

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        about = state.metadata
        if about["skipped"]:
            state.output = ModelOutput.from_content(str(state.model), "")
            state.completed = True
            return state
        more: dict[str, Any] = {}
        model = str(state.model)
        if holds_to_schema(model) if structured is None else structured:
            schema = reply_schema(template, how, letters=about["letters"], n_region=about["n_region"])
            more["response_schema"] = ResponseSchema(name="reply", json_schema=JSONSchema.model_validate(schema))
        if model.startswith("lmassay/"):
            # Each of several replies is a draw of its own, the same in every run.
            more["seed"] = derive(how.seed, str(state.sample_id), f"monitor reply {state.epoch}") % 2**31
        return await generate(state, **more)

    return solve


@scorer(metrics=[g_mean2(), auroc(), unparsed()])
def said(task: str, asking: dict[str, Any]) -> Scorer:
    """Read a reply: its score, or that it says nothing and why."""
    how, template = Asking.from_dict(asking), _template(task)

    async def score(state: TaskState, target: Target) -> Score:
        found = read_output(state.output, state.metadata, template, how)
        if template.kind == SELECTION:
            value = UNTOLD if found.why else 1.0
        else:
            value = UNTOLD if found.value is None else found.value
        answer = ", ".join(str(i + 1) for i in found.sentences) or state.output.completion[:200]
        return Score(value=value, answer=answer, explanation=found.why, metadata={"labels": labels_only(how, template)})

    return score


def _template(task: str) -> Template:
    from lmassay.cot.tasks import find_task

    return template_for(find_task(task))


def read_output(output: ModelOutput, about: dict[str, Any], template: Template, asking: Asking) -> Parsed:
    """What a model's output says, or why it says nothing."""
    if about.get("skipped"):
        return Parsed(why=str(about["skipped"]))
    stop = output.stop_reason if output.choices else "unknown"
    if stop == "content_filter":
        return Parsed(why=FILTERED)
    if stop == "model_length":
        return Parsed(why=TOO_LONG)
    found = parse(
        output.completion, template, asking, letters=about.get("letters", ()), n_region=about.get("n_region", 0)
    )
    return Parsed(why=f"{CUT}: {found.why}") if found.why and stop == "max_tokens" else found
