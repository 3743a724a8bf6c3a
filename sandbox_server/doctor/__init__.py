"""What a machine offers to the sandbox, and what to do where it lacks something.

`run_checks` is `spadework doctor`. A server calls `require` at its start: the same checks,
those that its backend cannot do without, and no start if one fails.
"""

from __future__ import annotations

import logging

from sandbox_server.backends import BackendError
from sandbox_server.config import ServerConfig
from sandbox_server.doctor import docker, ids, jail, kernel, limits, namespaces, nsjail
from sandbox_server.doctor.check import Check, Host

__all__ = ["Check", "Host", "require", "run_checks"]

_log = logging.getLogger(__name__)


def quick_checks(config: ServerConfig, host: Host) -> list[Check]:
    """All that takes milliseconds and builds nothing.

    Args:
        config: Of the server that is to run; its backend decides what is looked at.
        host: The machine.
    """
    checks = [kernel.release(host), kernel.machine(host)]
    if config.backend != "process":
        checks.append(kernel.seccomp(host))
    if config.backend == "nsjail":
        checks += [namespaces.user_namespaces(host), namespaces.app_armor(host)]
        checks += [nsjail.binary(host), ids.user_ids(host), ids.cgroups(host)]
    if config.backend == "docker":
        checks.append(docker.daemon(config))
    checks += [limits.open_files(host, config.max_episodes)]
    checks += [limits.processes(host, config.max_episodes)]
    checks += [limits.memory(host, config.max_episodes), limits.disk(host), kernel.clock(host)]
    return checks


def run_checks(config: ServerConfig | None = None, host: Host | None = None) -> list[Check]:
    """Look at this machine, and try every protection in a real jail. Takes seconds."""
    config = config or ServerConfig()
    checks = [*quick_checks(config, host or Host()), jail.runtime_folder()]
    if all(check.ok for check in checks if check.required):
        checks += jail.protections(config)
    return checks


def require(config: ServerConfig, host: Host | None = None) -> None:
    """Refuse to go on where something is missing that the backend cannot do without.

    What is missing and only desirable is told to the log.

    Raises:
        BackendError: If a required check fails; the message has all of them, each with what
            to do.
    """
    checks = quick_checks(config, host or Host())
    for check in checks:
        if not check.ok and not check.required:
            _log.info("%s: %s; to have it otherwise: %s", check.name, check.detail, check.remedy)
    failed = [check for check in checks if check.failed]
    if failed:
        told = "\n".join(f"  {c.name}: {c.detail}\n    {c.remedy}" for c in failed)
        raise BackendError(
            f"this machine lacks what backend {config.backend} needs:\n{told}\n"
            "`spadework doctor` makes all checks"
        )
