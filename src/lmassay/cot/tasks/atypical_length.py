"""Task 7: is this chain of thought much longer or much shorter than the model's usual one on the prompt?"""

from __future__ import annotations

from lmassay.cot.release import Release, ReleasedSplit, Shown, floats
from lmassay.cot.schema import Field
from lmassay.cot.task import CotTask
from lmassay.cot.tasks.registry import cot_task

_FIELDS = (
    Field("question_id", "str"),
    Field("rollout_idx", "int"),
    Field("label", "str", values=("long", "short")),
    Field("chain_of_thought", "text"),
    Field("token_length", "int"),
    *floats("z_score", "prompt_mean_length", "prompt_std_length"),
)


@cot_task
def atypical_length() -> CotTask:
    """Task 7."""
    return CotTask(
        number=7,
        id="atypical_length",
        question="From prompt and whole chain of thought: is it much longer than usual on that prompt, or much shorter?",
        subject="Qwen3-32B",
        kind="binary",
        segments=("prompt", "cot"),
        metric="gmean2",
        positive="long",
        negative="short",
        label_rule="More than one standard deviation, in words, above (long) or below (short) the mean of 200 rollouts.",
        quirks=(
            "The published validation set repeats 47 training prompts: by default a fifth of the training questions is "
            "held out instead, and the published set is had with validation='published'.",
            "Length alone separates the classes in train (AUROC .84), and not in the other sets.",
            "z_score and prompt_mean_length give the label away and are hidden; token_length counts words.",
            "Some training rollouts are a single word: broken_rollout.",
        ),
        release=Release(
            splits=(
                ReleasedSplit("train", "train", _FIELDS, 2444, 1222, "train", 51),
                ReleasedSplit("validation", "val", _FIELDS, 200, 100, "val", 47),
                ReleasedSplit("test", "test", _FIELDS, 200, 100, "test", 41),
                ReleasedSplit("ood_test", "ood_test", _FIELDS, 200, 100, "ood_test", 56),
            ),
            prompt_fields=(Field("question_id", "str"), Field("prompt_text", "text")),
            shown=(Shown("prompt", "prompt_text", "prompts"), Shown("cot", "chain_of_thought")),
            words={"long": 1.0, "short": 0.0},
            held_out=0.2,
        ),
    )
