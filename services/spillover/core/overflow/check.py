"""The invariants of a cluster's machine, which hold after every event: asserted in tests and
simulations."""

from __future__ import annotations

from collections import Counter

from spillover.core.overflow.facts import NodeFacts
from spillover.core.overflow.visit import AWAY, RUNNING, VisitState, count_states


def check_node(machine: NodeFacts) -> None:
    """Raises AssertionError where an invariant does not hold."""
    register, servers = machine.register, machine.servers
    visits = register.visits
    home, foreign = count_states(visits.values())
    register.ledger.check(home, foreign)
    running = home[VisitState.RUNNING] + foreign[VisitState.RUNNING]
    waiting = home[VisitState.QUEUED] + foreign[VisitState.QUEUED]
    away = home[VisitState.AWAY] + foreign["handed_on"]
    answering = [visit for visit in visits.values() if visit.answering]
    assert all(visit.state in (RUNNING, AWAY) for visit in answering), (
        "an answer passes from nowhere"
    )
    settings, carried = machine.settings, machine.carried
    servers.check()
    occupied = running + len(servers.stuck) + servers.cooling
    assert servers.jobs == occupied, (servers.jobs, running, servers.stuck, servers.cooling)
    machine.health.check()
    assert servers.waiting == waiting, (servers.waiting, waiting)
    # Stranded requests come on top of those that may be away.
    assert register.away == away <= max(2 * settings.away_limit, carried.away), (
        register.away,
        away,
    )
    there = Counter(visit.target.handle for visit in visits.values() if visit.state is AWAY)
    rows = machine.neighbors.by_handle.items()
    assert all(len(row.away) == there[handle] for handle, row in rows)
    if servers.is_alike:  # elsewhere seats come on top, as many as there were tokens
        # Requests that turned out not to have started come on top of those that may be away.
        bound = settings.queue_limit + 2 * settings.away_limit + settings.servers
        assert waiting + away <= bound + carried.visits
    assert all(visits[visit.ref] is visit for visit in servers)
    held = register.held
    assert held.request_bytes == sum(visit.request.size_bytes for visit in visits.values())
    limit_bytes = max(held.limit_bytes, carried.request_bytes)
    assert held.request_bytes <= limit_bytes, (held.request_bytes, limit_bytes)
    machine.groups.check()
