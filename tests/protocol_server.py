"""A server of OpenAI's chat protocol, for tests: HTTP as it is, with faults on request.

What it is asked and answers goes through the types of the `openai` package, so that what
passes here has the protocol's shape.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from openai.types.chat import ChatCompletion
from openai.types.chat.completion_create_params import CompletionCreateParamsNonStreaming
from pydantic import TypeAdapter

_PARAMETERS = TypeAdapter(CompletionCreateParamsNonStreaming)


@dataclass
class Fault:
    """What is answered in the place of a completion.

    Attributes:
        status: HTTP status; 0 closes the connection without an answer.
        headers: Beside the usual ones.
        code: Of the error, as OpenAI's.
        body: In the place of an error of the protocol.
    """

    status: int
    headers: dict[str, str] = field(default_factory=dict)
    code: str = ""
    body: str = ""


@dataclass
class ProtocolServer:
    """What a running server is asked, and what it answers.

    Attributes:
        write: The text of a completion, by the request's body.
        calls: Names and arguments of the tools that it calls in the place of a text.
        faults: Taken from the front, one a request, before any completion.
        delay_s: Wait before each answer.
        with_usage: Whether answers tell tokens: one for each four characters.
        asked: Bodies of all requests, in order of arrival.
        arrived_s: When they arrived, on the monotonic clock.
        authorizations: Their Authorization headers.
        most_at_once: The most requests that were here at once.
    """

    url: str = ""
    write: Callable[[dict[str, Any]], str] = lambda body: "Hello."
    calls: Callable[[dict[str, Any]], list[tuple[str, str]]] = lambda body: []
    faults: list[Fault | None] = field(default_factory=list)
    delay_s: float = 0.0
    with_usage: bool = True
    asked: list[dict[str, Any]] = field(default_factory=list)
    arrived_s: list[float] = field(default_factory=list)
    authorizations: list[str | None] = field(default_factory=list)
    most_at_once: int = 0
    _now: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def enter(self, body: dict[str, Any], authorization: str | None) -> Fault | None:
        """Note a request; returns the fault that it gets."""
        with self._lock:
            self.asked.append(body)
            self.arrived_s.append(time.monotonic())
            self.authorizations.append(authorization)
            self._now += 1
            self.most_at_once = max(self.most_at_once, self._now)
            return self.faults.pop(0) if self.faults else None

    def leave(self) -> None:
        with self._lock:
            self._now -= 1

    def completion(self, body: dict[str, Any]) -> bytes:
        calls = self.calls(body)
        text = "" if calls else self.write(body)
        told = sum(len(message["content"]) for message in body["messages"]) // 4
        limit = body.get("max_tokens") or body.get("max_completion_tokens")
        written = min(len(text) // 4 + 1, limit)
        usage = {"prompt_tokens": told, "completion_tokens": written}
        usage["total_tokens"] = told + written
        choice = {
            "index": 0,
            "finish_reason": "stop",
            "message": {
                "role": "assistant",
                "content": text or None,
                "refusal": None,
                "tool_calls": [
                    {
                        "id": f"server-{number}",
                        "type": "function",
                        "function": {"name": name, "arguments": arguments},
                    }
                    for number, (name, arguments) in enumerate(calls)
                ]
                or None,
            },
            "logprobs": None,
        }
        answer = ChatCompletion.model_validate(
            {
                "id": f"chatcmpl-{len(self.asked)}",
                "object": "chat.completion",
                "created": int(time.time()),
                "model": body["model"],
                "choices": [choice],
                **({"usage": usage} if self.with_usage else {}),
            }
        )
        return answer.model_dump_json().encode()


def _handler(server: ProtocolServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            _PARAMETERS.validate_python(body)
            fault = server.enter(body, self.headers.get("Authorization"))
            try:
                if server.delay_s:
                    time.sleep(server.delay_s)
                if self.path != "/v1/chat/completions":
                    fault = Fault(404, body="<html>not here</html>")
                self._answer(body, fault)
            except OSError:
                self.close_connection = True  # the client went away
            finally:
                server.leave()

        def _answer(self, body: dict[str, Any], fault: Fault | None) -> None:
            if fault is None:
                return self._send(200, server.completion(body), {})
            if not fault.status:
                self.close_connection = True
                return None
            error = {"message": "as asked for", "type": "fault", "param": None, "code": fault.code}
            content = fault.body or json.dumps({"error": error})
            return self._send(fault.status, content.encode(), fault.headers)

        def _send(self, status: int, content: bytes, headers: dict[str, str]) -> None:
            self.send_response(status)
            json_like = content.startswith(b"{")
            self.send_header("Content-Type", "application/json" if json_like else "text/html")
            self.send_header("Content-Length", str(len(content)))
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            """Quiet."""

    return Handler


@contextmanager
def protocol_server() -> Iterator[ProtocolServer]:
    """Run a server on a port of its own."""
    state = ProtocolServer()
    with ThreadingHTTPServer(("127.0.0.1", 0), _handler(state)) as http:
        http.daemon_threads = True
        state.url = f"http://127.0.0.1:{http.server_port}/v1"
        thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield state
        finally:
            http.shutdown()
            thread.join()
