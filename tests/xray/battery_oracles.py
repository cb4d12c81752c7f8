"""Answers read off a prompt's text alone, and the ranks of answers among their options."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from fractions import Fraction
from itertools import permutations, product
from typing import Any

import numpy as np

from lmassay.xray.task import Battery

Number = Fraction | int


def answer_ranks(battery: Battery, key: Callable[[str], Any]) -> tuple[np.ndarray, int]:
    """(n_options,) how often the answer takes each rank among its options by `key`, and the number of tasks counted.

    A tie spreads over the ranks it covers; a task with an option whose key is None is left out.
    """
    counts = np.zeros(len(battery.tasks[0].options))
    n = 0
    for task in battery.tasks:
        keys = [key(option) for option in task.options]
        if any(k is None for k in keys):
            continue
        n += 1
        below = sum(k < keys[task.answer] for k in keys)
        tied = sum(k == keys[task.answer] for k in keys)
        counts[below : below + tied] += 1 / tied
    return counts, n


def size_of_number(option: str) -> tuple[int, ...] | None:
    """The numbers an option shows, in order of appearance."""
    return tuple(int(d) for d in re.findall(r"-?\d+", option.replace(" ", ""))) or None


def value(expression: str, **variables: Number) -> Fraction:
    """An expression in words and symbols, worked out with these values for its letters."""
    text = expression
    for words, sign in ((" plus ", "+"), (" minus ", "-"), (" times ", "*"), (" divided by ", "/"), ("^", "**")):
        text = text.replace(words, sign)
    text = re.sub(r"(?<=[\da-z)])\s*(?=[a-z(])", "*", text)
    text = re.sub(r"(?<![\w*])(\d+)|(?<=\*)(?<!\*\*)(\d+)", lambda m: f"Fraction({m.group()})", text)
    assert not set(re.findall(r"[A-Za-z_]\w*", text)) - {"Fraction", *variables}, text
    return Fraction(eval(text, {"__builtins__": {}, "Fraction": Fraction}, dict(variables)))


def algebra_holds(prompt: str, answer: str) -> bool:
    """Whether the answer equals the prompt's expression at several points, or solves its equation."""
    if equation := re.fullmatch(r"Solve (.+) = (\d+)\. Then ([a-z]) equals", prompt):
        left, right, letter = equation.groups()
        return value(left, **{letter: Fraction(answer)}) == int(right)
    if order := re.fullmatch(r"Subtract ([a-z]) from (\d+\1), then add (\d+\1)\. The result is", prompt):
        expression = f"{order[2]} - {order[1]} + {order[3]}"
    else:
        found = re.fullmatch(r"(?:Simplify|Expand|Factor|Collect terms in) (.+)\. The result is", prompt)
        assert found, prompt
        expression = found[1]
    (letter,) = set(re.findall(r"(?<![A-Za-z])[a-z](?![A-Za-z])", expression))
    points = [{letter: Fraction(p)} for p in (2, 3, 7)]
    return all(value(expression, **at) == value(answer, **at) for at in points)


def run_binder(prompt: str) -> int | None:
    """What the asked variable holds once the prompt's bindings have been run in order; None for a story."""
    if prompt.startswith("Let "):
        body, asked = prompt.removeprefix("Let ").rsplit(". Then ", 1)
        steps, name = body.split(", "), asked.split()[0]
    elif prompt.startswith("Set "):
        *sentences, asked = prompt.split(". ")
        steps = [s.removeprefix("Set ").replace(" to ", " = ").replace(" plus ", " + ") for s in sentences]
        name = asked.removeprefix("The value of ").split()[0]
    elif "print(" in prompt:
        *steps, asked = prompt.split("; ")
        name = re.findall(r"print\((\w)\)", asked)[0]
    else:
        return None
    held: dict[str, int] = {}
    for step in steps:
        assert re.fullmatch(r"[a-z](, [a-z])? = [a-z0-9 +*,-]+", step), step
        exec(step, {"__builtins__": {}}, held)
    return held[name]


SYMMETRIC = {"is equal to", "is parallel to"}
#: Goal and the relation it turns round.
CONVERSES = {
    "is the child of": "is the parent of", "is below": "is above", "is after": "is before",
    "is smaller than": "is larger than", "is shorter than": "is taller than", "is contained in": "contains",
    "is right of": "is left of", "is divisible by": "divides", "is taught by": "teaches", "is followed by": "follows",
    "is slower than": "is faster than", "is lighter than": "is heavier than", "is implied by": "implies",
    "is poorer than": "is richer than", "is younger than": "is older than", "is south of": "is north of",
    "is inside": "contains",
}  # fmt: skip


def theorem_options(prompt: str, options: Iterable[str]) -> list[str]:
    """The options that the premises put into the prompt's gap (balanced wordings)."""
    facts = re.findall(r"\b([A-Z]) ([a-z]+(?: [a-z]+)*) ([A-Z])\b", prompt)
    rules = [(a, b) for a, relation, b in facts if relation == "then"]
    if rules:
        in_rules = re.sub(r"\b[Ii]f [A-Z] then [A-Z]\b", "", prompt)
        (known,) = re.findall(r"\b[A-Z]\b", in_rules)
        if re.search(r"not so|fails", prompt):
            return [o for o in options if (o, known) in rules]
        return [o for o in options if (known, o) in rules]
    goal = re.search(r"\b([A-Z]) ([a-z ]+)$", prompt)
    assert goal, prompt
    (start, asked), relations = goal.groups(), {relation for _, relation, _ in facts}
    assert len(relations) == 1, prompt
    (relation,) = relations
    edges = {(a, b) for a, _, b in facts}
    if relation in SYMMETRIC:
        edges |= {(b, a) for a, b in edges}
    if asked != relation:
        assert CONVERSES[asked] == relation, prompt
        edges = {(b, a) for a, b in edges}
    reached = {start}
    while more := {b for a, b in edges if a in reached} - reached:
        reached |= more
    return [o for o in options if o in reached - {start}]


def entailed(prompt: str, options: Iterable[str]) -> list[str]:
    """The options that hold in every world in which the prompt's implications and plain facts do."""
    atoms = sorted(set(re.findall(r"\b[A-Z]\b", f"{prompt} {' '.join(options)}")))
    gap = re.search(r"\b([A-Z]) (?:implies|entails)$", prompt)

    def holds(text: str, world: dict[str, bool]) -> bool:
        return all(world[part[-1]] != part.startswith("not ") for part in text.split(" and "))

    worlds = []
    for values in product((False, True), repeat=len(atoms)):
        world = dict(zip(atoms, values, strict=True))
        implications = re.findall(r"\b([A-Z]) (?:implies|entails) ([A-Z])\b", prompt)
        facts = re.findall(r"\b([A-Z]) is (true|false)\b", prompt)
        if all(not world[a] or world[b] for a, b in implications) and all(world[a] == (v == "true") for a, v in facts):
            worlds.append(world)
    return [o for o in options if all(holds(o, w) or (gap is not None and not w[gap[1]]) for w in worlds)]


def constraint_options(prompt: str, options: Iterable[str]) -> list[str]:
    """The options that the constraints leave (elimination from a list, or the end of a line of comparisons)."""
    if listed := re.search(r"((?:\w+, )+)or (\w+)", prompt):
        values = [*listed[1].rstrip(", ").split(", "), listed[2]]
        rest = prompt.replace(listed[0], "", 1)
        return [o for o in options if o in values and not re.search(rf"\b{o}\b", rest)]
    facts = re.findall(r"([A-Z][a-z]+) is ([a-z ]+) than ([A-Z][a-z]+)", prompt)
    people = sorted({p for a, _, b in facts for p in (a, b)})
    lines = [
        line for line in permutations(people) if all(line.index(a) < line.index(b) for a, _, b in facts)
    ]  # fmt: skip
    (comparative,) = {how for _, how, _ in facts}
    first, _, rest_of_it = comparative.partition(" ")
    superlative = f"{first.removesuffix('er')}est {rest_of_it}".strip()
    end = 0 if re.search(rf"\b{superlative}\b", prompt) else -1
    return [o for o in options if o in {line[end] for line in lines}]
