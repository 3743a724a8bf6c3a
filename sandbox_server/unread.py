"""Results that clients have not read yet: bounded, for they wait in the server's memory."""

from __future__ import annotations

from sandbox_server.config import ServerConfig


class Unread:
    """What one engine has answered, and nobody has taken, in all calls together.

    Attributes:
        total_bytes: Of all those results.
    """

    def __init__(self, config: ServerConfig) -> None:
        self.total_bytes = 0
        self._config = config

    def admit(self) -> None:
        """Check that another call may be answered.

        Raises:
            CapacityError, QuotaError: If clients leave too much unread already.
        """
        if self.total_bytes > self._config.max_unread_bytes:
            raise self._config.full(
                f"{self.total_bytes >> 20} MiB of results are ready and unread, over the bound; "
                "read the results of the calls before"
            )
