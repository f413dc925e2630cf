"""What all tests share: how a missing tool is met, and Hypothesis without surprises.

Fixtures of one ring live in that ring's own conftest.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import hypothesis
import pytest

# The same examples every run: a red build is red for everyone, and random search is for the desk.
hypothesis.settings.register_profile("repeatable", derandomize=True, deadline=None)
hypothesis.settings.register_profile("search", deadline=None, max_examples=1000)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))


@pytest.fixture(scope="session")
def require() -> Callable[[object, str], None]:
    """`require(condition, reason)` skips for a user, fails with SPILLOVER_REQUIRE_ALL=1."""

    def check(condition: object, reason: str) -> None:
        if condition:
            return
        if os.environ.get("SPILLOVER_REQUIRE_ALL") == "1":
            pytest.fail(f"required here: {reason}")
        pytest.skip(reason)

    return check
