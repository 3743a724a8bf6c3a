"""Messages to tokens, an observation at a time.

An episode's context only grows: text is tokenised once, when it arrives, and sampled
tokens are never decoded and encoded again. What environments and models wrote is text alone:
none of it becomes a control token.
"""

from __future__ import annotations

from typing import Any

from transformers import PreTrainedTokenizerBase

from trainer.control_tokens import ControlTokens
from trainer.tool_calls import ToolCallFormat

# Not in any template, and not touched by the trimming that templates do.
_MARK_OBSERVATION, _MARK_ACTION, _MARK_NEXT = "@@1@@", "@@2@@", "@@3@@"


class ChatFormat:
    """How one tokenizer's chat template wraps the turns of an episode."""

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        system_prompt: str = "",
        tool_calls: ToolCallFormat | None = None,
    ) -> None:
        """Derive the pieces of text around observations from the chat template.

        Args:
            tokenizer: With the chat template.
            system_prompt: System message; empty for none.
            tool_calls: How its tool calls are read; None where tools are used by tags.

        Raises:
            ValueError: If the tokenizer has no chat template, or one that rewrites earlier
                turns, in which case the context could not grow by appending.
        """
        if not tokenizer.chat_template:
            raise ValueError(
                "the tokenizer has no chat template; use an instruct model, or set one"
            )
        self._tokenizer = tokenizer
        self._system = [{"role": "system", "content": system_prompt}] if system_prompt else []
        whole = self._render(
            [
                *self._system,
                {"role": "user", "content": _MARK_OBSERVATION},
                {"role": "assistant", "content": _MARK_ACTION},
                {"role": "user", "content": _MARK_NEXT},
            ]
        )
        before, found, rest = whole.partition(_MARK_ACTION)
        between, found_next, self._after = rest.partition(_MARK_NEXT)
        first = self._render([*self._system, {"role": "user", "content": _MARK_OBSERVATION}])
        if not (found and found_next) or before != first:
            raise ValueError("the chat template rewrites earlier turns; set a plain one")
        self._between = between
        end = tokenizer.eos_token or ""
        self._between_ended = between.removeprefix(end) if end else between
        self._control = ControlTokens.of(tokenizer, whole)
        self.tool_calls = tool_calls
        if tool_calls is not None:
            self._before_result = tool_calls.before_result
            self._before_result_ended = tool_calls.before_result.removeprefix(end)

    def prompt(self, messages: list[dict[str, Any]]) -> list[int]:
        """Token ids of whole messages, ready for the assistant to answer."""
        plain = [{**m, "content": self._control.plain(m["content"])} for m in messages]
        return self._encode(self._render(plain))

    def first(self, observation: str, tools: list[dict[str, Any]] | None = None) -> list[int]:
        """Token ids of an episode's start, ready for the first action."""
        plain = self._control.plain(observation)
        messages = [*self._system, {"role": "user", "content": plain}]
        plain_tools = self._control.plain_everywhere(tools) if tools else None
        return self._encode(self._render(messages, tools=plain_tools))

    def next(self, observation: str, *, ended: bool, called: bool = False) -> list[int]:
        """Token ids from the end of an action to the start of the next.

        Args:
            observation: What the environment answered.
            ended: Whether the model itself closed its turn with the end token.
            called: Whether the action was a tool call of the chat template, whose result the
                observation is.
        """
        if called:
            assert self.tool_calls is not None
            before = self._before_result_ended if ended else self._before_result
            plain = self._control.plain(observation)
            return self._encode(before + plain + self.tool_calls.after_result)
        between = self._between_ended if ended else self._between
        return self._encode(between + self._control.plain(observation) + self._after)

    def text(self, token_ids: list[int]) -> str:
        """The text of sampled tokens, special tokens left out."""
        return self._tokenizer.decode(
            token_ids, skip_special_tokens=True, clean_up_tokenization_spaces=False
        )

    def _render(self, messages: list[dict[str, Any]], **options: Any) -> str:
        return self._tokenizer.apply_chat_template(
            messages, tokenize=False, add_generation_prompt=True, **options
        )

    def _encode(self, text: str) -> list[int]:
        return self._tokenizer(text, add_special_tokens=False)["input_ids"]
