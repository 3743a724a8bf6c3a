"""Messages to tokens, an observation at a time.

An episode's context only grows: text is tokenised once, when it arrives, and sampled
tokens are never decoded and encoded again. What environments and models wrote is text alone:
none of it becomes a control token.

A template may show an earlier turn otherwise than it was sampled: Qwen3's leaves out what was
thought before the last question, and writes an empty thought only where the next turn begins.
The context keeps every turn as it was sampled, as that is what trains; `docs/models.md` says for
each family what follows.
"""

from __future__ import annotations

import re
from typing import Any

from jinja2 import TemplateError
from transformers import PreTrainedTokenizerBase

from trainer.control_tokens import ControlTokens
from trainer.thinking import CLOSE, OPEN, opens_thinking, without_thinking
from trainer.tool_calls import ToolCallFormat

# Not in any template, and not touched by the trimming that templates do.
_MARK_SYSTEM, _MARK_OBSERVATION, _MARK_ACTION, _MARK_NEXT = "@@0@@", "@@1@@", "@@2@@", "@@3@@"
# Text that a template which trims or quotes does not write as it is.
_DELICATE = '\n "\\@@3@@" \n'


class ChatFormat:
    """How one tokenizer's chat template wraps the turns of an episode."""

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        system_prompt: str = "",
        tool_calls: ToolCallFormat | None = None,
        *,
        thinking: bool | None = None,
    ) -> None:
        """Find out what the chat template does with the turns of an episode.

        Args:
            tokenizer: With the chat template.
            system_prompt: System message; empty for none. Where the template has no place for
                one, it begins the first user message.
            tool_calls: How its tool calls are read; None where tools are used by tags.
            thinking: Whether the model thinks before it answers; None as the template has it.

        Raises:
            ValueError: If the tokenizer has no chat template; one that rewrites earlier turns, in
                which case the context could not grow by appending; or one that cannot switch
                thinking, where that is asked for.
        """
        if not tokenizer.chat_template:
            raise ValueError(
                "the tokenizer has no chat template; use an instruct model, or set one"
            )
        self._tokenizer = tokenizer
        self._options = {} if thinking is None else {"enable_thinking": thinking}
        self._folds_system = not self._shows_system()
        self._system = [{"role": "system", "content": system_prompt}] if system_prompt else []
        observed = {"role": "user", "content": _MARK_OBSERVATION}
        acted = {"role": "assistant", "content": _MARK_ACTION}
        self._start = [*self._system, observed, acted]
        first = self._render([*self._system, observed])
        if thinking is not None:
            self._check_thinking(first, thinking)
        whole = self._render([*self._start, {"role": "user", "content": _MARK_NEXT}])
        before, found, rest = whole.partition(_MARK_ACTION)
        # What only the turn to come begins with, as an empty thought, is no earlier turn's.
        if not found or _MARK_NEXT not in rest or not first.startswith(before):
            raise ValueError("the chat template rewrites earlier turns; set a plain one")
        self._end = self._turn_end()
        self._thought_begun = opens_thinking(first)
        self._control = ControlTokens.of(tokenizer, whole + OPEN + CLOSE)
        specials = sorted(tokenizer.all_special_tokens, key=len, reverse=True)
        self._specials = re.compile("|".join(map(re.escape, specials)) or "(?!)")
        self.tool_calls = tool_calls
        self._around = {"user": self._written_around("user")}
        if tool_calls is not None:
            self._around["tool"] = self._written_around("tool")

    @property
    def end_id(self) -> int | None:
        """The token by which the template closes the model's turn; None if it writes none."""
        found = self._tokenizer.convert_tokens_to_ids(self._end) if self._end else None
        assert found is None or isinstance(found, int)
        return found

    def closed(self, token_ids: list[int]) -> bool:
        """Whether the model closed its turn itself, as the template does."""
        return bool(token_ids) and token_ids[-1] == self.end_id

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
            ended: Whether the model closed its turn itself; see `closed`.
            called: Whether the action was a tool call of the chat template, whose result the
                observation is.
        """
        plain = self._control.plain(observation)
        role = "tool" if called else "user"
        around = self._around[role]
        text = around[0] + plain + around[1] if around else self._after_action(role, plain)
        return self._encode(text.removeprefix(self._end) if ended else text)

    def text(self, token_ids: list[int]) -> str:
        """What sampled tokens say: without special tokens, and without what was thought.

        A thought that was never closed has said nothing.
        """
        # The tags of a thought are special tokens in some vocabularies.
        raw = self._decode(token_ids, specials=True)
        if self._thought_begun or OPEN in raw:
            said = without_thinking(raw, begun=self._thought_begun)
            return self._specials.sub("", said)
        return self._decode(token_ids, specials=False)

    def _after_action(self, role: str, content: str) -> str:
        """All that the template writes after an action that somebody answers."""
        answered = [*self._start, {"role": role, "content": content}]
        return self._render(answered).partition(_MARK_ACTION)[2]

    def _written_around(self, role: str) -> tuple[str, str] | None:
        """What the template writes around an answer; None if it changes the answer itself."""
        before, found, after = self._after_action(role, _DELICATE).partition(_DELICATE)
        return (before, after) if found else None

    def _decode(self, token_ids: list[int], *, specials: bool) -> str:
        text = self._tokenizer.decode(
            token_ids, skip_special_tokens=not specials, clean_up_tokenization_spaces=False
        )
        assert isinstance(text, str)
        return text

    def _shows_system(self) -> bool:
        said = [
            {"role": "system", "content": _MARK_SYSTEM},
            {"role": "user", "content": _MARK_OBSERVATION},
        ]
        try:
            return _MARK_SYSTEM in self._apply(said)
        except TemplateError:
            return False

    def _check_thinking(self, first: str, thinking: bool) -> None:
        start = self._start[:-1]
        on, off = (self._render(start, enable_thinking=value) for value in (True, False))
        if on == off and not (thinking and opens_thinking(first)):
            raise ValueError(
                "the chat template cannot switch thinking on or off; leave play.thinking and "
                "design.thinking unset, or use another model"
            )

    def _turn_end(self) -> str:
        """The control token that closes the model's turn; empty if the template has none."""
        after = self._render(self._start, add_generation_prompt=False).rpartition(_MARK_ACTION)[2]
        added = (token.content for token in self._tokenizer.added_tokens_decoder.values())
        return max((text for text in added if after.startswith(text)), key=len, default="")

    def _render(self, messages: list[dict[str, Any]], **options: Any) -> str:
        if self._folds_system and messages[0]["role"] == "system":
            system, first, *rest = messages
            folded = f"{system['content']}\n\n{first['content']}"
            messages = [{**first, "content": folded}, *rest]
        return self._apply(messages, **options)

    def _apply(self, messages: list[dict[str, Any]], **options: Any) -> str:
        options = {"add_generation_prompt": True, **self._options, **options}
        text = self._tokenizer.apply_chat_template(messages, tokenize=False, **options)
        assert isinstance(text, str)
        return text

    def _encode(self, text: str) -> list[int]:
        return self._tokenizer(text, add_special_tokens=False)["input_ids"]
