"""The sandbox server: isolated environment processes behind a batched gRPC service.

`LocalServer` starts one for this process alone; `DirectSandbox` does without.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sandbox_server.direct import DirectSandbox
    from sandbox_server.local import LocalServer

__version__ = "0.1.0"

__all__ = ["DirectSandbox", "LocalServer", "__version__"]


def __getattr__(name: str) -> Any:
    # grpc takes a while to import; asking for the version should not.
    if name == "LocalServer":
        from sandbox_server.local import LocalServer

        return LocalServer
    if name == "DirectSandbox":
        from sandbox_server.direct import DirectSandbox

        return DirectSandbox
    raise AttributeError(name)
