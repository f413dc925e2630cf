"""How long is waited before another try."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillover.policy.backoff import backoff_s


@given(
    st.integers(0, 2000), st.floats(1e-3, 10.0), st.floats(1e-3, 100.0), st.floats(0.0, 1 - 2**-53)
)
def test_takes_off_at_most_half_and_never_overflows(attempt, first_s, longest_s, draw):
    """Between half and all of min(longest, first * 2 ** attempt), after any number of attempts."""
    full_s = first_s
    for _ in range(min(attempt, 20)):
        full_s = min(longest_s, full_s * 2)
    full_s = min(longest_s, full_s)
    waited_s = backoff_s(attempt, first_s, longest_s, draw)
    assert full_s / 2 <= waited_s * (1 + 1e-12)
    assert waited_s <= full_s * (1 + 1e-12)
    assert waited_s == pytest.approx(full_s * (1 - draw / 2))
