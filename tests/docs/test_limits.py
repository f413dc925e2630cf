"""Limits of two parts that must fit together: else requests are lost, or leases."""

from spillover.client import calls, session
from spillover.live.leases.renewal import guard, settings, supervisor
from spillover.live.queue import client_wire as queue_client_wire


def test_a_client_closes_connections_before_servers_do_and_connects_alike():
    for client in (calls, queue_client_wire):
        assert client.CONNECT_S == session.CONNECT_S == calls.CONNECT_S
        assert client.IDLE_S_MAX == 4.0  # servers: 5 s, and more
    assert calls.USER_TIMEOUT_S == session.USER_TIMEOUT_S


def test_a_lease_bears_one_silent_connection_and_a_blocked_loop():
    """Three lease times may a member's loop stand still (decision 0022); the process that renews
    is looked after within a lease."""
    assert guard.BLOCKED_LEASES > 3.0
    assert 3 * settings.TIMEOUT_SHARE < 1.0
    assert settings.TIMEOUT_SHARE < supervisor.STILL_SHARE < 0.5
