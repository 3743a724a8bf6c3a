"""The joint update: TRL's GRPO loss over rows of both roles, with an advantage a token.

TRL generates, scores and normalises per prompt; here a step's rows, advantages included,
come from self-play, and everything after that (loss, optimizer, reference model,
checkpoints, distribution) is TRL's and accelerate's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from transformers import PreTrainedModel, PreTrainedTokenizerBase, TrainerCallback
from trl import GRPOConfig, GRPOTrainer
from trl.trainer.utils import pad, split_tensor_dict

from trainer.config import Config

AGENT, DESIGNER = "agent", "designer"


@dataclass
class Row:
    """One sequence of the update.

    Attributes:
        role: `agent` or `designer`.
        prompt_ids: Context that is never trained on.
        completion_ids: Sampled tokens, with environment text between them.
        mask: By completion token, 1 where the loss applies.
        advantages: By completion token, unitless.
        logprobs: By completion token, as sampled.
        stale: Whether the weights have moved since the row was sampled.
    """

    role: str
    prompt_ids: list[int]
    completion_ids: list[int]
    mask: list[int]
    advantages: list[float]
    logprobs: list[float]
    stale: bool = False

    def __len__(self) -> int:
        return len(self.prompt_ids) + len(self.completion_ids)


def inert_row(pad_id: int) -> Row:
    """A row that changes nothing, to fill a batch up."""
    return Row(AGENT, [pad_id], [pad_id], [0], [0.0], [0.0])


class SelfPlayGRPOTrainer(GRPOTrainer):
    """GRPOTrainer whose rows and per-token advantages come from `collect`.

    Rows are as many as a step happens to have: TRL's fixed generation batch is filled up
    with inert rows to a multiple of what it divides by.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        args: GRPOConfig,
        *,
        collect: Callable[[int], Sequence[Row]],
        staleness_cap: float,
        callbacks: list[TrainerCallback] | None = None,
    ) -> None:
        """
        Args:
            model: Weights to train.
            tokenizer: Of the model.
            args: From `grpo_arguments`.
            collect: Called with the training step (from 0), returns its rows.
            staleness_cap: Cap of the importance weight of stale rows.
            callbacks: For checkpoints and metrics.
        """
        self._collect = collect
        self._staleness_cap = staleness_cap
        self._rows: list[Row] = []
        self.update_metrics: list[dict[str, float]] = []
        slots = Dataset.from_dict({"prompt": [""] * args.generation_batch_size})
        super().__init__(
            model=model,
            reward_funcs=_no_reward,
            args=args,
            train_dataset=slots,
            processing_class=tokenizer,
            callbacks=callbacks,
            rollout_func=lambda prompts, trainer: self._rollout(),
        )

    @property
    def training_step_index(self) -> int:
        """Steps of self-play finished: optimizer steps over inner iterations."""
        return self.state.global_step // self.num_iterations

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
        self._rows = self._fill(list(self._collect(self.training_step_index)))
        batch = super()._generate_and_score_completions([{"prompt": ""} for _ in self._rows])
        advantages = pad([torch.tensor(row.advantages) for row in self._rows], padding_value=0.0)
        advantages = advantages.to(batch["completion_ids"].device)
        if any(row.stale for row in self._rows):
            advantages = advantages * self._staleness_weights(batch)
        batch["advantages"] = advantages  # (rows, tokens): the loss takes one a token
        return batch

    def _fill(self, rows: list[Row]) -> list[Row]:
        # By length, so that a micro-batch pads little; all are in one optimizer step, so
        # their order means nothing. TRL divides by the micro-batches and by its groups of 2.
        rows.sort(key=len)
        multiple = 2 * self.args.steps_per_generation
        missing = -len(rows) % multiple if rows else multiple
        return [inert_row(self._tokenizer.pad_token_id) for _ in range(missing)] + rows

    @torch.no_grad()
    def _staleness_weights(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        """Truncated importance weights of rows sampled by earlier weights; 1 for the rest."""
        current = batch.get("old_per_token_logps")
        if current is None:
            current, _, _ = self._get_per_token_logps_and_entropies(
                self.model,
                torch.cat([batch["prompt_ids"], batch["completion_ids"]], dim=1),
                torch.cat([batch["prompt_mask"], batch["completion_mask"]], dim=1),
                batch["completion_ids"].size(1),
                batch_size=self.args.per_device_train_batch_size,
            )
        stale = torch.tensor([row.stale for row in self._rows], device=current.device)
        ratio = torch.exp(current - batch["sampling_per_token_logps"])
        return torch.where(stale[:, None], ratio.clamp(max=self._staleness_cap), 1.0)

    def _prepare_inputs(self, generation_batch: Any) -> dict[str, torch.Tensor | Any]:
        # As in the base class, but without its shuffle, which would undo the sorting.
        every = self.args.steps_per_generation * self.num_iterations
        if self._step % every == 0 or self._buffered_inputs is None:
            batch = self._generate_and_score_completions(generation_batch)
            self._buffered_inputs = split_tensor_dict(batch, self.args.steps_per_generation)
        return self._buffered_inputs[self._step % self.args.steps_per_generation]

    def _get_per_token_logps_and_entropies(
        self,
        model: torch.nn.Module,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        logits_to_keep: int,
        batch_size: int | None = None,
        **options: Any,
    ) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
        """As in the base class, on columns that any row uses.

        Rows of both roles share a batch and differ in length by a factor of ten; sorted and
        trimmed, a micro-batch pays for its own longest row only.
        """
        pieces = []
        size = batch_size or input_ids.size(0)
        for start in range(0, input_ids.size(0), size):
            ids, mask = input_ids[start : start + size], attention_mask[start : start + size]
            used = mask.any(dim=0).nonzero()[:, 0]
            left = min(int(used[0]), ids.size(1) - logits_to_keep - 1)
            right = ids.size(1) - 1 - int(used[-1])
            right = min(right, logits_to_keep - 1)
            kept = slice(left, ids.size(1) - right)
            result = super()._get_per_token_logps_and_entropies(
                model, ids[:, kept], mask[:, kept], logits_to_keep - right, **options
            )
            pieces.append(
                tuple(
                    torch.nn.functional.pad(x, (0, right)) if x is not None and x.dim() else x
                    for x in result
                )
            )
        logps, entropies, losses = zip(*pieces, strict=True)
        return (
            torch.cat(logps),
            torch.cat(entropies) if entropies[0] is not None else None,
            torch.stack(losses).mean() if losses[0] is not None else None,
        )

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Keep what TRL logs, for the run's own metrics."""
        super().log(logs, start_time)
        self.update_metrics.append({k: v for k, v in logs.items() if isinstance(v, int | float)})


def _no_reward(completions: list[Any], **columns: Any) -> list[float]:
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
    per_micro_batch = -(-rows // update.micro_batches)
    per_micro_batch += per_micro_batch % 2
    return GRPOConfig(
        output_dir=str(folder),
        use_cpu=use_cpu,
        bf16=False,
        gradient_checkpointing=False,
        per_device_train_batch_size=per_micro_batch,
        gradient_accumulation_steps=update.micro_batches,
        steps_per_generation=update.micro_batches,
        num_generations=2,
        num_iterations=update.inner_iterations,
        max_completion_length=config.generation.context_tokens,
        max_steps=config.run.steps * update.inner_iterations,
        learning_rate=update.learning_rate,
        lr_scheduler_type="constant_with_warmup",
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
        save_steps=config.run.checkpoint_every * update.inner_iterations,
        ignore_data_skip=True,
        dataloader_num_workers=0,
        dataloader_pin_memory=not use_cpu,
        remove_unused_columns=False,
        use_vllm=config.generation.use_vllm,
    )
