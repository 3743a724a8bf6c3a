"""Tool calls as a chat template writes them, and as environments of the sandbox read them.

A model that was taught to call tools writes calls in its own form: tags, a bare JSON object, or
tokens of their own. They are read by the tokenizer's response template (TRL knows those of the
common families) and handed to the environment in the sandbox's tags. What was sampled stays as
sampled: it is what trains.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from transformers import PreTrainedTokenizerBase
from trl.chat_template_utils import add_response_schema, parse_response, supports_tool_calling

from trainer.tagged_calls import tagged_call

# Not in any template, and not touched by the trimming that templates do.
_MARK_RESULT = "@@3@@"


class NativeAction(NamedTuple):
    """What a model's message is to its environment.

    Attributes:
        text: In the sandbox's tags.
        calls: Whether it calls a tool; else it answers the user.
    """

    text: str
    calls: bool


class ToolCallFormat:
    """How one tokenizer's chat template writes calls; it must show their results, too.

    Args:
        tokenizer: With a chat template that knows tools.

    Raises:
        ValueError: If the template knows no tools, or nobody knows how to read its calls.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        if not supports_tool_calling(tokenizer):
            raise ValueError(
                "the chat template knows no tools; use play.tool_calling=tags, or another model"
            )
        if getattr(tokenizer, "response_template", None) is None:
            try:
                add_response_schema(tokenizer)
            except ValueError as error:
                raise ValueError(
                    "nobody knows how to read the tool calls of this chat template "
                    f"({str(error).splitlines()[0]}); use play.tool_calling=tags, or set the "
                    "tokenizer's response_template"
                ) from error
        self._tokenizer = tokenizer
        rendered = tokenizer.apply_chat_template(
            [
                {"role": "user", "content": "@@1@@"},
                {"role": "assistant", "content": "@@2@@"},
                {"role": "tool", "content": _MARK_RESULT},
            ],
            tokenize=False,
            add_generation_prompt=True,
        )
        if _MARK_RESULT not in rendered:
            raise ValueError(
                "the chat template does not show a tool's result; use play.tool_calling=tags"
            )

    def action(
        self, token_ids: Sequence[int], context_ids: Sequence[int], tools: list[dict[str, Any]]
    ) -> NativeAction:
        """Read a message of the model.

        Args:
            token_ids: As sampled.
            context_ids: All that came before.
            tools: Schemas that the model was shown.
        """
        parsed = parse_response(
            self._tokenizer, list(token_ids), prefix=list(context_ids), tools=[*tools]
        )
        calls = [call["function"] for call in parsed.get("tool_calls") or ()]
        if calls:
            tagged = (tagged_call(call["name"], call["arguments"]) for call in calls)
            return NativeAction("\n".join(tagged), calls=True)
        content = parsed["content"].strip()
        if not content:  # nothing was said: a thought that was never closed, or the end at once
            return NativeAction("", calls=False)
        # A call that cannot be read is no answer: the environment says how it is done.
        if "<tool_call>" in content or "<answer>" in content:
            return NativeAction(content, calls=False)
        return NativeAction(f"<answer>{content}</answer>", calls=False)
