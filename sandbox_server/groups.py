"""The groups of one engine: which takes the next episode of a program."""

from __future__ import annotations

from sandbox_server.config import ServerConfig
from sandbox_server.episode import ProgramRecord
from sandbox_server.group import Group, Settle
from sandbox_server.group_member import Member, answer_each
from sandbox_server.jail_pool import JailPool
from sandbox_server.work import Work


class Groups:
    """Groups, by program. A tenant has its own engine, and so its own groups.

    A group takes so many episodes in its whole life, not at a time: their limits of CPU time
    together are its own, and what ended ones leave behind in its process goes with it.

    Attributes:
        rebuilds_total: Processes replaced, and all their episodes played again in the new ones.
        settle: Takes completed steps.
    """

    def __init__(self, config: ServerConfig, jails: JailPool, work: Work) -> None:
        self._config = config
        self._jails = jails
        self._work = work
        self.rebuilds_total = 0
        # `Stepper` has a quicker way.
        self.settle: Settle = answer_each
        self._filling: dict[str, Group] = {}
        self._all: set[Group] = set()

    def __len__(self) -> int:
        """How many group processes there are."""
        return len(self._all)

    async def join(self, program: ProgramRecord) -> Member:
        """Take an episode into a group of its program, within the bound on live ones.

        Raises:
            CapacityError, QuotaError, UnavailableError: If there is no room for it now.
            ProgramFailedError: If the program does not load.
        """
        self._jails.admit()
        key = program.program_id
        group = self._filling.get(key)
        if group is None:
            group = self._filling[key] = Group(program, self._jails, self._work, self)
            self._all.add(group)
        member = group.add()
        if group.joined == program.group_size:
            del self._filling[key]
        try:
            await group.opened()
        except BaseException:
            member.close()
            raise
        return member

    def rebuilt(self, _: Group) -> None:
        self.rebuilds_total += 1

    def closed(self, group: Group) -> None:
        self._all.discard(group)
        if self._filling.get(group.program.program_id) is group:
            del self._filling[group.program.program_id]
