"""The eight paraphrase groups: one question each, in five wordings."""

from __future__ import annotations

from lmassay.xray.task import ParaphraseGroup

_GROUPS: tuple[tuple[str, str, str, tuple[str, ...], tuple[str, ...]], ...] = (
    (
        "addition", "arithmetic_transform", "arithmetic_plus_01", ("12", "11", "13", "2"),
        ("7 plus 5 equals", "What is 7 + 5? The answer is", "Begin with 7 and add 5. You get",
         "Calculate 7 + 5. The result is", "The sum of 7 and 5 is"),
    ),
    (
        "inverse_arithmetic", "arithmetic_transform", "arithmetic_subtract_01", ("9", "5", "23", "8"),
        ("Start with 16. Subtract 7. The result is", "What is 16 - 7? The answer is", "Take 7 away from 16. You get",
         "Calculate 16 minus 7. The result is", "16 reduced by 7 is"),
    ),
    (
        "cancellation", "algebra_simplification", "algebra_identity_01", ("0", "x", "2x", "1"),
        ("Simplify x minus x. The result is", "What is x - x? The answer is", "Take x away from x. You get",
         "The difference of x and x is", "Reduce the expression x - x. It equals"),
    ),
    (
        "term_collection", "algebra_simplification", "algebra_add_like_01", ("5x", "6x", "x", "5"),
        ("Simplify 2x plus 3x. The result is", "What is 2x + 3x? The answer is", "Add 3x to 2x. You get",
         "Collect terms in 2x + 3x. The result is", "The sum of 2x and 3x is"),
    ),
    (
        "variable_binding", "binder_tracking", "binder_let_add_01", ("5", "3", "2", "6"),
        ("Let a = 3, b = a + 2. Then b equals", "Suppose a is 3 and b is a plus 2. The value of b is",
         "If a = 3 and b = a + 2, what is b? The answer is", "Set a to 3 and b to a + 2. Now b is",
         "With a equal to 3, and b two more than a, b equals"),
    ),
    (
        "transitivity", "theorem_pattern", "theorem_transitive_01", ("C", "D", "not A", "not C"),
        ("If A implies B, B implies C, then A implies", "A implies B. B implies C. Therefore A implies",
         "Suppose A implies B and B implies C. It follows that A implies",
         "Given that A implies B, and that B implies C, we know that A implies",
         "From A implies B and B implies C we conclude that A implies"),
    ),
    (
        "contradiction_closure", "proof_closure", "closure_contradiction_01",
        ("contradiction", "induction", "symmetry", "a witness"),
        ("If a proof has both P and not P, it closes by", "A proof with P and also not P is closed by",
         "Having both P and not P, the proof ends by", "When P and not P both hold, the proof is finished by",
         "The proof contains P and it contains not P. It closes by"),
    ),
    (
        "reflexivity_closure", "proof_closure", "closure_reflexivity_01",
        ("reflexivity", "contradiction", "induction", "case analysis"),
        ("If a proof has only the goal x = x left, it closes by", "A proof whose last goal is x = x is closed by",
         "With only x = x left to show, the proof ends by", "When the goal is x = x, the proof is finished by",
         "The proof still needs x = x. It closes by"),
    ),
)  # fmt: skip


def paraphrase_groups() -> tuple[ParaphraseGroup, ...]:
    """The groups; the first option is the answer, and the first wording the base task's own prompt."""
    return tuple(
        ParaphraseGroup(
            id=name, family=family, base_task_id=base, wordings=wordings, options=tuple(sorted(options)),
            answer=sorted(options).index(options[0]),
        )
        for name, family, base, options, wordings in _GROUPS
    )  # fmt: skip
