"""The attacks, by theme."""

from tests.security.attack import Attack
from tests.security.attacks import (
    beyond,
    files,
    interpreter,
    kernel,
    network,
    processes,
    protocol,
    resources,
)

BY_THEME: dict[str, tuple[Attack, ...]] = {
    "files": files.ATTACKS,
    "kernel": kernel.ATTACKS,
    "network": network.ATTACKS,
    "processes": processes.ATTACKS,
    "resources": resources.ATTACKS,
    "protocol": protocol.ATTACKS,
    "interpreter": interpreter.ATTACKS,
    "what no backend keeps": beyond.ATTACKS,
}
