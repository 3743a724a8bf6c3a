"""The loss against values worked out by hand or independently in float64."""

import copy
import math

import pytest
import torch

from tests.trainer.test_grpo import independent_loss, logprobs, sampled_rows, settings
from trainer.grpo import SelfPlayGRPOTrainer, grpo_arguments


class Recording(SelfPlayGRPOTrainer):
    """Keeps the loss of each piece; changes the weights where a test asks for it."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.losses = []

    def _compute_loss(self, model, inputs):
        loss = super()._compute_loss(model, inputs)
        self.losses.append(loss.item())
        return loss


@pytest.fixture
def model(small_model):
    return copy.deepcopy(small_model[0]).double()


@pytest.fixture
def train(model, small_model, tmp_path):
    """A function that trains on rows at a learning rate of 0, and returns each piece's loss."""

    def train(rows, nudge=0.0, **changes):
        config = settings(**{"update.learning_rate": 0} | changes)
        trainer = Recording(
            model,
            small_model[1],
            grpo_arguments(config, tmp_path),
            collect=lambda step: copy.deepcopy(rows),
            staleness_cap=2.0,
        )
        with torch.no_grad():  # away from the reference, which TRL has copied
            for parameter in model.parameters():
                parameter.add_(nudge * torch.randn_like(parameter))
        trainer.train()
        return trainer.losses, config

    return train


@pytest.mark.parametrize(
    ("ratio", "advantage", "objective"),
    [
        (1.25, 1.0, 1.25),  # a symmetrical clip of 0.2 would cut it
        (1.5, 1.0, 1.28),
        (1.5, -1.0, -1.5),  # what turned out badly and got likelier is not spared
        (0.85, -1.0, -0.85),
        (0.5, -1.0, -0.8),
        (0.5, 1.0, 0.5),
        (1.28, 2.0, 2.56),
    ],
)
def test_the_clip_is_wider_upwards(
    ratio, advantage, objective, train, model, generator, chat, small_model
):
    (row,) = sampled_rows(generator, chat, 1, length=1)
    row.logprobs = [logprobs(model, row).item() - math.log(ratio)]
    row.advantages = [advantage]
    losses, config = train([row], **{"update.inner_iterations": 2})
    assert (config.update.clip_low, config.update.clip_high) == (0.2, 0.28)
    assert losses == pytest.approx([-objective] * 2, abs=1e-6)


@pytest.mark.parametrize("loss", ["grpo", "bnpo", "dr_grpo", "dapo"])
def test_the_divergence_is_added_token_by_token(loss, train, model, generator, chat):
    rows = [r for n in (4, 2, 3, 4) for r in sampled_rows(generator, chat, 1, length=n)]
    for value, row in zip((1.0, -0.5, 0.3, 2.0), rows, strict=True):
        row.advantages = [value] * len(row.completion_ids)
    rows[0].mask[2] = 0
    first = [logprobs(model, row).double() for row in rows]
    changes = {"update.loss": loss, "update.kl_coef": 0.3, "update.inner_iterations": 2}
    (measured, _), config = train(rows, nudge=0.05, **changes)
    plain = independent_loss(model, rows, config)
    # r - log r - 1, which cannot be negative, times the importance ratio.
    totals, counts = [], []
    for row, before in zip(rows, first, strict=True):
        now = logprobs(model, row).double()
        ratio, gap = (now - torch.tensor(row.logprobs)).exp(), before - now
        kept = torch.tensor(row.mask)
        totals.append((ratio * (gap.exp() - gap - 1) * kept).sum().item())
        counts.append(kept.sum().item())
    divergence = {
        "grpo": sum(t / n for t, n in zip(totals, counts, strict=True)) / len(rows),
        "bnpo": sum(totals) / sum(counts),
        "dapo": sum(totals) / sum(counts),
        "dr_grpo": sum(totals) / (len(rows) * config.generation.context_tokens),
    }[loss]
    assert divergence > 0
    assert measured == pytest.approx(plain + 0.3 * divergence, abs=1e-6)


def by_length(rows):
    """Rows of one token each, to the advantages' sum."""
    return sum(sum(row.advantages) for row in rows)


def test_dapo_counts_the_tokens_of_all_pieces(train, generator, chat):
    rows = [
        r for n in (1, 2, 3, 5, 6, 7, 8, 8) for r in sampled_rows(generator, chat, 1, length=n)
    ]
    for number, row in enumerate(rows):
        row.advantages = [0.1 * number + 0.05] * len(row.completion_ids)
    tokens = sum(len(row.completion_ids) for row in rows)
    losses, _ = train(rows, **{"update.accumulation": 4})
    assert len(losses) == 4
    assert sum(losses) == pytest.approx(-by_length(rows) / tokens, abs=1e-6)
    # In two minibatches each is held to an even share of the tokens, whatever it has itself.
    losses, _ = train(rows, **{"update.accumulation": 2, "update.minibatches": 2})
    assert len(losses) == 4
    assert sum(losses) / 2 == pytest.approx(-by_length(rows) / tokens, abs=1e-6)


@pytest.mark.parametrize("loss", ["grpo", "dr_grpo"])
def test_rows_that_fill_a_batch_up_do_not_count_in_a_mean_over_rows(loss, train, generator, chat):
    rows = sampled_rows(generator, chat, 5, length=3)
    for number, row in enumerate(rows):
        row.advantages = [0.3 * number - 0.4] * 3
    losses, config = train(rows, **{"update.accumulation": 4, "update.loss": loss})
    mean = by_length(rows) / 5
    by_row = mean / 3 if loss == "grpo" else mean / config.generation.context_tokens
    assert sum(losses) == pytest.approx(-by_row, abs=1e-6)


def test_stale_rows_weigh_at_most_the_cap(train, model, generator, chat):
    rows = sampled_rows(generator, chat, 2, length=1)
    for row, ratio in zip(rows, (0.4, 7.0), strict=True):
        row.stale = True
        row.logprobs = [logprobs(model, row).item() - math.log(ratio)]
    # The weight stands before the advantage; the clipped ratio is against the weights of now.
    losses, _ = train(rows, **{"update.inner_iterations": 2})
    assert losses == pytest.approx([-(0.4 + 2.0) / 2] * 2, abs=1e-6)
