"""The client of the sandbox, in two faces.

`AsyncSandboxClient` does the work, on the caller's event loop; `SandboxClient` has the
same methods for callers without one. So have the pipelines that they make.
"""

from sandbox_api._async import CHANNEL_OPTIONS, AsyncSandboxClient
from sandbox_api._blocking import StepPipeline
from sandbox_api._pipeline import AsyncStepPipeline
from sandbox_api._sync import SandboxClient

__all__ = [
    "CHANNEL_OPTIONS",
    "AsyncSandboxClient",
    "AsyncStepPipeline",
    "SandboxClient",
    "StepPipeline",
]
