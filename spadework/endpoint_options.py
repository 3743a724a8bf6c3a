"""The options that name an OpenAI-compatible server and bound what is spent on it.

One for each setting of `trainer.endpoint_config`, whose documentation is their help.
"""

from __future__ import annotations

import argparse
import dataclasses
import re
import typing
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainer.endpoint_config import EndpointConfig

_PREFIX = "endpoint_"


def add_endpoint_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options to a command; all but --endpoint itself go into a group."""
    from trainer.endpoint_config import EndpointConfig

    group = parser.add_argument_group("a server of OpenAI's chat protocol")
    types = typing.get_type_hints(EndpointConfig)
    texts = _documentation(EndpointConfig)
    for field in dataclasses.fields(EndpointConfig):
        option = f"--endpoint-{field.name.replace('_', '-')}"
        kind: dict[str, Any] = {
            "type": types[field.name],
            "metavar": {int: "N", float: "X"}.get(types[field.name], "NAME"),
        }
        if field.name == "url":
            option, kind["metavar"] = "--endpoint", "URL"
        elif field.name == "extra":
            kind["metavar"] = "JSON"
        elif types[field.name] is bool:
            kind = {"action": "store_true"}
        group.add_argument(
            option,
            dest=_PREFIX + field.name,
            default=field.default,
            help=texts[field.name] + (f" (default: {field.default})" if field.default else ""),
            **kind,
        )


def endpoint_config(args: argparse.Namespace) -> EndpointConfig:
    """What the options say.

    Raises:
        UsageError: If they make no sense together.
    """
    from spadework.console import UsageError
    from trainer.endpoint_config import ENDPOINT_MINIMUM, EndpointConfig

    names = [field.name for field in dataclasses.fields(EndpointConfig)]
    config = EndpointConfig(**{name: getattr(args, _PREFIX + name) for name in names})
    problem = config.problem()
    for key, least in ENDPOINT_MINIMUM.items():
        value = getattr(config, key.partition(".")[2])
        if value < least:
            problem = f"{key} is {value}; it must be at least {least}"
    if problem:
        raise UsageError(re.sub(r"endpoint\.(\w+)", _option, problem))
    return config


def _option(found: re.Match[str]) -> str:
    name = found[1].replace("_", "-")
    return "--endpoint" if name == "url" else f"--endpoint-{name}"


def _documentation(of: type) -> dict[str, str]:
    """The attributes' texts of a docstring in Google's style."""
    described = re.findall(
        r"^        (\w+): (.*?)(?=^        \w+:|^    \S|\Z)", of.__doc__ or "", re.M | re.S
    )
    texts = {name: " ".join(text.split()).rstrip(".").replace("`", "") for name, text in described}
    # argparse reads percent signs.
    return {name: text.replace("%", "%%") for name, text in texts.items()}
