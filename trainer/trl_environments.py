"""Sandbox environments for those who bring a `GRPOTrainer` of their own.

TRL has two doors. `environment_factory` plays by the tool calls of a chat template: each tool
call is a step. `rollout_func` hands whole episodes over, as text in plain turns, for models and
templates without tools. An episode that a fault took is missing data in both: it has no reward,
and trains nothing.
"""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sandbox_api.client import AsyncSandboxClient, SandboxClient
from sandbox_api.types import Outcome, Program, ResetItem, StepItem
from trl import GRPOTrainer

from trainer.chat import ChatFormat
from trainer.generation_queue import GenerationQueue
from trainer.policies import ModelPolicy
from trainer.rewards import episode_return
from trainer.rollouts import play_all
from trainer.trajectories import Play, Trajectory
from trainer.transformers_engine import TransformersEngine

_TYPES: dict[str, type] = {
    "string": str,
    "integer": int,
    "number": float,
    "boolean": bool,
    "array": list,
    "object": dict,
}


class ProgramError(ValueError):
    """A program cannot be played by TRL; the message says what is wrong with it."""


class _SandboxEpisode:
    """One episode at a time of one program, as TRL's rollouts want their environment.

    TRL makes one a rollout, and resets it for each of its episodes.
    """

    _client: SandboxClient
    _program: Program
    _max_turns: int

    def __init__(self) -> None:
        self._episode_id = ""
        self._steps = 0
        self._next_seed = 0
        self._return: float | None = 0.0
        self._running = False

    def reset(self, seed: int | None = None, **_: Any) -> str:
        """Start an episode.

        Args:
            seed: Of the world: a column `seed` of the dataset, so that a group plays one world.
                Without one, each episode has the next.
        """
        self._end()
        if seed is None:
            seed, self._next_seed = self._next_seed, self._next_seed + 1
        item = ResetItem(self._program.program_id, seed=seed, max_turns=self._max_turns)
        (episode,) = self._client.reset([item])
        self._episode_id, self._steps = episode.episode_id, 0
        self._running = episode.ok
        self._return = 0.0 if episode.ok else None
        return episode.observation

    def get_reward(self) -> float | None:
        """The episode's return; None if a fault took it."""
        self._end()
        return self._return

    def _step(self, action: str) -> str:
        if not self._running:
            # TRL shows it to the model as the tool's answer.
            raise RuntimeError("the episode is over")
        item = StepItem(self._episode_id, self._steps, action)
        (result,) = self._client.step([item])
        self._steps += 1
        if not result.ok or result.reward is None:
            self._running, self._return = False, None
            raise RuntimeError("the environment failed; the episode is over")
        self._running = not result.done
        if result.done:
            self._return = episode_return(result.reward, terminated=result.terminated)
        return result.observation

    def _end(self) -> None:
        if self._episode_id:
            self._client.close_episodes([self._episode_id])
            self._episode_id, self._running = "", False


class SandboxEnvironment(_SandboxEpisode):
    """A game: its one tool is to act."""

    def act(self, action: str) -> str:
        """Take one action in the environment.

        Args:
            action: What to do, as the task says it.

        Returns:
            What the environment shows next.
        """
        return self._step(action)


class SandboxTools(_SandboxEpisode):
    """A tool-use program: its own tools, and the answer to the user."""

    def answer(self, answer: str) -> str:
        """Give the user the answer.

        Args:
            answer: What the user asked for, and nothing else.

        Returns:
            What the user says.
        """
        return self._step(f"<answer>{answer}</answer>")


def sandbox_environment(
    client: SandboxClient, program: Program, *, max_turns: int = 8
) -> Callable[[], _SandboxEpisode]:
    """An `environment_factory` for one program; several go into a dict of them.

    A game has the tool `act`; a tool-use program its own tools, and `answer`.

    Args:
        client: Connected to the sandbox.
        program: As registered.
        max_turns: Turn cap of an episode.

    Raises:
        ProgramError: If the program does not load, or has a tool that TRL cannot offer.
    """
    if program.outcome is not Outcome.COMPLETED:
        raise ProgramError(f"the program does not load: {program.diagnostic}")
    shared = {"_client": client, "_program": program, "_max_turns": max_turns}
    if not program.tools:
        return type(program.entry, (SandboxEnvironment,), shared)
    return type(program.entry, (SandboxTools,), {**shared, **_tools(program)})


def _tools(program: Program) -> dict[str, Callable[..., str]]:
    methods = {}
    for tool in program.tools:
        function = tool["function"]
        name = function["name"]
        if name in ("answer", "reset", "get_reward") or name.startswith("_"):
            raise ProgramError(f"its tool {name!r} has a name that TRL's environments keep")
        methods[name] = _tool(function)
    return methods


def _tool(function: Mapping[str, Any]) -> Callable[..., str]:
    """A method that calls a program's tool, with the signature and words of its schema."""

    def call(self: _SandboxEpisode, **arguments: Any) -> str:
        said = json.dumps({"name": function["name"], "arguments": arguments})
        return self._step(f"<tool_call>{said}</tool_call>")

    schema = function.get("parameters", {})
    required = schema.get("required", ())
    parameters, words = [], []
    for name, described in sorted(
        schema.get("properties", {}).items(), key=lambda item: item[0] not in required
    ):
        parameters.append(
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                annotation=_TYPES.get(described.get("type", "string"), str),
                default=inspect.Parameter.empty if name in required else None,
            )
        )
        words.append(f"    {name}: {described.get('description') or name}")
    itself = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    call.__name__ = function["name"]
    told = function.get("description") or function["name"]
    call.__doc__ = "\n".join([told, "", "Args:", *words] if words else [told])
    call.__annotations__ = {p.name: p.annotation for p in parameters} | {"return": str}
    call.__signature__ = inspect.Signature([itself, *parameters], return_annotation=str)  # type: ignore[attr-defined]
    return call


class SandboxRollouts:
    """A `rollout_func` that plays the prompts' episodes to their ends, many at once.

    A prompt names an episode: `<program>/<seed>`, as `prompts` writes it; what the model is
    shown is the environment's own text. Give the trainer `episode_returns` as its reward.

    Args:
        address: Of the server.
        programs: Sources by name.
        max_turns: Turn cap of an episode.
        max_action_tokens: Longest action.
        max_concurrent: Episodes in flight.
        system_prompt: System message; empty for none.
        runtime: Runtime of the server; empty means its default.

    Raises:
        ProgramError: At the first rollout, if a program does not load.
    """

    def __init__(
        self,
        address: str,
        programs: Mapping[str, str],
        *,
        max_turns: int = 8,
        max_action_tokens: int = 64,
        max_concurrent: int = 256,
        system_prompt: str = "",
        runtime: str = "",
    ) -> None:
        self._address = address
        self._programs = dict(programs)
        self._max_turns = max_turns
        self._max_action_tokens = max_action_tokens
        self._max_concurrent = max_concurrent
        self._system_prompt = system_prompt
        self._runtime = runtime

    def prompts(self, seeds: Sequence[int]) -> list[str]:
        """Prompts for a dataset: each program with each seed."""
        return [f"{name}/{seed}" for seed in seeds for name in self._programs]

    def __call__(self, prompts: Sequence[str], trainer: GRPOTrainer) -> dict[str, list[Any]]:
        """One episode a prompt, as TRL wants it, with `env_mask` and `episode_return`."""
        tokenizer: Any = trainer.processing_class
        args: Any = trainer.args
        chat = ChatFormat(tokenizer, self._system_prompt)
        generator = GenerationQueue(
            TransformersEngine(
                trainer.accelerator.unwrap_model(trainer.model),
                tokenizer,
                max_rows=self._max_concurrent,
            )
        )
        # A step's sampling depends on the step and the run's seed alone.
        generator.begin(args.seed * 1_000_003 + trainer.state.global_step)
        policy = ModelPolicy(
            generator,
            chat,
            max_action_tokens=self._max_action_tokens,
            context_tokens=args.max_completion_length,
            temperature=args.temperature,
            constrain_actions=False,
        )
        played = asyncio.run(self._play(policy, prompts))
        return {
            "prompt_ids": [play.prompt_ids or [tokenizer.pad_token_id] for play in played],
            "completion_ids": [p.completion_ids or [tokenizer.pad_token_id] for p in played],
            "logprobs": [play.logprobs or [0.0] for play in played],
            "env_mask": [
                [0] * max(1, len(p.decisions)) if p.lost else p.decisions for p in played
            ],
            "episode_return": [play.episode_return for play in played],
        }

    async def _play(self, policy: ModelPolicy, prompts: Sequence[str]) -> list[Trajectory]:
        async with AsyncSandboxClient(self._address) as client:
            ids = {}
            for name, source in self._programs.items():
                program = await client.register_program(source, runtime=self._runtime)
                if program.outcome is not Outcome.COMPLETED:
                    raise ProgramError(f"{name} does not load: {program.diagnostic}")
                ids[name] = program.program_id
            plays = []
            for prompt in prompts:
                name, _, seed = prompt.rpartition("/")
                plays.append(Play(name, ids[name], int(seed), max_turns=self._max_turns))
            trajectories, _ = await play_all(
                client, policy, plays, max_concurrent=self._max_concurrent
            )
            return trajectories


def episode_returns(
    completions: Sequence[Any], episode_return: Sequence[float | None], **_: Any
) -> list[float | None]:
    """TRL's reward of a rollout: its episode's return; None, hence nothing, for a lost one."""
    return list(episode_return)
