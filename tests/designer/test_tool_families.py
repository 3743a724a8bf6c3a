"""Structured tool use: an oracle that wins, the gates, and hints worth something to a script."""

from __future__ import annotations

import asyncio
import json
import random
import re
import sys
from collections.abc import Callable

import pytest
from sandbox_api import AsyncSandboxClient

from designer import DesignRequest, Draft, Gates
from designer.families import (
    FAMILIES,
    TOOL_FAMILIES,
    TOOL_SKILLS,
    CompiledSpec,
    check_spec,
    compile_spec,
    evaluation_suite,
    random_spec,
    spec_schema,
    spec_text,
)
from sandbox_server import LocalServer
from sandbox_server.worker import tool_env
from spadework.estimate import MOST_COMPILED_BYTES

MAX_TURNS = 8
SPECS, SEEDS = 25, 6


@pytest.fixture(autouse=True)
def supplied_base(monkeypatch):
    """What the sandbox supplies; the programs here are our own compiler's."""
    monkeypatch.setitem(sys.modules, "spadework_env", tool_env)


def load(compiled: CompiledSpec) -> type:
    namespace: dict[str, object] = {}
    exec(compile(compiled.source, "program", "exec"), namespace)
    (entry,) = [v for n, v in namespace.items() if n.endswith("Env") and n != "ToolEnv"]
    assert isinstance(entry, type)
    return entry


def specs(family: str) -> list[CompiledSpec]:
    rng = random.Random(f"specs {family}")
    return [compile_spec(random_spec(rng, family=family)) for _ in range(SPECS)]


def play(env, seed: int, actions) -> tuple[list, float]:
    """The transcript and the return; the player is a generator fed with observations."""
    seen = [env.reset(seed=seed)[0]]
    ended, reward = False, 0.0
    while not ended:
        observation, reward, terminated, truncated, _ = env.step(actions(seen))
        seen.append(observation)
        ended = terminated or truncated
    return seen, reward


def call(name: str, /, **arguments: object) -> str:
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"


@pytest.mark.parametrize("family", TOOL_FAMILIES)
class TestEveryToolFamily:
    def test_the_oracle_wins_on_every_seed_within_eight_turns(self, family):
        for compiled in specs(family):
            for seed in range(SEEDS):
                env = load(compiled)(max_turns=MAX_TURNS)
                env.reset(seed=seed)
                actions = iter(env.solution())
                assert play(env, seed, lambda _, a=actions: next(a))[1] == 1.0, compiled.spec
                assert env.verify()

    def test_tools_are_three_to_eight_and_each_tells_what_it_does(self, family):
        tools = load(specs(family)[0])().get_tools()
        assert 3 <= len(tools) <= 8
        assert all(tool["function"]["description"] for tool in tools)

    def test_the_public_clue_is_shown_and_the_hidden_one_is_not(self, family):
        for compiled in specs(family):
            first, _, clue = load(compiled)().reset(seed=3)[0].partition("\n\nHINT: ")
            assert clue == (compiled.hint if compiled.spec["c"] else "")
            assert len(first) <= 250
            line = next(t for t in compiled.source.split("\n") if t.startswith("CLUE = "))
            assert line == f"CLUE = {compiled.hint if compiled.spec['c'] else ''!r}"

    def test_the_same_seed_and_actions_give_the_same_transcript(self, family):
        compiled = specs(family)[0]
        seen = []
        for salt in range(2):
            random.seed(salt)
            seen.append(
                play(load(compiled)(max_turns=3), 5, lambda _: call("look_up", owner="Ada"))
            )
        assert seen[0] == seen[1]

    def test_levels_span_the_range(self, family):
        levels = [compiled.level for compiled in specs(family)]
        assert min(levels) < 0.4
        assert max(levels) > 0.5


@pytest.fixture(scope="module")
def reports():
    """A spec of each family with a hidden clue, and one with a public one, in nsjail."""
    drafts = {}
    for family in TOOL_FAMILIES:
        for public in (0, 1):
            rng = random.Random(family)
            compiled = compile_spec({**random_spec(rng, family=family), "c": public})
            request = DesignRequest(0, compiled.skill, "structured", [], None, 8, 0, "tool_use")
            source, hint = compiled.source, compiled.hint
            drafts[family, public] = Draft(request, source, source=source, hint=hint)

    async def judge(address: str):
        async with AsyncSandboxClient(address) as client:
            return await Gates(client).judge(list(drafts.values()))

    with LocalServer(log_level="error") as server:
        judged = asyncio.run(judge(server.address))
    return dict(zip(drafts, judged, strict=True))


@pytest.mark.nsjail
@pytest.mark.parametrize("public", [0, 1])
@pytest.mark.parametrize("family", TOOL_FAMILIES)
def test_structured_tool_use_passes_every_gate_in_a_jail(reports, family, public):
    report = reports[family, public]
    assert report.passed, (report.reason, report.detail)
    assert report.program.tools


Player = Callable[[list[str], str], str]


def play_link(seen: list[str], clue: str) -> str:
    names = re.findall(r"values of (.+?)\. Connect", seen[0])[0].split(" and ")
    lines = clue.split()[1] if clue else re.findall(r"lines (\w+)", seen[0])[0]
    refused = sum(told.endswith("refused") for told in seen)
    if "connected" not in seen:
        return call("connect", line=lines[min(refused, len(lines) - 1)])
    values = seen[seen.index("connected") + 1 :]
    if len(values) < len(names):
        return call("read", name=names[len(values)])
    return f"<answer>{sum(map(int, values))}</answer>"


def play_stock(seen: list[str], clue: str) -> str:
    item = re.findall(r"Move (\w+) to", seen[0])[0]
    bays = clue.split()[-1] if clue else re.findall(r"Bays (\w+)", seen[0])[0]
    if "What do they weigh together?" in seen:
        weighed = re.findall(r'"weight": (\d+)', seen[-1])
        code = re.findall(r'"code": "(\w+)"', "".join(seen))[0]
        return f"<answer>{weighed[0]}</answer>" if weighed else call("weigh", code=code)
    codes = re.findall(r'"code": "(\w+)"', "".join(seen))
    if not codes:
        return call("find", item=item)
    moved = sum('carts left"' in told for told in seen)
    if 'carts left"' in seen[-1]:
        return "<answer>done</answer>"
    return call("move", code=codes[0], bay=bays[min(moved, len(bays) - 1)])


def play_contact(seen: list[str], clue: str) -> str:
    kinds = re.findall(r"Records (.+)\.", seen[0])[0].split(", ")
    kind = re.findall(r"whom the (\w+)", clue)[0] if clue else kinds[0]
    last = seen[-1]
    steps = seen[0].count("the contact of ")
    if len(seen) == 1:
        return call("person", name=re.findall(r"of (\w+)\?", last)[0])
    told = json.loads(last)
    if "extension" in told:
        return f"<answer>{told['extension']}</answer>"
    if "names" in told:
        done = sum("names" in one for one in seen) == steps
        return call("extension" if done else "person", name=told["names"])
    return call("record", code=told[kind])


def play_quotes(seen: list[str], clue: str) -> str:
    bills = re.findall(r"bills (.+?) and convert", seen[0])[0].split(" and ")
    bank = clue.split()[-1] if clue else "a"
    if len(seen) <= len(bills):
        return call("bill", number=bills[len(seen) - 1])
    if 'rate"' not in seen[-1]:
        return call(f"quote_{bank}")
    total = sum(json.loads(told)["sum"] for told in seen[1:-1])
    return f"<answer>{total * json.loads(seen[-1])['rate']}</answer>"


def play_parcel(seen: list[str], clue: str) -> str:
    jobs = re.findall(r"jobs (.+?), in the", seen[0])[0].split(", ")
    order = clue.removeprefix("the depot's order is ").split(", ") if clue else jobs
    if len(seen) == 1:
        return call("look_up", owner=re.findall(r"parcel of (\w+)", seen[0])[0])
    code = json.loads(seen[1])["parcel"]
    if '"receipt"' in seen[-1]:
        return f"<answer>{json.loads(seen[-1])['receipt']}</answer>"
    done: list[str] = []
    wrong: list[str] = []
    for told in seen[2:]:
        if "no form is left" in told:
            break
        tried = next(job for job in order if job not in done and job not in wrong)
        if told == "done":
            done, wrong = [*done, tried], []
        else:
            wrong.append(tried)
    if len(done) == len(order):
        return call("send", parcel=code)
    left = [job for job in order if job not in done and job not in wrong] or [order[0]]
    return call("work", parcel=code, job=left[0])


def play_chain(seen: list[str], clue: str) -> str:
    issuers = clue.split()[-1] if clue else re.findall(r"issuers (\w+)", seen[0])[0]
    asked, owner = re.findall(r"Which is the (\w+) of (\w+)\?", seen[0])[0]
    links = ["name", "account", "card", "limit"]
    tokens = re.findall(r'"token": "(\w+)"', "".join(seen))
    refused = sum(told.endswith("refused") for told in seen)
    if len(tokens) <= refused:
        return call("token", issuer=issuers[min(refused, len(issuers) - 1)])
    found = [json.loads(told) for told in seen[1:] if told.startswith("{")]
    known = {"name": owner} | {name: v for one in found for name, v in one.items()}
    if asked in known:
        return f"<answer>{known[asked]}</answer>"
    link = [name for name in links if name in known][-1]
    service = "customer" if link == "name" else link
    return call(service, **{link: known[link], "token": tokens[-1]})


PLAYERS: dict[str, Player] = {
    "chain": play_chain,
    "link": play_link,
    "stock": play_stock,
    "contact": play_contact,
    "quotes": play_quotes,
    "parcel": play_parcel,
}


def mean_return(family: str, *, with_clue: bool) -> float:
    rng = random.Random(family)
    returns = []
    for _ in range(SPECS):
        compiled = compile_spec({**random_spec(rng, family=family), "c": 0})
        clue = compiled.hint if with_clue else ""
        for seed in range(SEEDS):
            env = load(compiled)(max_turns=MAX_TURNS)
            player = PLAYERS[family]
            returns.append(play(env, seed, lambda s, c=clue, p=player: p(s, c))[1])
    return sum(returns) / len(returns)


@pytest.mark.parametrize("family", TOOL_FAMILIES)
def test_a_scripted_player_solves_it_with_the_hint_and_less_often_without(family):
    assert mean_return(family, with_clue=True) == 1.0
    assert 0.05 < mean_return(family, with_clue=False) < 0.7


def test_the_two_kinds_share_no_name_and_every_tool_skill_has_a_family():
    assert not set(FAMILIES) & set(TOOL_FAMILIES)
    assert {family.skill for family in TOOL_FAMILIES.values()} == set(TOOL_SKILLS)


def test_the_schema_of_a_tool_skill_derives_valid_specifications():
    for skill in TOOL_SKILLS:
        schema = spec_schema(skill)
        spec = {name: values["enum"][-1] for name, values in schema["properties"].items()}
        assert check_spec(spec).skill == skill
        assert len(spec_text(spec)) <= 60


def test_no_program_of_a_specification_is_longer_than_a_dry_run_expects():
    rng = random.Random(0)
    for family in (*FAMILIES, *TOOL_FAMILIES):
        for _ in range(SPECS):
            source = compile_spec(random_spec(rng, family=family)).source
            assert len(source.encode()) <= MOST_COMPILED_BYTES


def test_tool_use_has_a_held_out_suite_of_its_own():
    suite = evaluation_suite(12, skills=list(TOOL_SKILLS))
    assert all(compiled.held_out for compiled in suite)
    assert {compiled.family for compiled in suite} == set(TOOL_FAMILIES)
    assert not {c.family for c in evaluation_suite(24)} & set(TOOL_FAMILIES)
