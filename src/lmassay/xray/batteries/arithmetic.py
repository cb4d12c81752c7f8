"""arithmetic_transform: the numerical change of a number."""

from __future__ import annotations

from collections.abc import Callable

from lmassay.xray.batteries.numbers import NumberWording
from lmassay.xray.batteries.template import Template

FAMILY = "arithmetic_transform"


def _wording(name: str, wording: str, compute: Callable[[int, int], int], first: range) -> NumberWording:
    return NumberWording(name, wording, lambda a, b, _: str(compute(a, b)), first)


WORDINGS: dict[str, NumberWording] = {
    wording.name: wording
    for wording in (
        _wording("add", "Start with {a}. Add {b}. The result is", lambda a, b: a + b, range(2, 90)),
        _wording("subtract", "Start with {a}. Subtract {b}. The result is", lambda a, b: a - b, range(27, 115)),
        _wording("multiply", "Start with {a}. Multiply by {b}. The result is", lambda a, b: a * b, range(2, 30)),
        _wording("divide", "Start with {product}. Divide by {a}. The result is", lambda _, b: b, range(2, 30)),
        _wording("plus", "{a} plus {b} equals", lambda a, b: a + b, range(3, 91)),
        _wording("minus", "{a} minus {b} equals", lambda a, b: a - b, range(28, 116)),
        _wording("times", "{a} times {b} equals", lambda a, b: a * b, range(2, 30)),
        _wording("double", "Double {b}, then add {a}. The result is", lambda a, b: 2 * b + a, range(1, 60)),
        _wording("halve", "Halve {twice}, then add {b}. The result is", lambda a, b: a + b, range(2, 60)),
        _wording("doubled_sum", "Add {a} to {b}, then double the sum. The result is", lambda a, b: 2 * (a + b), range(2, 60)),
        _wording("increase", "Increase {a} by {b}. You get", lambda a, b: a + b, range(4, 90)),
        _wording("decrease", "Decrease {a} by {b}. You get", lambda a, b: a - b, range(29, 115)),
        _wording("sum", "The sum of {a} and {b} is", lambda a, b: a + b, range(5, 91)),
        _wording("product", "The product of {a} and {b} is", lambda a, b: a * b, range(2, 30)),
        _wording("more_than", "The number that is {b} more than {a} is", lambda a, b: a + b, range(6, 90)),
        _wording("less_than", "The number that is {b} less than {a} is", lambda a, b: a - b, range(30, 115)),
        _wording("missing", "What number plus {a} gives {total}? The answer is", lambda _, b: b, range(2, 60)),
        _wording("add_twice", "Start with {a}. Add {b}, then add 10. The result is", lambda a, b: a + b + 10, range(2, 60)),
    )
}  # fmt: skip
TEMPLATES: tuple[Template, ...] = tuple(wording.template(FAMILY) for wording in WORDINGS.values())
