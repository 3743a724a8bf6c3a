"""Play environments with models, and say what each achieves.

MODEL is a model as `train` takes it, the folder of a run (its newest checkpoint), or a policy
without a model: `random`, `oracle` (each program's own solution) or `scripted:FILE` (an action a
line, over and over). `endpoint` is the model behind --endpoint, `endpoint:NAME` another of that
server; with --out, what it answered is kept, and not paid for again. All play the same worlds;
every model is compared with the first one, task by task.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spadework.endpoint_options import add_endpoint_arguments
from spadework.sandbox import add_server_arguments

if TYPE_CHECKING:
    from trainer.contest import Contest
    from trainer.endpoint_config import EndpointConfig
    from trainer.policies import Policy
    from trainer.protocols import EvaluationItem, SandboxClient
    from trainer.trajectories import Trajectory

SUMMARY = "measure models on environments"
HELD_OUT = "held-out"
ENDPOINT = "endpoint"
# What servers answered, beside a transcript a model.
ANSWERS = "answers-of-endpoints.jsonl"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("models", nargs="+", metavar="MODEL", help="models or policies")
    parser.add_argument(
        "--suite",
        action="append",
        metavar="SUITE",
        help="a program, a folder of programs, an archive of a run, or held-out, the structured "
        "worlds that training never sees; may be repeated (default: held-out)",
    )
    parser.add_argument("--seeds", type=int, default=8, help="worlds an environment (default: 8)")
    parser.add_argument(
        "--samples", type=int, default=1, help="tries of each world; for pass@k (default: 1)"
    )
    parser.add_argument("--max-turns", type=int, default=12, help="turn cap (default: 12)")
    parser.add_argument(
        "--max-action-tokens", type=int, default=64, help="longest action (default: 64)"
    )
    parser.add_argument(
        "--context-tokens", type=int, default=4096, help="longest episode (default: 4096)"
    )
    parser.add_argument("--temperature", type=float, default=0.6, help="default: 0.6")
    parser.add_argument(
        "--constrain-actions",
        action="store_true",
        help="let models sample only actions that the environment lists, as `train` may",
    )
    parser.add_argument("--system-prompt", default="", help="system message of the models")
    parser.add_argument(
        "--thinking",
        action=argparse.BooleanOptionalAction,
        help="whether models think before they act, where their chat template can switch it "
        "(default: as the template has it)",
    )
    parser.add_argument("--seed", type=int, default=0, help="of the models' sampling (default: 0)")
    parser.add_argument("--runtime", default="", help="runtime of the server (default: stdlib)")
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="keep the transcripts and the summary there"
    )
    parser.add_argument("--json", action="store_true", help="print the summary as JSON")
    parser.add_argument(
        "--tool-calling",
        choices=("tags", "native"),
        default="tags",
        help="how models use tools: by the sandbox's tags, or as their chat template or server "
        "has it (default: tags)",
    )
    add_server_arguments(parser)
    add_endpoint_arguments(parser)


def run(args: argparse.Namespace) -> int:
    from spadework import console
    from spadework.sandbox import server_address
    from trainer.endpoint import EndpointError
    from trainer.evaluation import EvaluationError
    from trainer.ledger import LedgerError

    for name in ("seeds", "samples", "max_turns", "max_action_tokens"):
        if getattr(args, name) < 1:
            raise console.UsageError(f"--{name.replace('_', '-')} must be at least 1")
    if args.temperature < 0:
        raise console.UsageError("--temperature must be at least 0")
    if len(set(args.models)) < len(args.models):
        raise console.UsageError("a model is named twice")
    endpoint = endpoint_of(args, [name for name in args.models if _is_endpoint(name)])
    items = [item for suite in args.suite or [HELD_OUT] for item in suite_items(suite)]
    try:
        with server_address(args, [args.runtime]) as address:
            summary = asyncio.run(_evaluate(args, address, items, endpoint))
    except (EvaluationError, EndpointError, LedgerError) as error:
        raise console.CommandError(str(error)) from error
    if args.out is not None:
        (args.out / "summary.json").write_text(json.dumps(summary, indent=1), encoding="utf-8")
    if args.json:
        console.print_json(summary)
    else:
        _show(summary)
    return console.OK


def suite_items(name: str) -> list[EvaluationItem]:
    """The environments of a suite.

    Raises:
        CommandError: If there is no such suite, or it holds none.
    """
    from spadework.commands.play import read_source
    from spadework.commands.train import evaluation_items
    from spadework.commands.validate import programs_in
    from spadework.console import CommandError
    from trainer.protocols import EvaluationItem

    if name == HELD_OUT:
        return evaluation_items(0)
    path = Path(name)
    if path.suffix == ".sqlite" and path.is_file():
        return _archived(path)
    if not path.exists():
        raise CommandError(f"no suite {name!r}: it is {HELD_OUT}, a file, a folder or an archive")
    return [
        EvaluationItem(name=str(file), family=file.stem, source=read_source(file))
        for file in programs_in([path])
    ]


def _archived(path: Path) -> list[EvaluationItem]:
    from designer import Archive
    from spadework.console import CommandError
    from trainer.protocols import EvaluationItem

    with Archive(path) as archive:
        sources = [source for _, _, source in archive.programs()]
    if not sources:
        raise CommandError(f"{path} holds no environment that passed the gates")
    return [
        EvaluationItem(name=f"{path.stem}-{number:03d}", family=path.stem, source=source)
        for number, source in enumerate(sources)
    ]


async def _evaluate(
    args: argparse.Namespace,
    address: str,
    items: Sequence[EvaluationItem],
    endpoint: EndpointConfig,
) -> dict[str, Any]:
    from sandbox_api import AsyncSandboxClient

    from spadework import console
    from trainer.contest import Contest, ContestSettings

    settings = ContestSettings(seeds=args.seeds, samples=args.samples, max_turns=args.max_turns)
    if args.out is not None:
        args.out.mkdir(parents=True, exist_ok=True)
    async with AsyncSandboxClient(address) as client:
        contest = await Contest.register(client, items, settings, runtime=args.runtime)
        results: dict[str, Any] = {}
        first: list[Trajectory] | None = None
        with console.progress("playing", len(args.models)) as bar:
            for name in args.models:
                bar.describe(f"playing {name}, {len(contest.plays)} episodes")
                if _is_endpoint(name):
                    trajectories = await _play_endpoint(name, contest, endpoint, args)
                else:
                    policy = await asyncio.to_thread(make_policy, name, client, args)
                    trajectories = await contest.play(policy)
                results[name] = contest.summary(trajectories)
                if first is None:
                    first = trajectories
                else:
                    results[name]["difference"] = contest.difference(first, trajectories)
                if args.out is not None:
                    _keep(args.out, name, trajectories)
                bar.advance()
    return {
        "suites": args.suite or [HELD_OUT],
        "environments": len(items),
        "episodes": len(contest.plays),
        **{name: getattr(args, name) for name in ("seeds", "samples", "temperature", "seed")},
        "models": results,
    }


def endpoint_of(args: argparse.Namespace, wanted: Sequence[str]) -> EndpointConfig:
    """The server that the options name, where one is wanted.

    Raises:
        UsageError: If it is missing, or cannot do what is asked for.
    """
    from spadework.console import UsageError
    from spadework.endpoint_options import endpoint_config

    config = endpoint_config(args)
    if wanted and not config.url:
        raise UsageError(f"{wanted[0]} needs --endpoint and --endpoint-model")
    if wanted and args.constrain_actions and not config.structured_outputs:
        raise UsageError(
            "--constrain-actions: a server of OpenAI's protocol takes no lists of actions; if it "
            "is a vLLM, say so by --endpoint-structured-outputs"
        )
    return config


def _is_endpoint(name: str) -> bool:
    return name == ENDPOINT or name.startswith(f"{ENDPOINT}:")


async def _play_endpoint(
    name: str, contest: Contest, config: EndpointConfig, args: argparse.Namespace
) -> list[Trajectory]:
    from spadework import console
    from trainer.conversations import ConversationSettings
    from trainer.endpoint import Endpoint
    from trainer.endpoint_policy import EndpointPolicy
    from trainer.ledger import Ledger

    model = name.partition(":")[2] or config.model
    ledger = Ledger(args.out / ANSWERS) if args.out is not None else None
    endpoint = Endpoint(replace(config, model=model), temperature=args.temperature, ledger=ledger)
    settings = ConversationSettings(
        args.max_action_tokens,
        args.system_prompt,
        native_tools=args.tool_calling == "native",
        constrain_actions=args.constrain_actions,
        seed=args.seed,
    )
    try:
        return await contest.play(EndpointPolicy(endpoint, settings), cohorts=0)
    finally:
        console.announce(f"endpoints, up to {name}: {endpoint.spent()}")
        await endpoint.aclose()


def make_policy(name: str, client: SandboxClient, args: argparse.Namespace) -> Policy:
    """The policy of that name.

    Raises:
        CommandError: If there is none, or its weights cannot be had.
    """
    from spadework.console import CommandError
    from trainer.contest import OraclePolicy, ScriptedPolicy
    from trainer.evaluation import RandomPolicy

    if name == "random":
        return RandomPolicy(args.seed)
    if name == "oracle":
        return OraclePolicy(client)
    kind, _, rest = name.partition(":")
    if kind == "scripted":
        try:
            actions = Path(rest).read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise CommandError(f"cannot read the script {rest!r}: {error}") from error
        if not actions:
            raise CommandError(f"the script {rest!r} is empty; it takes one action a line")
        return ScriptedPolicy(actions)
    return _model_policy(name, args)


def _model_policy(name: str, args: argparse.Namespace) -> Policy:
    from trainer.chat import ChatFormat
    from trainer.config import ModelConfig
    from trainer.generation_queue import GenerationQueue
    from trainer.models import load_model
    from trainer.policies import ModelPolicy
    from trainer.runfolder import RunFolder
    from trainer.tool_calls import ToolCallFormat
    from trainer.transformers_engine import TransformersEngine

    checkpoint = RunFolder(Path(name)).newest_checkpoint()
    source = str(checkpoint) if checkpoint is not None else name
    model, tokenizer = load_model(
        ModelConfig(name=source), context_tokens=args.context_tokens, seed=args.seed
    )
    generator = GenerationQueue(TransformersEngine(model, tokenizer))
    generator.begin(args.seed)
    native = ToolCallFormat(tokenizer) if args.tool_calling == "native" else None
    return ModelPolicy(
        generator,
        ChatFormat(tokenizer, args.system_prompt, native, thinking=args.thinking),
        max_action_tokens=args.max_action_tokens,
        context_tokens=args.context_tokens,
        temperature=args.temperature,
        constrain_actions=args.constrain_actions,
    )


def _keep(folder: Path, name: str, trajectories: Sequence[Trajectory]) -> None:
    safe = re.sub(r"[^A-Za-z0-9._-]+", "_", name)
    with (folder / f"{safe}.jsonl").open("w", encoding="utf-8") as file:
        for trajectory in trajectories:
            file.write(json.dumps(trajectory.to_json(0), ensure_ascii=False) + "\n")


def _show(summary: dict[str, Any]) -> None:
    from spadework import console

    rows = []
    for name, result in summary["models"].items():
        difference = result.get("difference")
        rows.append(
            (
                name,
                _with_interval(result["mean_return"], result["mean_return_ci95"]),
                _with_interval(result["success"], result["success_ci95"]),
                _with_interval(difference["mean"], difference["ci95"], "+") if difference else "",
                "\n".join(f"@{k} {share:.2f}" for k, share in result["pass_at_k"].items()),
                f"{result['turns']:.1f}\n{result['tokens']:.0f}",
                str(result["lost"]),
            )
        )
    columns = ("model", "return", "success", "gain on first", "pass", "turns, tokens", "lost")
    console.print_table("", columns, rows)
    console.say(
        f"Environments: {summary['environments']}; episodes a model: {summary['episodes']}; "
        "95% intervals: bootstrap of the return, Wilson of the success, paired of the difference."
    )


def _with_interval(value: float, interval: Sequence[float], sign: str = "") -> str:
    low, high = interval
    return f"{value:{sign}.3f}\n{low:{sign}.2f} to {high:{sign}.2f}"
