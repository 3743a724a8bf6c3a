"""Programs in all the shapes that public code comes in load unchanged."""

from __future__ import annotations

import pytest
from sandbox_api.types import Outcome, ProgramKind, ResetItem

from tests.server.conftest import Sandbox

OLD_GYM = """
class OldEnv:
    def seed(self, seed=None):
        self.rng = random.Random(seed)
        return [seed]
    def reset(self):
        self.left = self.rng.randint(1, 3)
        return self.left
    def step(self, action):
        self.left -= 1
        return self.left, 1, self.left == 0, {"TimeLimit.truncated": False}
"""

SPACES = """
class Discrete:
    def __init__(self, n): self.n, self.start = n, 0
    def contains(self, x): return 0 <= x < self.n

class ArrowsEnv:
    action_space = Discrete(4)
    def reset(self, *, seed=None, options=None):
        return (1, {"deep": [2.5, None]}), {}
    def step(self, action):
        assert type(action) is int
        return {"took": action}, 0.25, False, True, {}
"""

TOOLS = '''
from spadework_env import Message, ToolEnv

class OrdersEnv(ToolEnv):
    def setup(self, rng):
        self.count = rng.randint(2, 9)
        self.closed = False
        self.messages = [
            Message("Close order A1.", criterion=lambda: self.closed),
            Message("How many items did it have?", answer=self.count),
        ]
    def tool_get_order(self, order_id: str) -> dict:
        """Look an order up."""
        return {"id": order_id, "items": self.count}
    def tool_close_order(self, order_id: str, force: bool = False):
        """Close an order."""
        self.closed = order_id == "A1"
        return self.closed
    def solution(self):
        call = '<tool_call>{"name": "close_order", "arguments": {"order_id": "A1"}}</tool_call>'
        return [call, "<answer>done</answer>", f"<answer>{self.count}</answer>"]
'''

NAMES = """
@dataclass
class Cell:
    at: Tuple[int, int]
    kinds: List[str] = field(default_factory=list)

class Kind(Enum):
    A = 1

class NamesEnv(ABC):
    def reset(self, seed: Optional[int] = None) -> Tuple[str, Dict[str, Any]]:
        used = [collections, itertools, math, random, re, json, typing, copy, string, heapq]
        c = Counter("aab"); d = defaultdict(int); q = deque([1]); Cell((1, 2)); Kind.A
        return f"{len(used)} {c['a']} {math.gcd(4, 6)} {len(list(permutations('abc')))}", {}
    def step(self, action: str):
        return "", 0.0, True, False, {}
"""


async def test_a_reset_without_info_and_a_four_tuple_step(sandbox: Sandbox) -> None:
    episode = await sandbox.start(OLD_GYM, seed=5)
    again = await sandbox.start(OLD_GYM, seed=5)
    assert episode.observation == again.observation
    left = int(episode.observation)
    for index in range(left):
        result = await sandbox.step(episode, index)
    assert result.terminated
    assert result.reward == 1.0


async def test_spaces_take_text_and_observations_become_text(sandbox: Sandbox) -> None:
    program = await sandbox.register(SPACES)
    assert program.kind is ProgramKind.GYMNASIUM
    episode = (await sandbox.reset([ResetItem(program.program_id)]))[0]
    assert episode.observation == '[1, {"deep": [2.5, null]}]'
    odd = await sandbox.step(episode, 0, "north, please")
    assert odd.ok
    assert odd.info == {"invalid_action": True}
    assert "0 to 3" in odd.observation
    result = await sandbox.step(episode, 1, r"I go \boxed{2}")
    assert result.observation == '{"took": 2}'
    assert result.truncated


async def test_a_list_of_actions_is_no_space_of_gymnasium(sandbox: Sandbox) -> None:
    program = await sandbox.register(SPACES.replace("Discrete(4)", "['up', 'down']", 1))
    assert program.kind is ProgramKind.GAME


async def test_tool_use_publishes_schemas_and_advances_by_criterion(sandbox: Sandbox) -> None:
    program = await sandbox.register(TOOLS)
    assert program.kind is ProgramKind.TOOL_USE
    assert [t["function"]["name"] for t in program.tools] == ["close_order", "get_order"]
    episode = (await sandbox.reset([ResetItem(program.program_id, seed=1)]))[0]
    assert episode.tools == program.tools
    assert episode.observation == "Close order A1."
    call = '<tool_call>{"name": "get_order", "arguments": {"order_id": "A1"}}</tool_call>'
    looked = await sandbox.step(episode, 0, call)
    assert '"items"' in looked.observation
    broken = await sandbox.step(episode, 1, "<tool_call>{broken</tool_call>")
    assert broken.ok
    assert broken.observation.startswith("Error:")
    verdict = (await sandbox.client.verify([episode.episode_id], run_oracle=True))[0]
    assert verdict.oracle is not None
    assert verdict.oracle.final_reward == 1.0


async def test_names_that_programs_do_not_import_resolve(sandbox: Sandbox) -> None:
    episode = await sandbox.start(NAMES)
    assert episode.observation == "10 2 2 6"


@pytest.mark.parametrize(
    ("solution", "plan"),
    [
        ("['up', 'up']", ["\\boxed{up}"] * 2),
        ("'1. up\\n2. up'", ["\\boxed{up}"] * 2),
        ("'Step 1: up\\nStep 2: up'", ["\\boxed{up}"] * 2),
    ],
)
async def test_solutions_in_public_shapes_are_played(
    sandbox: Sandbox, solution: str, plan: list[str]
) -> None:
    source = f"""
class BoxedEnv:
    def reset(self, seed=None):
        self.ups = 0
        return "go up twice", {{}}
    def step(self, action):
        if action != r"\\boxed{{up}}":
            return "what?", 0.0, False, False, {{}}
        self.ups += 1
        return "", float(self.ups == 2), self.ups == 2, False, {{}}
    def solution(self):
        return {solution}
"""
    episode = await sandbox.start(source)
    verdict = (await sandbox.client.verify([episode.episode_id], run_oracle=True))[0]
    assert verdict.oracle is not None
    assert list(verdict.oracle.actions) == plan
    assert verdict.oracle.final_reward == 1.0


@pytest.mark.parametrize(
    "returned", ["'text'", "('a', 1)", "('a', 1.0, False, False, {}, 7)", "None"]
)
async def test_a_step_that_returns_no_step_says_what_it_should(
    sandbox: Sandbox, returned: str
) -> None:
    source = f"""
class WrongEnv:
    def reset(self, seed=None): return "", {{}}
    def step(self, action): return {returned}
"""
    result = await sandbox.play_one(source)
    assert result.outcome is Outcome.PROGRAM_ERROR
    assert result.diagnostic is not None
    assert "terminated, truncated" in result.diagnostic.message
