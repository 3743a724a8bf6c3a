"""Configurations from presets, files and overrides, with errors that name the key."""

from __future__ import annotations

import contextlib
import difflib
import math
import types
import typing
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Any

import yaml

from trainer.config import Config, ConfigError
from trainer.config_checks import validate


def preset_names() -> list[str]:
    """Names of the presets that ship with the package."""
    folder = resources.files("trainer") / "presets"
    return sorted(p.name.removesuffix(".yaml") for p in folder.iterdir() if p.name[-5:] == ".yaml")


def load_config(preset: str = "cpu-demo", overrides: Iterable[str] = ()) -> Config:
    """Read a preset, apply overrides, validate.

    Args:
        preset: Name of a shipped preset, or path of a YAML file of the same shape.
        overrides: `section.key=value` texts; a value is read as YAML.

    Raises:
        ConfigError: If the preset, a key or a value is not acceptable.
    """
    values: dict[str, Any] = _read_preset(preset)
    for text in overrides:
        key, separator, value = text.partition("=")
        if not separator:
            raise ConfigError(f"override {text!r} has no '='; write section.key=value")
        section, dot, name = key.strip().partition(".")
        if not dot:
            raise ConfigError(f"unknown setting {key!r}{_nearest(key, _all_keys())}")
        values.setdefault(section, {})[name] = yaml.safe_load(value)
    return config_from_dict(values)


def config_from_dict(values: Mapping[str, Any]) -> Config:
    """Build and validate a configuration from nested mappings, as in `config.json`.

    Raises:
        ConfigError: If a key is unknown or a value is not acceptable.
    """
    config = Config()
    sections = {f.name: getattr(config, f.name) for f in fields(Config)}
    for section, entries in values.items():
        if section not in sections:
            raise ConfigError(f"unknown section {section!r}{_nearest(section, sections)}")
        if not isinstance(entries, Mapping):
            raise ConfigError(f"section {section!r} must hold settings, not {entries!r}")
        sections[section] = _fill(section, sections[section], entries)
    config = replace(config, **sections)
    validate(config)
    return config


def _read_preset(preset: str) -> dict[str, Any]:
    if preset in preset_names():
        text = (resources.files("trainer") / "presets" / f"{preset}.yaml").read_text()
    elif Path(preset).is_file():
        text = Path(preset).read_text()
    else:
        raise ConfigError(
            f"no preset or file {preset!r}{_nearest(preset, preset_names())}; "
            f"presets: {', '.join(preset_names())}"
        )
    values = yaml.safe_load(text) or {}
    if not isinstance(values, dict):
        raise ConfigError(f"{preset}: expected sections of settings")
    return values


def _fill(section: str, current: Any, entries: Mapping[str, Any]) -> Any:
    hints = typing.get_type_hints(type(current))
    known = {f.name for f in fields(current)}
    for name in entries:
        if name not in known:
            near = _nearest(f"{section}.{name}", _all_keys())
            raise ConfigError(f"unknown setting {section}.{name}{near}")
    return replace(
        current,
        **{n: _coerce(f"{section}.{n}", value, hints[n]) for n, value in entries.items()},
    )


def _coerce(key: str, value: Any, wanted: Any) -> Any:
    if isinstance(wanted, types.UnionType):  # a setting that may be left unset
        if value is None:
            return None
        (wanted,) = (t for t in typing.get_args(wanted) if t is not types.NoneType)
    if isinstance(wanted, types.GenericAlias):
        if not isinstance(value, list | tuple):
            raise ConfigError(f"{key} must be a list, not {value!r}")
        return tuple(_coerce(key, item, typing.get_args(wanted)[0]) for item in value)
    if wanted is float and isinstance(value, str | int) and not isinstance(value, bool):
        with contextlib.suppress(ValueError):  # YAML reads 1e-3 (no dot) as text
            value = float(value)
    if wanted is str and value is None:  # as YAML reads what nobody wrote: `section.key=`
        return ""
    if wanted is str and isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    if type(value) is not wanted:
        raise ConfigError(f"{key} must be {wanted.__name__}, not {value!r}")
    if wanted is float and not math.isfinite(value):
        raise ConfigError(f"{key} is {value}; it must be a finite number")
    return value


def _all_keys() -> list[str]:
    return [
        f"{section.name}.{f.name}"
        for section in fields(Config)
        for f in fields(_default_section(section.name))
    ]


def _default_section(name: str) -> Any:
    section = getattr(Config(), name)
    assert is_dataclass(section)
    return section


def _nearest(name: str, known: Iterable[str]) -> str:
    known = list(known)
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.4)
    if not close:
        tails = {key.rpartition(".")[2]: key for key in known}
        close = [
            tails[t] for t in difflib.get_close_matches(name.rpartition(".")[2], list(tails), n=1)
        ]
    return f"; did you mean {close[0]}?" if close else ""
