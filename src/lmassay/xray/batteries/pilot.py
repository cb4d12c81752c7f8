"""The two fixed batteries, `core50` and `heldout54`: instances of the published templates, our own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import partial

from lmassay.seeds import digest
from lmassay.xray.batteries import algebra, arithmetic, binders, closure
from lmassay.xray.batteries.balanced import prefix_flag
from lmassay.xray.batteries.numbers import NumberWording
from lmassay.xray.batteries.paraphrases import paraphrase_groups
from lmassay.xray.task import Battery, Task

VERSION = "1"
#: (family, template, prompt, answer, three wrong options)
Row = tuple[str, str, str, str, tuple[str, ...]]
#: (wording, a, b, step to the next option, how many options are smaller than the answer, names)
Numbers = tuple[str, int, int, int, int, tuple[str, ...]]

SHORT = {
    "arithmetic_transform": "arithmetic",
    "algebra_simplification": "algebra",
    "binder_tracking": "binder",
    "theorem_pattern": "theorem",
    "proof_closure": "closure",
    "logical_constraint": "constraint",
}


def _from_numbers(family: str, wordings: dict[str, NumberWording], rows: Iterable[Numbers]) -> list[Row]:
    """Wrong options are the answers to the same wording with b one or more steps away."""
    made = []
    for name, a, b, step, rank, names in rows:
        question = wordings[name].ask(a, b, names)
        near = [wordings[name].ask(a, b + (k - rank) * step, names).answer for k in range(4) if k != rank]
        made.append((family, name, question.prompt, question.answer, tuple(near)))
    return made


def _identity(operation: str, v: str) -> Row:
    questions = algebra.identities(v)
    wrong = tuple(q.answer for o, q in questions.items() if o != operation)
    return (algebra.FAMILY, "identity", questions[operation].prompt, questions[operation].answer, wrong)


def _closes(concept: str, state: int, frame: str, *wrong: str) -> Row:
    wording = dict(closure.FRAMES)[frame]
    template = concept.removeprefix("a ").replace(" ", "_")
    return (closure.FAMILY, template, wording.format(state=closure.CONCEPTS[concept][state]), concept, wrong)


def _battery(name: str, rows: list[Row]) -> Battery:
    numbers: Counter[str] = Counter()
    tasks = []
    for at, (family, template, prompt, answer, wrong) in enumerate(rows):
        stem = f"{SHORT[family]}_{template}"
        numbers[stem] += 1
        task_id = f"{stem}_{numbers[stem]:02d}"
        # Where the answer stands goes round in fours; where the wrong options stand goes by hash.
        options = sorted(wrong, key=partial(digest, 0, task_id, "option order"))
        options.insert((at + at // 4) % 4, answer)
        tasks.append(
            Task(task_id, family, prompt, tuple(options), options.index(answer), f"{family}/{template}",
                 flags=prefix_flag(tuple(options)))
        )  # fmt: skip
    return Battery(name, VERSION, tuple(tasks), paraphrase_groups())


def core50() -> Battery:
    """24 arithmetic, 14 algebra, and 4 each of binder, theorem and closure tasks; a pilot by its size."""
    arithmetic_rows: list[Numbers] = [
        ("add", 7, 5, 1, 1, ()), ("add", 38, 14, 10, 3, ()), ("add", 64, 29, 2, 0, ()),
        ("subtract", 16, 7, 1, 2, ()), ("subtract", 41, 12, 10, 0, ()), ("subtract", 90, 36, 3, 1, ()),
        ("multiply", 6, 7, 1, 0, ()), ("multiply", 12, 8, 1, 2, ()), ("multiply", 9, 11, 2, 3, ()),
        ("divide", 4, 9, 1, 3, ()), ("divide", 7, 12, 2, 1, ()), ("divide", 5, 10, 1, 2, ()),
        ("plus", 7, 5, 1, 2, ()), ("plus", 46, 55, 1, 1, ()), ("plus", 83, 19, 10, 0, ()),
        ("minus", 52, 43, 1, 3, ()), ("minus", 100, 27, 10, 2, ()), ("minus", 75, 18, 5, 0, ()),
        ("double", 4, 8, 1, 1, ()), ("double", 15, 21, 3, 3, ()), ("double", 31, 35, 1, 0, ()),
        ("halve", 8, 6, 2, 2, ()), ("halve", 25, 17, 1, 3, ()), ("halve", 44, 53, 1, 1, ()),
    ]  # fmt: skip
    x = ("x",)
    algebra_rows: list[Numbers] = [
        ("add_like", 2, 3, 1, 0, x), ("add_like", 6, 4, 1, 2, x), ("subtract_like", 5, 9, 1, 3, x),
        ("subtract_like", 13, 11, 1, 1, ("y",)), ("scale", 4, 6, 1, 2, x), ("scale", 7, 15, 1, 3, ("n",)),
        ("expand", 3, 4, 1, 0, x), ("expand", 5, 2, 1, 1, ("y",)), ("powers_multiply", 2, 6, 1, 2, x),
        ("powers_divide", 3, 8, 1, 0, x), ("solve_add", 8, 9, 1, 3, x), ("collect", 3, 7, 1, 1, ("t",)),
    ]  # fmt: skip
    binder_rows: list[Numbers] = [
        ("let_add", 3, 2, 1, 2, ("a", "b")), ("let_chain", 6, 4, 1, 0, ("x", "y", "z")),
        ("set_again", 5, 9, 1, 3, ("m",)), ("coins", 8, 13, 1, 1, ("Ann", "Ben")),
    ]  # fmt: skip
    theorem = "theorem_pattern"
    return _battery(
        "core50",
        [
            *_from_numbers(arithmetic.FAMILY, arithmetic.WORDINGS, arithmetic_rows),
            _identity("minus", "x"),
            _identity("plus", "y"),
            *_from_numbers(algebra.FAMILY, algebra.WORDINGS, algebra_rows),
            *_from_numbers(binders.FAMILY, binders.WORDINGS, binder_rows),
            (theorem, "transitive", "If A implies B, B implies C, then A implies", "C", ("D", "not A", "not C")),
            (theorem, "transitive", "If P is above Q, Q is above R, then P is above", "R", ("P", "S", "not Q")),
            (theorem, "converse", "If M is the parent of N, then N is", "the child of M",
             ("the parent of M", "the twin of M", "M")),
            (theorem, "modus_tollens", "If R implies S, and S is false, then we know", "not R",
             ("R", "S", "R and S")),
            _closes("contradiction", 0, "closes", "induction", "symmetry", "a witness"),
            _closes("reflexivity", 0, "closes", "contradiction", "induction", "case analysis"),
            _closes("induction", 0, "closes", "reflexivity", "symmetry", "substitution"),
            _closes("assumption", 0, "closes", "contraposition", "vacuity", "case analysis"),
        ],
    )  # fmt: skip


def heldout54() -> Battery:
    """Nine tasks of each of six families; new numbers, names, relations and closure concepts."""
    arithmetic_rows: list[Numbers] = [
        ("add", 19, 24, 1, 0, ()), ("subtract", 63, 25, 1, 1, ()), ("multiply", 8, 13, 1, 2, ()),
        ("divide", 6, 14, 1, 3, ()), ("plus", 58, 37, 1, 0, ()), ("increase", 47, 49, 3, 2, ()),
        ("decrease", 81, 72, 1, 1, ()), ("sum", 27, 66, 4, 3, ()), ("missing", 15, 9, 1, 2, ()),
    ]  # fmt: skip
    algebra_rows: list[Numbers] = [
        ("add_like", 8, 7, 1, 1, ("z",)), ("subtract_like", 9, 6, 1, 0, ("k",)), ("scale", 5, 12, 1, 3, ("m",)),
        ("divide", 6, 9, 1, 2, ("p",)), ("expand", 7, 8, 1, 1, ("q",)), ("expand_minus", 4, 9, 1, 3, ("x",)),
        ("power_of_power", 3, 5, 1, 0, ("y",)), ("constants", 14, 17, 1, 2, ("n",)), ("solve_multiply", 4, 12, 1, 1, ("t",)),
    ]  # fmt: skip
    binder_rows: list[Numbers] = [
        ("let_add", 14, 9, 1, 3, ("p", "q")), ("let_subtract", 6, 15, 1, 0, ("m", "n")),
        ("let_copy", 18, 7, 1, 1, ("r", "s", "u")), ("let_unused", 11, 8, 1, 2, ("x", "y", "z")),
        ("set_add", 12, 16, 1, 2, ("c", "d")), ("set_before", 21, 10, 1, 3, ("u", "v")),
        ("code_add", 9, 13, 1, 0, ("n", "m")), ("gives", 14, 11, 1, 1, ("Eva", "Leo")),
        ("older", 5, 33, 1, 2, ("Kim", "Dan")),
    ]  # fmt: skip
    theorem, constraint = "theorem_pattern", "logical_constraint"
    return _battery(
        "heldout54",
        [
            *_from_numbers(arithmetic.FAMILY, arithmetic.WORDINGS, arithmetic_rows),
            *_from_numbers(algebra.FAMILY, algebra.WORDINGS, algebra_rows),
            *_from_numbers(binders.FAMILY, binders.WORDINGS, binder_rows),
            (theorem, "transitive", "If K entails L, L entails M, then K entails", "M", ("N", "not K", "not M")),
            (theorem, "transitive", "If U divides V, V divides W, then U divides", "W", ("T", "not V", "U + 1")),
            (theorem, "transitive", "If E is older than F, F is older than G, then E is older than", "G", ("E", "H", "not F")),
            (theorem, "chain", "If A entails B, B entails C, C entails D, then A entails", "D", ("E", "not B", "not D")),
            (theorem, "converse", "If S is north of T, then T is", "south of S", ("north of S", "S", "east of S")),
            (theorem, "converse", "If P contains Q, then Q is", "inside P", ("outside P", "equal to P", "P")),
            (theorem, "modus_ponens", "If G entails H, and G is true, then we know", "H", ("not H", "not G", "J")),
            (theorem, "modus_tollens", "If V entails W, and W is false, then we know", "not V", ("V", "W", "V and W")),
            (theorem, "symmetry", "If H is parallel to K, then K is parallel to", "H", ("K + 1", "J", "not H")),
            _closes("introduction", 0, "finished", "vacuity", "a witness", "symmetry"),
            _closes("introduction", 1, "ends", "contraposition", "reflexivity", "induction"),
            _closes("introduction", 3, "rule", "substitution", "symmetry", "a counterexample"),
            _closes("case analysis", 0, "finished", "assumption", "symmetry", "contradiction"),
            _closes("case analysis", 1, "ends", "transitivity", "a witness", "reflexivity"),
            _closes("case analysis", 3, "rule", "vacuity", "induction", "modus ponens"),
            _closes("a witness", 0, "finished", "contradiction", "vacuity", "transitivity"),
            _closes("a counterexample", 1, "ends", "modus ponens", "symmetry", "reflexivity"),
            _closes("substitution", 3, "rule", "assumption", "induction", "a counterexample"),
            (constraint, "either", "Either P or Q is true. P is false. So the true one is", "Q", ("P", "neither", "not Q")),
            (constraint, "either", "Exactly one of X and Y is false. X is true. So the false one is", "Y", ("X", "both", "not Y")),
            (constraint, "one_of", "The door is red, blue, or green. It is not red and not green. So it is", "blue",
             ("red", "green", "white")),
            (constraint, "one_of", "The day is Monday, Tuesday, or Sunday. It is not Monday and not Tuesday. So it is", "Sunday",
             ("Monday", "Tuesday", "Saturday")),
            (constraint, "compare", "Ann is taller than Ben, and Ben is taller than Cal. The tallest is", "Ann",
             ("Ben", "Cal", "nobody")),
            (constraint, "compare", "Dan is older than Eva, and Eva is older than Fay. The youngest is", "Fay",
             ("Dan", "Eva", "both")),
            (constraint, "both", "Both R and S are true. T is false. Among R, S and T, the false one is", "T",
             ("R", "S", "none of them")),
            (constraint, "if_only", "Ida comes only if Jon comes. Jon stays away. So Ida", "stays away",
             ("comes", "comes with Jon", "waits for Jon")),
            (constraint, "seats", "Gus sits left of Kim, and Kim sits left of Leo. In the middle sits", "Kim",
             ("Gus", "Leo", "nobody")),
        ],
    )  # fmt: skip
