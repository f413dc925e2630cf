"""The numbers that documents state, and those that the code goes by: how much there may be of what,
and how long is waited. Who runs a node at night goes by the page.
"""

from __future__ import annotations

from spillover.client import calls, session
from spillover.client import wire as client_wire
from spillover.live.handlers import calls as handler_calls
from spillover.live.handlers import service_payload
from spillover.live.http1 import framing, opening
from spillover.live.leases.renewal import guard, settings, supervisor
from spillover.live.leases.streams import reader, writer
from spillover.live.overflow import (
    identity,
    peer_clients,
    wire,
)
from spillover.live.queue import (
    certified,
)
from spillover.live.queue import (
    client_wire as queue_client_wire,
)
from spillover.live.tls import material


def s(*times_s):
    """As `5 s`, or `0.1 s, up to 5 s`."""
    return ", up to ".join(f"{one:g} s" for one in times_s)


def test_a_limit_that_stands_in_several_places_is_one():
    assert peer_clients.CONNECTIONS_TLS_MAX == certified.CONNECTIONS_MAX
    assert identity.NAMES_TOLD_MAX == certified.NAMES_TOLD_MAX == material.SHOWN_MAX
    assert calls.ANSWER_LIMIT_BYTES == queue_client_wire.OBJECT_LIMIT_BYTES
    assert framing.HEAD_LIMIT_BYTES == opening.FIRST_LIMIT_BYTES
    assert (reader.TIMEOUT_S, reader.RETRY_S) == (writer.TIMEOUT_S, writer.RETRY_S)


def test_deadlines_are_a_week_and_one_job_a_day_at_most():
    week_s = 7 * 24 * 60 * 60
    assert client_wire.DEADLINE_S_MAX == queue_client_wire.DEADLINE_S_MAX == week_s
    assert week_s * 1e3 == wire.DEADLINE_MS_MAX
    assert week_s * 1e3 / 7 == service_payload.SERVICE_MS_MAX
    assert week_s / 7 == handler_calls.RETRY_AFTER_S_MAX


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
