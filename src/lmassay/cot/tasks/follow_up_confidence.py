"""Task 3: does this chain of thought make the model more confident than it usually is on the prompt?"""

from __future__ import annotations

from lmassay.cot.release import Release, ReleasedSplit, Shown, floats
from lmassay.cot.schema import Field
from lmassay.cot.task import CotTask
from lmassay.cot.tasks.registry import cot_task

_FIELDS = (
    Field("question_id", "str"),
    Field("cot_idx", "int"),
    Field("label", "str", values=("positive", "negative")),
    Field("cot_text", "text"),
    *floats("cohens_d", "p_value", "forced_mean", "baseline_mean"),
)


@cot_task
def follow_up_confidence() -> CotTask:
    """Task 3."""
    return CotTask(
        number=3,
        id="follow_up_confidence",
        question="From a chain of thought alone: does it make the model report more confidence than usual on its prompt?",
        subject="Qwen3-32B",
        kind="binary",
        segments=("cot",),
        metric="gmean2",
        positive="positive",
        negative="negative",
        label_rule=(
            "Confidence from 1 to 10 after this chain of thought against the prompt's own 100 samples: Welch's p < .05 and "
            "|d| of at least .5; positive where d > 0."
        ),
        quirks=(
            "Some chains of thought are empty: empty_cot.",
            "cohens_d and the two means give the label away and are hidden; so is the prompt.",
            "Length is not controlled.",
        ),
        release=Release(
            splits=(
                ReleasedSplit("train", "train", _FIELDS, 286, 143, "train", 175),
                ReleasedSplit("validation", "val", _FIELDS, 92, 46, "val", 58),
                ReleasedSplit("test", "test", _FIELDS, 86, 43, "test", 57),
                ReleasedSplit("ood_test", "ood_test", _FIELDS, 88, 44, "ood_test", 32),
            ),
            prompt_fields=(Field("question_id", "str"), Field("prompt_text", "text")),
            shown=(Shown("cot", "cot_text"),),
            words={"positive": 1.0, "negative": 0.0},
            identity=("question_id", "cot_idx"),
        ),
    )
