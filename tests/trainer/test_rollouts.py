import pytest

from tests.trainer.fakes import FakeSandboxClient, grid_source
from trainer.generation import Completion, GenerationCount
from trainer.policies import ModelPolicy
from trainer.rollouts import first_observation, play_all, void_lost_pairs
from trainer.trajectories import HINTED, PLAIN, Play, Trajectory, Turn


class ScriptedGenerator:
    """Always answers with the same tokens, closed by the end token or not."""

    def __init__(self, tokenizer, text, *, ended=False):
        ids = tokenizer(text)["input_ids"] + ([tokenizer.eos_token_id] if ended else [])
        self.ids, self.ended, self.count = ids, ended, GenerationCount()
        self.asked, self.forgotten = [], []

    def begin(self, seed):
        pass

    def forget(self, key):
        self.forgotten.append(key)

    async def generate(self, request):
        self.asked.append(list(request.prompt_ids))
        n = len(self.ids)
        return Completion(list(self.ids), [-0.5] * n, [None] * n, self.ended)


def policy(generator, chat, **changes):
    settings = {
        "max_action_tokens": 2,
        "context_tokens": 200,
        "temperature": 1.0,
        "constrain_actions": False,
    } | changes
    return ModelPolicy(generator, chat, **settings)


@pytest.fixture
async def client():
    sandbox = FakeSandboxClient()
    await sandbox.register_program(grid_source(4))
    return sandbox


def plays(client, seeds, **changes):
    (program_id,) = client.sources
    return [Play("env", program_id, seed, **changes) for seed in seeds]


@pytest.mark.parametrize("ended", [False, True])
async def test_sampled_tokens_are_kept_and_environment_text_is_masked(
    client, small_model, chat, ended
):
    tokenizer = small_model[1]
    generator = ScriptedGenerator(tokenizer, "N", ended=ended)
    (trajectory,), _ = await play_all(
        client, policy(generator, chat), plays(client, [0], max_turns=3), max_concurrent=4
    )
    for start, end in trajectory.spans:
        assert trajectory.completion_ids[start:end] == generator.ids
        assert trajectory.decisions[start:end] == [1] * (end - start)
        assert trajectory.logprobs[start:end] == [-0.5] * (end - start)
    assert sum(trajectory.decisions) == len(trajectory.spans) * len(generator.ids)
    assert len(trajectory.spans) == len(trajectory.turns)
    lengths = {len(x) for x in (trajectory.completion_ids, trajectory.logprobs)}
    assert lengths == {len(trajectory.decisions)}
    # What the next turn was asked with is a prefix of the record: nothing was re-tokenised.
    context = trajectory.context_ids
    assert all(context[: len(asked)] == asked for asked in generator.asked)
    assert trajectory.turns[0].action == "N"


async def test_a_cohort_acts_in_one_step_and_finished_ones_free_their_place(
    client, small_model, chat
):
    generator = ScriptedGenerator(small_model[1], "N")
    trajectories, count = await play_all(
        client, policy(generator, chat), plays(client, range(10), max_turns=3), max_concurrent=4
    )
    assert max(client.step_batches) == 4
    assert sum(client.step_batches) == count.steps == sum(len(t.turns) for t in trajectories)
    assert len(trajectories) == 10
    assert all(t.terminated or t.truncated for t in trajectories)
    # With episodes of 1 to 3 turns, waiting ones join before a wave is over.
    assert all(size == 4 for size in client.step_batches[:-3])
    assert not client.live
    assert len(generator.forgotten) == 10


async def test_cohorts_play_what_one_plays_and_what_all_play_at_their_own_pace(
    client, small_model, chat
):
    async def played(cohorts):
        generator = ScriptedGenerator(small_model[1], "N")
        found, count = await play_all(
            client,
            policy(generator, chat),
            plays(client, range(11), max_turns=3),
            max_concurrent=6,
            cohorts=cohorts,
        )
        return [(t.play.seed, t.completion_ids, t.episode_return) for t in found], count.steps

    assert await played(0) == await played(1) == await played(2) == await played(3)
    assert not client.live


async def test_truncation_by_turns_returns_zero(client, small_model, chat):
    generator = ScriptedGenerator(small_model[1], "?")
    (trajectory,), _ = await play_all(
        client, policy(generator, chat), plays(client, [1], max_turns=2), max_concurrent=4
    )
    assert trajectory.truncated
    assert not trajectory.terminated
    assert trajectory.episode_return == 0.0
    assert len(trajectory.turns) == 2


async def test_truncation_by_context(client, small_model, chat):
    generator = ScriptedGenerator(small_model[1], "?")
    (trajectory,), _ = await play_all(
        client, policy(generator, chat, context_tokens=14), plays(client, [1]), max_concurrent=4
    )
    assert trajectory.truncated
    assert len(trajectory.context_ids) <= 14
    assert len(trajectory.turns) < 8


async def test_a_fault_loses_the_play_and_its_pair(client, small_model, chat):
    client.fail_steps = {(2, 1)}
    generator = ScriptedGenerator(small_model[1], "?")
    arms = [plays(client, [1, 2, 3], arm=arm, max_turns=3) for arm in (PLAIN, HINTED)]
    plain, count = await play_all(client, policy(generator, chat), arms[0], max_concurrent=4)
    client.fail_steps = set()
    hinted, _ = await play_all(client, policy(generator, chat), arms[1], max_concurrent=4)
    assert count.faults == {"PROGRAM_ERROR": 1}
    assert [t.lost for t in plain] == [False, True, False]
    assert plain[1].turns[-1].reward is None
    void_lost_pairs(plain, hinted)
    assert [t.lost for t in hinted] == [False, True, False]
    assert plain[1].episode_return is hinted[1].episode_return is None


async def test_an_episode_that_does_not_start_is_lost_and_the_others_play(
    client, small_model, chat
):
    generator = ScriptedGenerator(small_model[1], "?")
    both = plays(client, [1, 2], max_turns=1)
    original = client.reset_stream

    async def reset_stream(items):
        async for index, episode in original(items):
            if items[index].seed == 1:
                episode.outcome, episode.error = None, RuntimeError("full")
            yield index, episode

    client.reset_stream = reset_stream
    (lost, played), count = await play_all(client, policy(generator, chat), both, max_concurrent=4)
    assert lost.lost
    assert lost.fault == "RuntimeError"
    assert not played.lost
    assert count.faults == {"RuntimeError": 1}


def test_the_hint_follows_the_first_observation_in_the_hinted_arm_only():
    play = Play("env", "p", 0, HINTED, "go east")
    assert first_observation("at 00", play) == "at 00\n\nHINT: go east"
    assert first_observation("at 00", Play("env", "p", 0, PLAIN, "go east")) == "at 00"


async def test_listed_actions_constrain_the_model(client, generator, chat):
    trajectories, _ = await play_all(
        client,
        policy(generator, chat, constrain_actions=True, max_action_tokens=1),
        plays(client, range(6), max_turns=4),
        max_concurrent=8,
    )
    assert {t.action for trajectory in trajectories for t in trajectory.turns} <= set("NSEW")


def test_to_json_has_what_the_report_reads():
    trajectory = Trajectory(Play("env", "p", 3), turns=[Turn("at 00", "N", 0.1)])
    line = trajectory.to_json(7)
    assert line["turns"] == [{"observation": "at 00", "action": "N", "reward": 0.1}]
    assert (line["env_id"], line["step"], line["arm"], line["seed"]) == ("env", 7, "plain", 3)
