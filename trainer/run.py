"""A whole run: weights, evaluation before, self-play, evaluation after, summary."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from rich.console import Console
from transformers import TrainerCallback
from transformers.utils import logging as transformers_logging

from trainer import processes
from trainer.chat import ChatFormat
from trainer.config import Config
from trainer.critic import Critic, CriticSettings
from trainer.curriculum import Curriculum, DesignedCurriculum
from trainer.designing import DesignRound
from trainer.evaluation import EvaluationSuite, RandomPolicy
from trainer.following import Start
from trainer.frozen import first_weights
from trainer.generation import Generator
from trainer.generators import generator_for, in_process
from trainer.grpo import SelfPlayGRPOTrainer, make_trainer
from trainer.ledger import LEDGER_FILE, Ledger
from trainer.models import load_model
from trainer.policies import ModelPolicy
from trainer.pools import Pool, PoolCurriculum
from trainer.progress import RunProgress
from trainer.protocols import Designer, EvaluationItem, PoolItem, SandboxClient, Writer
from trainer.rows import Row
from trainer.runfolder import STATE_FILE, RunFolder, checkpoint_step
from trainer.selfplay import SelfPlay, set_seeds, update_threads
from trainer.summary import summarize, summary_table
from trainer.tool_calls import ToolCallFormat
from trainer.tracking import tracking
from trainer.writers import ModelWriter

if TYPE_CHECKING:
    from trainer.endpoint import Endpoint

UPDATE_METRICS = {
    "loss": "update/loss",
    "entropy": "update/entropy",
    "grad_norm": "update/grad_norm",
    "sampling_gap": "update/sampling_gap",
}


async def run(
    config: Config,
    client: SandboxClient,
    designer: Designer,
    evaluation_items: Sequence[EvaluationItem],
    pool_items: Sequence[PoolItem] = (),
    *,
    resume: bool = False,
    console: Console | None = None,
) -> dict[str, Any]:
    """Train by self-play from start, or from the last checkpoint, to the end.

    Args:
        config: As resolved and validated.
        client: Connected sandbox client.
        designer: Writes, validates and remembers environments.
        evaluation_items: Environments held out from training; may be empty.
        pool_items: What `run.mode=fixed` trains on.
        resume: Go on with a run that is already in the folder.
        console: For the progress bar and the table; None for silence.

    Returns:
        The summary, as in `summary.json`.

    Raises:
        RunExistsError: If the folder holds a run and `resume` is off.
        ModelSourceError: If the weights cannot be had.
        PoolError: If an environment of the pool does not load.
        EvaluationError: If a held-out environment does not load.
    """
    started = time.time()
    console = console or Console(quiet=True)
    folder = RunFolder(config.folder)
    finished = folder.finished(config.run.steps) if resume else None
    processes.join()
    if finished is not None:
        processes.share(Start(over=True))
        console.print(summary_table(finished))
        return finished
    fixed = config.run.mode == "fixed"
    held_out = {item.source for item in evaluation_items}
    pool = await Pool.register(client, pool_items, held_out) if fixed else None
    set_seeds(config.run.seed)
    transformers_logging.disable_progress_bar()  # one bar, ours
    model, tokenizer = load_model(
        config.model, context_tokens=config.generation.context_tokens, seed=config.run.seed
    )
    generator = generator_for(config, model, tokenizer)
    suite = await EvaluationSuite.register(
        client, evaluation_items, config.evaluation, config.play
    )
    # Only now: a start that fails for want of weights leaves no run behind.
    checkpoint = folder.begin(config.to_dict(), resume=resume)
    processes.share(Start(checkpoint=checkpoint))
    session = _Session(config, client, designer, model, tokenizer, generator, folder, pool)
    try:
        if checkpoint is None:
            await session.evaluate(suite, "before", console)
        designer.rewind(checkpoint_step(checkpoint) if checkpoint else 0)
        await session.train(checkpoint, console)
        processes.leave()
        await session.evaluate(suite, "after", console)
        await session.evaluate_references(suite, console)
    finally:
        if session.spent():
            console.print(f"endpoint: {session.spent()}")
        await session.aclose()
    summary = summarize(folder, wall_s=time.time() - started)
    folder.write_json("summary.json", summary)
    console.print(summary_table(summary))
    return summary


def _critic(config: Config, model: Any) -> Critic | None:
    update = config.update
    if update.estimator != "ppo":
        return None
    return Critic(model, CriticSettings(update.critic_learning_rate, update.critic_passes))


class _Session:
    """The parts of a run that hang together, once they are made."""

    def __init__(
        self,
        config: Config,
        client: SandboxClient,
        designer: Designer,
        model: Any,
        tokenizer: Any,
        generator: Generator,
        folder: RunFolder,
        pool: Pool | None,
    ) -> None:
        self._config = config
        self._model = model
        self._tokenizer = tokenizer
        native = config.play.tool_calling == "native"
        self._tool_calls = ToolCallFormat(tokenizer) if native else None
        self._generator = generator
        self._folder = folder
        self._endpoint: Endpoint | None = None
        self._design_round: DesignRound | None = None
        self._generators = [generator]
        curriculum: Curriculum
        if pool is not None:
            curriculum = PoolCurriculum(config, pool, designer)
        else:
            designing = generator
            if config.run.mode == "frozen-designer":
                # Before any training: the checkpoint of a resumed run is loaded later, by TRL.
                frozen = first_weights(model, adapters=config.model.lora_rank > 0)
                designing = in_process(config, frozen, tokenizer)
                self._generators.append(designing)
            writer = self._writer(designing)
            self._design_round = DesignRound(designer, writer, config.design)
            curriculum = DesignedCurriculum(config, client, self._design_round)
        self.selfplay = SelfPlay(
            config,
            client,
            designer,
            curriculum,
            self._generators,
            self._policy(config.generation.temperature),
            folder,
            _critic(config, model),
        )

    def _writer(self, generator: Generator) -> Writer:
        config = self._config
        if config.endpoint.url:
            # Only here: a run without an endpoint needs no client of one.
            from trainer.endpoint import Endpoint

            self._endpoint = Endpoint(
                config.endpoint,
                temperature=config.generation.temperature,
                ledger=Ledger(self._folder.path / LEDGER_FILE),
            )
            return self._endpoint
        return ModelWriter(
            generator,
            ChatFormat(self._tokenizer, thinking=config.design.thinking),
            temperature=config.generation.temperature,
            context_tokens=config.generation.context_tokens,
            explore=config.design.explore,
            together=config.play.cohorts > 0,
        )

    def _policy(self, temperature: float) -> ModelPolicy:
        return ModelPolicy(
            self._generator,
            ChatFormat(
                self._tokenizer,
                self._config.play.system_prompt,
                self._tool_calls,
                thinking=self._config.play.thinking,
            ),
            max_action_tokens=self._config.play.max_action_tokens,
            context_tokens=self._config.generation.context_tokens,
            temperature=temperature,
            constrain_actions=self._config.play.constrain_actions,
        )

    def spent(self) -> str:
        """What an endpoint cost, for people; empty without one."""
        return self._endpoint.spent() if self._endpoint is not None else ""

    async def aclose(self) -> None:
        for generator in self._generators:
            generator.close()
        if self._endpoint is not None:
            await self._endpoint.aclose()

    async def evaluate(self, suite: EvaluationSuite, name: str, console: Console) -> None:
        """Measure the weights as they are, and write it down at once."""
        if not suite.plays:
            return
        self._generator.begin(self._config.evaluation.seed)
        with console.status(f"evaluating {name} training: {len(suite.plays)} episodes"):
            result = await suite.measure(self._policy(self._config.evaluation.temperature))
        self._save_evaluation(suite, name, result)

    async def evaluate_references(self, suite: EvaluationSuite, console: Console) -> None:
        """Measure what no training can change: random valid actions, and the oracle."""
        if not suite.plays:
            return
        with console.status("evaluating the random policy and the oracle"):
            policy = RandomPolicy(self._config.evaluation.seed)
            self._save_evaluation(suite, "random", await suite.measure(policy))
            self._save_evaluation(suite, "oracle", await suite.measure_oracle())

    def _save_evaluation(self, suite: EvaluationSuite, name: str, result: dict[str, Any]) -> None:
        evaluation = self._folder.read_json("eval.json") or {"policies": {}}
        evaluation["protocol"] = suite.protocol()
        evaluation["policies"][name] = result
        self._folder.write_json("eval.json", evaluation)

    async def train(self, checkpoint: Path | None, console: Console) -> None:
        """Run TRL's loop in a thread, playing on this event loop."""
        config, loop = self._config, asyncio.get_running_loop()
        if checkpoint is not None:
            await self.selfplay.restore(json.loads((checkpoint / STATE_FILE).read_text()))

        def collect(step: int) -> list[Row]:
            rows = asyncio.run_coroutine_threadsafe(self.selfplay.collect(step), loop).result()
            for row in rows:
                row.stale = row.stale or not self._generator.exact
            recorder.begin_update()
            return rows

        with contextlib.ExitStack() as stack:
            done = checkpoint_step(checkpoint) if checkpoint else 0
            progress = stack.enter_context(RunProgress(console, config.run.steps, done))
            self.selfplay.progress = progress
            if self._design_round is not None:
                self._design_round.progress = progress
            trackers = stack.enter_context(tracking(config, self._folder, done))

            def report(row: dict[str, Any]) -> None:
                trackers.log(row)
                progress.step(row)

            recorder = _Recorder(config, self.selfplay, self._folder, report)
            trainer = make_trainer(
                config,
                self._model,
                self._tokenizer,
                self._folder.checkpoints_path,
                collect=collect,
                callbacks=[recorder],
            )
            recorder.trainer = trainer

            def work() -> None:
                torch.set_num_threads(update_threads(config))
                trainer.train(
                    resume_from_checkpoint=None if checkpoint is None else str(checkpoint)
                )

            await asyncio.to_thread(work)


class _Recorder(TrainerCallback):
    """Finishes a step's metrics when its last update is done, and commits checkpoints."""

    def __init__(
        self,
        config: Config,
        selfplay: SelfPlay,
        folder: RunFolder,
        report: Callable[[dict[str, Any]], None],
    ) -> None:
        self.trainer: SelfPlayGRPOTrainer | None = None
        self._config = config
        self._selfplay = selfplay
        self._folder = folder
        self._report = report
        self._update_started = 0.0

    def begin_update(self) -> None:
        """Called when a step's rows are ready."""
        self._update_started = time.perf_counter()
        assert self.trainer is not None
        self.trainer.update_metrics.clear()

    def on_log(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step % self._config.update.optimizer_steps or "loss" not in kwargs["logs"]:
            return
        assert self.trainer is not None
        row = self._selfplay.row
        row["time/update_s"] = time.perf_counter() - self._update_started
        for name, key in UPDATE_METRICS.items():
            values = [m[name] for m in self.trainer.update_metrics if m.get(name) is not None]
            row[key] = sum(values) / len(values) if values else None
        self._folder.append_metrics(row)
        self._report(row)

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._folder.commit_checkpoint(
            Path(args.output_dir) / f"checkpoint-{state.global_step}",
            state.global_step // self._config.update.optimizer_steps,
            self._selfplay.state(),
            keep=self._config.run.keep_checkpoints,
        )
