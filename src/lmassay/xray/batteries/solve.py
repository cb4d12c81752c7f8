"""Answers worked out again from the numbers a prompt shows, apart from the wording's own computation.

Whoever perturbs a prompt needs the true answer of what now stands there; and every built-in answer is checked twice.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from fractions import Fraction

Shown = Sequence[int]

_NUMBER = re.compile(r"(?<![A-Za-z0-9_.])\d+")
#: template -> value or format string over the value(s), from the numbers in order of appearance
_VALUES: dict[str, Callable[[Shown], Fraction | int]] = {
    "arithmetic_transform/add": lambda n: n[0] + n[1],
    "arithmetic_transform/subtract": lambda n: n[0] - n[1],
    "arithmetic_transform/multiply": lambda n: n[0] * n[1],
    "arithmetic_transform/divide": lambda n: Fraction(n[0], n[1]),
    "arithmetic_transform/plus": lambda n: n[0] + n[1],
    "arithmetic_transform/minus": lambda n: n[0] - n[1],
    "arithmetic_transform/times": lambda n: n[0] * n[1],
    "arithmetic_transform/double": lambda n: n[0] * 2 + n[1],
    "arithmetic_transform/halve": lambda n: Fraction(n[0], 2) + n[1],
    "arithmetic_transform/doubled_sum": lambda n: (n[0] + n[1]) * 2,
    "arithmetic_transform/increase": lambda n: n[0] + n[1],
    "arithmetic_transform/decrease": lambda n: n[0] - n[1],
    "arithmetic_transform/sum": lambda n: n[0] + n[1],
    "arithmetic_transform/product": lambda n: n[0] * n[1],
    "arithmetic_transform/more_than": lambda n: n[1] + n[0],
    "arithmetic_transform/less_than": lambda n: n[1] - n[0],
    "arithmetic_transform/missing": lambda n: n[1] - n[0],
    "arithmetic_transform/add_twice": lambda n: n[0] + n[1] + n[2],
    "algebra_simplification/solve_add": lambda n: n[1] - n[0],
    "algebra_simplification/solve_multiply": lambda n: Fraction(n[1], n[0]),
    "binder_tracking/let_add": lambda n: n[0] + n[1],
    "binder_tracking/let_subtract": lambda n: n[0] - n[1],
    "binder_tracking/let_multiply": lambda n: n[0] * n[1],
    "binder_tracking/let_copy": lambda n: n[0],
    "binder_tracking/let_chain": lambda n: n[0] + n[1] + n[2],
    "binder_tracking/let_unused": lambda n: n[0] + n[2],
    "binder_tracking/let_sum": lambda n: n[0] + n[1],
    "binder_tracking/let_twice": lambda n: n[0] + n[0] + n[1],
    "binder_tracking/set_add": lambda n: n[0] + n[1],
    "binder_tracking/set_copy": lambda n: n[1],
    "binder_tracking/set_again": lambda n: n[1],
    "binder_tracking/set_before": lambda n: n[0],
    "binder_tracking/code_add": lambda n: n[0] + n[1],
    "binder_tracking/code_swap": lambda n: n[1],
    "binder_tracking/coins": lambda n: n[0] + n[1],
    "binder_tracking/gives": lambda n: n[0] - n[1],
    "binder_tracking/older": lambda n: n[0] + n[1],
}
_TERMS: dict[str, Callable[[Shown, str], str]] = {
    "algebra_simplification/add_like": lambda n, v: f"{n[0] + n[1]}{v}",
    "algebra_simplification/subtract_like": lambda n, v: f"{n[0] - n[1]}{v}",
    "algebra_simplification/scale": lambda n, v: f"{n[0] * n[1]}{v}",
    "algebra_simplification/divide": lambda n, v: f"{Fraction(n[0], n[1])}{v}",
    "algebra_simplification/expand": lambda n, v: f"{n[0]}{v} + {n[0] * n[1]}",
    "algebra_simplification/expand_minus": lambda n, v: f"{n[0]}{v} - {n[0] * n[1]}",
    "algebra_simplification/factor": lambda n, v: f"{n[0]}({v} + {Fraction(n[1], n[0])})",
    "algebra_simplification/powers_multiply": lambda n, v: f"{v}^{n[0] + n[1]}",
    "algebra_simplification/powers_divide": lambda n, v: f"{v}^{n[0] - n[1]}",
    "algebra_simplification/power_of_power": lambda n, v: f"{v}^{n[0] * n[1]}",
    "algebra_simplification/collect": lambda n, v: f"{n[0] + n[2]}{v} + {n[1]}",
    "algebra_simplification/constants": lambda n, v: f"{v} + {n[0] + n[1]}",
    "algebra_simplification/constants_minus": lambda n, v: f"{v} + {n[0] - n[1]}",
    "algebra_simplification/subtract_one": lambda n, v: f"{n[0] - 1 + n[1]}{v}",
}


def solve(template: str, prompt: str) -> str | None:
    """The true answer of a prompt of a computing template, or None where the template or its numbers are not known."""
    # A user's file may name a template of ours over a prompt that shows other numbers than ours do.
    try:
        shown = [int(number) for number in _NUMBER.findall(prompt)]
        if template in _VALUES:
            return str(_VALUES[template](shown))
        if template in _TERMS:
            letter = re.search(r"\b\d*([a-z])\b", prompt)
            return _TERMS[template](shown, letter.group(1) if letter else "")
    except (IndexError, ValueError, ZeroDivisionError):
        return None
    return None
