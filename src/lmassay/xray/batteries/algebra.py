"""algebra_simplification: symbolic simplification."""

from __future__ import annotations

from lmassay.xray.batteries.numbers import NumberWording
from lmassay.xray.batteries.template import Question, Template, shuffled

FAMILY = "algebra_simplification"
LETTERS = ("x", "y", "z", "n", "m", "t", "p", "q", "k", "w")


def _wording(name: str, wording: str, answer: str, first: range) -> NumberWording:
    """`answer` is a format string over a, b, v and the sums and products the answer needs."""
    return NumberWording(
        name,
        wording,
        lambda a, b, v: answer.format(a=a, b=b, v=v, total=a + b, product=a * b, one_less=a + b - 1),
        first,
        LETTERS,
    )


WORDINGS: dict[str, NumberWording] = {
    wording.name: wording
    for wording in (
        _wording("add_like", "Simplify {a}{v} plus {b}{v}. The result is", "{total}{v}", range(2, 40)),
        _wording("subtract_like", "Simplify {total}{v} minus {a}{v}. The result is", "{b}{v}", range(2, 40)),
        _wording("scale", "Simplify {a} times {b}{v}. The result is", "{product}{v}", range(2, 30)),
        _wording("divide", "Simplify {product}{v} divided by {a}. The result is", "{b}{v}", range(2, 30)),
        _wording("expand", "Expand {a}({v} + {b}). The result is", "{a}{v} + {product}", range(2, 30)),
        _wording("expand_minus", "Expand {a}({v} - {b}). The result is", "{a}{v} - {product}", range(2, 30)),
        _wording("factor", "Factor {a}{v} + {product}. The result is", "{a}({v} + {b})", range(2, 30)),
        _wording("powers_multiply", "Simplify {v}^{a} times {v}^{b}. The result is", "{v}^{total}", range(2, 20)),
        _wording("powers_divide", "Simplify {v}^{total} divided by {v}^{a}. The result is", "{v}^{b}", range(2, 20)),
        _wording("power_of_power", "Simplify ({v}^{a})^{b}. The result is", "{v}^{product}", range(2, 15)),
        _wording("collect", "Collect terms in {a}{v} + 1 + {b}{v}. The result is", "{total}{v} + 1", range(2, 40)),
        _wording("constants", "Simplify ({v} + {a}) + {b}. The result is", "{v} + {total}", range(2, 40)),
        _wording("constants_minus", "Simplify ({v} + {total}) - {a}. The result is", "{v} + {b}", range(2, 40)),
        _wording("solve_add", "Solve {v} + {a} = {total}. Then {v} equals", "{b}", range(2, 40)),
        _wording("solve_multiply", "Solve {a}{v} = {product}. Then {v} equals", "{b}", range(2, 30)),
        _wording("subtract_one", "Subtract {v} from {b}{v}, then add {a}{v}. The result is", "{one_less}{v}", range(2, 40)),
    )
}  # fmt: skip


def identities(v: str) -> dict[str, Question]:
    """A variable combined with itself by each of the four operations."""
    answers = {"minus": "0", "plus": f"2{v}", "times": f"{v}^2", "divided by": "1"}
    return {
        operation: Question(f"Simplify {v} {operation} {v}. The result is", answer, (v,))
        for operation, answer in answers.items()
    }


def _pose_identities(_: int, seed: int) -> tuple[Question, ...]:
    return tuple(identities(shuffled(list(LETTERS), seed, "letter of identity")[0]).values())


TEMPLATES: tuple[Template, ...] = (
    Template(FAMILY, "identity", 1, _pose_identities),
    *(wording.template(FAMILY) for wording in WORDINGS.values()),
)
