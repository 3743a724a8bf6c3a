"""The one command-line program.

Each command is a module under `commands` with `SUMMARY`, `add_arguments(parser)` and
`run(args) -> exit code`; it imports what it needs inside `run`, so that help is instant and
a machine without torch can do all that needs none.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence

from spadework.console import (
    EXIT_CODES,
    FAILED,
    INTERRUPTED,
    OK,
    CommandError,
    print_error,
)

# What `pip install spadework[train]` brings, by the name it is imported under.
TRAIN_PACKAGES = {"torch", "transformers", "trl", "accelerate", "tokenizers", "xgrammar"}
TRAIN_PACKAGES |= {"tensorboard", "yaml", "datasets", "numpy", "pyarrow"}
# Package by package, the extra that brings it.
EXTRAS = {**dict.fromkeys(TRAIN_PACKAGES, "train"), "openai": "endpoint", "httpx2": "endpoint"}

COMMANDS: tuple[str, ...] = ("serve", "token", "doctor", "validate", "play", "design", "train")
COMMANDS += ("eval", "archive", "report", "bench", "scale")


def build_parser() -> argparse.ArgumentParser:
    """The parser of the whole command line."""
    parser = argparse.ArgumentParser(
        prog="spadework",
        description="Environments written by language models: run them isolated, check them, "
        "play them, train on them.",
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="store_true", help="print the version and exit")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND")
    for name in COMMANDS:
        command = importlib.import_module(f"spadework.commands.{name}")
        subparser = subparsers.add_parser(
            name,
            help=command.SUMMARY,
            description=command.__doc__,
            epilog=EXIT_CODES,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        subparser.add_argument("--debug", action="store_true", help="show tracebacks of errors")
        command.add_arguments(subparser)
        subparser.set_defaults(run=command.run)
    return parser


def _is_setting(text: str) -> bool:
    return not text.startswith("-") and "=" in text


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code."""
    parser = build_parser()
    args, left = parser.parse_known_args(argv)
    # argparse takes no positional arguments in several parts; settings may follow options.
    if left and getattr(args, "settings", None) is not None and all(map(_is_setting, left)):
        args.settings += left
    elif left:
        parser.error(f"unrecognized arguments: {' '.join(left)}")
    if args.version:
        from importlib.metadata import version

        print(f"spadework {version('spadework')}")
        return OK
    if args.command is None:
        parser.print_help()
        return OK
    try:
        return args.run(args)
    except KeyboardInterrupt:
        print_error("interrupted")
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of our output left (`| head`); the interpreter must not flush to it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except Exception as error:
        if args.debug:
            raise
        if isinstance(error, CommandError):
            print_error(str(error))
            return error.exit_code
        if isinstance(error, ModuleNotFoundError) and _root(error.name) in EXTRAS:
            extra = EXTRAS[_root(error.name)]
            print_error(
                f"this needs {error.name}; install it with: pip install 'spadework[{extra}]'"
            )
            return FAILED
        reason = str(error) or "no message"
        print_error(f"{reason} ({type(error).__name__}; --debug shows where)")
        return FAILED


def _root(module: str | None) -> str:
    return (module or "").split(".")[0]


if __name__ == "__main__":
    sys.exit(main())
