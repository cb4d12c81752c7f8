"""A battery, and whole forward passes with one edit each by hooks of torch alone: the oracle of the causal phases."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager

import numpy as np
import torch

from lmassay.models.open import open_model
from lmassay.xray.task import Battery, Task
from tiny_models import tiny_hf, tiny_tokenizer

#: Options of one, two and three tokens; the last family has a single task.
TASKS = tuple(
    Task(f"{family[:4]}_{k}", family, prompt, options, k % 3, f"{family}/{k % 2}")
    for family, prompts, options in (
        ("binder_tracking", ("Let a = 3. Then b equals", "If A implies B, then", "Let b = 5, so a is"), ("5", "a b", "C implies A")),
        ("arithmetic_transform", ("Start with 7. Add 5. The result is", "Add 12 plus 7. It is", "Start with 3. It is"), ("12", "zero", "7 and 5")),
        ("proof_closure", ("It closes by",), ("contradiction", "x", "result is")),
    )
    for k, prompt in enumerate(prompts)
)  # fmt: skip
BATTERY = Battery("few", "1", TASKS)
NEUTRAL = "Answer:"
LEAD = 1e-4


def ids_of(model, prompt, option):
    """Tokens of the prompt, and of the option that follows it."""
    context, joint = ([*model.tokens.prefix, *model.tokens.encode(text)] for text in (prompt, f"{prompt} {option}"))
    assert joint[: len(context)] == context
    return context, joint[len(context) :]


def first_of(output):
    """What a module hands on, where it hands on a tuple."""
    return output[0] if isinstance(output, tuple) else output


@contextmanager
def hooked(handles):
    """Remove hooks whatever happens."""
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def run(model, ids, edits=()):
    """One pass of one sequence: states by depth index, final ones last as logits; `edits` register hooks first."""
    states = []
    with ExitStack() as stack:
        for edit in edits:
            stack.enter_context(hooked([edit()]))
        watched = [
            block.register_forward_hook(lambda _, __, out: states.append(first_of(out).clone()))
            for block in model.anatomy.blocks
        ]
        stack.enter_context(hooked(watched))
        with torch.inference_mode():
            out = model.hf(torch.tensor([ids]), output_hidden_states=True)
    return [out.hidden_states[0], *states], out.logits


def read(model, states, logits, at, targets):
    """(n_depths,) mean log-probability of the targets after the tokens `at`, at every depth."""
    by_depth = []
    for state in states:
        x = state[0, at]
        for part in (model.anatomy.norm, model.anatomy.projection):
            x = x if part is None else part(x)
        by_depth.append(model.anatomy.finish(model.anatomy.head(x)))
    by_depth.append(logits[0, at])
    rows = range(len(targets))
    return [float(torch.log_softmax(x.detach().double(), -1)[rows, targets].mean()) for x in by_depth]


#: Passes without an edit; the model is kept beside them, so that its id stays its own.
_CLEAN = {}


def clean(model, prompt, option):
    """(n_depths,) mean log-probabilities of an option, states, and where its tokens are scored."""
    key = id(model), prompt, option
    if key not in _CLEAN:
        context, target = ids_of(model, prompt, option)
        ids = [*context, *target[:-1]]
        at = list(range(len(context) - 1, len(ids)))
        states, logits = run(model, ids)
        _CLEAN[key] = model, (read(model, states, logits, at, target), states, at, ids, target)
    return _CLEAN[key][1]


def clean_scores(model, task):
    """(n_options, n_depths) scores less the neutral prompt's."""
    return np.array(
        [np.subtract(clean(model, task.prompt, option)[0], clean(model, NEUTRAL, option)[0]) for option in task.options]
    )


def leads(score):
    """How far each option leads every other, one by one."""
    return [min(score[o] - score[other] for other in range(len(score)) if other != o) for o in range(len(score))]


def wins(score):
    """(n_options, n_depths) bool."""
    return np.array([[lead > LEAD for lead in leads(column)] for column in np.asarray(score).T]).T


def patched(model, prompt, option, source, block):
    """Mean log-probability of an option at ``final``, its scored tokens' states at `block` those of depth `source`."""
    _, states, at, ids, target = clean(model, prompt, option)

    def put(_, __, output):
        state = first_of(output).clone()
        state[0, at] = states[source][0, at]
        return (state, *output[1:]) if isinstance(output, tuple) else state

    edit = lambda: model.anatomy.blocks[block].register_forward_hook(put)  # noqa: E731
    return read(model, *run(model, ids, [edit]), at, target)[-1]


#: family -> (name of its number of blocks, spread of its weights): wide enough for other options to win on the way.
WIDE = {"gpt2": ("n_layer", 0.5), "llama": ("num_hidden_layers", 0.5), "bloom": ("n_layer", 0.2)}


def wide_model(family, bos="none", *, dtype="float64"):
    """A tiny model of four blocks whose options overtake each other from depth to depth."""
    blocks, spread = WIDE[family]
    return open_model(
        tiny_hf(family, initializer_range=spread, **{blocks: 4}), tokenizer=tiny_tokenizer(bos), dtype=dtype
    )
