"""Tool calls in the sandbox's tags, written and read back."""

from __future__ import annotations

import json
import re
from typing import Any

_CALL = re.compile(r"<tool_call>\s*(.*?)\s*</tool_call>", re.DOTALL)


def tagged_call(name: str, arguments: Any) -> str:
    """A call as environments of the sandbox read it."""
    said = {"name": name, "arguments": arguments}
    # A value that closes the tag would end the call early.
    text = json.dumps(said, ensure_ascii=False).replace("</", "<\\/")
    return f"<tool_call>{text}</tool_call>"


def split_calls(text: str) -> tuple[str, list[dict[str, Any]]]:
    """A message's calls, each with `name` and `arguments`, and the rest of its text.

    What cannot be read as a call stays in the text.
    """
    calls: list[dict[str, Any]] = []

    def take(found: re.Match[str]) -> str:
        try:
            said = json.loads(found[1])
        except ValueError:
            return found[0]
        if not isinstance(said, dict) or not isinstance(said.get("name"), str):
            return found[0]
        calls.append({"name": said["name"], "arguments": said.get("arguments", {})})
        return ""

    return _CALL.sub(take, text).strip(), calls
