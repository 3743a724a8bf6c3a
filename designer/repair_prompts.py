"""What the designing model is told of a refused draft, so that it can mend it."""

from __future__ import annotations

from designer.drafts import Draft, Exchange, Finding, Reason
from designer.prompts import Messages, hint_messages

# Of one observation or action, and of one episode: what shows the fault is at its end.
MAX_QUOTED_CHARACTERS = 400
MAX_EXCHANGES = 12
# Lines of the source around the one that is named.
_LINES_AROUND = 1


def repair_messages(draft: Draft, finding: Finding, style: str) -> Messages:
    """Ask for a draft anew, what it was and what is wrong with it shown.

    Only the last draft is shown, however many there were: prompts do not grow by rounds.
    """
    messages = draft.request.messages
    opening = next((i for i, m in enumerate(messages) if m["role"] == "assistant"), len(messages))
    return [
        *messages[:opening],
        {"role": "assistant", "content": _written(draft)},
        {"role": "user", "content": _told(draft, finding, style)},
    ]


def hint_repair_messages(draft: Draft, finding: Finding) -> Messages:
    """Ask for another hint in the place of a refused one."""
    return [
        *hint_messages(draft.source or "", draft.request.kind),
        {"role": "assistant", "content": draft.hint or ""},
        {
            "role": "user",
            "content": f"This hint was refused: {finding.message}. Write another one.",
        },
    ]


def _written(draft: Draft) -> str:
    if draft.source is None or draft.request.method == "structured":
        return draft.completion.strip()[: MAX_QUOTED_CHARACTERS * MAX_EXCHANGES]
    return f"```python\n{draft.source}```"


def _told(draft: Draft, finding: Finding, style: str) -> str:
    if style == "compact":
        return f"{finding.reason}\n"
    lines = [f"It was refused ({finding.reason}): {finding.message}"]
    if finding.phase:
        lines.append(f"It shows in: {finding.phase}.")
    if finding.line and draft.source is not None and draft.request.method != "structured":
        lines += ["Where:", *_excerpt(draft.source, finding.line)]
    if finding.seed is not None:
        lines.append(f"The episode that shows it, reset(seed={finding.seed}):")
        lines.append(f"first observation: {_quoted(finding.opening)}")
        left_out = len(finding.transcript) - MAX_EXCHANGES
        if left_out > 0:
            lines.append(f"... {left_out} steps ...")
        lines += [_exchange(exchange) for exchange in finding.transcript[-MAX_EXCHANGES:]]
    if finding.advice:
        lines.append(f"Advice: {finding.advice}")
    if draft.request.method == "structured":
        lines.append("Write another specification.")
    elif finding.reason == Reason.PARSE and draft.source is None:
        lines.append("Write the whole file as one Python code block and nothing else.")
    else:
        lines.append(
            "Mend it, and change nothing that was not at fault. Write the whole corrected file "
            "as one Python code block and nothing else."
        )
    return "\n".join(lines)


def _excerpt(source: str, line: int) -> list[str]:
    lines = source.split("\n")
    first = max(1, line - _LINES_AROUND)
    last = min(len(lines), line + _LINES_AROUND)
    return [
        f"{'>' if number == line else ' '} {number:4} | {lines[number - 1]}"
        for number in range(first, last + 1)
    ]


def _exchange(exchange: Exchange) -> str:
    reward = "no reward" if exchange.reward is None else f"reward {exchange.reward:g}"
    ends = [name for name in ("terminated", "truncated") if getattr(exchange, name)]
    told = ", ".join([reward, *ends])
    return f"step({_quoted(exchange.action)}) -> {_quoted(exchange.observation)} ({told})"


def _quoted(text: str) -> str:
    if len(text) > MAX_QUOTED_CHARACTERS:
        return repr(text[:MAX_QUOTED_CHARACTERS]) + f" and {len(text):,} characters in all"
    return repr(text)
