"""Backends: the ways to start a jail. All pass one contract suite."""

from sandbox_server.backends.base import Backend, BackendError, JailProcess
from sandbox_server.backends.docker import DockerBackend
from sandbox_server.backends.nsjail import NsjailBackend
from sandbox_server.backends.process import ProcessBackend

BACKENDS: dict[str, type[Backend]] = {
    DockerBackend.name: DockerBackend,
    NsjailBackend.name: NsjailBackend,
    ProcessBackend.name: ProcessBackend,
}

__all__ = ["BACKENDS", "Backend", "BackendError", "JailProcess"]
