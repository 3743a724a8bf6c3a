import copy
import json
import math

import pytest
import torch

from trainer.critic import Critic, CriticSettings
from trainer.trajectories import Play, Trajectory


def played(prompt, *turns):
    """A play whose every turn is (environment's tokens before it, the action's tokens)."""
    completion, spans = [], []
    for before, action in turns:
        completion += before
        spans.append((len(completion), len(completion) + len(action)))
        completion += action
    return Trajectory(Play("e", "p", 0), prompt_ids=prompt, completion_ids=completion, spans=spans)


PLAYS = [
    played([5, 6, 7], ([], [8]), ([9, 10], [11]), ([12], [13, 14])),
    played([20, 21], ([], [22, 23])),
]


@pytest.fixture
def model(small_model):
    return small_model[0]


def test_a_turns_state_is_that_of_the_token_before_its_action(model):
    first, second = Critic(model).states(PLAYS)
    context = PLAYS[0].context_ids
    with torch.no_grad():
        hidden = model(torch.tensor([context]), output_hidden_states=True).hidden_states[-1][0]
    # Before 8 is 7, before 11 is 10, before 13 is 12.
    assert torch.allclose(first, hidden[[2, 5, 7]], atol=1e-5)
    assert second.shape == (1, model.config.hidden_size)


def test_reading_states_leaves_the_policy_as_it_is(model):
    before = copy.deepcopy(model.state_dict())
    critic = Critic(model, CriticSettings(rows=1))
    critic.fit(critic.states(PLAYS), [[0.1, 0.2, 0.3], [1.0]])
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())


def test_a_new_critic_expects_nothing_and_learns_what_turns_are_worth(model):
    critic = Critic(model, CriticSettings(learning_rate=0.05, passes=20))
    plays = [played([5 + n, 6], ([], [8]), ([9 + n], [11])) for n in range(8)]
    targets = [[n / 8, -n / 8] for n in range(8)]
    states = critic.states(plays)
    assert critic.values(states) == [[0.0, 0.0]] * 8
    explained = [critic.fit(states, targets) for _ in range(10)]
    assert explained[0] == pytest.approx(0.0)
    assert explained[-1] > 0.9
    for said, wanted in zip(critic.values(states), targets, strict=True):
        assert said == pytest.approx(wanted, abs=0.2)


def test_targets_that_do_not_vary_explain_nothing(model):
    critic = Critic(model)
    assert math.isnan(critic.fit(critic.states(PLAYS), [[1.0] * 3, [1.0]]))


def test_a_restored_critic_goes_on_as_if_nothing_had_been(model):
    critic = Critic(model)
    states, targets = critic.states(PLAYS), [[0.1, 0.2, 0.3], [1.0]]
    critic.fit(states, targets)
    again = Critic(model)
    again.restore(json.loads(json.dumps(critic.state())))
    critic.fit(states, targets)
    again.fit(states, targets)
    assert again.values(states) == critic.values(states)
