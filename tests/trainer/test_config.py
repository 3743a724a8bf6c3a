import math
import subprocess
import sys
from dataclasses import fields

import pytest

from trainer.config import Config, ConfigError, PlayConfig, horizon
from trainer.config_reading import config_from_dict, load_config, preset_names


def test_every_preset_loads():
    assert {"cpu-demo", "cpu-135m"} <= set(preset_names())
    for name in preset_names():
        load_config(name)


def test_overrides_are_read_as_yaml_and_typed():
    config = load_config(
        "cpu-demo",
        ["update.learning_rate=1e-4", "run.seed=3", "play.horizon_stages=[4, 8]", "run.name=7"],
    )
    assert config.update.learning_rate == 1e-4
    assert config.run.seed == 3
    assert config.play.horizon_stages == (4, 8)
    assert config.run.name == "7"


def test_the_resolved_config_reads_back():
    config = load_config("cpu-demo", ["play.horizon_stages=[4, 8]"])
    assert config_from_dict(config.to_dict()) == config


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("run.sed=1", "did you mean run.seed"),
        ("learning_rate=1", "did you mean update.learning_rate"),
        ("ran.seed=1", "did you mean run"),
        ("run.seed", "no '='"),
        ("run.seed=soon", "must be int"),
        ("play.group_size=1", "at least 2"),
        ("design.reward=joy", "choose one of"),
        ("generation.temperature=0", "exploration"),
        ("endpoint.url=http://x", "go together"),
        ("run.name=a/b", "single folder"),
        ("update.gamma=1.5", "in \\(0, 1\\]"),
        ("play.thinking=sometimes", "must be bool"),
        ("play.thinking=true", "needs play.constrain_actions=false"),
        ("design.thinking=true", "needs design.method=free_code"),
    ],
)
def test_a_wrong_setting_is_refused_and_the_message_helps(override, message):
    with pytest.raises(ConfigError, match=message):
        load_config("cpu-demo", [override])


def test_thinking_is_unset_unless_asked_for():
    assert load_config("cpu-demo").play.thinking is None
    off = load_config("cpu-demo", ["play.thinking=off", "design.thinking=false"])
    assert (off.play.thinking, off.design.thinking) == (False, False)
    assert load_config("cpu-demo", ["play.thinking=null"]).play.thinking is None


def test_thinking_of_the_designer_is_not_an_endpoints():
    settings = ["endpoint.url=http://x", "endpoint.model=m", "design.thinking=false"]
    with pytest.raises(ConfigError, match=r"leave design\.thinking unset"):
        load_config("cpu-demo", settings)


def test_an_unknown_preset_names_the_nearest():
    with pytest.raises(ConfigError, match="did you mean cpu-demo"):
        load_config("cpu-dem")


def test_horizon_rises_in_stages_and_never_above_the_cap():
    play = PlayConfig(max_turns=12, horizon_stages=(4, 8, 15), horizon_interval=10)
    assert [horizon(play, step) for step in (0, 9, 10, 20, 500)] == [
        (0, 4),
        (0, 4),
        (1, 8),
        (2, 12),
        (2, 12),
    ]
    assert horizon(PlayConfig(max_turns=5), 100) == (0, 5)


def test_config_does_not_import_torch():
    code = "import sys, trainer.config_reading; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_text_may_be_set_to_nothing():
    assert load_config("cpu-135m", ["play.system_prompt="]).play.system_prompt == ""


def every_key() -> list[tuple[str, str]]:
    return [
        (section.name, setting.name)
        for section in fields(Config)
        for setting in fields(getattr(Config(), section.name))
    ]


@pytest.mark.parametrize("wrong", [{"a": 1}, [[]], math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(("section", "name"), every_key())
def test_a_value_of_no_use_is_refused_by_the_name_of_its_key(section, name, wrong):
    if isinstance(getattr(getattr(Config(), section), name), str) and isinstance(wrong, float):
        return  # a text: it may be "nan", where it is not one of a few
    with pytest.raises(ConfigError, match=f"{section}.{name}"):
        config_from_dict({section: {name: wrong}})
