"""Task 8: how uncertain is the model's answer, forced after a prefix of its chain of thought?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lmassay.cot.release import Release, ReleasedSplit, Shown, strings
from lmassay.cot.schema import Field
from lmassay.cot.task import CotTask
from lmassay.cot.tasks.registry import cot_task

if TYPE_CHECKING:
    import polars as pl

_FIELDS = (
    *strings("question_id", "question_type"),
    Field("source_rollout_idx", "int"),
    Field("num_sentences", "int"),
    Field("correct_answer", "str"),
    Field("sentence_summaries", "summaries"),
)
_PROMPT = (
    Field("question_id", "str"),
    Field("question", "text"),
    Field("question_type", "str"),
    Field("choices", "strings"),
    Field("correct_answer", "str"),
    Field("agreement_rate", "float"),
    Field("answer_counts", "distribution"),
)


def boundaries(records: pl.DataFrame) -> pl.DataFrame:
    """One row for each forced boundary, with ``y`` the entropy of its answer distribution in nats.

    The entropy is not in the release. A letter of probability 0 adds nothing.
    """
    import polars as pl

    rows = records.filter(pl.col("sentence_summaries").list.len() > 0)
    rows = rows.explode("sentence_summaries").unnest("sentence_summaries")
    p = pl.element().struct.field("value")
    surprise = pl.when(p > 0).then(-p * p.log()).otherwise(0.0)
    return rows.with_columns(
        y=pl.col("answer_distribution").list.eval(surprise).list.sum(),
        n_options=pl.col("answer_distribution").list.len().cast(pl.Int64),
    )


@cot_task
def answer_entropy() -> CotTask:
    """Task 8."""
    return CotTask(
        number=8,
        id="answer_entropy",
        question="From a prefix of a chain of thought: what is the entropy of the answer the model would give now?",
        subject="Qwen3-32B",
        kind="regression",
        segments=("prompt", "option", "cot"),
        metric="r2",
        unit="nats",
        label_rule=(
            "The answer is forced at a sentence boundary and the next-token probabilities of the option letters are "
            "normalised; the target is their Shannon entropy."
        ),
        quirks=(
            "Published without the text of any chain of thought.",
            "Question identity alone explains 83 to 90 % of the variance in distribution; the number of options differs.",
            "The variance of ood_test_3 is .009 nats squared.",
        ),
        release=Release(
            splits=(
                ReleasedSplit("train", "train", _FIELDS, 422, 0, "train", 43),
                ReleasedSplit("validation", "val", _FIELDS, 99, 0, "val", 10),
                ReleasedSplit("test", "test", _FIELDS, 119, 0, "test", 12),
                ReleasedSplit("ood_test_1", "ood_test_1", _FIELDS, 100, 0, "ood_test_1", 10),
                ReleasedSplit("ood_test_2", "ood_test_2", _FIELDS, 100, 0, "ood_test_2", 10),
                ReleasedSplit("ood_test_3", "ood_test_3", _FIELDS, 100, 0, "ood_test_3", 10),
            ),
            prompt_fields=_PROMPT,
            shown=(Shown("prompt", "question", "prompts"), Shown("option", "choices", "prompts")),
            label="",
            identity=("question_id", "source_rollout_idx"),
            derive=boundaries,
            missing=("cot",),
        ),
    )
