"""Every error a client of the sandbox can see.

    SandboxError
    ├── InvalidRequestError       INVALID_ARGUMENT     fix the calling code
    ├── ProgramNotFoundError      NOT_FOUND            register again
    ├── EpisodeNotFoundError      NOT_FOUND            reset again
    ├── EpisodeEndedError         FAILED_PRECONDITION  reset again
    ├── StepOrderError            FAILED_PRECONDITION  fix the calling code
    ├── EpisodeLostError          ABORTED              rebuild by replay (the client does)
    ├── CapacityError             RESOURCE_EXHAUSTED   back off for retry_delay_s
    ├── QuotaError                RESOURCE_EXHAUSTED   back off, or ask for more
    ├── UnavailableError          UNAVAILABLE          retry the call
    ├── UnauthenticatedError      UNAUTHENTICATED      present a token
    ├── DeadlineExceededError     DEADLINE_EXCEEDED    resend the same step
    └── InternalError             INTERNAL             report the request id

A program that fails is not an error: it is an `Outcome` in the result.
"""

from __future__ import annotations

import grpc

from sandbox_api.v1 import sandbox_pb2 as pb

REASON_METADATA_KEY = "spadework-error-reason"
RETRY_DELAY_METADATA_KEY = "spadework-retry-delay-s"


class SandboxError(Exception):
    """Base of all errors of the sandbox service.

    Attributes:
        retry_delay_s: Seconds to wait before trying again; 0 where waiting does not help.
    """

    reason: pb.ErrorReason = pb.ERROR_REASON_UNSPECIFIED
    status = grpc.StatusCode.UNKNOWN

    def __init__(self, message: str, retry_delay_s: float = 0.0) -> None:
        super().__init__(message)
        self.retry_delay_s = retry_delay_s


class InvalidRequestError(SandboxError):
    """The request itself is wrong; sending it again will not help."""

    reason = pb.ERROR_REASON_INVALID_REQUEST
    status = grpc.StatusCode.INVALID_ARGUMENT


class ProgramNotFoundError(SandboxError):
    """The server does not know this program_id; it may have restarted."""

    reason = pb.ERROR_REASON_PROGRAM_NOT_FOUND
    status = grpc.StatusCode.NOT_FOUND


class EpisodeNotFoundError(SandboxError):
    """The server does not know this episode_id."""

    reason = pb.ERROR_REASON_EPISODE_NOT_FOUND
    status = grpc.StatusCode.NOT_FOUND


class EpisodeEndedError(SandboxError):
    """The episode terminated, was truncated, failed or was closed."""

    reason = pb.ERROR_REASON_EPISODE_ENDED
    status = grpc.StatusCode.FAILED_PRECONDITION


class StepOrderError(SandboxError):
    """step_index is neither the next one nor a repeat of the last."""

    reason = pb.ERROR_REASON_STEP_ORDER
    status = grpc.StatusCode.FAILED_PRECONDITION


class EpisodeLostError(SandboxError):
    """The server lost the episode's state, through no fault of its program."""

    reason = pb.ERROR_REASON_EPISODE_LOST
    status = grpc.StatusCode.ABORTED


class CapacityError(SandboxError):
    """The server is full; try again after `retry_delay_s`."""

    reason = pb.ERROR_REASON_CAPACITY
    status = grpc.StatusCode.RESOURCE_EXHAUSTED


class UnavailableError(SandboxError):
    """The server is starting, draining or out of reach; retry the call."""

    reason = pb.ERROR_REASON_UNAVAILABLE
    status = grpc.StatusCode.UNAVAILABLE


class UnauthenticatedError(SandboxError):
    """The token is missing or wrong."""

    reason = pb.ERROR_REASON_UNAUTHENTICATED
    status = grpc.StatusCode.UNAUTHENTICATED


class QuotaError(SandboxError):
    """This tenant's share is used up."""

    reason = pb.ERROR_REASON_QUOTA
    status = grpc.StatusCode.RESOURCE_EXHAUSTED


class DeadlineExceededError(SandboxError):
    """No answer within the call's deadline; the same step may be sent again."""

    status = grpc.StatusCode.DEADLINE_EXCEEDED


class InternalError(SandboxError):
    """A fault of the server; the message holds a request id to look up in its log."""

    reason = pb.ERROR_REASON_INTERNAL
    status = grpc.StatusCode.INTERNAL


_BY_REASON: dict[int, type[SandboxError]] = {
    cls.reason: cls
    for cls in SandboxError.__subclasses__()
    if cls.reason != pb.ERROR_REASON_UNSPECIFIED
}


def error_from_item(error: pb.ItemError) -> SandboxError:
    """Build the exception for one item's error."""
    return _BY_REASON.get(error.reason, InternalError)(error.message, error.retry_delay_s)


def item_from_error(error: SandboxError) -> pb.ItemError:
    """Build the wire form of one item's error."""
    return pb.ItemError(reason=error.reason, message=str(error), retry_delay_s=error.retry_delay_s)


def error_from_rpc(error: grpc.RpcError) -> SandboxError:
    """Build the exception for a failed call, from its status and trailing metadata.

    The reason in the metadata decides; the status code serves where a proxy or gRPC
    itself failed the call and there is no reason.
    """
    metadata = dict(error.trailing_metadata() or ())
    details = error.details() or str(error)
    delay_s = float(metadata.get(RETRY_DELAY_METADATA_KEY, 0.0))
    reason = metadata.get(REASON_METADATA_KEY)
    if reason is not None and int(reason) in _BY_REASON:
        return _BY_REASON[int(reason)](details, delay_s)
    code = error.code()
    if code == grpc.StatusCode.DEADLINE_EXCEEDED:
        return DeadlineExceededError(details)
    if code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED):
        return UnavailableError(details, delay_s)
    if code == grpc.StatusCode.RESOURCE_EXHAUSTED:
        return CapacityError(details, delay_s)
    if code in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.UNIMPLEMENTED):
        return InvalidRequestError(details)
    return InternalError(details)


def rpc_from_error(error: SandboxError) -> grpc.aio.AioRpcError:
    """An error as a call would raise it, its reason and delay in the trailing metadata."""
    metadata = [(REASON_METADATA_KEY, str(int(error.reason)))]
    if error.retry_delay_s:
        metadata.append((RETRY_DELAY_METADATA_KEY, str(error.retry_delay_s)))
    return grpc.aio.AioRpcError(
        error.status, grpc.aio.Metadata(), grpc.aio.Metadata(*metadata), str(error)
    )
