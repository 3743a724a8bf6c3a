"""`spadework design` with an OpenAI-compatible server that writes programs and hints."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from random import Random

import pytest

from designer.families import compile_spec, held_out, random_spec
from spadework.cli import main


def program() -> str:
    generator = Random(1)
    spec = random_spec(generator, "spatial")
    while held_out(spec):
        spec = random_spec(generator, "spatial")
    return compile_spec(spec).source


class Model(BaseHTTPRequestHandler):
    """Writes the same program each time; hints when it is asked for one."""

    asked: list[dict]
    source = ""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.asked.append({"path": self.path, "key": self.headers.get("Authorization"), **body})
        wants_hint = "Write the hint" in body["messages"][-1]["content"]
        text = "Look where the walls leave room." if wants_hint else self.fenced()
        answer = json.dumps({"choices": [{"message": {"content": text}}]}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def fenced(self) -> str:
        return f"<think>a maze</think>Here it is:\n```python\n{self.source}```\n"

    def log_message(self, *_: object) -> None:
        """Quiet."""


@pytest.fixture
def endpoint() -> Iterator[str]:
    Model.asked, Model.source = [], program()
    with HTTPServer(("127.0.0.1", 0), Model) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/v1"
        server.shutdown()
        thread.join()


def test_programs_of_an_endpoint_pass_the_same_gates(endpoint, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("MY_KEY", "secret")
    arguments = ["--method", "free_code", "--endpoint", endpoint, "--endpoint-model", "m"]
    arguments += ["--endpoint-key-variable", "MY_KEY", "--backend", "process"]
    assert main(["design", "-n", "2", "--out", str(tmp_path), "--json", *arguments]) == 0
    first, second = json.loads(capsys.readouterr().out)
    assert first["reason"] == "OK"
    assert first["hint"] == "Look where the walls leave room."
    assert second["reason"] == "DUPLICATE"
    assert (tmp_path / first["file"].rpartition("/")[2]).read_text() == Model.source
    assert {a["path"] for a in Model.asked} == {"/v1/chat/completions"}
    assert {a["key"] for a in Model.asked} == {"Bearer secret"}
    assert {a["model"] for a in Model.asked} == {"m"}
