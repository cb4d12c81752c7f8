"""Which tokens of an option are scored after which context: boundary, BOS, chat template and protocol."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from lmassay.errors import LmassayError
from lmassay.models.tree import Continuations

if TYPE_CHECKING:
    from lmassay.models.tokens import TokenizerView

Protocol = Literal["multi-token", "first-token", "first-distinct-token"]
PROTOCOLS: tuple[Protocol, ...] = ("multi-token", "first-token", "first-distinct-token")
NEUTRAL_PROMPT = "Answer:"


@dataclass(frozen=True, slots=True)
class Tokenised:
    """A prompt and its options as token ids.

    Attributes
    ----------
    context : tuple of int
        Special tokens and the prompt's stable tokens.
    options : tuple of tuple of int
        All tokens of each option, past the boundary.
    boundary_shift : bool
        Whether the prompt's last tokens changed when an option was appended, so that the boundary moved left.
    """

    context: tuple[int, ...]
    options: tuple[tuple[int, ...], ...]
    boundary_shift: bool


@dataclass(frozen=True, slots=True)
class Scorable:
    """What the engine scores for one prompt, and what the protocol had to say about it."""

    request: Continuations
    flags: frozenset[str]


@dataclass(frozen=True)
class PromptStyle:
    """How prompt and option are joined.

    Attributes
    ----------
    chat : bool
        The prompt is the user turn and the option starts the assistant turn; else both are plain text.
    """

    tokens: TokenizerView
    chat: bool = False

    def __post_init__(self) -> None:
        if self.chat and not getattr(self.tokens.hf, "chat_template", None):
            raise LmassayError(
                "bad-request",
                "the tokenizer has no chat template",
                "leave --chat out to score the prompts as plain text",
            )

    def render(self, prompt: str) -> str:
        """The text before the option: the prompt itself, or the chat template's rendering up to the assistant turn."""
        if not self.chat:
            return prompt
        # `enable_thinking` is what templates with a thinking switch read; the others ignore it.
        rendered: str = self.tokens.hf.apply_chat_template(
            [{"role": "user", "content": prompt}], tokenize=False, add_generation_prompt=True, enable_thinking=False
        )
        return rendered

    @property
    def joint(self) -> str:
        """What stands between the rendered prompt and the option."""
        return "" if self.chat else " "

    @property
    def special(self) -> tuple[int, ...]:
        """Special tokens put before the text: the tokenizer's own, but none where the template writes them."""
        return () if self.chat else self.tokens.prefix

    def tokenise(self, prompt: str, options: Sequence[str]) -> Tokenised:
        """Tokenise prompt and options together; the boundary is the last token that no option changes.

        Raises
        ------
        LmassayError
            ``tokenizer-not-usable`` when an option has no token of its own or nothing precedes it.
        """
        text = self.render(prompt)
        own = self.tokens.encode(text)
        joint = [self.tokens.encode(text + self.joint + option) for option in options]
        boundary = len(shared_prefix([own, *joint]))
        context = (*self.special, *own[:boundary])
        scored = tuple(tuple(ids[boundary:]) for ids in joint)
        unknown = self.tokens.unknown
        for option, ids in zip(options, scored, strict=True):
            if unknown is not None and unknown in (*own, *ids):
                what = f"the prompt {prompt[:60]!r}" if unknown in own else f"option {option!r}"
                raise LmassayError(
                    "tokenizer-not-usable",
                    f"the tokenizer has no piece for a part of {what}",
                    "reword it, or use a model whose tokenizer covers it",
                )
            if not context or not ids:
                missing = "token before" if not context else "token of its own in"
                raise LmassayError(
                    "tokenizer-not-usable",
                    f"the tokenizer leaves no {missing} option {option!r} after prompt {prompt[:60]!r}",
                    "reword the prompt or the option, or use a model with another tokenizer",
                )
        return Tokenised(context, scored, boundary < len(own))


def shared_prefix(sequences: Sequence[Sequence[int]]) -> list[int]:
    """The tokens all sequences begin with."""
    shared = []
    for column in zip(*sequences, strict=False):
        if len(set(column)) > 1:
            break
        shared.append(column[0])
    return shared


def scorable(tokenised: Tokenised, protocol: Protocol) -> Scorable:
    """The tokens the protocol scores; a task in which two options have the same tokens is flagged ``undecidable``.

    ``multi-token`` scores every option token; ``first-token`` the first; ``first-distinct-token`` the one after the
    options' longest common prefix, which then belongs to the context. Under the two single-token protocols a task in
    which two options share the scored token, or have none, is flagged ``undecidable``.
    """
    flags = {"boundary_shift"} if tokenised.boundary_shift else set()
    context, options = tokenised.context, tokenised.options
    if len(set(options)) < len(options):
        flags.add("undecidable: options have the same tokens")
    if protocol == "multi-token":
        return Scorable(Continuations(context, options), frozenset(flags))
    if protocol == "first-distinct-token":
        shared = tuple(shared_prefix(options))
        if any(len(option) == len(shared) for option in options):
            if not _undecidable(flags):
                flags.add("undecidable: an option ends where the others begin to differ")
            shared = shared[: min(map(len, options)) - 1]
        context, options = context + shared, tuple(option[len(shared) :] for option in options)
    firsts = tuple(option[:1] for option in options)
    if len(set(firsts)) < len(firsts) and not _undecidable(flags):
        flags.add("undecidable: shared first token")
    return Scorable(Continuations(context, firsts), frozenset(flags))


def _undecidable(flags: set[str]) -> bool:
    return any(flag.startswith("undecidable") for flag in flags)
