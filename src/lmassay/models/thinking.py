"""Where a model thinks: the markers around its chain of thought, or the step-by-step prompt of a model without any."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from lmassay.errors import LmassayError

if TYPE_CHECKING:
    from lmassay.models.tokens import TokenizerView

#: What a model without a thinking format is told; the end of its reply then stands for the closing marker.
STEP_BY_STEP = "Think step by step before you answer."
AUTO, NONE = "auto", "none"
#: Markers that model families use beside ``<think>``; each stands in that family's own template or vocabulary.
KNOWN = (
    ("<think>", "</think>"),
    ("<seed:think>", "</seed:think>"),
    ("[THINK]", "[/THINK]"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("<|begin_of_thought|>", "<|end_of_thought|>"),
    ("<thinking>", "</thinking>"),
    ("<reasoning>", "</reasoning>"),
)
_TAG = re.compile(r"<([\w:.|-]*(?:think|thought|reason)[\w:.|-]*)>", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Thinking:
    r"""How a chain of thought stands in the assistant's turn.

    Attributes
    ----------
    open, close : str
        The markers; both empty for a model without a thinking format.
    source : {"template", "vocabulary", "asked", "step by step"}
        Where the markers were found. ``step by step``: there are none, the user's message asks for `instruction`,
        and the end of the reply stands for the closing marker.
    instruction : str
        What is appended to the user's message; empty where the model has a format of its own.
    """

    open: str
    close: str
    source: str
    instruction: str = ""

    @property
    def marked(self) -> bool:
        """Whether the model has markers."""
        return bool(self.close)

    def asking(self, question: str) -> str:
        """The user's message: the question, and the instruction of a model without markers."""
        return f"{question}\n\n{self.instruction}" if self.instruction else question

    def begun(self, cot: str = "") -> str:
        r"""The assistant's turn with thinking begun: ``<think>\n`` and the chain of thought so far."""
        return f"{self.open}\n{cot}" if self.open else cot

    def ended(self, cot: str) -> str:
        """The assistant's turn with the thinking closed, where the answer begins."""
        return f"{self.begun(cot)}\n{self.close}\n\n" if self.close else f"{cot}\n\n"

    def parted(self, reply: str) -> tuple[str, str | None]:
        """Chain of thought and answer of a whole assistant turn.

        The answer is None where the thinking was never closed. Without markers the whole reply is the chain of
        thought, and holds the answer at its end.
        """
        if not self.close:
            return reply.strip(), reply.strip()
        body = reply.lstrip()
        body = body.removeprefix(self.open) if self.open else body
        cot, closed, answer = body.partition(self.close)
        return cot.strip(), answer.strip() if closed else None

    def describe(self) -> dict[str, Any]:
        """What a record says of it, JSON-ready."""
        return asdict(self)


def step_by_step() -> Thinking:
    """The fallback of a model without a thinking format."""
    return Thinking("", "", "step by step", STEP_BY_STEP)


def read_thinking(tokens: TokenizerView | None, choice: str = AUTO) -> Thinking:
    """The thinking format of a model.

    Parameters
    ----------
    tokens : TokenizerView, optional
        None where a server keeps its tokenizer to itself; then only `choice` can name markers.
    choice : str
        ``auto`` reads the chat template, then the vocabulary; ``none`` is the step-by-step fallback;
        ``OPEN,CLOSE`` are markers to use.

    Raises
    ------
    LmassayError
        ``bad-request`` for any other choice.
    """
    if choice == NONE:
        return step_by_step()
    if choice != AUTO:
        opening, parted, closing = choice.partition(",")
        if not (parted and opening.strip() and closing.strip()) or "," in closing:
            raise LmassayError("bad-request", f"thinking format {choice!r}", "use auto, none, or OPEN,CLOSE")
        return Thinking(opening.strip(), closing.strip(), "asked")
    template = getattr(tokens.hf, "chat_template", None) if tokens is not None else None
    if not template or tokens is None:
        return step_by_step()
    # Some tokenizers hold several named templates.
    text = template if isinstance(template, str) else "\n".join(map(str, dict(template).values()))
    tagged = tuple((f"<{name}>", f"</{name}>") for name in dict.fromkeys(_TAG.findall(text)))
    for opening, closing in (*KNOWN, *tagged):
        if opening in text and closing in text:
            return Thinking(opening, closing, "template")
    vocabulary = tokens.hf.get_vocab()
    for opening, closing in KNOWN:
        if opening in vocabulary and closing in vocabulary:
            return Thinking(opening, closing, "vocabulary")
    return step_by_step()
