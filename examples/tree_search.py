"""Search a game tree best first, where every leaf is a running episode, copied by Fork.

    python examples/tree_search.py [SEEDS]

The game is `lights_out.py`: 16 moves, and the right four win. A leaf is expanded by forking it, so
that each copy makes another move. The best leaves are expanded together: all their copies step in
one call, and what is pruned is closed. Beside it the same search without Fork, where each node is
an episode that replays the actions up to there, and a player that looks one move ahead.
"""

import heapq
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path

from sandbox_api import Limits, ResetItem, SandboxClient, StepItem

from sandbox_server import LocalServer

GAME = Path(__file__).with_name("lights_out.py")
MOVES = [f"\\boxed{{{row} {column}}}" for row in range(1, 5) for column in range(1, 5)]
MOST_MOVES = 8
WIDTH = 4  # leaves that are expanded together
KEPT = 900  # leaves at most; the worst are pruned
# A process for each leaf that lives, and for the copies in the making.
LIMITS = Limits(max_processes=1 + KEPT + WIDTH * len(MOVES))


@dataclass(order=True)
class Node:
    rank: float
    number: int
    actions: tuple[str, ...] = field(compare=False)
    episode_id: str = field(compare=False)


def expand_by_fork(client, leaves):
    """(actions, episode, result) of every move from every leaf."""
    made = []
    with ThreadPoolExecutor(WIDTH) as pool:  # a client serves any number of threads
        copies = pool.map(lambda leaf: client.fork(leaf.episode_id, len(MOVES) - 1), leaves)
        for leaf, forked in zip(leaves, copies, strict=True):
            # The leaf itself makes one of the moves: it is not needed any more.
            episodes = [leaf.episode_id, *forked]
            made += [((*leaf.actions, m), e) for m, e in zip(MOVES, episodes, strict=True)]
    results = client.step([StepItem(e, len(path) - 1, path[-1]) for path, e in made])
    return [(*node, result) for node, result in zip(made, results, strict=True)]


def expand_by_replay(client, leaves, item):
    """The same from the start of the game; here no node has to live on."""
    paths = [(*leaf.actions, move) for leaf in leaves for move in MOVES]
    episodes = client.reset([item(prefix_actions=path) for path in paths])
    client.close_episodes([episode.episode_id for episode in episodes])
    return [(p, "", e.prefix_results[-1]) for p, e in zip(paths, episodes, strict=True)]


def search(client, root, expand, kept=KEPT):
    """Look for actions that win; returns them (None if there are none) and the nodes made."""
    leaves, seen, numbers, made = [root], set(), count(1), 0
    alive = {root.episode_id}
    try:
        while leaves:
            best = [heapq.heappop(leaves) for _ in range(min(WIDTH, len(leaves)))]
            children = expand(client, best)
            made += len(children)
            alive.update(episode for _, episode, _ in children)
            for actions, episode, result in children:
                if result.reward == 1.0:
                    return actions, made
                if result.observation not in seen and len(actions) < MOST_MOVES:
                    seen.add(result.observation)
                    rank = result.info["lit"] + 1.5 * len(actions)
                    heapq.heappush(leaves, Node(rank, next(numbers), actions, episode))
            leaves = sorted(leaves)[:kept]  # sorted, it is a heap still
            pruned = alive - {leaf.episode_id for leaf in leaves}
            client.close_episodes([*pruned])
            alive -= pruned
        return None, made
    finally:
        client.close_episodes([*alive])


def main(seeds):
    with LocalServer() as server, SandboxClient(server.address) as client:
        program = client.register_program(GAME.read_text(), limits=LIMITS)
        if program.diagnostic:
            sys.exit(f"{GAME} does not load: {program.diagnostic}")
        ways = {"one move ahead": (expand_by_fork, 1), "fork": (expand_by_fork, KEPT)}
        ways["replay"] = (expand_by_replay, KEPT)
        for name, (expand, kept) in ways.items():
            solved = nodes = 0
            spent_s = 0.0
            for seed in range(seeds):
                item = partial(ResetItem, program.program_id, seed=seed)
                if expand is expand_by_replay:
                    root, way = Node(0, 0, (), ""), partial(expand, item=item)
                else:
                    (episode,) = client.reset([item()])
                    root, way = Node(0, 0, (), episode.episode_id), expand
                started_at = time.perf_counter()
                actions, made = search(client, root, way, kept)
                spent_s += time.perf_counter() - started_at
                solved, nodes = solved + (actions is not None), nodes + made
            rate = nodes / spent_s
            print(f"{name}: solved {solved} of {seeds}, {nodes} nodes, {rate:.0f} nodes/s")


if __name__ == "__main__":
    if {"-h", "--help"} & set(sys.argv):
        sys.exit(print(__doc__))
    given = sys.argv[1] if len(sys.argv) > 1 else "8"
    if len(sys.argv) > 2 or not given.isdecimal() or given == "0":
        sys.exit(f"SEEDS is a whole number from 1 on, not {' '.join(sys.argv[1:])!r}")
    main(int(given))
