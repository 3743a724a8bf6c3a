"""The Docker daemon, for the backend of that name: the backend's own checks, with its remedies."""

from __future__ import annotations

import contextlib

from sandbox_server.backends import BACKENDS, BackendError
from sandbox_server.backends.docker import connect
from sandbox_server.config import ServerConfig
from sandbox_server.doctor.check import Check


def daemon(config: ServerConfig) -> Check:
    """Reach the daemon, and let the backend judge what it offers."""
    try:
        with contextlib.closing(connect()) as client:
            version, info = client.version(), client.info()
        BACKENDS["docker"](config).close()
    except BackendError as error:
        found, _, remedy = str(error).rpartition(": ")
        return Check("docker", False, found, remedy)
    options = ", ".join(info.get("SecurityOptions") or ["no security options"])
    runtimes = ", ".join(sorted(info.get("Runtimes") or ()))
    return Check(
        "docker",
        True,
        f"{version['Version']}, API {version['ApiVersion']}; {options}; runtimes {runtimes}",
    )
