"""How a call fails: its status, the machine-readable reason, and the id to look it up by."""

from __future__ import annotations

import grpc
from sandbox_api.errors import REASON_METADATA_KEY, RETRY_DELAY_METADATA_KEY, SandboxError

from sandbox_server.telemetry import calls


async def refuse(context: grpc.aio.ServicerContext, error: SandboxError) -> None:
    """End a call with an error, and count it where a call is in work. Does not return."""
    metadata = [(REASON_METADATA_KEY, str(error.reason))]
    if error.retry_delay_s:
        metadata.append((RETRY_DELAY_METADATA_KEY, str(error.retry_delay_s)))
    if call := calls.current():
        call.counts.refused(call.verb, error.reason)
        # What is told with an abort takes the place of what was set before.
        metadata.append((calls.REQUEST_ID_METADATA_KEY, call.request_id))
    await context.abort(error.status, str(error), tuple(metadata))
