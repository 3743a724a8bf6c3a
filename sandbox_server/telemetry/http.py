"""/metrics over HTTP, served by the server's own event loop.

No thread, so that a scrape reads counts that nobody changes meanwhile, and so that a slow
reader costs a socket. It answers GET and HEAD of one path, and closes.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from sandbox_server.config import AddressError

_log = logging.getLogger(__name__)

# Connections at once; a scraper needs one.
_MAX_CONNECTIONS = 16
_MAX_HEAD_BYTES = 16 * 1024
_TIMEOUT_S = 10.0
# Told to a scraper that finds all places taken or the path wrong.
_TEXT = "text/plain; charset=utf-8"


class MetricsServer:
    """Serves one registry.

    Args:
        metrics: What to serve.
    """

    def __init__(self, metrics: CollectorRegistry) -> None:
        self._registry = metrics
        self._connections = 0
        self._server: asyncio.Server | None = None

    async def start(self, address: str) -> str:
        """Listen.

        Args:
            address: "host:port"; port 0 picks a free one.

        Returns:
            The address, with the port that was chosen.

        Raises:
            AddressError: If it cannot be had.
        """
        host, _, port = address.rpartition(":")
        if not host or not port.isascii() or not port.isdigit():
            raise AddressError(
                f"the metrics address is {address!r}; it must be host:port, as 127.0.0.1:9464"
            )
        try:
            self._server = await asyncio.start_server(
                self._serve, host.strip("[]"), int(port), limit=_MAX_HEAD_BYTES
            )
        except (OSError, OverflowError) as error:
            raise AddressError(
                f"cannot serve metrics on {address}: {error}; name another with --metrics-address"
            ) from None
        return f"{host}:{self._server.sockets[0].getsockname()[1]}"

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections += 1
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                if self._connections > _MAX_CONNECTIONS:
                    writer.write(_response("503 Service Unavailable", _TEXT, b"busy\n"))
                else:
                    head = await reader.readuntil(b"\r\n\r\n")
                    writer.write(self._answer(head))
                await writer.drain()
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            # Nobody who scrapes: a scanner, or a reader that left.
            writer.transport.abort()
        except Exception:
            _log.exception("a scrape failed")
            writer.transport.abort()
        finally:
            self._connections -= 1
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    def _answer(self, head: bytes) -> bytes:
        lines = head.decode("latin-1").split("\r\n")
        method, _, rest = lines[0].partition(" ")
        path = rest.partition(" ")[0].partition("?")[0]
        if method not in ("GET", "HEAD"):
            return _response("405 Method Not Allowed", _TEXT, b"GET only\n")
        if path != "/metrics":
            return _response("404 Not Found", _TEXT, b"see /metrics\n")
        accepted = [
            v.strip() for k, _, v in (s.partition(":") for s in lines) if k.lower() == "accept"
        ]
        encode, kind = choose_encoder(",".join(accepted))
        body = encode(self._registry)
        return _response("200 OK", kind, body, with_body=method == "GET")


def _response(status: str, kind: str, body: bytes, *, with_body: bool = True) -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
    head += "Connection: close\r\n\r\n"
    return head.encode() + (body if with_body else b"")
