"""How much is fuzzed: a bounded number of inputs in CI, for a while by `make fuzz`.

FUZZ_SECONDS is the time for all tests of tests/fuzz together; without it each test tries its
own number of inputs once.
"""

from __future__ import annotations

import functools
import inspect
import os
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

SECONDS = float(os.environ.get("FUZZ_SECONDS", "0"))

# Inputs tried, by test: printed at the end.
tried: Counter[str] = Counter()
_fuzzed: list[str] = []


def seconds_each() -> float:
    """What one test may take of the time for all; 0 in CI, where inputs are counted."""
    return SECONDS / max(1, len(_fuzzed))


def takes_a_share(name: str) -> None:
    """A test that is not `fuzzed` wants its part of the time too."""
    _fuzzed.append(name)


def fuzzed(
    inputs: int = 300, **strategies: st.SearchStrategy[Any]
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Try a check on many inputs.

    Args:
        inputs: How many in CI.
        strategies: What each argument is drawn from.
    """

    def wrap(check: Callable[..., None]) -> Callable[..., None]:
        name = check.__name__
        takes_a_share(name)

        def test(*fixtures: Any, **named: Any) -> None:
            @settings(
                max_examples=inputs,
                deadline=None,
                database=None,
                # Where CI is set hypothesis tries the same ones each time.
                derandomize=settings.default.derandomize and not SECONDS,
                # Inputs are as large as attackers make them.
                suppress_health_check=list(HealthCheck),
            )
            @given(drawn=st.fixed_dictionaries(strategies))
            def search(drawn: dict[str, Any]) -> None:
                tried[name] += 1
                check(*fixtures, **named, **drawn)

            until = time.monotonic() + seconds_each()
            search()
            while time.monotonic() < until:
                search()

        return _like(test, check, strategies)

    return wrap


def _like(
    test: Callable[..., None], check: Callable[..., None], drawn: dict[str, Any]
) -> Callable[..., None]:
    """Give a test the name of its check, and its arguments but those that are drawn."""
    functools.update_wrapper(test, check)
    del test.__wrapped__  # type: ignore[attr-defined]
    signature = inspect.signature(check)
    kept = [p for name, p in signature.parameters.items() if name not in drawn]
    test.__signature__ = signature.replace(parameters=kept)  # type: ignore[attr-defined]
    return test
