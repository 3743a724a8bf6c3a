"""Play 64 episodes of one program at once, with batched calls.

    python examples/play_batch.py [FILE] [ADDRESS]

Starts a server of its own unless given an address. The policy is the crudest there is.
"""

import random
import sys
from collections import Counter
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

from sandbox_api import ResetItem, SandboxClient, StepItem

from sandbox_server import LocalServer

EPISODES = 64
HERE = Path(__file__).parent


def policy(observation: str, rng: random.Random) -> str:
    return f"\\boxed{{{rng.randint(1, 4)} {rng.randint(1, 4)}}}"


def main(file: Path, server) -> None:
    rng = random.Random(0)
    with server as served, SandboxClient(served.address) as client:
        program = client.register_program(file.read_text())
        if program.diagnostic:
            sys.exit(f"{file} does not load: {program.diagnostic}")
        # One call starts all; each result stands for itself, in the order of the items.
        items = [ResetItem(program.program_id, seed=seed) for seed in range(EPISODES)]
        episodes = client.reset(items)
        running = {e.episode_id: e.observation for e in episodes if e.ok}
        ends, turn = Counter(), 0
        while running:
            steps = [StepItem(i, turn, policy(text, rng)) for i, text in running.items()]
            for result in client.step(steps):
                if not result.ok:  # the program failed: no reward, the play is lost
                    ends[f"lost: {result.error or result.diagnostic}"] += 1
                elif result.done:
                    ends[f"ended with reward {result.reward:g}"] += 1
                else:
                    running[result.episode_id] = result.observation
                    continue
                del running[result.episode_id]
            turn += 1
        client.close_episodes([e.episode_id for e in episodes if e.ok])
    print(f"{len(episodes)} episodes, {turn} turns: {dict(ends)}")


if __name__ == "__main__":
    if {"-h", "--help"} & set(sys.argv):
        sys.exit(print(__doc__))
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "lights_out.py"
    given = nullcontext(SimpleNamespace(address=sys.argv[2])) if len(sys.argv) > 2 else None
    main(path, given or LocalServer())
