"""Sets of four from two numbers: the first fixed, the second stepping, so that wrong options are near numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lmassay.xray.batteries.template import SET_SIZE, Question, Template, shuffled

#: Values of the second number; divisible by SET_SIZE times every stride.
SPAN = 24
STRIDES = (1, 2, 3)
_PER_FIRST = SPAN // SET_SIZE

Names = Sequence[str]


@dataclass(frozen=True, slots=True)
class NumberWording:
    """A wording over two numbers a and b and up to three names.

    Attributes
    ----------
    wording : str
        Format string over ``a``, ``b``, ``twice`` (2a), ``total`` (a + b), ``product`` (ab), ``other``, ``v``, ``w``
        and ``u``.
    compute : callable
        ``compute(a, b, v) -> answer``; for one a, different b give different answers.
    names : sequence of str
        Menu the names are drawn from.
    first : range
        Values of a.
    """

    name: str
    wording: str
    compute: Callable[[int, int, str], str]
    first: range
    names: Names = ()
    second_from: int = 2

    def ask(self, a: int, b: int, names: Names) -> Question:
        """The question about one pair of numbers."""
        v, w, u = (*names, "", "", "")[:3]
        prompt = self.wording.format(a=a, b=b, twice=2 * a, total=a + b, product=a * b, other=a + b + 3, v=v, w=w, u=u)
        used = [n for field, n in zip(("{v}", "{w}", "{u}"), (v, w, u), strict=True) if field in self.wording]
        return Question(prompt, self.compute(a, b, v), tuple(used))

    def template(self, family: str) -> Template:
        """The wording as a template; the four of a set lie one, two or three apart, by a."""

        def pose(index: int, seed: int) -> tuple[Question, ...]:
            a = self.first[index // _PER_FIRST]
            stride = STRIDES[a % len(STRIDES)]
            block, offset = divmod(index % _PER_FIRST, stride)
            start = self.second_from + block * SET_SIZE * stride + offset
            names = shuffled(list(self.names), seed, f"names of {family} {self.name} {a}")[:3]
            return tuple(self.ask(a, start + k * stride, names) for k in range(SET_SIZE))

        return Template(family, self.name, len(self.first) * _PER_FIRST, pose)
