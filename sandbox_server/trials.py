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
        timeout_s: Wall seconds of each trial.

    Raises:
        CapacityError, UnavailableError: If there is no process to be had.
        EpisodeLostError: If it is gone through no fault of the program.
    """
    channel = await jails.spawn(episode.program, REPLAY_HASH_SEED)
    try:
        await replay.load(channel, episode.program, describe=False)
        for trial in item.trials:
            end = await replay.play_whole(channel, episode, trial.seed, trial.actions, timeout_s)
            work.count_replayed(end.steps)
            result = verdict.trials.add(
                outcome=pb.OUTCOME_COMPLETED, terminated=end.terminated, truncated=end.truncated
            )
            if end.steps:
                result.final_reward = end.reward
    except ProgramFailedError as error:
        verdict.trials.add(outcome=error.failure.outcome)
    finally:
        channel.close()
