"""Limits of two parts that must fit together: else requests are lost, or leases."""

from __future__ import annotations

from spillover.live.leases.renewal import guard, settings, supervisor


def test_a_lease_bears_one_silent_connection_and_a_blocked_loop():
    """Three lease times may a member's loop stand still (decision 0022); the process that renews
    is looked after within a lease."""
    assert guard.BLOCKED_LEASES > 3.0
    assert 3 * settings.TIMEOUT_SHARE < 1.0
    assert settings.TIMEOUT_SHARE < supervisor.STILL_SHARE < 0.5
