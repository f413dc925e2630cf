"""Connections whose other end has gone break after about so long, as the system is told."""

import socket

import pytest

from spillover.live.http1.keepalive import keep_alive


@pytest.mark.parametrize(
    ("within_s", "idle_s", "interval_s", "unacknowledged_ms"),
    [(30.0, 15, 5, 30_000), (9.5, 4, 1, 9_500), (0.5, 1, 1, 500)],
)
def test_what_the_system_is_told(within_s, idle_s, interval_s, unacknowledged_ms):
    """In whole seconds, at least one: half of it until the first question, then three of those."""
    expected = {
        "TCP_KEEPIDLE": idle_s,
        "TCP_KEEPALIVE": idle_s,  # of macOS
        "TCP_KEEPINTVL": interval_s,
        "TCP_KEEPCNT": 3,
        "TCP_USER_TIMEOUT": unacknowledged_ms,
    }
    with socket.socket() as opened:
        keep_alive(opened, within_s)
        assert opened.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        told = {
            name: opened.getsockopt(socket.IPPROTO_TCP, getattr(socket, name))
            for name in expected
            if hasattr(socket, name)
        }
    assert told
    assert told == {name: expected[name] for name in told}
