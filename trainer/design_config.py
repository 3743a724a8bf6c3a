"""Settings of the designer role."""

from __future__ import annotations

from dataclasses import dataclass

DESIGNER_REWARDS = ("blend", "regret", "plateau", "learning_potential", "variance", "learnability")
METHODS = ("structured", "free_code")
KINDS = ("game", "tool_use")
GATES = ("all", "load")
REPAIR_TRAINS = ("first", "last", "all")
LINEAGE_OPERATORS = ("easier", "harder", "theme", "crossover")


@dataclass(frozen=True)
class DesignConfig:
    """The designer role.

    Attributes:
        method: `structured` (a specification under a grammar) or `free_code`.
        kind: What is designed: `game` or `tool_use`.
        skills: Skills to design for and to be evaluated on; empty for all of them.
        gates: `all`, or `load`: whatever loads is played, for an experiment on what the gates are
            good for.
        twin_similarity: Programs whose trees are at least as similar, in [0, 1], are twins, of
            which one is refused; above 1, only the same program under other names is.
        refuse_remembered: Refuse what an earlier step designed already, so that the agent
            keeps meeting new worlds.
        explore: Share of a structured design's choices that are drawn evenly from what the
            grammar allows. Both roles share their weights, so what the agent learns moves
            the designer too; without exploration a small model soon writes one world only.
        environments: Environments asked for in a cycle (B).
        replay_steps: Training steps that play the same environments (k).
        attempts: Rounds of designing in a cycle until `environments` have passed the gates.
        max_tokens: Longest completion of the designer.
        hint_max_tokens: Longest hint, where the model writes it.
        memory: Remembered environments that a chat prompt shows; 0 for none.
        thinking: Whether the designer thinks before it writes, where its chat template can switch
            that; unset for what the template does by itself. Thoughts train, and count as tokens.
        reward: Name of the designer's reward; see `trainer.rewards`.
        paired: Whether a play has the same seed in both arms. Without, the regret of an
            environment has the larger standard error; for an experiment on that.
        novelty_weight: Share of the designer's reward that an environment loses if it is the copy
            of an earlier one, or of one of its step; 0 for none of it.
        opinions: Whether the model is asked if what it wrote can be solved; its word is kept and
            compared with the oracle's, and decides nothing.
        train: Whether designer completions train the model.
        advantage_scale_cap: Upper bound of the scale s of designer advantages.
        hinted_floor: Least hinted mean return of an environment that can earn a reward.
        repair_rounds: Times that a refused draft is given back to be mended.
        repair_trains: Which of the completions of a mended environment its reward trains:
            the `first`, the `last` or `all`.
        corpus: Where settings of programs are drawn from: `embedded`, the path of a JSON Lines
            file with `text` or `orig_doc`, or empty for none. Specifications have no setting.
        document_quota: Environments of a document before all others had as many; 0 for none.
        lineage_easier: Share of designs that are a remembered environment made easier.
        lineage_harder: Share made harder.
        lineage_theme: Share with another theme: another setting, or another hidden rule.
        lineage_crossover: Share made of two remembered environments.
    """

    method: str = "structured"
    kind: str = "game"
    skills: tuple[str, ...] = ()
    gates: str = "all"
    twin_similarity: float = 0.9
    refuse_remembered: bool = False
    explore: float = 0.0
    environments: int = 16
    replay_steps: int = 4
    attempts: int = 2
    max_tokens: int = 256
    hint_max_tokens: int = 120
    memory: int = 3
    thinking: bool | None = None
    reward: str = "blend"
    paired: bool = True
    novelty_weight: float = 0.0
    opinions: bool = False
    train: bool = True
    advantage_scale_cap: float = 50.0
    hinted_floor: float = 0.05
    repair_rounds: int = 0
    repair_trains: str = "last"
    corpus: str = "embedded"
    document_quota: int = 0
    lineage_easier: float = 0.0
    lineage_harder: float = 0.0
    lineage_theme: float = 0.0
    lineage_crossover: float = 0.0

    @property
    def lineage(self) -> dict[str, float]:
        """Shares by operator."""
        return {name: getattr(self, f"lineage_{name}") for name in LINEAGE_OPERATORS}

    def problem(self) -> str:
        """What cannot work among the settings, in a sentence; empty if nothing."""
        if not 0 <= self.explore <= 1:
            return f"design.explore is {self.explore}; it must be in [0, 1]"
        if not 0 <= self.novelty_weight <= 1:
            return f"design.novelty_weight is {self.novelty_weight}; it must be in [0, 1]"
        if sum(self.lineage.values()) > 1:
            return "design.lineage_*: the shares must be at most 1 in sum"
        if self.thinking and self.method == "structured":
            return (
                "design.thinking=true needs design.method=free_code: a specification under a "
                "grammar leaves no room for a thought"
            )
        return ""


DESIGN_CHOICES = {
    "method": METHODS,
    "kind": KINDS,
    "gates": GATES,
    "reward": DESIGNER_REWARDS,
    "repair_trains": REPAIR_TRAINS,
}

DESIGN_MINIMUM = {
    "design.environments": 1,
    "design.replay_steps": 1,
    "design.attempts": 1,
    "design.max_tokens": 1,
    "design.hint_max_tokens": 1,
    "design.memory": 0,
    "design.repair_rounds": 0,
    "design.document_quota": 0,
    "design.lineage_easier": 0,
    "design.lineage_harder": 0,
    "design.lineage_theme": 0,
    "design.lineage_crossover": 0,
    "design.advantage_scale_cap": 0,
}
