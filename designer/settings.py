"""How hard the gates look."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class GateSettings:
    """How hard the gates look.

    Attributes:
        only_load: Ask no more than whether a program parses and loads: for experiments that show
            what the other gates are good for.
        starts: Seeds of gate 6; their episodes share the fuzzed actions of gate 4.
        replays: Fuzzed episodes that gate 5 replays, and again as many random ones.
        clock_s: Seconds that gate 5 lets pass before it replays a program that reads the clock.
        oracles: Seeds on which gate 7 plays solution() in fresh processes.
        oracle_seeds: Seeds on which it plays it in all, the others in one process: a solution
            that fails on one seed in ten gets through 28 of them in 5% of cases.
        min_oracle_steps: Shortest oracle play, where the turn cap allows as many.
        win_reward: Last reward from which a terminated episode counts as won.
        blind_stages: Plays of each of the constant and the random policies after which gate 8
            looks: no more are played where few enough have won, or far too many.
        max_blind_win_rate: Largest share of them that may win.
        clear_blind_win_rate: A larger share refuses before the last stage.
        perturbed_stages: Seeds on which gate 9 perturbs the solution, more only where on more
            than half of the first ones it still won; at most half of all may win.
        won_transcripts: Won plays on which gate 10 asks verify().
        service_retries: Times a draft is judged again after the service failed.
        drafts_at_once: Drafts in work together; bounds the episodes alive to about 30 times
            as many.
    """

    only_load: bool = False
    starts: int = 8
    replays: int = 2
    clock_s: float = 1.1
    oracles: int = 1
    oracle_seeds: int = 28
    min_oracle_steps: int = 3
    win_reward: float = 0.9
    blind_stages: tuple[int, ...] = (20, 60)
    max_blind_win_rate: float = 0.05
    clear_blind_win_rate: float = 0.25
    perturbed_stages: tuple[int, ...] = (4, 16)
    won_transcripts: int = 2
    service_retries: int = 2
    drafts_at_once: int = 16
