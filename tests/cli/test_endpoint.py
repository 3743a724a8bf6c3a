"""`spadework design` with a server of OpenAI's protocol that writes programs and hints."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from designer.families import compile_spec, held_out, random_spec
from spadework.cli import main
from tests.protocol_server import Fault, ProtocolServer, protocol_server


def program(salt: int = 1) -> str:
    generator = Random(salt)
    spec = random_spec(generator, "spatial")
    while held_out(spec):
        spec = random_spec(generator, "spatial")
    return compile_spec(spec).source


def fenced(source: str) -> str:
    return f"<think>a maze</think>Here it is:\n```python\n{source}```\n"


def is_hint(body: dict[str, Any]) -> bool:
    return "You write hints" in body["messages"][0]["content"]


@pytest.fixture
def server() -> Iterator[ProtocolServer]:
    with protocol_server() as running:
        yield running


def design(server: ProtocolServer, out: Any, *arguments: str) -> int:
    endpoint = ["--endpoint", server.url, "--endpoint-model", "m", "--method", "free_code"]
    return main(["design", "--out", str(out), "--backend", "nsjail", *endpoint, *arguments])


@pytest.mark.nsjail
def test_programs_of_an_endpoint_pass_the_same_gates(server, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("MY_KEY", "secret")
    source = program()
    server.write = lambda body: (
        "Look where the walls leave room." if is_hint(body) else fenced(source)
    )
    assert design(server, tmp_path, "-n", "2", "--json", "--endpoint-key-variable", "MY_KEY") == 0
    output = capsys.readouterr()
    first, second = json.loads(output.out)
    assert first["reason"] == "OK"
    assert first["hint"] == "Look where the walls leave room."
    assert first["document"]
    assert second["reason"] == "DUPLICATE"
    assert (tmp_path / first["file"].rpartition("/")[2]).read_text() == source
    assert set(server.authorizations) == {"Bearer secret"}
    assert "4 requests" in output.err


@pytest.mark.nsjail
def test_a_refused_program_is_mended_by_what_the_gate_found_and_linked(server, tmp_path, capsys):
    sound = program()
    broken = sound.replace("    def step(self, action", "    def step(self, actio", 1)
    assert broken != sound

    def write(body: dict[str, Any]) -> str:
        if is_hint(body):
            return "Mind the walls."
        return fenced(sound if "It was refused" in body["messages"][-1]["content"] else broken)

    server.write = write
    assert design(server, tmp_path, "-n", "1", "--repair-rounds", "2", "--json") == 0
    refused, mended = json.loads(capsys.readouterr().out)
    assert (refused["passed"], refused["round"]) == (False, 0)
    assert (mended["reason"], mended["round"]) == ("OK", 1)
    with sqlite3.connect(tmp_path / "archive.sqlite") as archive:
        rows = archive.execute("SELECT env_id, repair_of, round FROM environments ORDER BY round")
        (first, _, _), (second, repair_of, _) = rows.fetchall()
    archive.close()
    assert repair_of == first == mended["repair_of"]
    assert second == mended["env_id"]
    (asked,) = [b for b in server.asked if "It was refused" in b["messages"][-1]["content"]]
    told = asked["messages"][-1]["content"]
    assert refused["reason"] in told
    assert [m["role"] for m in asked["messages"]] == ["system", "user", "assistant", "user"]
    assert broken in asked["messages"][2]["content"]


@pytest.mark.nsjail
def test_a_run_that_ended_goes_on_and_asks_for_nothing_twice(server, tmp_path, capsys):
    sources = {}

    def write(body: dict[str, Any]) -> str:
        if is_hint(body):
            return "Mind the walls."
        return fenced(sources.setdefault(body["seed"], program(len(sources))))

    server.write = write
    server.faults = [None, None, Fault(401)]
    arguments = ("-n", "4", "--json", "--endpoint-concurrency", "1", "--repair-rounds", "0")
    assert design(server, tmp_path, *arguments) == 3
    assert "401" in capsys.readouterr().err
    assert len(server.asked) == 3
    assert design(server, tmp_path, *arguments) == 0
    rows = json.loads(capsys.readouterr().out)
    assert len(rows) == 4
    drafts = [body for body in server.asked if not is_hint(body)]
    # Two were answered before it ended, the third was refused, then two were left.
    assert len(drafts) == 5
    assert len({body["seed"] for body in drafts}) == 4
    before = len(server.asked)
    # The step is done, so the same command designs new ones.
    design(server, tmp_path, *arguments)
    assert len(server.asked) > before


@pytest.mark.nsjail
def test_a_budget_ends_it_early_and_what_was_paid_for_is_judged(server, tmp_path, capsys):
    numbers = iter(range(99))
    server.write = lambda body: (
        "Mind the walls." if is_hint(body) else fenced(program(next(numbers)))
    )
    arguments = ("-n", "8", "--json", "--endpoint-concurrency", "1", "--max-tokens", "4000")
    arguments += ("--repair-rounds", "0")
    code = design(server, tmp_path, *arguments, "--endpoint-budget-tokens", "24000")
    output = capsys.readouterr()
    assert code in (0, 1)
    assert "the budget did not reach for" in output.err
    spent_in, spent_out = re.search(r"([\d,]+) \+ ([\d,]+) tokens of 24,000", output.err).groups()
    assert int(spent_in.replace(",", "")) + int(spent_out.replace(",", "")) <= 24_000
    judged = json.loads(output.out)
    assert 0 < len(judged) < 8
    # With more, the same command goes on: the eight drafts are there and only hints missing.
    asked = [is_hint(body) for body in server.asked]
    assert asked.count(False) == 8
    assert design(server, tmp_path, *arguments, "--endpoint-budget-tokens", "900000") == 0
    assert [is_hint(body) for body in server.asked[len(asked) :]] == [True] * (8 - len(judged))
    assert len(json.loads(capsys.readouterr().out)) == 8
    assert len((tmp_path / "environments.jsonl").read_text().splitlines()) == 8


def test_a_dry_run_prints_prompts_and_an_estimate_and_asks_nobody(server, tmp_path, capsys):
    prices = ("--endpoint-price-in", "2", "--endpoint-price-out", "10")
    out = tmp_path / "none"
    assert design(server, out, "-n", "3", "--dry-run", *prices) == 0
    shown = capsys.readouterr().out
    assert shown.count("--- system") == 3
    assert "<document>" in shown
    assert "of money, at most" in shown
    assert design(server, out, "-n", "3", "--dry-run", "--json", *prices) == 0
    told = json.loads(capsys.readouterr().out)
    assert len(told["prompts"]) == 3
    estimate = told["estimate"]
    assert 0 < estimate["tokens_in_about"] < estimate["tokens_in_at_most"]
    assert 0 < estimate["money_about"] < estimate["money_at_most"]
    assert design(server, out, "-n", "3", "--dry-run", "--json", "--opinions", *prices) == 0
    with_opinions = json.loads(capsys.readouterr().out)["estimate"]
    # One for each draft and each round of repair, as many as there are hints.
    assert with_opinions["requests"] == estimate["requests"] + 3 * 2
    assert with_opinions["money_at_most"] > estimate["money_at_most"]
    assert server.asked == []
    assert not out.exists()


@pytest.mark.nsjail
def test_what_a_dry_run_prints_is_what_is_asked(server, tmp_path, capsys):
    server.write = lambda body: "I cannot."
    assert design(server, tmp_path, "-n", "3", "--dry-run", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert design(server, tmp_path, "-n", "3", "--repair-rounds", "0", "--json") == 1
    asked = sorted(json.dumps(body["messages"]) for body in server.asked)
    assert asked == sorted(json.dumps(prompt["messages"]) for prompt in told["prompts"])


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--endpoint-budget-money", "1"], "--endpoint-price-in"),
        (["--endpoint-concurrency", "0"], "--endpoint-concurrency"),
        (["--endpoint-length-parameter", "x"], "--endpoint-length-parameter"),
        (["--corpus", "no-such.jsonl"], "no-such.jsonl"),
        (["--easier", "0.7", "--harder", "0.7"], "shares"),
        (["--repair-rounds", "-1"], "--repair-rounds"),
        (["--skill", "cooking"], "planning"),
    ],
)
def test_nonsense_is_named_by_its_option(server, tmp_path, capsys, arguments, named):
    assert design(server, tmp_path, "--dry-run", *arguments) == 2
    assert named in capsys.readouterr().err
