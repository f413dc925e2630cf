"""What a lease member counts of itself, before it has begun: no Redis is asked."""

import asyncio
from dataclasses import replace

from spillover.core.leases import events as ev
from spillover.live.leases.group import LeaseGroup
from spillover.live.leases.metrics import EVENTS_TOLD, LeaseMetrics


def with_member(look):
    async def main():
        member = LeaseGroup(
            "redis://127.0.0.1:1", "things", node="a", partitions=3, handler=lambda *_: None
        )
        look(member, LeaseMetrics(member))

    asyncio.run(main())


def value(metrics, name, **labels):
    return metrics.registry.get_sample_value(f"spillover_lease_{name}", {"node": "a", **labels})


def test_all_counts_begin_at_zero():
    """Else rates would miss what happens first."""

    def look(_, metrics):
        assert len(EVENTS_TOLD) == len(set(EVENTS_TOLD))
        for event in EVENTS_TOLD:
            assert value(metrics, "events_total", event=event) == 0.0
        for name in ("moves_total", "handler_failures_total", "renew_lag_seconds_count", "held"):
            assert value(metrics, name) == 0.0, name

    with_member(look)


def test_each_thing_that_happens_is_counted_once():
    def look(member, metrics):
        observer = member.events.observer
        assert observer is metrics
        for event in (ev.ACQUIRED, ev.ACQUIRED, ev.REDIS_DOWN):
            observer.told(event)
        member.events.handler_failed()
        for late_s in (0.25, 0.5):
            member.events.renewed(late_s)
        assert value(metrics, "events_total", event=ev.ACQUIRED) == 2.0
        assert value(metrics, "events_total", event=ev.REDIS_DOWN) == 1.0
        assert value(metrics, "events_total", event=ev.REDIS_UP) == 0.0
        assert value(metrics, "moves_total") == 2.0
        assert value(metrics, "handler_failures_total") == 1.0
        assert value(metrics, "renew_lag_seconds_count") == 2.0
        assert value(metrics, "renew_lag_seconds_sum") == 0.75
        assert member.events.renew_lag_s_max == 0.5
        assert value(metrics, "redis_up") == 1.0

    with_member(look)


def test_what_is_held_is_told_with_its_epochs_and_what_the_store_is_like():
    def look(member, metrics):
        held = {2: 70, 0: 50}
        member._parts = replace(member._parts, held=lambda: held)
        assert value(metrics, "held") == 2.0
        assert [value(metrics, "epoch", partition=str(p)) for p in range(3)] == [50.0, None, 70.0]
        del held[0]
        assert value(metrics, "held") == 1.0
        assert value(metrics, "epoch", partition="0") is None
        member.machine.handle(ev.RenewalFailed("no way", 1.0), 1.0)
        assert value(metrics, "redis_up") == 0.0

    with_member(look)
