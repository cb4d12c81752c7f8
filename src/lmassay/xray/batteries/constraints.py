"""logical_constraint: the one possibility that a set of constraints leaves."""

from __future__ import annotations

from itertools import permutations

from lmassay.xray.batteries.template import SET_SIZE, Question, Template, rotated, shuffled

FAMILY = "logical_constraint"
#: Things of which exactly one is meant -> their values.
THEMES: dict[str, tuple[str, ...]] = {
    "door": ("red", "blue", "green", "white", "black", "brown"),
    "city": ("Paris", "Rome", "Oslo", "Cairo", "Lima", "Delhi"),
    "day": ("Monday", "Tuesday", "Thursday", "Friday", "Saturday", "Sunday"),
    "month": ("March", "April", "June", "July", "August", "October"),
    "fruit": ("apple", "pear", "plum", "peach", "lemon", "cherry"),
    "animal": ("cat", "dog", "horse", "sheep", "goat", "rabbit"),
    "metal": ("iron", "gold", "silver", "copper", "zinc", "tin"),
    "planet": ("Mars", "Venus", "Saturn", "Jupiter", "Neptune", "Mercury"),
    "shape": ("circle", "square", "triangle", "star", "cross", "oval"),
    "drink": ("tea", "coffee", "milk", "juice", "water", "cocoa"),
    "tool": ("hammer", "saw", "drill", "wrench", "chisel", "file"),
    "tree": ("oak", "pine", "birch", "maple", "willow", "cedar"),
    "river": ("Nile", "Rhine", "Volga", "Thames", "Danube", "Amazon"),
    "card": ("king", "queen", "jack", "ace", "ten", "nine"),
    "season": ("spring", "summer", "autumn", "winter"),
    "direction": ("north", "south", "east", "west"),
}
PEOPLE = ["Ann", "Ben", "Cal", "Dan", "Eva", "Fay", "Gus", "Ida", "Jon", "Kim", "Leo", "Mia"]
#: Comparison, and who is at its two ends.
ORDERS: tuple[tuple[str, str, str], ...] = (
    ("is taller than", "tallest", "shortest"), ("is older than", "oldest", "youngest"),
    ("is faster than", "fastest", "slowest"), ("is richer than", "richest", "poorest"),
    ("is stronger than", "strongest", "weakest"), ("is heavier than", "heaviest", "lightest"),
    ("is louder than", "loudest", "quietest"), ("is happier than", "happiest", "saddest"),
    ("is busier than", "busiest", "idlest"), ("is braver than", "bravest", "most timid"),
    ("is wiser than", "wisest", "most foolish"), ("is nearer than", "nearest", "farthest"),
    ("is earlier than", "earliest", "latest"), ("is warmer than", "warmest", "coldest"),
    ("is higher up than", "highest up", "lowest down"), ("is bigger than", "biggest", "smallest"),
)  # fmt: skip


def _elimination(name: str, wording: str) -> Template:
    """All but one excluded, in some order."""
    forms = [(theme, order) for order in permutations(range(SET_SIZE - 1)) for theme in THEMES]

    def pose(index: int, seed: int) -> tuple[Question, ...]:
        theme, order = forms[index]
        values = sorted(shuffled(list(THEMES[theme]), seed, f"values of {name} {index}")[:SET_SIZE])
        asked = []
        for left in values:
            others = [v for v in values if v != left]
            gone = [others[i] for i in order]
            prompt = wording.format(
                theme=theme, all=f"{', '.join(values[:-1])}, or {values[-1]}", one=gone[0], two=gone[1], three=gone[2]
            )
            asked.append(Question(prompt, left, tuple(values)))
        return tuple(asked)

    return Template(FAMILY, name, len(forms), pose)


def _order(name: str, wording: str) -> Template:
    """Three comparisons fix a line of four; the question is one end of it."""
    forms = [(told, end, comparison) for told in permutations(range(3)) for end in (0, 1) for comparison in ORDERS]

    def pose(index: int, seed: int) -> tuple[Question, ...]:
        people = sorted(shuffled(PEOPLE, seed, f"people of {name} {index}")[:SET_SIZE])
        asked = []
        for which, (told, end, (than, most, least)) in enumerate(forms[index * SET_SIZE : (index + 1) * SET_SIZE]):
            # rotated() puts each of the four once at the asked end of the line.
            line = rotated(people, which) if end == 0 else rotated(people, which)[::-1]
            facts = [f"{line[i]} {than} {line[i + 1]}" for i in range(3)]
            one, two, three = (facts[i] for i in told)
            superlative = most if end == 0 else least
            prompt = wording.format(one=one, two=two, three=three, superlative=superlative)
            asked.append(Question(prompt, line[0] if end == 0 else line[-1], tuple(people)))
        return tuple(asked)

    return Template(FAMILY, name, len(forms) // SET_SIZE, pose)


TEMPLATES: tuple[Template, ...] = (
    _elimination("one_of", "The {theme} is {all}. It is not {one}, not {two}, and not {three}. So it is"),
    _elimination("exactly_one", "Exactly one {theme} is right: {all}. {one}, {two}, and {three} are wrong. The right one is"),
    _elimination("ruled_out", "Choose a {theme} from {all}. Rule out {one}, then {two}, then {three}. What remains is"),
    _elimination("neither", "A {theme} was picked from {all}. It was neither {one} nor {two} nor {three}. It was"),
    _elimination("must_be", "If the {theme} must be {all}, and it cannot be {one}, {two}, or {three}, then it must be"),
    _elimination("hint", "Guess the {theme}: {all}. Hints: not {one}; not {two}; not {three}. The answer is"),
    _elimination("forbidden", "Each {theme} but one is forbidden. Among {all}, forbidden are {one}, {two}, {three}. Allowed is"),
    _elimination("or", "The {theme} is {all}. Not {one}. Not {two}. Not {three}. Hence the {theme} is"),
    _order("compare", "{one}, {two}, and {three}. The {superlative} is"),
    _order("compare_if", "If {one}, {two}, and {three}, then the {superlative} is"),
    _order("compare_suppose", "Suppose {one}. Suppose {two}. Suppose {three}. The {superlative} of them is"),
    _order("compare_know", "We know that {one}, that {two}, and that {three}. So the {superlative} is"),
    _order("compare_clues", "Clues: {one}; {two}; {three}. The {superlative} one is"),
    _order("compare_given", "Given that {one}, that {two}, and that {three}, the {superlative} must be"),
    _order("compare_facts", "{one}. {two}. {three}. Of the four, the {superlative} is"),
    _order("compare_rank", "Rank the four: {one}, {two}, {three}. Named {superlative} is"),
)  # fmt: skip
