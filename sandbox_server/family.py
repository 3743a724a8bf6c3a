"""An episode's process and its copies, which share a user id and a scratch folder."""

from __future__ import annotations


class Family:
    """An episode process and its copies: they share a user id and a scratch folder.

    Attributes:
        user: Their user id, as their jail sees it; 0 when they have none of their own.
        members: How many of them there are.
        sweep: Whether they may have left processes behind, to be killed before the id is
            given on.
        born: How many members there have been; each brings its own CPU time.
        pids: Host pids of those members that are known, where there may be several.
    """

    __slots__ = ("born", "members", "pids", "sweep", "user")

    def __init__(self, user: int, *, sweep: bool) -> None:
        self.user = user
        self.members = 1
        self.born = 1
        self.sweep = sweep
        self.pids: set[int] = set()
