"""What a model thinks before it answers: part of what trains, and nobody else's business.

Models that think write it between two tags before the answer; some templates write the first
tag themselves. Environments, gates and hints get what comes after.
"""

from __future__ import annotations

OPEN, CLOSE = "<think>", "</think>"


def opens_thinking(prompt: str) -> bool:
    """Whether a prompt ends within a thought, which the model then only closes."""
    return prompt.rstrip().endswith(OPEN)


def without_thinking(text: str, *, begun: bool = False) -> str:
    """What a message says after its thought; nothing, if the thought was never closed.

    Args:
        text: As the model wrote it.
        begun: Whether the prompt began the thought.
    """
    if not begun and not text.lstrip().startswith(OPEN):
        return text
    return text.partition(CLOSE)[2].lstrip()
