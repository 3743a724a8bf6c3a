"""Asks a server whether it serves: `python -m sandbox_server.health [ADDRESS]`.

Exits with 0 if it does and with 1, and a reason, if it does not: a container's health check.
The address is $SPADEWORK_ADDRESS where none is given. The service of health needs no token.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import sys

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from sandbox_api.access import Access
from sandbox_api.v1 import sandbox_pb2 as pb

from sandbox_server.config import default_address

# Not the server as a whole: a server that drains does not serve any more.
_SERVICE = pb.DESCRIPTOR.services_by_name["SandboxService"].full_name
_TIMEOUT_S = 4.0


async def check(address: str, timeout_s: float = _TIMEOUT_S) -> str:
    """Why a server does not serve; empty if it does.

    For TLS, clients' variables say what with; a token is not sent.
    """
    access = dataclasses.replace(Access.from_environment(), token="")
    async with access.channel(address, options=()) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        try:
            request = health_pb2.HealthCheckRequest(service=_SERVICE)
            answer = await stub.Check(request, timeout=timeout_s)
        except grpc.aio.AioRpcError as error:
            return f"no answer at {address}: {error.details()}"
    if answer.status == health_pb2.HealthCheckResponse.SERVING:
        return ""
    status = health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status)
    return f"{address} says {status}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="sandbox_server.health", description=__doc__)
    parser.add_argument("address", nargs="?", default=default_address())
    why_not = asyncio.run(check(parser.parse_args().address))
    if why_not:
        print(why_not, file=sys.stderr)
    return 1 if why_not else 0


if __name__ == "__main__":
    sys.exit(main())
