"""PPO's value head: what an episode is worth from each of its turns on.

A linear head on the model's last hidden state, at the token before each action. It is fitted
apart from the policy, to states that are not changed for it: both roles share the weights, and
what the agent is worth is no business of the designer's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers import PreTrainedModel

from trainer.trajectories import Trajectory


@dataclass(frozen=True)
class CriticSettings:
    """How the value head is fitted.

    Attributes:
        learning_rate: Adam rate.
        passes: Passes over all turns of a step, one update each.
        rows: Episodes in one pass through the model.
    """

    learning_rate: float = 1e-3
    passes: int = 8
    rows: int = 32


class Critic:
    """Values of turns, and a head that learns them.

    Args:
        model: The policy's weights; only read.
        settings: How it is fitted.
    """

    def __init__(self, model: PreTrainedModel, settings: CriticSettings | None = None) -> None:
        self._model = model
        self._settings = settings or CriticSettings()
        width = model.config.get_text_config().hidden_size
        # Zeros: what nobody has learned yet is worth nothing, as an episode that is cut off.
        self._head = torch.nn.Linear(width, 1)
        torch.nn.init.zeros_(self._head.weight)
        torch.nn.init.zeros_(self._head.bias)
        self._optimizer = torch.optim.Adam(
            self._head.parameters(), lr=self._settings.learning_rate
        )

    @torch.no_grad()
    def states(self, plays: Sequence[Trajectory]) -> list[torch.Tensor]:
        """Hidden states before each turn's action.

        Returns:
            By play, float32 of shape (turns, width), on the CPU.
        """
        states: list[torch.Tensor] = []
        training = self._model.training
        self._model.eval()
        try:
            for start in range(0, len(plays), self._settings.rows):
                states += self._read(plays[start : start + self._settings.rows])
        finally:
            self._model.train(training)
        return states

    def _read(self, plays: Sequence[Trajectory]) -> list[torch.Tensor]:
        longest = max(len(play.context_ids) for play in plays)
        ids = torch.zeros(len(plays), longest, dtype=torch.long)
        mask = torch.zeros_like(ids)
        for row, play in enumerate(plays):
            context = play.context_ids
            ids[row, : len(context)] = torch.tensor(context)
            mask[row, : len(context)] = 1
        hidden = self._model(
            ids.to(self._model.device),
            attention_mask=mask.to(self._model.device),
            output_hidden_states=True,
            # The last layer of logits is the largest, and of no use here.
            logits_to_keep=1,
        ).hidden_states[-1]
        result = []
        for row, play in enumerate(plays):
            before = [len(play.prompt_ids) + start - 1 for start, _ in play.spans]
            result.append(hidden[row, before].float().cpu())
        return result

    @torch.no_grad()
    def values(self, states: Sequence[torch.Tensor]) -> list[list[float]]:
        """Values of turns, by play, from their states."""
        return [self._head(turns)[:, 0].tolist() for turns in states]

    def fit(self, states: Sequence[torch.Tensor], targets: Sequence[Sequence[float]]) -> float:
        """Move the head towards what the turns turned out to be worth.

        Args:
            states: By play, as from `states`.
            targets: By play, one return a turn.

        Returns:
            The share of the targets' variance that the head explained *before*; NaN if they
            have none.
        """
        turns = torch.cat(list(states))
        wanted = torch.tensor([value for play in targets for value in play])
        explained = float("nan")
        for number in range(self._settings.passes):
            error = self._head(turns)[:, 0] - wanted
            if number == 0 and (variance := wanted.var(correction=0).item()) > 0:
                explained = 1 - error.detach().var(correction=0).item() / variance
            self._optimizer.zero_grad()
            error.square().mean().backward()
            self._optimizer.step()
        return explained

    def state(self) -> dict[str, Any]:
        """What a checkpoint must hold, as JSON values; float32 goes through JSON unchanged."""
        moments = self._optimizer.state_dict()["state"]
        return {
            "head": {name: value.tolist() for name, value in self._head.state_dict().items()},
            "moments": {
                str(key): {name: value.tolist() for name, value in entry.items()}
                for key, entry in moments.items()
            },
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from `state`."""
        head = {name: torch.tensor(value) for name, value in state["head"].items()}
        self._head.load_state_dict(head)
        whole = self._optimizer.state_dict()
        whole["state"] = {
            int(key): {name: torch.tensor(value) for name, value in entry.items()}
            for key, entry in state["moments"].items()
        }
        self._optimizer.load_state_dict(whole)
