"""What gate 2 lets a program import is there to be imported, in each runtime of the server."""

from __future__ import annotations

import pytest
from sandbox_api.client import SandboxClient
from sandbox_api.types import Outcome

from designer.inspection import ALLOWED_STDLIB, PACKAGES, is_allowed
from sandbox_server import LocalServer
from sandbox_server.runtime import WARM_MODULES

pytestmark = [pytest.mark.nsjail, pytest.mark.timeout(900)]

PROGRAM = """
{imports}


class ImportsEnv:
    def reset(self, seed=None):
        return "ready", {{}}

    def step(self, action):
        return "", 0.0, True, False, {{}}
"""


@pytest.mark.parametrize("runtime", [name for name in PACKAGES if name])
def test_a_runtime_has_all_that_its_programs_may_import(runtime: str) -> None:
    modules = sorted((ALLOWED_STDLIB | PACKAGES[runtime]) - {"__future__"})
    source = PROGRAM.format(imports="\n".join(f"import {module}" for module in modules))
    with LocalServer(runtimes=[runtime]) as server, SandboxClient(server.address) as client:
        program = client.register_program(source, runtime=runtime)
    assert program.outcome is Outcome.COMPLETED, program.diagnostic


def test_every_runtime_of_the_server_has_its_packages_listed() -> None:
    assert set(WARM_MODULES) <= set(PACKAGES)
    for runtime, modules in WARM_MODULES.items():
        unlisted = {module for module in modules if not is_allowed(module, runtime)}
        assert unlisted <= {"inspect"}, runtime


def test_a_runtime_that_is_not_listed_offers_packages_but_no_more_of_the_standard_library() -> (
    None
):
    assert is_allowed("torch", "my-own")
    assert is_allowed("random", "my-own")
    assert not is_allowed("torch", "stdlib")
    assert not is_allowed("subprocess", "my-own")
    assert not is_allowed("?", "my-own")
