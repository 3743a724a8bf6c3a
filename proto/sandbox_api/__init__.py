"""The sandbox's contract: its types, its errors and its client.

Imports only grpc and protobuf, so that any program may depend on it.
"""

from sandbox_api.access import Access
from sandbox_api.client import (
    AsyncSandboxClient,
    AsyncStepPipeline,
    SandboxClient,
    StepPipeline,
)
from sandbox_api.errors import (
    CapacityError,
    DeadlineExceededError,
    EpisodeEndedError,
    EpisodeLostError,
    EpisodeNotFoundError,
    InternalError,
    InvalidRequestError,
    ProgramNotFoundError,
    QuotaError,
    SandboxError,
    StepOrderError,
    UnauthenticatedError,
    UnavailableError,
)
from sandbox_api.types import (
    Diagnostic,
    Divergence,
    Episode,
    Limits,
    OracleResult,
    Outcome,
    Phase,
    Program,
    ProgramKind,
    ResetItem,
    ServerInfo,
    StepItem,
    StepResult,
    Verdict,
)

__all__ = [
    "Access",
    "AsyncSandboxClient",
    "AsyncStepPipeline",
    "CapacityError",
    "DeadlineExceededError",
    "Diagnostic",
    "Divergence",
    "Episode",
    "EpisodeEndedError",
    "EpisodeLostError",
    "EpisodeNotFoundError",
    "InternalError",
    "InvalidRequestError",
    "Limits",
    "OracleResult",
    "Outcome",
    "Phase",
    "Program",
    "ProgramKind",
    "ProgramNotFoundError",
    "QuotaError",
    "ResetItem",
    "SandboxClient",
    "SandboxError",
    "ServerInfo",
    "StepItem",
    "StepOrderError",
    "StepPipeline",
    "StepResult",
    "UnauthenticatedError",
    "UnavailableError",
    "Verdict",
]
