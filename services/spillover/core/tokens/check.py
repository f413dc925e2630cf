"""What must be true of a pool of unlike servers after every event: asserted in tests and
simulations."""

from __future__ import annotations

from collections import Counter

from spillover.core.tokens.facts import TokenFacts
from spillover.core.tokens.waiting import V
from spillover.model.unlike_servers import PS
from spillover.policy.tokens import BLOCKED


def check_pool(pool: TokenFacts[V]) -> None:
    """Raises AssertionError where an invariant does not hold."""
    bucket = pool.bucket
    bucket.check()
    pool.blocked.check()
    cooled = [job for _, _, job in pool.cooled]
    seated = [visit.place.job for server in pool.servers for visit in server.line.values()]
    assert len(seated) == pool.seated
    on_servers = [*pool.jobs_by_ref.values(), *cooled]
    holders = [*on_servers, *seated]
    assert all(job.token.holder == job.ref for job in holders), "a job without its token"
    assert len({id(job.token) for job in holders}) == len(holders), "a token with two jobs"
    held = sum(bucket.counts(kind)["held"] for kind in range(len(pool.class_ids)))
    assert held == len(holders), (held, len(holders))
    running = Counter(job.server for job in on_servers)
    for server in pool.servers:
        assert server.running == running[server.number], server.id
        assert pool.discipline != PS or not server.line, "seats under processor sharing"
        assert pool.discipline == PS or server.running <= 1, "two at a time"
        assert not (server.is_closed and server.line), "some wait at a server that takes nothing"
        assert server.is_closed is (server.state != "up"), server.id
    for job in holders:
        assert job.token.kind in job.kind.classes, "a token that the type may not take"
        assert job.token.kind in pool.servers[job.server].classes, "a server not of the class"
    assert pool.busy == len(running)
    assert pool.waiting_foreign == sum(not visit.is_home for visit in pool)
    if pool.down or pool.resting:
        return
    for kind in pool.kinds.values():
        blocked = pool.blocked.lines[kind.number].visits.values()
        joins = {pool.joins(visit) for visit in blocked}
        assert all(bucket.choose(of) == BLOCKED for of in joins), "blocked beside a token"
    for server in pool.servers:
        assert server.running or not server.line, "a server idles while some wait at it"
