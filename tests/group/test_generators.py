"""Episodes of a group take turns with the global generators and disturb nobody's."""

from __future__ import annotations

import random
import sys
import types

import pytest

from sandbox_server.worker.generators import Generators


def _drawn() -> list[float]:
    # Over the 624 words after which the state is made anew, and an odd number of Gaussians.
    return [random.random() for _ in range(700)] + [random.gauss(0, 1) for _ in range(3)]


@pytest.fixture(params=["bytes", "getstate"])
def generators(request: pytest.FixtureRequest) -> Generators:
    found = Generators()
    assert found._memory is not None
    if request.param == "getstate":
        # As on an interpreter that keeps its state in another way.
        found._memory = None
    return found


def test_turns_do_not_show(generators: Generators) -> None:
    expected = {}
    for seed in (1, 2):
        random.seed(seed)
        expected[seed] = [_drawn(), _drawn()]
    states = {}
    for seed in (1, 2):
        random.seed(seed)
        states[seed] = generators.save()
    for turn in (0, 1):
        for seed in (1, 2):
            generators.restore(states[seed])
            assert _drawn() == expected[seed][turn]
            states[seed] = generators.save()


def test_trying_the_memory_leaves_the_generator_as_it_was() -> None:
    random.seed(7)
    expected = _drawn()
    random.seed(7)
    Generators()
    assert _drawn() == expected


def test_numpys_generator_takes_turns_where_it_is_loaded(
    generators: Generators, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = {"state": 1}
    numpy = types.ModuleType("numpy")
    numpy.random = types.SimpleNamespace(  # type: ignore[attr-defined]
        get_state=lambda legacy: dict(state), set_state=state.update
    )
    monkeypatch.setitem(sys.modules, "numpy", numpy)
    saved = generators.save()
    state["state"] = 2
    generators.restore(saved)
    assert state == {"state": 1}
