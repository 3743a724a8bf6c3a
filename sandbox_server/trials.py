"""Trials: plays of given actions, one after the other in one process."""

from __future__ import annotations

from sandbox_api.v1 import sandbox_pb2 as pb

from sandbox_server import replay
from sandbox_server.episode import Episode
from sandbox_server.failures import ProgramFailedError
from sandbox_server.jail_pool import REPLAY_HASH_SEED, JailPool
from sandbox_server.work import Work


async def play(
    jails: JailPool,
    work: Work,
    episode: Episode,
    item: pb.VerifyItem,
    verdict: pb.Verdict,
    timeout_s: float,
) -> None:
    """Play the trials of an item, up to the first that does not complete.

    Args:
        jails: Where the process comes from.
        work: Where the steps count.
        episode: Whose program, options and turn cap to use.
        item: Has the trials.
        verdict: Gets a result for each.
        timeout_s: Wall seconds of each call.

    Raises:
        CapacityError, UnavailableError: If there is no process to be had.
        EpisodeLostError: If it is gone through no fault of the program.
    """
    channel = await jails.spawn(episode.program, REPLAY_HASH_SEED)
    try:
        await replay.load(channel, episode.program, describe=False)
        for trial in item.trials:
            seed, options = trial.seed, episode.options_json
            await replay.reset(channel, seed, options, episode.max_turns, timeout_s)
            replies = await replay.play(channel, trial.actions, episode.turn_cap, timeout_s)
            work.count_replayed(len(replies))
            result = verdict.trials.add(outcome=pb.OUTCOME_COMPLETED)
            if replies:
                result.final_reward = replies[-1].reward
                result.terminated = replies[-1].terminated
                result.truncated = replies[-1].truncated
    except ProgramFailedError as error:
        verdict.trials.add(outcome=error.failure.outcome)
    finally:
        channel.close()
