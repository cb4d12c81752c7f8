"""A prompt as the text and the tokens a subject model is given, and new tokens as text again."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from lmassay.errors import LmassayError
from lmassay.models.sampling import Message, Prompt

if TYPE_CHECKING:
    from lmassay.models.thinking import Thinking
    from lmassay.models.tokens import TokenizerView

#: Stands for a text while the template is rendered. Private-use characters: no template writes them.
_MARK = "\ue0a1"
#: Prompt tokens decoded beside new ones: a tokenizer may write a token differently at the beginning of a text.
_CONTEXT = 8


class Renderer:
    """How prompts are written for one tokenizer.

    With a chat template: the template's own rendering, its generation prompt, then the prefix exactly as it is.
    Without one: the only user's text and an empty line, or each turn after its role's name.

    Parameters
    ----------
    tokens : TokenizerView
    thinking : Thinking
        A template that opens the thinking by itself, and a prefix that begins with the marker, write it once.
    """

    def __init__(self, tokens: TokenizerView, thinking: Thinking) -> None:
        self.tokens = tokens
        self.thinking = thinking
        self.chat = bool(getattr(tokens.hf, "chat_template", None))
        self._head = lru_cache(maxsize=512)(self._rendered)
        # Samples of one prompt are asked for one after another.
        self._ids = lru_cache(maxsize=32)(self._encoded)

    def text(self, prompt: Prompt) -> str:
        """The whole text up to where the model goes on.

        Raises
        ------
        LmassayError
            ``tokenizer-not-usable`` when the chat template refuses the turns, or writes one differently than it was
            given (templates strip earlier thinking), so that no prefix would be continued exactly.
        """
        head = self._head(prompt.messages)
        opening = self.thinking.open
        if opening and prompt.prefix.startswith(opening) and head.rstrip().endswith(opening):
            head = head.rstrip().removesuffix(opening)
        return head + prompt.prefix

    def ids(self, prompt: Prompt) -> list[int]:
        """Token ids of `text`, with the tokenizer's own leading tokens where no template writes them."""
        return list(self._ids(prompt))

    def continues(self, shorter: Prompt, longer: Prompt) -> bool:
        """Whether the tokens of `shorter` are the first tokens of `longer`, so that forcing continues it exactly."""
        first = self.ids(shorter)
        return self.ids(longer)[: len(first)] == first

    def joins(self, prompt: Prompt, continuation: str) -> tuple[list[int], bool]:
        """Token ids of a continuation encoded by itself, and whether the joined text has the same tokens."""
        own = self.tokens.encode(continuation)
        joined = self.ids(prompt.begun(prompt.prefix + continuation))
        return own, joined == [*self.ids(prompt), *own]

    def written(self, before: Sequence[int], new: Sequence[int]) -> str:
        """The text that new tokens add after the tokens `before`."""
        context = list(before[-_CONTEXT:])
        lead = self._decode(context)
        whole = self._decode([*context, *new])
        return whole.removeprefix(lead) if whole.startswith(lead) else self._decode(list(new))

    def letter_token(self, letter: str) -> int:
        """The last token id of the bare letter.

        Raises
        ------
        LmassayError
            ``bad-request`` for an empty letter.
        """
        ids = self.tokens.encode(letter)
        if not ids:
            raise LmassayError("bad-request", f"the answer {letter!r} has no token", "use answers that have a text")
        return ids[-1]

    def end_of_turn(self) -> set[int]:
        """Ids of the tokens with which the chat template ends an assistant's turn."""
        if not self.chat:
            return set()
        turns = [{"role": "user", "content": "a"}, {"role": "assistant", "content": _MARK}]
        try:
            rendered: str = self.tokens.hf.apply_chat_template(turns, tokenize=False, add_generation_prompt=False)
        except Exception:  # a template is a program and raises what it likes
            return set()
        after = self.tokens.encode(rendered.rpartition(_MARK)[2].lstrip())
        special = set(self.tokens.hf.all_special_ids) | set(self.tokens.hf.added_tokens_decoder)
        return {after[0]} & special if after else set()

    def _decode(self, ids: list[int]) -> str:
        text: str = self.tokens.hf.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)
        return text

    def _encoded(self, prompt: Prompt) -> tuple[int, ...]:
        encoded = self.tokens.encode(self.text(prompt))
        return tuple(encoded if self.chat else [*self.tokens.prefix, *encoded])

    def _rendered(self, messages: tuple[Message, ...]) -> str:
        if not messages:
            raise LmassayError("bad-request", "a prompt has no turns", "give at least one user's turn")
        if not self.chat:
            if len(messages) == 1:
                return f"{messages[0].text}\n\n" if messages[0].text else ""
            return "\n\n".join(f"{m.role}: {m.text}" for m in messages) + "\n\nassistant:\n"
        turns = [{"role": m.role, "content": m.text} for m in messages]
        try:
            rendered: str = self.tokens.hf.apply_chat_template(
                turns, tokenize=False, add_generation_prompt=True, enable_thinking=self.thinking.marked
            )
        except Exception as error:
            raise LmassayError(
                "tokenizer-not-usable",
                f"the chat template refuses turns of the roles {', '.join(m.role for m in messages[:6])}:"
                f" {' '.join(str(error).split())[:120]}",
                "use turns that this model's template takes",
            ) from error
        left = rendered
        for message in messages:
            _, found, left = left.partition(message.text.strip())
            if not found and message.text.strip():
                raise LmassayError(
                    "tokenizer-not-usable",
                    f"the chat template writes the {message.role}'s turn {message.text.strip()[:60]!r} differently",
                    "give earlier turns without thinking, as the template would leave them",
                )
        return rendered
