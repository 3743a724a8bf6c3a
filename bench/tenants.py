"""What tenancy costs, and what it gives: `python bench/tenants.py`.

First the same steps over a Unix socket, over TLS, and over TLS with a token and an audit log,
in turns. Then how long one client's small batches take while another's burst of thousands of
busy steps is in work: both of one tenant, and of two.
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import trustme
from sandbox_api import Access, AsyncSandboxClient, Limits, ResetItem, StepItem

from sandbox_server import LocalServer
from sandbox_server.authentication import token_sha256

QUICK = """
class QuickEnv:
    def reset(self, seed=None):
        return "ready", {}

    def step(self, action):
        return "done", 0.0, False, False, {}
"""
BUSY = """
import time

class BusyEnv:
    def reset(self, seed=None):
        return "ready", {}

    def step(self, action):
        end = time.process_time() + 0.005
        while time.process_time() < end:
            pass
        return "done", 0.0, False, False, {}
"""
LIMITS = Limits(max_steps=100_000, step_timeout_s=60, cpu_time_s=3_600)

EPISODES, ROUNDS, ROUND_S = 1_000, 5, 2.0
BURST, BATCH, BURST_ROUNDS, WATCHED_S = 1_500, 64, 3, 10.0


class Player:
    """Steps episodes of one program, all of them in one batch at a time."""

    def __init__(self, client: AsyncSandboxClient, episodes: list[str]) -> None:
        self._client = client
        self._episodes = episodes
        self._index = 0

    @classmethod
    async def start(cls, client: AsyncSandboxClient, source: str, count: int) -> Player:
        program = await client.register_program(source, limits=LIMITS)
        items = [ResetItem(program.program_id, seed=seed) for seed in range(count)]
        return cls(client, [episode.episode_id for episode in await client.reset(items)])

    async def step(self) -> float:
        """Take one step of every episode; returns its seconds."""
        started = time.monotonic()
        results = await self._client.step(
            [StepItem(episode, self._index, "x") for episode in self._episodes]
        )
        assert all(result.ok for result in results)
        self._index += 1
        return time.monotonic() - started


async def cost(folder: Path) -> None:
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1")
    authority.cert_pem.write_to_path(folder / "ca.pem")
    certificate.cert_chain_pems[0].write_to_path(folder / "server.pem")
    certificate.private_key_pem.write_to_path(folder / "server.key")
    tls = ["--tls-certificate", f"{folder}/server.pem", "--tls-key", f"{folder}/server.key"]
    tcp = ["--address", "127.0.0.1:0"]
    audited = ["--tenants", tenants_file(folder), "--audit-log", f"{folder}/audit.jsonl"]
    trusted = Access(ca_file=f"{folder}/ca.pem")
    subjects = {
        "Unix socket": ([], Access()),
        "TCP": (tcp, Access()),
        "TCP, TLS": ([*tcp, *tls], trusted),
        "TCP, TLS, token, audit log": (
            [*tcp, *tls, *audited],
            Access("trainer", trusted.ca_file),
        ),
    }
    with ExitStack() as stack:
        players, rates = {}, {name: [] for name in subjects}
        for name, (options, access) in subjects.items():
            server = stack.enter_context(LocalServer(options=options))
            client = AsyncSandboxClient(server.address, access=access)
            players[name] = await Player.start(client, QUICK, EPISODES)
        for _ in range(ROUNDS):
            for name, player in players.items():
                taken_s: list[float] = []
                while sum(taken_s) < ROUND_S:
                    taken_s.append(await player.step())
                rates[name].append(EPISODES * len(taken_s) / sum(taken_s))
    base = rates["Unix socket"]
    print(f"| {EPISODES} episodes | steps/s | to the first |\n|---|---|---|")
    for name, found in rates.items():
        ratio = statistics.median(a / b for a, b in zip(found, base, strict=True))
        print(f"| {name} | {statistics.median(found):,.0f} | {ratio:.2f} |")


def tenants_file(folder: Path) -> str:
    path = folder / "tenants.toml"
    path.write_text(
        "".join(
            f'[tenant.{name}]\ntoken_sha256 = "{token_sha256(name)}"\n'
            for name in ("trainer", "designer")
        )
    )
    return str(path)


async def fairness(folder: Path) -> None:
    print(
        f"\n| {BATCH} quick steps beside a burst of {BURST} steps of 5 ms | alone, median | "
        "beside the burst, median | 95th percentile |\n|---|---|---|---|"
    )
    two = ["--tenants", tenants_file(folder)]
    for _ in range(BURST_ROUNDS):
        await beside_a_burst("one tenant", [], "", "")
        await beside_a_burst("two tenants", two, "trainer", "designer")


async def beside_a_burst(name: str, options: list[str], trainer: str, designer: str) -> None:
    with LocalServer(options=options) as server:
        async with (
            AsyncSandboxClient(server.address, access=Access(trainer)) as few,
            AsyncSandboxClient(server.address, access=Access(designer)) as many,
        ):
            watched = await Player.start(few, QUICK, BATCH)
            alone = [await watched.step() for _ in range(50)]
            burst = await Player.start(many, BUSY, BURST)
            stop = asyncio.Event()

            async def keep_busy() -> None:
                while not stop.is_set():
                    await burst.step()

            busy = asyncio.create_task(keep_busy())
            await asyncio.sleep(1)
            started, beside = time.monotonic(), []
            while time.monotonic() - started < WATCHED_S:
                beside.append(await watched.step())
            stop.set()
            await busy
    late = statistics.quantiles(beside, n=20)[-1] if len(beside) > 1 else beside[0]
    figures = [1_000 * statistics.median(alone), 1_000 * statistics.median(beside), 1_000 * late]
    print(f"| {name} | " + " | ".join(f"{ms:,.0f} ms" for ms in figures) + " |", flush=True)


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        await cost(Path(folder))
        await fairness(Path(folder))


if __name__ == "__main__":
    asyncio.run(main())
