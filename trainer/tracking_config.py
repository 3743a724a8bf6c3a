"""Where a run's metrics are sent beside its folder."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec

SINKS = ("wandb", "trackio")


@dataclass(frozen=True)
class TrackingConfig:
    """Trackers that get each row of metrics.jsonl; TensorBoard always does.

    Attributes:
        wandb: Whether Weights & Biases does; its own variables say where it is, and
            `WANDB_MODE=offline` keeps everything here.
        trackio: Whether trackio does, which keeps everything here.
        project: What the runs are filed under in both.
    """

    wandb: bool = False
    trackio: bool = False
    project: str = "spadework"

    def problem(self) -> str:
        """What cannot work, in a sentence; empty if nothing."""
        if not self.project:
            return "tracking.project is empty; name one"
        return ""

    def missing(self) -> str:
        """What is not installed here and would be needed, in a sentence; empty if nothing."""
        for name in SINKS:
            if getattr(self, name) and find_spec(name) is None:
                return (
                    f"tracking.{name}=true needs {name}: pip install 'spadework[{name}]', "
                    "or leave it off"
                )
        return ""
