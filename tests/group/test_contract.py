"""The contract suite once more: a grouped episode is like any other."""

from __future__ import annotations

from tests.server import test_contract, test_limits, test_shapes

# In a group the episodes take turns, and one that is slow delays those after it.
_OTHERWISE = {"test_a_slow_episode_delays_no_other"}

for _module in (test_contract, test_limits, test_shapes):
    for _name, _test in vars(_module).items():
        if _name.startswith("test_") and _name not in _OTHERWISE:
            _fixtures = _test.__code__.co_varnames[: _test.__code__.co_argcount]
            if "sandbox" in _fixtures:
                globals()[_name] = _test
