import copy
import math

import pytest
import torch

from tests.trainer.fakes import completions
from trainer.advantages import Estimator
from trainer.config_checks import LOSSES
from trainer.config_reading import load_config
from trainer.generation import GenerationRequest
from trainer.grammar import Grammar
from trainer.grpo import SelfPlayGRPOTrainer, grpo_arguments
from trainer.rows import AGENT, Row, TokenChoices


def settings(**changes):
    overrides = {
        "run.steps": 1,
        "design.environments": 2,
        "play.group_size": 2,
        "update.inner_iterations": 1,
        "update.minibatches": 1,
        "update.accumulation": 1,
        "update.learning_rate": 0.01,
        "update.entropy_coef": 0.0,
    } | changes
    return load_config("cpu-demo", [f"{key}={value}" for key, value in overrides.items()])


def train(model, tokenizer, config, collect, folder):
    trainer = SelfPlayGRPOTrainer(
        model, tokenizer, grpo_arguments(config, folder), collect=collect, staleness_cap=2.0
    )
    trainer.train()
    return trainer


def sampled_rows(generator, chat, n, *, advantage=1.0, length=4):
    found = completions(generator, [GenerationRequest(chat.first("go"), length)] * n)
    return [
        Row(
            AGENT,
            chat.first("go"),
            c.token_ids,
            [1] * len(c.token_ids),
            [advantage] * len(c.token_ids),
            c.logprobs,
            c.allowed,
        )
        for c in found
    ]


def logprobs(model, row):
    ids = torch.tensor([row.prompt_ids + row.completion_ids])
    with torch.no_grad():
        values = model(ids).logits[0].log_softmax(-1)
    start = len(row.prompt_ids)
    return torch.tensor([values[start - 1 + i, t] for i, t in enumerate(row.completion_ids)])


@pytest.fixture
def model(small_model):
    return copy.deepcopy(small_model[0])


def test_every_token_moves_by_its_own_advantage(model, small_model, generator, chat, tmp_path):
    (row,) = sampled_rows(generator, chat, 1, length=2)
    row.completion_ids, row.logprobs = [10, 20], [0.0, 0.0]
    row.advantages, row.mask = [1.0, -1.0], [1, 1]
    row.logprobs = logprobs(model, row).tolist()
    before = logprobs(model, row)
    config = settings(**{"run.steps": 3})
    train(model, small_model[1], config, lambda step: [copy.deepcopy(row)], tmp_path)
    after = logprobs(model, row)
    assert after[0] > before[0]
    assert after[1] < before[1]


def test_the_loss_is_the_masked_mean_of_advantages_by_hand(
    model, small_model, generator, chat, tmp_path
):
    rows = sampled_rows(generator, chat, 3)
    for value, row in zip((2.0, -1.0, 0.5), rows, strict=True):
        row.advantages = [value, 0.0, value, value]
        row.mask = [1, 1, 1, 0]
    config = settings(**{"update.learning_rate": 0})
    trainer = train(model, small_model[1], config, lambda step: copy.deepcopy(rows), tmp_path)
    # Before the first update the ratio is 1, so that the loss is minus the mean advantage
    # over the 9 tokens of the mask; the inert row that fills the batch adds nothing.
    assert trainer.update_metrics[0]["loss"] == pytest.approx(-(2 - 1 + 0.5) * 2 / 9, abs=1e-3)


def independent_loss(model, rows, config):
    """The clipped loss of arXiv:2402.03300, with its averages by name, in float64 and by token."""
    update, longest = config.update, config.generation.context_tokens
    totals, counts = [], []
    for row in rows:
        total = 0.0
        for new, old, advantage, kept in zip(
            logprobs(model, row).tolist(), row.logprobs, row.advantages, row.mask, strict=True
        ):
            ratio = math.exp(new - old)
            clipped = min(max(ratio, 1 - update.clip_low), 1 + update.clip_high)
            total -= kept * min(ratio * advantage, clipped * advantage)
        totals.append(total)
        counts.append(sum(row.mask))
    return {
        "grpo": sum(t / n for t, n in zip(totals, counts, strict=True)) / len(rows),
        "bnpo": sum(totals) / sum(counts),
        "dapo": sum(totals) / sum(counts),
        "dr_grpo": sum(totals) / (len(rows) * longest),
    }[update.loss]


@pytest.mark.parametrize("loss", LOSSES)
def test_advantage_and_loss_are_those_of_an_independent_float64_computation(
    loss, model, small_model, generator, chat, tmp_path
):
    rows = [r for n in (4, 2, 3, 4) for r in sampled_rows(generator, chat, 1, length=n)]
    returns = [1.0, 0.25, -0.5, 0.6]
    tokens = [[len(row.completion_ids)] for row in rows]
    (advantages,) = Estimator("grpo")([[[value] for value in returns]], [tokens])
    centre = math.fsum(returns) / 4
    spread = math.sqrt(math.fsum((value - centre) ** 2 for value in returns) / 4)
    for row, (advantage,), value in zip(rows, advantages, returns, strict=True):
        assert advantage == pytest.approx((value - centre) / spread, abs=1e-12)
        row.advantages = [advantage] * len(row.completion_ids)
    rows[0].mask[2] = 0
    # As if sampled by other weights: some ratios are within the clip, some beyond it.
    for shift, row in zip((0.1, -0.4, 0.4, -0.05), rows, strict=True):
        row.logprobs = [value - shift for value in row.logprobs]
    seen = []

    class Spy(SelfPlayGRPOTrainer):
        def _compute_loss(self, model, inputs):
            seen.append(super()._compute_loss(model, inputs))
            return seen[-1]

    model.double()
    # Of two passes, so that the weights at sampling and the weights now are told apart.
    config = settings(
        **{"update.learning_rate": 0, "update.loss": loss, "update.inner_iterations": 2}
    )
    trainer = Spy(
        model,
        small_model[1],
        grpo_arguments(config, tmp_path),
        collect=lambda step: copy.deepcopy(rows),
        staleness_cap=2.0,
    )
    trainer.train()
    expected = independent_loss(model, rows, config)
    assert [value.item() for value in seen] == pytest.approx([expected] * 2, abs=1e-6)


def test_masked_text_teaches_nothing(model, small_model, generator, chat, tmp_path):
    before = copy.deepcopy(model.state_dict())
    rows = sampled_rows(generator, chat, 2)
    for row in rows:
        row.mask = [0] * len(row.completion_ids)
    train(model, small_model[1], settings(), lambda step: rows, tmp_path)
    assert all(torch.equal(before[k], v) for k, v in model.state_dict().items())


def test_a_step_without_rows_changes_nothing(model, small_model, tmp_path):
    before = copy.deepcopy(model.state_dict())
    train(model, small_model[1], settings(), lambda step: [], tmp_path)
    assert all(torch.equal(before[k], v) for k, v in model.state_dict().items())


def test_rows_of_any_number_and_length_are_all_used(model, small_model, generator, chat, tmp_path):
    rows = [r for n in range(1, 8) for r in sampled_rows(generator, chat, 1, length=n)]
    seen = []

    class Spy(SelfPlayGRPOTrainer):
        def _compute_loss(self, model, inputs):
            mask = inputs["completion_mask"] * inputs["tool_mask"]
            seen.append((mask.sum().item(), (inputs["advantages"] * mask).sum().item()))
            return super()._compute_loss(model, inputs)

    config = settings(
        **{"update.minibatches": 2, "update.accumulation": 2, "update.inner_iterations": 2}
    )
    trainer = Spy(
        model,
        small_model[1],
        grpo_arguments(config, tmp_path),
        collect=lambda step: copy.deepcopy(rows),
        staleness_cap=2.0,
    )
    trainer.train()
    assert len(seen) == 8  # two passes of two minibatches of two pieces
    assert sum(tokens for tokens, _ in seen) == 2 * sum(range(1, 8))
    assert sum(total for _, total in seen) == pytest.approx(2 * sum(range(1, 8)))
    assert trainer.state.global_step == 4
    assert trainer.training_step_index == 1


@pytest.mark.parametrize("constrained", [False, True])
def test_trimming_padding_changes_no_probability(
    constrained, model, small_model, generator, chat, tmp_path
):
    rows = sampled_rows(generator, chat, 1, length=2) + sampled_rows(generator, chat, 1, length=9)
    trainer = SelfPlayGRPOTrainer(
        model,
        small_model[1],
        grpo_arguments(settings(), tmp_path),
        collect=lambda step: rows,
        staleness_cap=2.0,
    )
    width = 20
    # A second set, though nothing uses it, takes the way of constrained batches.
    sets = torch.ones(1 + constrained, model.config.vocab_size, dtype=torch.bool)
    trainer._choices = TokenChoices(torch.zeros(2, width - 8, dtype=torch.long), sets)
    trainer._choice_index = trainer._choices.index
    ids = torch.zeros(2, width, dtype=torch.long)
    mask = torch.zeros(2, width, dtype=torch.long)
    for i, row in enumerate(rows):
        start = 8 - len(row.prompt_ids)
        ids[i, start : start + len(row)] = torch.tensor(row.prompt_ids + row.completion_ids)
        mask[i, start : start + len(row)] = 1
    with torch.no_grad():
        got, _, _ = trainer._get_per_token_logps_and_entropies(
            model, ids, mask, width - 8, batch_size=1
        )
    assert got.shape == (2, width - 8)
    for i, row in enumerate(rows):
        expected = logprobs(model, row)
        assert got[i, : len(expected)].tolist() == pytest.approx(expected.tolist(), abs=1e-4)
        assert row.logprobs == pytest.approx(expected.tolist(), abs=1e-4)


def test_stale_rows_are_weighted_by_a_truncated_ratio(
    model, small_model, generator, chat, tmp_path
):
    fresh, stale = sampled_rows(generator, chat, 2, length=2)
    stale.stale = True
    # As if sampled when the tokens were e times, and a tenth, as likely as now.
    stale.logprobs = [stale.logprobs[0] + 1.0, stale.logprobs[1] - 2.302585]
    weights = []

    class Spy(SelfPlayGRPOTrainer):
        def _generate_and_score_completions(self, inputs):
            batch = super()._generate_and_score_completions(inputs)
            weights.extend(batch["advantages"].tolist())
            return batch

    trainer = Spy(
        model,
        small_model[1],
        grpo_arguments(settings(), tmp_path),
        collect=lambda step: [fresh, stale],
        staleness_cap=2.0,
    )
    trainer.train()
    by_stale = {row.stale: w for row, w in zip(trainer._rows, weights, strict=True)}
    assert by_stale[False] == pytest.approx([1.0, 1.0])
    assert by_stale[True] == pytest.approx([0.36788, 2.0], abs=1e-3)


def test_a_constrained_token_is_scored_among_what_was_allowed(
    model, small_model, generator, chat, tmp_path
):
    grammar = Grammar(choices=("U", "D"))
    requests = [GenerationRequest(chat.first("go"), 1, 1.0, grammar)] * 4
    rows = [
        Row(AGENT, chat.first("go"), c.token_ids, [1], [1.0], c.logprobs, c.allowed)
        for c in completions(generator, requests)
    ]
    up, down = (small_model[1](text)["input_ids"][0] for text in "UD")
    with torch.no_grad():
        logits = model(torch.tensor([rows[0].prompt_ids])).logits[0, -1]
    expected = logits[[up, down]].log_softmax(-1)
    for row in rows:
        assert row.logprobs[0] == pytest.approx(
            expected[int(row.completion_ids == [down])].item(), abs=1e-5
        )
    config = settings(**{"update.learning_rate": 0, "update.inner_iterations": 2})
    trainer = train(model, small_model[1], config, lambda step: rows, tmp_path)
    entropy = -(expected.exp() * expected).sum().item()
    for metrics in trainer.update_metrics[:2]:
        assert metrics["entropy"] == pytest.approx(entropy, abs=1e-4)
        assert metrics["clip_ratio/region_mean"] == 0.0
        assert metrics["loss"] == pytest.approx(-1.0, abs=1e-4)
