"""The filter, as a program of the kernel's virtual machine."""

from __future__ import annotations

import pytest

from sandbox_server.worker import seccomp


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
@pytest.mark.parametrize("may_fork", [False, True])
def test_every_jump_of_the_filter_lands_inside_it(machine: str, may_fork: bool) -> None:
    program = seccomp.build(may_fork=may_fork, machine=machine)
    count = len(program) // 8
    for at in range(count):
        code, true, false = program[8 * at], program[8 * at + 2], program[8 * at + 3]
        if code & 7 == 5:
            assert at + 1 + max(true, false) < count
