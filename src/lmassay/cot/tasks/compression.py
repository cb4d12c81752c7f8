"""Task 9: which sentences of a chain of thought suffice for the answer it leads to?"""

from __future__ import annotations

from lmassay.cot.release import Release, ReleasedSplit, Shown, floats, integers, strings
from lmassay.cot.schema import Field
from lmassay.cot.task import CotTask
from lmassay.cot.tasks.registry import cot_task

#: Folders of the release: one for each way of choosing sentences.
SELECTORS = {
    "attention": 1516,
    "baseline": 1474,
    "deletion": 1474,
    "faithful_monitor": 7090,
    "last_m": 7129,
    "last_prefix_attn_oracle": 6907,
    "next_sentence_attn_oracle": 6879,
    "single_sentence_oracle": 6698,
}

_FIELDS = (
    *strings("question_id", "method"),
    *integers("prefix_length", "keep_m"),
    *floats("kl_to_baseline"),
    Field("token_kl", "float", optional=True),
    Field("selected_indices", "ints", optional=True),
    Field("distribution", "distribution"),
)
_PROMPT = (
    Field("question_id", "str"),
    Field("rollout_idx", "int"),
    Field("question_text", "text"),
    Field("choices", "strings"),
    *integers("n_total_sentences", "k_keep", "n_sentences_in_cot"),
)


@cot_task
def compression() -> CotTask:
    """Task 9."""
    return CotTask(
        number=9,
        id="compression",
        question="Which M sentences of a prefix, beside its last five, keep the answer distribution it leads to?",
        subject="Qwen3-32B",
        kind="selection",
        segments=("prompt", "option", "cot"),
        metric="kl",
        unit="nats",
        label_rule=(
            "KL from the answer distribution after the whole prefix to the one after the kept sentences, and the mean KL "
            "over the tokens of the next sentence."
        ),
        quirks=(
            "Published without the text of any sentence: selections and their KLs only, in one split named all.",
            "attention repeats next_sentence_attn_oracle on its cells; token_kl is absent in some cells, and is not 0 there.",
            "Questions have from 1 to 217 prefixes: average within questions first.",
        ),
        release=Release(
            splits=tuple(ReleasedSplit("all", name, _FIELDS, n, 0, "", 41) for name, n in SELECTORS.items()),
            prompt_fields=_PROMPT,
            shown=(Shown("prompt", "question_text", "prompts"), Shown("option", "choices", "prompts")),
            label="",
            identity=("question_id", "prefix_length", "keep_m"),
            missing=("cot",),
        ),
    )
