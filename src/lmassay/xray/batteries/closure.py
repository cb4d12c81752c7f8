"""proof_closure: how a proof state closes."""

from __future__ import annotations

from functools import cache
from itertools import count

from lmassay.xray.batteries.template import SET_SIZE, Question, Template, shuffled

FAMILY = "proof_closure"
#: What closes a proof -> states it closes.
CONCEPTS: dict[str, tuple[str, str, str, str]] = {
    "contradiction": (
        "both P and not P", "a hypothesis Q and a hypothesis not Q", "derived that a number is even and not even",
        "shown that a claim is true and false at once",
    ),
    "reflexivity": (
        "only the goal x = x left", "only to show that a thing equals itself", "the goal t = t and no hypotheses",
        "left to prove that a set is equal to that same set",
    ),
    "assumption": (
        "its goal among its hypotheses", "P as hypothesis and P as goal", "to show Q where Q is already supposed",
        "a goal that is word for word a hypothesis",
    ),
    "induction": (
        "a base case and a step from n to n + 1", "shown P(0) and that P(k) gives P(k + 1)",
        "the claim for 1 and passed it from each number to the next", "a claim for all naturals, its start and its step",
    ),
    "case analysis": (
        "P or Q, and the goal from each of the two", "the goal for even n and the goal for odd n, separately",
        "a disjunction whose two sides both give the goal", "split on x < 0 and x >= 0 and shown the goal in both",
    ),
    "transitivity": (
        "a < b and b < c, and needs a < c", "x = y and y = z, and needs x = z",
        "A inside B and B inside C, and needs A inside C", "the links of a chain of inequalities and needs its ends",
    ),
    "symmetry": (
        "a = b and needs b = a", "x parallel to y and needs y parallel to x",
        "s equal to t and needs the two sides exchanged", "an equation, and its goal is that equation read from right to left",
    ),
    "modus ponens": (
        "P and P implies Q, and needs Q", "a rule and the rule's condition, and needs the rule's conclusion",
        "A, and if A then B, and needs B", "an implication and its left side, and needs its right side",
    ),
    "contraposition": (
        "shown not Q implies not P, and needs P implies Q", "turned if A then B into if not B then not A",
        "derived that the premise fails whenever the conclusion does, and needs the implication",
        "to show an implication and has its negated reverse",
    ),
    "a counterexample": (
        "to refute a claim about all n and found one n where it fails", "a prime that is even, against all primes are odd",
        "one bird that cannot fly, against all birds fly", "a single value that breaks a universal statement",
    ),
    "a witness": (
        "to show that some x has P and found that P(3)", "an existence goal and one object that satisfies it",
        "named the number whose existence was asked for", "to prove there is a root, and 2 is a root",
    ),
    "vacuity": (
        "a claim about all members of the empty set", "an implication whose premise is always false",
        "to show that every x in a set has P, and the set has no x", "a rule that nothing falls under",
    ),
    "substitution": (
        "x = 5 and a goal that becomes a hypothesis with 5 put for x", "y = 2x and needs a claim about y stated for 2x",
        "an equation, and the goal with one side put in place of the other",
        "a = b and P(a), and needs P(b)",
    ),
    "definition": (
        "a goal that only spells out what the word prime means", "to show n is even and has n = 2k, which is what even means",
        "a goal that holds once its term is unfolded", "only to write out what a term stands for",
    ),
    "computation": (
        "only the goal 2 + 2 = 4 left", "left to check that 6 times 7 is 42", "a goal settled by working out both numbers",
        "only a numerical equation to evaluate",
    ),
    "introduction": (
        "proved P and proved Q, and needs the conjunction P and Q", "supposed P, derived Q, and needs P implies Q",
        "proved A and needs A or B", "shown the claim for an arbitrary x and needs it for all x",
    ),
}  # fmt: skip
#: How the question is put; the state follows "has".
FRAMES: tuple[tuple[str, str], ...] = (
    ("closes", "If a proof has {state}, it closes by"),
    ("finished", "A proof that has {state} is finished by"),
    ("ends", "Suppose a proof has {state}. Then it ends by"),
    ("closed", "The argument has {state}. It can be closed by"),
    ("done", "When a proof has {state}, it is done by"),
    ("completes", "The student has {state}. The step that completes the proof is"),
    ("rule", "A derivation has {state}. The closing rule is"),
    ("settles", "The prover has {state}. What settles the goal is"),
    ("last_step", "Say the proof has {state}. The last step is"),
    ("principle", "Our proof has {state}. The principle that ends it is"),
    ("justified", "The lemma's proof has {state}. Its end is justified by"),
    ("follows", "Since the proof has {state}, the goal follows by"),
    ("name", "One has {state}. The name of the closing step is"),
    ("apply", "The proof so far has {state}. To close it, apply"),
    ("concludes", "A proof state has {state}. It concludes by"),
    ("resolved", "The open goal's proof has {state}. It is resolved by"),
)
VARIANTS = 4
#: Pairs of which one could be argued to close a state of the other: they are never options of one set.
CONFUSABLE = (
    ("substitution", "transitivity"), ("substitution", "symmetry"), ("computation", "reflexivity"),
    ("a witness", "introduction"), ("a witness", "definition"), ("contradiction", "vacuity"),
)  # fmt: skip


@cache
def _groups(name: str, variant: int) -> tuple[tuple[str, ...], ...]:
    """The concepts in fours, none with two that could be confused.

    The grouping belongs to the template and not to the seed, so that no two sets of it share a question.
    """
    for attempt in count():
        order = shuffled(list(CONCEPTS), attempt, f"concepts of {name} {variant}")
        groups = tuple(tuple(order[i : i + SET_SIZE]) for i in range(0, len(order), SET_SIZE))
        if not any(a in group and b in group for a, b in CONFUSABLE for group in groups):
            return groups
    raise AssertionError("unreachable: count() does not end")


def _frame(name: str, wording: str) -> Template:
    per_variant = len(CONCEPTS) // SET_SIZE

    def pose(index: int, _: int) -> tuple[Question, ...]:
        variant, group = divmod(index, per_variant)
        chosen = _groups(name, variant)[group]
        return tuple(Question(wording.format(state=CONCEPTS[c][variant]), c) for c in chosen)

    return Template(FAMILY, name, per_variant * VARIANTS, pose)


TEMPLATES: tuple[Template, ...] = tuple(_frame(name, wording) for name, wording in FRAMES)
