"""`spadework train`: what it resolves before any model is loaded."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest

from spadework.cli import build_parser, main
from spadework.commands.train import evaluation_items, resolve_config
from trainer.config_reading import preset_names


def parse(*arguments: str) -> argparse.Namespace:
    return build_parser().parse_args(["train", *arguments])


def test_flags_win_over_overrides_and_overrides_over_the_preset(tmp_path: Path):
    config = resolve_config(
        parse("cpu-demo", "run.seed=1", "run.steps=3", "--seed", "2", "--run-dir", str(tmp_path))
    )
    assert config.run.steps == 3
    assert config.run.seed == 2
    assert config.folder == tmp_path


def test_overrides_alone_use_the_default_preset():
    assert resolve_config(parse("run.steps=7")).run.steps == 7
    assert resolve_config(parse("run.steps=7")).model.name == "tiny"


def test_model_and_endpoint_are_flags():
    config = resolve_config(
        parse("--model", "some/model", "--endpoint", "http://x/v1", "--endpoint-model", "m")
    )
    assert config.model.name == "some/model"
    assert (config.endpoint.url, config.endpoint.model) == ("http://x/v1", "m")


def test_resume_starts_from_the_configuration_of_the_run(tmp_path: Path):
    begun = resolve_config(parse("update.learning_rate=0.00025", "--run-dir", str(tmp_path)))
    (tmp_path / "config.json").write_text(json.dumps(begun.to_dict()))
    again = resolve_config(parse("--resume", "--run-dir", str(tmp_path)))
    assert again == begun
    longer = resolve_config(parse("--resume", "--run-dir", str(tmp_path), "run.steps=99"))
    assert longer.run.steps == 99
    assert longer.update.learning_rate == 0.00025


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["no-such-preset"], "cpu-demo"),
        (["run.stepz=3"], "run.steps"),
        (["update.learning_rate=fast"], "update.learning_rate"),
        (["--endpoint", "http://x/v1"], "endpoint.model"),
        (["run.steps=3", "cpu-demo"], "comes first"),
    ],
)
def test_wrong_settings_exit_with_2_and_name_the_right_one(arguments, named, capsys):
    assert main(["train", *arguments]) == 2
    assert named in capsys.readouterr().err


def test_evaluation_environments_are_held_out_distinct_and_the_same_for_every_run():
    items = evaluation_items(12)
    assert len({item.source for item in items}) == len(items) >= 40
    assert len({item.family for item in items}) >= 6
    assert all(item.actions and item.max_turns == 12 for item in items)
    assert items == evaluation_items(12)


def test_another_run_in_the_folder_is_refused_before_anything_starts(tmp_path: Path, capsys):
    (tmp_path / "config.json").write_text("{}")
    assert main(["train", "--run-dir", str(tmp_path)]) == 3
    error = capsys.readouterr().err
    assert "--run-dir" in error
    assert "--resume" in error


def test_a_server_that_does_not_answer_is_named_and_no_folder_is_made(tmp_path: Path, capsys):
    folder = tmp_path / "run"
    assert main(["train", "--run-dir", str(folder), "--server", "127.0.0.1:1"]) == 3
    assert "127.0.0.1:1" in capsys.readouterr().err
    assert not folder.exists()


def test_a_run_of_another_version_is_named_as_such(tmp_path: Path, capsys):
    (tmp_path / "config.json").write_text('{"run": {"gone": 1}}')
    assert main(["train", "--resume", "--run-dir", str(tmp_path)]) == 2
    assert "config.json is not of this version" in capsys.readouterr().err


def test_settings_may_follow_options(capsys):
    arguments = ["train", "cpu-demo", "--seed", "3", "run.steps=7", "--dry-run", "--json"]
    assert main(arguments) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["stages"] == [{"from_step": 1, "max_turns": 12}]
    assert main([*arguments, "run.steps=0"]) == 2
    with pytest.raises(SystemExit):
        main([*arguments, "nonsense"])


@pytest.mark.parametrize("preset", preset_names())
def test_every_preset_has_a_dry_run_that_loads_nothing(preset: str, capsys):
    assert main(["train", preset, "--dry-run", "--processes", "8", "--gpu"]) == 0
    shown = capsys.readouterr().out
    for word in ("episodes in flight", "optimizer steps", "keys and values", "Turns: "):
        assert word in shown
    assert "Nothing was loaded or started." in shown


def test_a_dry_run_of_the_published_scale_is_counted_by_hand(capsys):
    arguments = ["--dry-run", "--json", "--gpu", "--processes", "8", "--memory-gib", "1"]
    assert main(["train", "games-qwen3-4b", *arguments]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["batch"]["plays"] == told["batch"]["in_flight"] == 24 * 16 * 2
    assert told["batch"]["environment_steps"] == 24 * 16 * 2 * 25
    assert told["memory_bytes"]["optimizer"] == told["parameters"] * 8 // 8
    assert any("1 GiB" in warning for warning in told["warnings"])


def test_a_dry_run_of_an_unknown_model_says_what_would_do(capsys):
    assert main(["train", "cpu-demo", "model.name=nobody/knows", "--dry-run"]) == 2
    assert "config.json" in capsys.readouterr().err
