"""Task 1: will the model stop thinking within the next hundred tokens?"""

from __future__ import annotations

from lmassay.cot.release import Release, ReleasedSplit, Shown, floats, integers
from lmassay.cot.schema import Field
from lmassay.cot.task import CotTask
from lmassay.cot.tasks.registry import cot_task

_HEAD = (
    Field("question_id", "str"),
    *integers("rollout_idx", "prefix_idx"),
    Field("label", "str", values=("yes", "no")),
)
_TRAIN = (*_HEAD, Field("cot_prefix", "text"), *integers("distance_from_end", "prefix_words", "total_words"))
_EVAL = (
    *_HEAD,
    Field("cot_prefix", "text"),
    *integers("token_length", "yes_count", "no_count", "total_resamples"),
    *floats("mean_yes_position"),
)


@cot_task
def reasoning_termination() -> CotTask:
    """Task 1."""
    return CotTask(
        number=1,
        id="reasoning_termination",
        question="From a prefix of a chain of thought: will </think> come within about the next 100 tokens?",
        subject="Qwen3-32B",
        kind="binary",
        segments=("prompt", "cot"),
        metric="gmean2",
        positive="yes",
        negative="no",
        label_rule=(
            "Train: the prefix ends 25-55 words before the end (yes) or 300 and more (no). Evaluation: of 50 resamples at "
            "least 40 (test of the layout post: 45) put </think> at token 20-60 (yes), or past 200 or nowhere (no)."
        ),
        quirks=(
            "Training prefixes hold no line break and end at any word; evaluation prefixes mostly end a sentence.",
            "distance_from_end, yes_count, no_count, mean_yes_position and prefix_idx give the label away and are hidden.",
        ),
        release=Release(
            splits=(
                ReleasedSplit("train", "train", _TRAIN, 46160, 23080, "train", 796),
                ReleasedSplit("validation", "val", _EVAL, 72, 36, "val", 30),
                ReleasedSplit("test", "test", _EVAL, 86, 43, "test", 22),
                ReleasedSplit("ood_test", "ood_test", _EVAL, 58, 29, "ood_test", 32),
                # In April one test set had two training regimes, and the folder ood_test was the second's validation.
                ReleasedSplit("train", "train", _TRAIN, 4016, 2008, "train", 36, "post", "id"),
                ReleasedSplit("validation", "val", _EVAL, 58, 29, "val", 26, "post", "id"),
                ReleasedSplit("train", "ood_train", _TRAIN, 6574, 3287, "ood_train", 178, "post", "ood"),
                ReleasedSplit("validation", "ood_test", _EVAL, 44, 22, "ood_val", 34, "post", "ood"),
                ReleasedSplit("test", "test", _EVAL, 58, 29, "test", 32, "post"),
            ),
            prompt_fields=(Field("question_id", "str"), Field("prompt_text", "text")),
            shown=(Shown("prompt", "prompt_text", "prompts"), Shown("cot", "cot_prefix")),
            words={"yes": 1.0, "no": 0.0},
            identity=("question_id", "rollout_idx", "prefix_idx"),
        ),
    )
