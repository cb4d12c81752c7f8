"""theorem_pattern: what follows from relations and implications."""

from __future__ import annotations

from itertools import permutations

from lmassay.xray.batteries.template import SET_SIZE, Question, Template, rotated, shuffled

FAMILY = "theorem_pattern"
SYMBOLS = ["A", "B", "C", "D", "E", "F", "G", "H", "K", "L", "M", "N", "P", "Q", "R", "S", "T", "U", "V", "W"]
#: Transitive relations, in a number divisible by SET_SIZE so that a set never repeats one.
TRANSITIVE = (
    "implies", "entails", "contains", "divides", "precedes", "follows", "exceeds", "outranks",
    "is above", "is below", "is inside", "is before", "is after", "is behind", "is taller than", "is heavier than",
    "is older than", "is greater than", "is less than", "is equal to", "is a subset of", "is parallel to",
    "is an ancestor of", "is faster than",
)  # fmt: skip
#: A relation and what it says read from the other side.
CONVERSE = (
    ("is the parent of", "is the child of"), ("is above", "is below"), ("is before", "is after"),
    ("is larger than", "is smaller than"), ("is taller than", "is shorter than"), ("contains", "is contained in"),
    ("is left of", "is right of"), ("divides", "is divisible by"), ("teaches", "is taught by"),
    ("follows", "is followed by"), ("is faster than", "is slower than"), ("is heavier than", "is lighter than"),
    ("implies", "is implied by"), ("is richer than", "is poorer than"), ("is older than", "is younger than"),
    ("is north of", "is south of"),
)  # fmt: skip
#: Places the telling fact can take among three; the other two are interchangeable.
PLACES = ((0, 1, 2), (1, 0, 2), (1, 2, 0))
#: Ways to say that a statement holds.
HOLDS = ("holds", "is true", "is the case", "is given", "is proved", "is known", "is valid", "is accepted")


def _roles(seed: int, purpose: str, which: int) -> tuple[list[str], list[str]]:
    """Four options in the roles of this question (the answer first), and two further symbols."""
    chosen = shuffled(SYMBOLS, seed, purpose)
    return rotated(sorted(chosen[:SET_SIZE]), which), chosen[SET_SIZE : SET_SIZE + 2]


def _chain(name: str, wording: str, separator: str, last: str) -> Template:
    """S r M, M r T among a second chain: S relates to T, and to none of the other options."""
    forms = [(order, relation) for order in permutations(range(4)) for relation in TRANSITIVE]

    def pose(index: int, seed: int) -> tuple[Question, ...]:
        asked = []
        for which, (order, relation) in enumerate(forms[index * SET_SIZE : (index + 1) * SET_SIZE]):
            (t, u, v, w), (s, m) = _roles(seed, f"symbols of {name} {index}", which)
            premises = [f"{s} {relation} {m}", f"{m} {relation} {t}", f"{u} {relation} {v}", f"{v} {relation} {w}"]
            told = [premises[i] for i in order]
            text = separator.join(told[:-1]) + last + told[-1]
            asked.append(Question(wording.format(premises=text, goal=f"{s} {relation}"), t, (s, m, t, u, v, w)))
        return tuple(asked)

    return Template(FAMILY, name, len(forms) // SET_SIZE, pose)


def _converse(name: str, wording: str) -> Template:
    """T r S among other pairs: read from the other side, S relates to T."""
    forms = [(order, pair) for order in PLACES for pair in CONVERSE]

    def pose(index: int, seed: int) -> tuple[Question, ...]:
        asked = []
        for which, (order, (relation, converse)) in enumerate(forms[index * SET_SIZE : (index + 1) * SET_SIZE]):
            (t, u, v, w), (s, m) = _roles(seed, f"symbols of {name} {index}", which)
            facts = [f"{t} {relation} {s}", f"{u} {relation} {v}", f"{w} {relation} {m}"]
            told = [facts[i] for i in order]
            text = f"{told[0]}, {told[1]}, and {told[2]}"
            asked.append(Question(wording.format(premises=text, goal=f"{s} {converse}"), t, (s, m, t, u, v, w)))
        return tuple(asked)

    return Template(FAMILY, name, len(forms) // SET_SIZE, pose)


def _conditional(name: str, wording: str, *, backwards: bool = False) -> Template:
    """If S then T, among other conditionals. S holds, so T does; or T fails, so the failing one named is S."""
    forms = [(order, holds) for order in PLACES for holds in HOLDS]

    def pose(index: int, seed: int) -> tuple[Question, ...]:
        asked = []
        for which, (order, holds) in enumerate(forms[index * SET_SIZE : (index + 1) * SET_SIZE]):
            (t, u, v, w), (s, m) = _roles(seed, f"symbols of {name} {index}", which)
            known = (t, s) if backwards else (s, t)
            rules = [f"if {known[0]} then {known[1]}", f"if {u} then {v}", f"if {w} then {m}"]
            told = [rules[i] for i in order]
            text = f"{told[0]}, {told[1]}, and {told[2]}"
            prompt = wording.format(premises=text, start=text[0].upper() + text[1:], known=s, holds=holds)
            asked.append(Question(prompt, t, (s, m, t, u, v, w)))
        return tuple(asked)

    return Template(FAMILY, name, len(forms) // SET_SIZE, pose)


TEMPLATES: tuple[Template, ...] = (
    _chain("transitive", "If {premises}, then {goal}", ", ", ", and "),
    _chain("transitive_suppose", "Suppose {premises}. It follows that {goal}", ", ", ", and "),
    _chain("transitive_given", "Given that {premises}, we conclude that {goal}", ", that ", ", and that "),
    _chain("transitive_know", "We know this: {premises}. Therefore {goal}", "; ", "; "),
    _chain("transitive_assume", "Assume {premises}. Hence {goal}", ". Assume ", ". Assume "),
    _chain("transitive_facts", "{premises}. So {goal}", ". ", ". "),
    _chain("transitive_because", "Because {premises}, it must be that {goal}", ", ", ", and "),
    _chain("transitive_premises", "Premises: {premises}. Conclusion: {goal}", "; ", "; "),
    _converse("converse", "If {premises}, then {goal}"),
    _converse("converse_suppose", "Suppose {premises}. Seen from the other side, {goal}"),
    _converse("converse_given", "Given that {premises}, we can also say that {goal}"),
    _conditional("modus_ponens", "{start}. {known} {holds}. So we may conclude"),
    _conditional("modus_ponens_suppose", "Suppose {known} {holds}. Suppose also: {premises}. What follows is"),
    _conditional("modus_ponens_rule", "Rules: {premises}. Fact: {known} {holds}. The rules give"),
    _conditional("modus_tollens", "{start}. It is not so that {known} {holds}. So we may reject", backwards=True),
    _conditional(
        "modus_tollens_suppose",
        "Suppose: {premises}. Someone says {known} {holds}, but it fails. What must fail too is",
        backwards=True,
    ),
)
