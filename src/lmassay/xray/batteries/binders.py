"""binder_tracking: which variable holds what."""

from __future__ import annotations

from collections.abc import Callable

from lmassay.xray.batteries.numbers import Names, NumberWording
from lmassay.xray.batteries.template import Template

FAMILY = "binder_tracking"
VARIABLES = ("a", "b", "c", "d", "m", "n", "p", "q", "r", "s", "u", "v", "x", "y", "z")
PEOPLE = ("Ann", "Ben", "Cal", "Dan", "Eva", "Fay", "Gus", "Ida", "Jon", "Kim", "Leo", "Mia")


def _wording(
    name: str, wording: str, compute: Callable[[int, int], int], names: Names = VARIABLES, first: range = range(2, 40)
) -> NumberWording:
    return NumberWording(name, wording, lambda a, b, _: str(compute(a, b)), first, names)


WORDINGS: dict[str, NumberWording] = {
    wording.name: wording
    for wording in (
        _wording("let_add", "Let {v} = {a}, {w} = {v} + {b}. Then {w} equals", lambda a, b: a + b),
        _wording("let_subtract", "Let {v} = {total}, {w} = {v} - {a}. Then {w} equals", lambda _, b: b),
        _wording("let_multiply", "Let {v} = {a}, {w} = {v} * {b}. Then {w} equals", lambda a, b: a * b, first=range(2, 20)),
        _wording("let_copy", "Let {v} = {b}, {w} = {v}, {u} = {a}. Then {w} equals", lambda _, b: b),
        _wording("let_chain", "Let {v} = {a}, {w} = {v} + {b}, {u} = {w} + 1. Then {u} equals", lambda a, b: a + b + 1),
        _wording("let_unused", "Let {v} = {a}, {u} = {other}, {w} = {v} + {b}. Then {w} equals", lambda a, b: a + b),
        _wording("let_sum", "Let {v} = {a}, {w} = {b}, {u} = {v} + {w}. Then {u} equals", lambda a, b: a + b),
        _wording("let_twice", "Let {v} = {b}, {w} = {v} + {v}, {u} = {w} + {a}. Then {u} equals", lambda a, b: 2 * b + a),
        _wording("set_add", "Set {v} to {a}. Set {w} to {v} plus {b}. The value of {w} is", lambda a, b: a + b),
        _wording("set_copy", "Set {v} to {a}. Set {w} to {b}. Set {u} to {w}. The value of {u} is", lambda _, b: b),
        _wording("set_again", "Set {v} to {a}. Set {v} to {b}. The value of {v} is now", lambda _, b: b),
        _wording("set_before", "Set {v} to {b}. Set {w} to {v}. Set {v} to {a}. The value of {w} is", lambda _, b: b),
        _wording("code_add", "{v} = {a}; {w} = {v} + {b}; print({w}) shows", lambda a, b: a + b),
        _wording("code_swap", "{v} = {a}; {w} = {b}; {v}, {w} = {w}, {v}; print({v}) shows", lambda _, b: b),
        _wording("coins", "{v} has {a} coins. {w} has {b} more coins than {v}. The number of coins {w} has is", lambda a, b: a + b, PEOPLE),
        _wording("gives", "{v} has {total} coins and gives {a} of them to {w}. The number of coins {v} keeps is", lambda _, b: b, PEOPLE),
        _wording("older", "{v} is {b} years old. {w} is {a} years older than {v}. The age of {w} is", lambda a, b: a + b, PEOPLE),
    )
}  # fmt: skip
TEMPLATES: tuple[Template, ...] = tuple(wording.template(FAMILY) for wording in WORDINGS.values())
