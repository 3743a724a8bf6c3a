"""Environments that nobody here wrote load and are judged rightly: a sample, held to its share.

All of them, several hundred, are what bench/strangers.py measures; see docs/strangers.md.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence

import pytest
from sandbox_api.client import AsyncSandboxClient

from bench.strangers import catalogue, load_all, verdicts
from designer import GateReport
from sandbox_server import LocalServer
from tests.library import strangers
from tests.library.strangers import Stranger

# The first test may have to download and build the runtime.
pytestmark = [pytest.mark.nsjail, pytest.mark.timeout(900)]

# One in so many of each library; the whole is the bench's.
EVERY = 25


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with LocalServer(runtimes=["library"]) as server:
        yield server.address


@pytest.fixture
async def client(address: str) -> AsyncIterator[AsyncSandboxClient]:
    async with AsyncSandboxClient(address) as client:
        yield client


# A library in the manner of RLVE: generators of questions, which import torch to seed it, and
# work in a thread of their own.
GENERATORS = {
    "Gym/__init__.py": "",
    "Gym/parameter_controller.py": "class ParameterController: pass\n",
    "Gym/environment.py": """\
import random
import torch
from concurrent.futures import ThreadPoolExecutor


class VerifiableEnvironment:
    def generator(self, seed, parameter):
        random.seed(seed)
        torch.manual_seed(seed)
        with ThreadPoolExecutor(max_workers=1) as pool:
            self.parameter = pool.submit(self.generate, parameter).result()
        return True

    def verifier(self, output):
        right = output == f"<answer>{self.parameter['reference_answer']}</answer>"
        return {"reward": 1.0 if right else -1.0, "accuracy": int(right)}
""",
    "Gym/environments/__init__.py": "from Gym.environments.sums import Sum_Environment\n",
    "Gym/environments/sums/__init__.py": "from .environment import Sum_Environment\n",
    "Gym/environments/sums/environment.py": """\
import random
from Gym.environment import VerifiableEnvironment


class Sum_Environment(VerifiableEnvironment):
    def generate(self, parameter):
        parts = [random.randint(100, parameter["most"]) for _ in range(3)]
        self.parameter = parameter = {"parts": parts}
        self.parameter["reference_answer"] = sum(parts)
        return parameter

    def prompt_generator(self):
        return "What is " + " + ".join(map(str, self.parameter["parts"])) + "?"
""",
    "Gym/parameter_controllers/sums/__init__.py": """\
from Gym.parameter_controller import ParameterController


class Sum_ParameterController(ParameterController):
    def get_parameter_list(self):
        return [{"most": 999}]
""",
}


async def judged(
    client: AsyncSandboxClient, chosen: Sequence[Stranger]
) -> list[tuple[Stranger, GateReport]]:
    """Load all, which must do, and put them through the gates."""
    rows = await load_all(client, chosen)
    assert not [(row["name"], row["why"]) for row in rows if not row["loads"]]
    return list(zip(chosen, await verdicts(client, chosen), strict=True))


async def test_a_sample_of_the_libraries_loads_and_is_refused_only_for_lack_of_a_solution(
    client: AsyncSandboxClient,
) -> None:
    listed = await catalogue(client)
    grids = [s for s in listed if s.library == "MiniGrid and BabyAI"]
    gyms = [s for s in listed if s.name in ("FrozenLake-v1", "CartPole-v1", "Pendulum-v1")]
    assert len(grids) > 150
    for stranger, report in await judged(client, [*gyms, *grids[::EVERY]]):
        assert (str(report.reason), report.detail) in (
            ("ORACLE", "the program has no solution()"),
            # Pays for the angle, down to -16.
            *([("CONTRACT", report.detail)] if stranger.name == "Pendulum-v1" else []),
        ), stranger.name


async def test_a_sample_of_reasoning_gym_passes(client: AsyncSandboxClient) -> None:
    named = ("palindrome_generation", "decimal_chain_sum", "kakurasu", "knights_knaves")
    chosen = [s for s in await catalogue(client) if s.name in named]
    assert [str(report.reason) for _, report in await judged(client, chosen)] == ["OK"] * 4


async def test_a_generator_of_questions_that_travels_with_its_program_passes(
    client: AsyncSandboxClient,
) -> None:
    files = {path: text.encode() for path, text in GENERATORS.items()}
    ((_, report),) = await judged(client, strangers.of_rlve(files))
    assert (str(report.reason), report.detail) == ("OK", "")
