"""A task (a prompt, its options, the right one) and a battery (an ordered, named list of tasks)."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass

FAMILY_GROUPS: dict[str, str] = {
    "arithmetic_transform": "compute",
    "algebra_simplification": "compute",
    "binder_tracking": "logic",
    "theorem_pattern": "logic",
    "proof_closure": "logic",
    "logical_constraint": "logic",
}


@dataclass(frozen=True, slots=True)
class Task:
    """One question with its options.

    Attributes
    ----------
    id : str
        Unique in its battery.
    family : str
        Key of `FAMILY_GROUPS`, or a family of the user's own.
    prompt : str
        Text to be completed; no trailing white space.
    options : tuple of str
        At least two distinct, stripped, non-empty strings.
    answer : int
        Index of the correct option.
    template : str
        The wording the task was made from: the unit of every interval. A task without one is its own template.
    set_id : str or None
        Counterbalanced set: tasks of one template that share the same options, each the answer of exactly one.
    broken_prompt : str or None
        The task's own semantics-break prompt.
    flags : tuple of str
        What loading had to mend or wants noted, such as ``prompt_trailing_space``.
    """

    id: str
    family: str
    prompt: str
    options: tuple[str, ...]
    answer: int
    template: str
    set_id: str | None = None
    broken_prompt: str | None = None
    flags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ParaphraseGroup:
    """Several wordings of one question; ``wordings[0]`` is the base task's own prompt."""

    id: str
    family: str
    base_task_id: str
    wordings: tuple[str, ...]
    options: tuple[str, ...]
    answer: int


@dataclass(frozen=True, slots=True)
class Battery:
    """An ordered, named list of tasks with paraphrase groups of its own.

    Attributes
    ----------
    name, version : str
    tasks : tuple of Task
    paraphrases : tuple of ParaphraseGroup
        Groups of at least two wordings; the built-in eight, or those of a user's file (`paraphrases` field).
    """

    name: str
    version: str
    tasks: tuple[Task, ...]
    paraphrases: tuple[ParaphraseGroup, ...] = ()

    @property
    def content_hash(self) -> str:
        """sha256 over all that can change a number: tasks and paraphrase groups, in order-free form."""
        content = {
            "tasks": sorted((asdict(t) for t in self.tasks), key=lambda t: str(t["id"])),
            "paraphrases": sorted((asdict(g) for g in self.paraphrases), key=lambda g: str(g["id"])),
        }
        encoded = json.dumps(content, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
        return hashlib.sha256(encoded.encode("utf-8", "surrogatepass")).hexdigest()

    @property
    def families(self) -> tuple[str, ...]:
        """Families in order of first appearance."""
        return tuple(dict.fromkeys(task.family for task in self.tasks))
