"""No gate refuses a sound program: one of each family of medium difficulty, and the examples."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest
from sandbox_api import AsyncSandboxClient

from designer import DesignRequest, Draft, Gates
from designer.families import FAMILIES, CompiledSpec, compile_spec, random_spec
from sandbox_server import LocalServer

EXAMPLES = Path(__file__).parents[2] / "examples"
STDLIB_EXAMPLES = ("lights_out.py", "warehouse_tools.py")


def draft(source: str, hint: str | None = None, max_turns: int = 12) -> Draft:
    request = DesignRequest(0, "", "free_code", [], None, max_turns, 0)
    return Draft(request, source, source=source, hint=hint)


def medium(family: str) -> CompiledSpec:
    """A world of the family that is neither at its easy nor at its hard edge."""
    rng = random.Random(family)
    specs = (compile_spec(random_spec(rng, family=family)) for _ in range(1_000))
    return next(spec for spec in specs if 0.4 <= spec.level <= 0.6)


@pytest.fixture(scope="module")
def reports(server):
    names = {name: (EXAMPLES / name).read_text("utf-8") for name in STDLIB_EXAMPLES}
    drafts = {name: draft(source) for name, source in names.items()}
    for family in FAMILIES:
        spec = medium(family)
        drafts[family] = draft(spec.source, spec.hint, max_turns=8)

    async def judge():
        async with AsyncSandboxClient(server.address) as client:
            reports = await Gates(client).judge(list(drafts.values()))
        return dict(zip(drafts, reports, strict=True))

    return asyncio.run(judge())


@pytest.mark.parametrize("name", [*STDLIB_EXAMPLES, *FAMILIES])
def test_a_sound_program_passes_every_gate(reports, name):
    assert reports[name].passed, (reports[name].reason, reports[name].detail)
    assert reports[name].finding is None


@pytest.mark.nsjail
@pytest.mark.timeout(900)
async def test_a_sound_program_of_another_runtime_passes_every_gate():
    source = (EXAMPLES / "frozen_lake.py").read_text("utf-8")
    with LocalServer(runtimes=["library"]) as server:
        async with AsyncSandboxClient(server.address) as client:
            (report,) = await Gates(client, runtime="library").judge([draft(source, max_turns=20)])
    assert report.passed, (report.reason, report.detail)
