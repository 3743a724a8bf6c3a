"""Train a model by self-play: it writes environments and plays them, and learns from both.

PRESET is the name of a shipped preset or a YAML file; OVERRIDES set single values, as in
`run.steps=20 update.learning_rate=1e-4`. The run's folder receives metrics, the archive of
environments, trajectories, checkpoints, an evaluation before and after, and report.html.

Several processes update together under a launcher, as in `torchrun --nproc_per_node 2 -m spadework
train ...`: the first one plays and records (docs/distributed.md).
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spadework.sandbox import add_server_arguments
from trainer.tracking_config import SINKS

if TYPE_CHECKING:
    from rich.console import Console
    from sandbox_api import AsyncSandboxClient

    from designer import Archive, Designer
    from trainer.config import Config
    from trainer.protocols import EvaluationItem, PoolItem

SUMMARY = "train a model by self-play"
DEFAULT_PRESET = "cpu-demo"

# Held-out environments that share the evaluation's episodes: enough to spread over all
# families and their difficulties.
EVALUATION_ENVIRONMENTS = 48


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "settings",
        nargs="*",
        metavar="PRESET | OVERRIDE",
        help=f"a preset or file first (default: {DEFAULT_PRESET}), then section.key=value",
    )
    parser.add_argument(
        "--run-dir", type=Path, metavar="DIR", help="folder of the run (default: runs/PRESET)"
    )
    parser.add_argument(
        "--resume",
        action="store_true",
        help="go on with the run that is in the folder, or start it",
    )
    parser.add_argument("--seed", type=int, help="seeds everything (default: 0)")
    parser.add_argument(
        "--model", metavar="NAME", help="Hugging Face model name or path, for both roles"
    )
    parser.add_argument(
        "--endpoint", metavar="URL", help="OpenAI-compatible server that designs (.../v1)"
    )
    for sink in SINKS:
        parser.add_argument(f"--{sink}", action="store_true", help=f"send metrics to {sink}, too")
    parser.add_argument("--endpoint-model", metavar="NAME", help="its model")
    parser.add_argument("--json", action="store_true", help="print the summary as JSON")
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="print what the run amounts to and needs; load and start nothing",
    )
    parser.add_argument(
        "--processes",
        type=int,
        default=1,
        metavar="N",
        help="for --dry-run: processes that update together (default: 1)",
    )
    parser.add_argument(
        "--memory-gib",
        type=float,
        default=0.0,
        metavar="GIB",
        help="for --dry-run: memory of each, to be told if the run fits",
    )
    parser.add_argument(
        "--gpu", action="store_true", help="for --dry-run: reckon as on GPUs (bfloat16)"
    )
    add_server_arguments(parser)


def run(args: argparse.Namespace) -> int:
    from rich.console import Console

    from spadework import console
    from spadework.pools import pool_items, runtimes_of
    from spadework.sandbox import server_address
    from trainer import processes
    from trainer.config import ConfigError
    from trainer.protocols import PoolError

    try:
        config = resolve_config(args)
    except ConfigError as error:
        raise console.UsageError(str(error)) from error
    if missing := config.tracking.missing():
        raise console.UsageError(missing)
    if args.dry_run:
        return _dry_run(args, config)
    # TRL warns at each start that rollout_func may change; our pin of TRL is the answer.
    os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
    if not processes.leads():
        from trainer.following import follow

        follow(config)
        return console.OK
    shown = Console(stderr=args.json)
    _check_folder(config.folder, args.resume)
    items = pool_items(config.pool, config.difficulty)
    try:
        with server_address(args, runtimes_of(items)) as address:
            summary = asyncio.run(_train(config, address, items, args.resume, shown))
    except PoolError as error:
        raise console.CommandError(str(error)) from error
    except KeyboardInterrupt:
        console.print_error(f"{config.folder} goes on with --resume")
        raise
    from spadework.report import write_report

    summary["report"] = str(write_report(config.folder))
    if args.json:
        console.print_json(summary)
    else:
        print(f"report: {summary['report']}")
    return console.OK


def _dry_run(args: argparse.Namespace, config: Config) -> int:
    from spadework import console
    from spadework.dry_run import dry_run, show
    from trainer.config import ConfigError

    if args.processes < 1:
        raise console.UsageError(f"--processes is {args.processes}; it must be at least 1")
    try:
        told = dry_run(config, processes=args.processes, memory_gib=args.memory_gib, gpu=args.gpu)
    except ConfigError as error:
        raise console.UsageError(str(error)) from error
    if args.json:
        console.print_json(told)
    else:
        show(told, config)
    return console.OK


def _check_folder(folder: Path, resume: bool) -> None:
    """Refuse a folder that holds another run before a server is started or a model loaded."""
    from spadework import console
    from trainer.runfolder import RunFolder

    exists = RunFolder(folder).exists
    if exists and not resume:
        raise console.CommandError(
            f"{folder} already holds a run; go on with it (--resume), name another folder "
            "(--run-dir) or remove this one"
        )
    if resume and not exists:
        print(f"spadework: {folder} holds no run yet; starting one", file=sys.stderr)


def resolve_config(args: argparse.Namespace) -> Config:
    """The run's configuration from preset, overrides and flags; flags win.

    Raises:
        ConfigError: If a setting is unknown or makes no sense.
    """
    from trainer.config import ConfigError
    from trainer.config_reading import load_config

    settings = list(args.settings)
    preset = settings.pop(0) if settings and "=" not in settings[0] else DEFAULT_PRESET
    for text in settings:
        if "=" not in text:
            raise ConfigError(
                f"{text!r} is no setting (section.key=value); a preset is one, and comes first"
            )
    if args.resume and args.run_dir and (args.run_dir / "config.json").is_file():
        # What the run began with; JSON is YAML.
        preset = str(args.run_dir / "config.json")
        try:
            load_config(preset, [])
        except ConfigError as error:
            raise ConfigError(f"{preset} is not of this version: {error}") from error
    flags = {
        "model.name": args.model,
        "endpoint.url": args.endpoint,
        "endpoint.model": args.endpoint_model,
        **{f"tracking.{sink}": True for sink in SINKS if getattr(args, sink)},
        "run.seed": args.seed,
    }
    if args.run_dir is not None:
        folder = args.run_dir.resolve()
        flags |= {"run.root": str(folder.parent), "run.name": folder.name}
    settings += [f"{key}={value}" for key, value in flags.items() if value is not None]
    return load_config(preset, settings)


async def _train(
    config: Config, address: str, pool: Sequence[PoolItem], resume: bool, shown: Console
) -> dict[str, Any]:
    from sandbox_api import AsyncSandboxClient

    from designer import Archive
    from trainer.run import run as run_training

    config.folder.mkdir(parents=True, exist_ok=True)
    async with AsyncSandboxClient(address) as client:
        with Archive(config.folder / "archive.sqlite") as archive:
            designer = make_designer(config, client, archive)
            return await run_training(
                config,
                client,
                designer,
                evaluation_items(config.play.max_turns, config.design.skills, config.design.kind),
                pool,
                resume=resume,
                console=shown,
            )


def make_designer(config: Config, client: AsyncSandboxClient, archive: Archive) -> Designer:
    """The designer of a run.

    Raises:
        UsageError: If a skill cannot be designed for, or the corpus is none.
    """
    from designer import (
        Corpus,
        CorpusError,
        Designer,
        GateSettings,
        LineageShares,
        WritingSettings,
    )
    from spadework.console import UsageError

    design = config.design
    # Models that are made here know one line; whoever writes over an endpoint reads more.
    compact = config.model.name == "tiny" and not config.endpoint.url
    # A specification has no setting to draw from a document.
    wanted = design.corpus if design.method == "free_code" else ""
    try:
        return Designer(
            client,
            archive,
            method=design.method,
            kind=design.kind,
            skills=design.skills,
            settings=GateSettings(only_load=design.gates == "load"),
            twin_similarity=design.twin_similarity,
            memory_size=design.memory,
            refuse_remembered=design.refuse_remembered,
            max_turns=config.play.max_turns,
            seed=config.run.seed,
            prompt_style="compact" if compact else "chat",
            steps_per_cycle=design.replay_steps,
            corpus=Corpus.named(wanted) if wanted else None,
            document_quota=design.document_quota,
            lineage=LineageShares(**design.lineage),
            writing=WritingSettings(
                design.max_tokens, design.hint_max_tokens, design.repair_rounds, design.opinions
            ),
        )
    except (CorpusError, ValueError) as error:
        raise UsageError(str(error)) from error


def evaluation_items(
    max_turns: int, skills: Sequence[str] = (), kind: str = "game"
) -> list[EvaluationItem]:
    """The held-out environments that a run is measured on, whatever its seed."""
    from designer.families import SKILLS, TOOL_SKILLS, evaluation_suite
    from trainer.protocols import EvaluationItem

    # Skills that programs alone are written for have no held-out worlds.
    known = SKILLS if kind == "game" else TOOL_SKILLS
    skills = [skill for skill in skills if skill in known] or list(known)
    return [
        EvaluationItem(
            name=f"{spec.family}-{number:02d}",
            family=spec.family,
            source=spec.source,
            hint=spec.hint,
            max_turns=max_turns,
            actions=tuple(spec.moves),
        )
        for number, spec in enumerate(evaluation_suite(EVALUATION_ENVIRONMENTS, skills=skills))
    ]
