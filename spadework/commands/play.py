"""Play one environment: by hand, with given actions, at random, by its oracle or by a model.

By hand: type an action a turn; end of input (Ctrl-D) stops. The random policy chooses
among the actions that the environment lists in info["actions"]; with --policy endpoint, the
model behind --endpoint plays. Exits with 1 if the program failed.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spadework import console
from spadework.console import CommandError, UsageError
from spadework.endpoint_options import add_endpoint_arguments, endpoint_config
from spadework.sandbox import add_server_arguments

if TYPE_CHECKING:
    from sandbox_api import Episode, SandboxClient

    from spadework.model_player import ModelPlayer

SUMMARY = "play an environment, by hand or by a policy"

# An action, given the observation, its info and the turn from 0; None stops.
Policy = Callable[[str, dict[str, Any], int], str | None]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, metavar="FILE", help="Python source of a program")
    who = parser.add_mutually_exclusive_group()
    who.add_argument(
        "--policy", choices=("random", "oracle", "endpoint"), help="who plays instead of you"
    )
    who.add_argument(
        "--actions", nargs="+", metavar="ACTION", help="play these actions, then stop"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the episode (default: 0)")
    parser.add_argument(
        "--options", type=_json_object, default={}, metavar="JSON", help="options as a JSON object"
    )
    parser.add_argument("--hint", default="", help="show this hint with the first observation")
    parser.add_argument(
        "--max-turns", type=int, default=0, help="turn cap; 0 means the program's (default: 0)"
    )
    parser.add_argument("--entry", default="", help="class or function to construct")
    parser.add_argument("--runtime", default="", help="runtime of the server (default: stdlib)")
    parser.add_argument("--json", action="store_true", help="print the transcript as JSON")
    parser.add_argument("--system-prompt", default="", help="system message of the model")
    parser.add_argument(
        "--max-action-tokens", type=int, default=512, help="longest message of it (default: 512)"
    )
    parser.add_argument("--temperature", type=float, default=0.6, help="of it (default: 0.6)")
    parser.add_argument(
        "--tool-calling",
        choices=("tags", "native"),
        default="tags",
        help=(
            "how it uses tools: by the sandbox's tags, or by the protocol's own field "
            "(default: tags)"
        ),
    )
    add_server_arguments(parser)
    add_endpoint_arguments(parser)


def _json_object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"not JSON: {error}") from error
    if not isinstance(value, dict):
        raise argparse.ArgumentTypeError("must be a JSON object")
    return value


def run(args: argparse.Namespace) -> int:
    from sandbox_api import SandboxClient

    from spadework.sandbox import server_address

    if args.json and not args.policy and not args.actions:
        raise UsageError("--json needs --policy or --actions: by hand there is nobody to read it")
    source = read_source(args.file)
    with (
        _model(args) as model,
        server_address(args, [args.runtime]) as address,
        SandboxClient(address) as client,
    ):
        transcript = play(args, source, client, model)
    if args.json:
        console.print_json(transcript)
    elif transcript["outcome"] != "COMPLETED":
        fault = transcript["fault"]
        if "No module named" in fault and not args.runtime:
            fault += "; --runtime library has Gymnasium, NumPy and MiniGrid"
        console.print_error(f"the program failed: {transcript['outcome']}, {fault}")
    elif transcript["episode_return"] is not None:
        print(f"\nepisode return {transcript['episode_return']:g}")
    return console.OK if transcript["outcome"] == "COMPLETED" else console.NEGATIVE


def read_source(path: Path) -> str:
    """Read a program.

    Raises:
        CommandError: If there is no such file, or it is not UTF-8 text.
    """
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise CommandError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise CommandError(f"cannot read {path}: it is not UTF-8 text") from error


@contextmanager
def _model(args: argparse.Namespace) -> Iterator[ModelPlayer | None]:
    """The model behind --endpoint, where it plays."""
    config = endpoint_config(args)
    if args.policy != "endpoint":
        yield None
        return
    if not config.url:
        raise UsageError("--policy endpoint needs --endpoint and --endpoint-model")
    from spadework.model_player import ModelPlayer
    from trainer.conversations import ConversationSettings

    settings = ConversationSettings(
        args.max_action_tokens,
        args.system_prompt,
        native_tools=args.tool_calling == "native",
        seed=args.seed,
    )
    player = ModelPlayer(config, settings, args.temperature)
    try:
        yield player
    finally:
        player.close()


def play(
    args: argparse.Namespace,
    source: str,
    client: SandboxClient,
    model: ModelPlayer | None = None,
) -> dict[str, Any]:
    """Play one episode; returns its transcript.

    Args:
        args: Of the command.
        source: The program.
        client: Connected.
        model: Who plays, for `--policy endpoint`.

    Raises:
        CommandError: If the service failed, or the policy cannot play this program.
    """
    from sandbox_api import Outcome, ResetItem, StepItem

    from trainer.rewards import episode_return

    program = client.register_program(source, entry=args.entry, runtime=args.runtime)
    transcript: dict[str, Any] = {
        "program_id": program.program_id,
        "kind": program.kind.name if program.kind else None,
        "tools": program.tools,
        "seed": args.seed,
        "hint": args.hint,
        "outcome": program.outcome.name,
        "fault": str(program.diagnostic or ""),
        "observation": None,
        "turns": [],
        "terminated": False,
        "truncated": False,
        "episode_return": None,
    }
    if program.outcome is not Outcome.COMPLETED:
        return transcript
    item = ResetItem(
        program.program_id, seed=args.seed, options=args.options, max_turns=args.max_turns
    )
    (episode,) = client.reset([item])
    _note(transcript, episode)
    if not episode.ok:
        return transcript
    observation = episode.observation
    if args.hint:
        observation += f"\n\nHINT: {args.hint}"
    transcript["observation"] = observation
    say: Callable[[str], None] = (lambda _: None) if args.json else console.say
    say(observation)
    policy = model.policy(observation, episode.tools) if model else _policy(args, client, episode)
    info = episode.info
    while True:
        turn = len(transcript["turns"])
        action = policy(observation, info, turn)
        if action is None:
            break
        (result,) = client.step([StepItem(episode.episode_id, turn, action)])
        _note(transcript, result)
        if not result.ok:
            break
        observation, info = result.observation, result.info
        transcript["turns"].append(
            {
                "action": action,
                "observation": observation,
                "observation_cut_bytes": result.observation_cut_bytes,
                "reward": result.reward,
                "terminated": result.terminated,
                "truncated": result.truncated,
                "info": info,
            }
        )
        say(f"\n[{turn + 1}] {action}\n{observation}\nreward {result.reward:g}")
        if result.done:
            transcript["terminated"], transcript["truncated"] = (
                result.terminated,
                result.truncated,
            )
            transcript["episode_return"] = episode_return(
                result.reward or 0.0, terminated=result.terminated
            )
            break
    client.close_episodes([episode.episode_id])
    return transcript


def _note(transcript: dict[str, Any], result: Any) -> None:
    """Take down how an episode or step ended; raises where the service failed."""
    if result.error is not None:
        raise CommandError(f"the sandbox could not go on: {result.error}")
    transcript["outcome"] = result.outcome.name
    transcript["fault"] = str(result.diagnostic or "")


def _policy(args: argparse.Namespace, client: SandboxClient, episode: Episode) -> Policy:
    if args.actions:
        return _given(list(args.actions))
    if args.policy == "oracle":
        return _given(_oracle_actions(client, episode.episode_id))
    if args.policy == "random":
        return _random(random.Random(args.seed))
    return _by_hand


def _given(actions: list[str]) -> Policy:
    return lambda observation, info, turn: actions[turn] if turn < len(actions) else None


def _oracle_actions(client: SandboxClient, episode_id: str) -> list[str]:
    (verdict,) = client.verify([episode_id], run_oracle=True)
    if verdict.error is not None:
        raise CommandError(f"the oracle could not be run: {verdict.error}")
    if verdict.oracle is None:
        raise CommandError("the program has no solution(), so there is no oracle to play")
    if not verdict.oracle.actions:
        why = verdict.oracle.diagnostic or verdict.oracle.outcome.name
        raise CommandError(f"the program's solution() gave no actions: {why}")
    return list(verdict.oracle.actions)


def _random(generator: random.Random) -> Policy:
    def choose(observation: str, info: dict[str, Any], turn: int) -> str:
        actions = info.get("actions")
        if not isinstance(actions, list) or not actions:
            raise CommandError(
                'the environment lists no actions in info["actions"], so random has nothing to '
                "choose from; use --actions or --policy oracle"
            )
        return str(generator.choice(actions))

    return choose


def _by_hand(observation: str, info: dict[str, Any], turn: int) -> str | None:
    actions = info.get("actions")
    if isinstance(actions, list) and actions:
        console.say(f"actions: {' '.join(map(str, actions))}")
    try:
        return input(f"{turn + 1}> ")
    except EOFError:
        print()
        return None
