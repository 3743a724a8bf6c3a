"""The joint update: TRL's GRPO loss over rows of both roles, with an advantage a token.

TRL generates, scores and normalises per prompt; here a step's rows, advantages included,
come from self-play, and everything after that (loss, optimizer, reference model,
checkpoints, distribution) is TRL's and accelerate's.
"""

from __future__ import annotations

import contextlib
import itertools
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from peft import PeftConfig, PeftModel
from transformers import (
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PrinterCallback,
    TrainerCallback,
)
from trl import GRPOConfig, GRPOTrainer
from trl.trainer.utils import pad, split_tensor_dict

from trainer import processes
from trainer.config import Config
from trainer.models import compute_dtype, lora_config
from trainer.rows import NOT_DECIDED, Row, TokenChoices, inert_row


class SelfPlayGRPOTrainer(GRPOTrainer):
    """GRPOTrainer whose rows and per-token advantages come from `collect`.

    Rows are as many as a step happens to have: TRL's fixed generation batch is filled up
    with inert rows to a multiple of what it divides by.
    """

    args: GRPOConfig
    model: torch.nn.Module
    _buffered_inputs: Any  # the pieces of a step; None before the first

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        args: GRPOConfig,
        *,
        collect: Callable[[int], Sequence[Row]] | None,
        staleness_cap: float,
        adapters: PeftConfig | None = None,
        callbacks: list[TrainerCallback] | None = None,
    ) -> None:
        """
        Args:
            model: Weights to train.
            tokenizer: Of the model.
            args: From `grpo_arguments`.
            collect: Called with the training step (from 0), returns its rows; None in processes
                that get them from the one that leads.
            staleness_cap: Cap of the importance weight of stale rows.
            adapters: Train these, which are put into the model, and not its weights.
            callbacks: For checkpoints and metrics.
        """
        self._collect = collect
        self._staleness_cap = staleness_cap
        self._rows: list[Row] = []
        self._any_stale = False
        self._fill_factor = 1.0
        self._scoring = False
        self._vocab_size = model.config.get_text_config().vocab_size
        # Of the rows in work.
        self._choices: TokenChoices
        self._choice_index: torch.Tensor
        self.update_metrics: list[dict[str, float]] = []
        assert args.generation_batch_size is not None  # TRL works it out
        assert args.output_dir is not None
        slots = Dataset.from_dict({"prompt": [""] * args.generation_batch_size})
        torch.manual_seed(args.seed)  # for the first weights of adapters
        reference = Path(args.output_dir) / "reference"
        with _first_weights(model, reference, wanted=args.beta != 0 and adapters is None):
            super().__init__(
                model=model,
                reward_funcs=_no_reward,
                args=args,
                train_dataset=slots,
                processing_class=tokenizer,
                callbacks=callbacks,
                peft_config=adapters,
                rollout_func=lambda prompts, trainer: self._rollout(),
            )

    @property
    def training_step_index(self) -> int:
        """Steps of self-play finished."""
        return self.state.global_step // (self._minibatches * self.num_iterations)

    @property
    def _pieces(self) -> int:
        assert self.args.steps_per_generation is not None  # set in `grpo_arguments`
        return self.args.steps_per_generation

    @property
    def _minibatches(self) -> int:
        return self._pieces // self.args.gradient_accumulation_steps

    def _rollout(self) -> dict[str, Any]:
        return {
            "prompt_ids": [row.prompt_ids for row in self._rows],
            "completion_ids": [row.completion_ids for row in self._rows],
            "logprobs": [row.logprobs for row in self._rows],
            "env_mask": [row.mask for row in self._rows],
        }

    def _generate_and_score_completions(
        self, inputs: list[dict[str, Any]]
    ) -> dict[str, torch.Tensor | Any]:
        collected = self._collected()
        self._any_stale = any(row.stale for row in collected)
        filled = self._fill(collected)
        self._rows = self._part(filled)
        self._choices = TokenChoices.of(self._rows, self._vocab_size, self.accelerator.device)
        self._choice_index = self._choices.index
        self._scoring = True
        try:
            batch = super()._generate_and_score_completions([{"prompt": ""} for _ in self._rows])
        finally:
            self._scoring = False
        advantages = pad([torch.tensor(row.advantages) for row in self._rows], padding_value=0)
        advantages = advantages.to(batch["completion_ids"].device)
        if self._any_stale:
            advantages = advantages * self._staleness_weights(batch)
        # These losses are a mean over rows, and inert ones do not count.
        by_row = self.loss_type in ("grpo", "dr_grpo")
        self._fill_factor = len(filled) / max(1, len(collected)) if by_row else 1.0
        # (rows, tokens): the loss takes one a token.
        batch["advantages"] = advantages * self._fill_factor
        batch["choice_index"] = self._choices.index
        return batch

    def _compute_loss(
        self, model: torch.nn.Module, inputs: dict[str, torch.Tensor | Any]
    ) -> torch.Tensor:
        self._choice_index = inputs["choice_index"]
        beta, self.beta = self.beta, self.beta * self._fill_factor
        try:
            return super()._compute_loss(model, inputs)
        finally:
            self.beta = beta

    def _collected(self) -> list[Row]:
        """This step's rows: played here, or got from the process that leads."""
        rows: list[Row] = []
        failure = ""
        if self._collect is not None:
            try:
                rows = list(self._collect(self.training_step_index))
            except BaseException as error:
                # The others wait for rows, and would do so for long.
                failure = f"{type(error).__name__}: {error}"
                processes.share((rows, failure))
                raise
        rows, failure = processes.share((rows, failure))
        if failure:
            raise processes.LeaderError(f"the process that leads has failed: {failure}")
        return rows

    def _part(self, filled: list[Row]) -> list[Row]:
        """This process's rows: of each piece its share, short and long ones."""
        n, index = self.accelerator.num_processes, self.accelerator.process_index
        size = len(filled) // self._pieces
        starts = range(0, len(filled), size)
        return [row for start in starts for row in filled[start : start + size][index::n]]

    def _fill(self, rows: list[Row]) -> list[Row]:
        """The pieces of a step, one after the other: all of one size, whoever computes them."""
        pieces, n = self._pieces, self.accelerator.num_processes
        # By length, so that a piece pads little; a minibatch takes pieces from both ends, so
        # that it sees short and long rows, hence roles and environments of every kind. Which rows
        # a piece has does not depend on the number of processes.
        rows = sorted(rows, key=len)
        bounds = [len(rows) * i // pieces for i in range(pieces + 1)]
        parts = [rows[start:end] for start, end in itertools.pairwise(bounds)]
        size = max(1, -(-max(map(len, parts)) // n)) * n
        # TRL's groups are of 2.
        size += n * (size * pieces % 2)
        inert = inert_row(self._tokenizer.pad_token_id)
        filled = [[inert] * (size - len(part)) + part for part in parts]
        return [row for i in _outside_in(pieces) for row in filled[i]]

    def _staleness_weights(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        """Truncated importance weights of rows sampled by earlier weights; 1 for the rest."""
        sampled = batch["sampling_per_token_logps"]
        current = batch.get("old_per_token_logps")
        if current is None:
            current = self._logps_before_update(
                torch.cat([batch["prompt_ids"], batch["completion_ids"]], dim=1),
                torch.cat([batch["prompt_mask"], batch["completion_mask"]], dim=1),
                batch["completion_ids"].size(1),
            )
        weights = torch.exp(current - sampled).clamp(max=self._staleness_cap)
        decided = self._choices.index != NOT_DECIDED
        gap = (current - sampled).abs()[decided]
        # By TRL's own way of logging, which is where the run's metrics look.
        self._metrics["train"]["sampling_gap"].append(gap.mean().item() if len(gap) else 0.0)
        return weights

    @torch.no_grad()
    def _logps_before_update(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor, logits_to_keep: int
    ) -> torch.Tensor:
        """Log-probabilities under the weights as they are: known from sampling, unless stale."""
        logps = pad([torch.tensor(row.logprobs) for row in self._rows], padding_value=0)
        logps = logps.to(input_ids.device)
        if self._any_stale:
            stale = torch.tensor([row.stale for row in self._rows], device=input_ids.device)
            if stale.any():  # of the rows that are here
                logps[stale], _, _ = self._trimmed_logps(
                    self.model,
                    input_ids[stale],
                    attention_mask[stale],
                    logits_to_keep,
                    self._choices.index[stale],
                )
        return logps

    def _prepare_inputs(self, generation_batch: Any) -> dict[str, torch.Tensor | Any]:
        # As in the base class, but without its shuffle, which would undo the sorting.
        every = self._pieces * self.num_iterations
        if self._step % every == 0 or self._buffered_inputs is None:
            batch = self._generate_and_score_completions(generation_batch)
            self._buffered_inputs = split_tensor_dict(batch, self._pieces)
        return self._buffered_inputs[self._step % self._pieces]

    def _get_per_token_logps_and_entropies(
        self,
        model: torch.nn.Module,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        logits_to_keep: int,
        batch_size: int | None = None,
        **options: Any,
    ) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
        """As in the base class, without work whose result is known or padding."""
        if self._scoring and model is self.model and not self._adapters_off():
            logps = self._logps_before_update(input_ids, attention_mask, logits_to_keep)
            return logps, None, None
        size = batch_size or input_ids.size(0)
        pieces = [
            self._trimmed_logps(
                model,
                input_ids[start : start + size],
                attention_mask[start : start + size],
                logits_to_keep,
                self._choice_index[start : start + size],
                **options,
            )
            for start in range(0, input_ids.size(0), size)
        ]
        entropies = [entropy for _, entropy, _ in pieces if entropy is not None]
        losses = [loss for _, _, loss in pieces if loss is not None]
        return (
            torch.cat([logps for logps, _, _ in pieces]),
            torch.cat(entropies) if entropies else None,
            torch.stack(losses).mean() if losses else None,
        )

    def _adapters_off(self) -> bool:
        """Whether the model is the reference just now: the weights without their adapters."""
        model = self.accelerator.unwrap_model(self.model)
        return isinstance(model, PeftModel) and not model.get_model_status().enabled

    def _trimmed_logps(
        self,
        model: torch.nn.Module,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        logits_to_keep: int,
        choice_index: torch.Tensor,
        **options: Any,
    ) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
        """The base class's result, computed on the columns that these rows use.

        Rows of both roles share a batch and differ in length by a factor of ten; sorted and
        trimmed, a piece pays for its own longest row only.
        """
        used = attention_mask.any(dim=0).nonzero()[:, 0]
        left = min(int(used[0]), input_ids.size(1) - logits_to_keep - 1)
        right = min(input_ids.size(1) - 1 - int(used[-1]), logits_to_keep - 1)
        kept = slice(left, input_ids.size(1) - right)
        ids, mask, keep = input_ids[:, kept], attention_mask[:, kept], logits_to_keep - right
        if self._choices.constrained:
            index = choice_index[:, :keep]
            logps, entropies = self._choices.score(model, ids, mask, index, self.temperature)
            loss = None
        else:
            logps, entropies, loss = super()._get_per_token_logps_and_entropies(
                model, ids, mask, keep, **options
            )
        fill = (0, right)
        return (
            torch.nn.functional.pad(logps, fill),
            None if entropies is None else torch.nn.functional.pad(entropies, fill),
            loss,
        )

    def _save_checkpoint(self, model: torch.nn.Module, trial: Any) -> None:
        super()._save_checkpoint(model, trial)
        # Each process has files of its own in it; only then may it get its final name.
        self.accelerator.wait_for_everyone()

    def create_model_card(self, *args: Any, **kwargs: Any) -> None:
        """Write none: a run's folder is described by its report."""

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Keep what TRL logs, for the run's own metrics."""
        # First: the base class adds its own to them, and then tells those who record a step.
        self.update_metrics.append(logs)
        super().log(logs, start_time)


def make_trainer(
    config: Config,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    folder: Path,
    *,
    collect: Callable[[int], Sequence[Row]] | None,
    callbacks: Sequence[TrainerCallback] = (),
) -> SelfPlayGRPOTrainer:
    """The trainer of a run.

    Args:
        config: The run.
        model: Weights to train.
        tokenizer: Of the model.
        folder: Where TRL writes its checkpoints.
        collect: As `SelfPlayGRPOTrainer` has it.
        callbacks: As there.
    """
    trainer = SelfPlayGRPOTrainer(
        model,
        tokenizer,
        grpo_arguments(config, folder),
        collect=collect,
        staleness_cap=config.update.staleness_cap,
        adapters=lora_config(config.model),
        callbacks=list(callbacks),
    )
    trainer.remove_callback(PrinterCallback)
    return trainer


@contextlib.contextmanager
def _first_weights(model: PreTrainedModel, folder: Path, *, wanted: bool) -> Iterator[None]:
    """Let TRL load the reference model, which it does by name, of weights that have none."""
    if model.config.name_or_path or not wanted:
        yield
        return
    if processes.leads():
        model.save_pretrained(folder)
    processes.share()  # until it is written
    model.config.name_or_path = str(folder)
    try:
        yield
    finally:
        model.config.name_or_path = ""
    processes.share()  # until all have read it
    if processes.leads():
        shutil.rmtree(folder)


def _outside_in(n: int) -> list[int]:
    """0, n - 1, 1, n - 2, and so on."""
    return [i // 2 if i % 2 == 0 else n - 1 - i // 2 for i in range(n)]


def _no_reward(completions: list[Any], **columns: Any) -> list[float | None]:
    """TRL wants a reward; the advantages are given, so it is never used."""
    return [0.0] * len(completions)


def grpo_arguments(config: Config, folder: Path) -> GRPOConfig:
    """TRL's arguments for a run.

    Args:
        config: The run.
        folder: Where TRL writes its checkpoints.
    """
    update = config.update
    use_cpu = not torch.cuda.is_available()
    rows = config.design.environments * config.play.group_size
    pieces = update.minibatches * update.accumulation * processes.count()
    per_piece = -(-rows // pieces)
    per_piece += per_piece % 2
    return GRPOConfig(
        output_dir=str(folder),
        use_cpu=use_cpu,
        ddp_timeout=processes.LONGEST_WAIT_S,
        ddp_backend="gloo" if use_cpu and processes.count() > 1 else None,
        # Every step uses the same parameters: nothing to look for.
        ddp_find_unused_parameters=False,
        bf16=compute_dtype(config.model) is torch.bfloat16,
        gradient_checkpointing=update.gradient_checkpointing,
        per_device_train_batch_size=per_piece,
        gradient_accumulation_steps=update.accumulation,
        steps_per_generation=update.minibatches * update.accumulation,
        num_generations=2,
        num_iterations=update.inner_iterations,
        max_completion_length=config.generation.context_tokens,
        max_steps=config.run.steps * update.optimizer_steps,
        learning_rate=update.learning_rate,
        lr_scheduler_type="linear" if update.decay else "constant_with_warmup",
        warmup_steps=update.warmup_steps,
        weight_decay=0.0,
        max_grad_norm=update.max_grad_norm,
        loss_type=update.loss,
        epsilon=update.clip_low,
        epsilon_high=update.clip_high,
        beta=update.kl_coef,
        entropy_coef=update.entropy_coef,
        scale_rewards="none",
        temperature=config.generation.temperature,
        shuffle_dataset=False,
        seed=config.run.seed,
        logging_steps=1,
        logging_nan_inf_filter=False,
        disable_tqdm=True,
        report_to=[],
        save_strategy="steps",
        save_steps=config.run.checkpoint_every * update.optimizer_steps,
        ignore_data_skip=True,
        dataloader_num_workers=0,
        dataloader_pin_memory=not use_cpu,
        remove_unused_columns=False,
    )
