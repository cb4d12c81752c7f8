"""Task 6: is this rollout's answer the model's majority answer on the question, or a minority one?"""

from __future__ import annotations

from lmassay.cot.release import Release, ReleasedSplit, Shown
from lmassay.cot.schema import Field
from lmassay.cot.task import CotTask
from lmassay.cot.tasks.registry import cot_task

_FIELDS = (
    Field("question_id", "str"),
    Field("rollout_idx", "int"),
    Field("cot_content", "text"),
    Field("answer", "str"),
    Field("label", "str", values=("majority", "minority")),
    Field("is_majority", "bool"),
    Field("majority_answer", "str"),
)


@cot_task
def atypical_answer() -> CotTask:
    """Task 6."""
    return CotTask(
        number=6,
        id="atypical_answer",
        question="From one rollout: is its answer the model's majority answer on the question, or a minority one?",
        subject="Qwen3-32B",
        kind="binary",
        segments=("prompt", "cot", "answer"),
        metric="gmean2",
        positive="minority",
        negative="majority",
        label_rule=(
            "Of 200 or more rollouts on the question, 10 to 33 % give the minority answer; 15 of each kind were drawn."
        ),
        quirks=(
            "majority_answer beside the answer gives the label away and is hidden.",
            "The answer's choices are not in the release; a method may not use other rollouts of the same question.",
        ),
        release=Release(
            splits=(
                ReleasedSplit("train", "train", _FIELDS, 1830, 915, "train", 61),
                ReleasedSplit("validation", "val", _FIELDS, 1290, 645, "val", 43),
                ReleasedSplit("test", "test", _FIELDS, 1590, 795, "test", 53),
                ReleasedSplit("ood_test", "ood_test", _FIELDS, 660, 330, "ood_test", 22),
            ),
            prompt_fields=(Field("question_id", "str"), Field("question_text", "text"), Field("is_dilemma", "bool")),
            shown=(Shown("prompt", "question_text", "prompts"), Shown("cot", "cot_content"), Shown("answer", "answer")),
            words={"minority": 1.0, "majority": 0.0},
        ),
    )
