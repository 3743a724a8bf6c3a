"""The same server by OpenAI's protocol: it plays, is measured and designs."""

from __future__ import annotations

import json

from spadework.cli import main
from tests.cli.programs import DOOR
from tests_on_vllm.conftest import NAME


def options(served) -> list[str]:
    return ["--endpoint", f"{served.url}/v1", "--endpoint-model", NAME, "--backend", "nsjail"]


def test_it_is_measured_with_and_without_its_actions_given(served, tmp_path, capsys):
    door = tmp_path / "door.py"
    door.write_text(DOOR)
    command = ["eval", "endpoint", "random", "oracle", "--suite", str(door), "--seeds", "8"]
    command += ["--json", "--max-action-tokens", "16", *options(served)]
    prompt = ["--system-prompt", "You walk. Answer with one word: left or right."]
    assert main([*command, *prompt]) == 0
    free = json.loads(capsys.readouterr().out)["models"]
    given = ["--constrain-actions", "--endpoint-structured-outputs"]
    assert main([*command, *prompt, *given]) == 0
    held = json.loads(capsys.readouterr().out)["models"]
    for name, found in (("free", free), ("given", held)):
        model = found["endpoint"]
        print(f"\nactions {name}: success {model['success']:.2f}, {model['tokens']:.1f} tokens")
        assert model["n"] == 8
        assert model["tokens"] > 0
        assert found["oracle"]["success"] == 1.0


def test_it_plays_one_episode(served, tmp_path, capsys):
    door = tmp_path / "door.py"
    door.write_text(DOOR)
    command = ["play", str(door), "--policy", "endpoint", "--max-action-tokens", "8", "--json"]
    assert main([*command, *options(served)]) == 0
    output = capsys.readouterr()
    print(f"\nit said: {[turn['action'] for turn in json.loads(output.out)['turns']]}")
    assert json.loads(output.out)["turns"]
    assert "endpoint: " in output.err


def test_it_designs_under_a_schema(served, tmp_path, capsys):
    command = ["design", "-n", "3", "--out", str(tmp_path), "--json", "--max-tokens", "256"]
    assert main([*command, "--method", "structured", *options(served)]) in (0, 1)
    rows = json.loads(capsys.readouterr().out)
    print(f"\nof the designs: {[row['reason'] for row in rows]}")
    assert len(rows) == 3
    # What the schema allows can be read, unless the length cut it; the gates judge it further.
    assert any(row["reason"] != "PARSE" for row in rows)
