"""What a designer might write for its reward alone: what the gates find, and what they do not."""

from __future__ import annotations

import asyncio

import pytest
from sandbox_api import AsyncSandboxClient, Limits

from designer import Draft, Gates, Reason
from sandbox_server import LocalServer
from tests.designer import hacks
from tests.designer.conftest import request

pytestmark = pytest.mark.nsjail


@pytest.fixture(scope="module")
def reports():
    cases = {name: (source, hint) for name, (source, hint, _) in hacks.FOUND.items()}
    cases |= hacks.NOT_FOUND
    drafts = [Draft(request(), "", source=source, hint=hint) for source, hint in cases.values()]

    async def judge():
        with LocalServer(backend="nsjail", log_level="error") as server:
            async with AsyncSandboxClient(server.address) as client:
                limits = Limits(step_timeout_s=5.0, load_timeout_s=10.0)
                return await Gates(client, limits=limits).judge(drafts)

    return dict(zip(cases, asyncio.run(judge()), strict=True))


@pytest.mark.parametrize("name", hacks.FOUND)
def test_what_earns_a_reward_and_teaches_nothing_is_refused(reports, name):
    report = reports[name]
    assert report.reason == hacks.FOUND[name][2], report.detail
    assert report.finding.transcript or report.reason == Reason.LEAK


@pytest.mark.parametrize("name", hacks.NOT_FOUND)
def test_what_the_gates_do_not_find_is_known(reports, name):
    """Of each, docs/design/designer.md says why; one that is found from now on belongs above."""
    assert reports[name].passed, (reports[name].reason, reports[name].detail)
