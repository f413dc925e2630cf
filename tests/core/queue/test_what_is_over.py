"""What a producer no longer waits for is forgotten at once, however far its deadline is."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from spillover.core.agenda import STALE_MAX
from spillover.core.queue import events as ev
from spillover.core.queue.producer import ProducerMachine
from support.queue_machines import ONLY_HERE, given, producer, put, taken

FAR_S = 3600.0


def offered_and_gone(machine: ProducerMachine, k: int) -> None:
    machine.handle(ev.Offered(k, FAR_S), 0.0)
    machine.handle(ev.OfferGone(k), 0.0)


def offered_and_drained(machine: ProducerMachine, k: int) -> None:
    machine.handle(ev.Offered(k, FAR_S), 0.0)
    machine.handle(ev.Drain(), 0.0)
    machine.handle(ev.Resume(), 0.0)


def offered_and_admitted(machine: ProducerMachine, k: int) -> None:
    (give,) = machine.handle(taken(k, ONLY_HERE), 0.0)
    assert isinstance(give, ev.Give)
    machine.handle(ev.Offered(k, FAR_S), 0.0)  # the grant's place, and then one that waits
    machine.handle(ev.Offered(-k, FAR_S), 0.0)
    machine.handle(ev.OfferGone(k), 0.0)
    machine.handle(ev.OfferGone(-k), 0.0)
    machine.handle(ev.Nacked(-1, give.grant), 0.0)


def taken_and_gone(machine: ProducerMachine, k: int) -> None:
    machine.handle(taken(k, {"p2": 1.0}, max_hops=2, deadline_s=FAR_S), 0.0)
    machine.handle(ev.TakeGone(k), 0.0)


def taken_and_given(machine: ProducerMachine, k: int) -> None:
    give = given(machine.handle(taken(k, ONLY_HERE, deadline_s=FAR_S), 0.0))
    machine.handle(ev.Nacked(-1, give.grant), 0.0)


def taken_and_drained(machine: ProducerMachine, k: int) -> None:
    machine.handle(taken(k, ONLY_HERE, deadline_s=FAR_S), 0.0)
    machine.handle(ev.Drain(), 0.0)
    machine.handle(ev.Resume(), 0.0)


def parked_and_passed_by(machine: ProducerMachine, k: int) -> None:
    machine.handle(ev.ProbeCame(ev.Probe("x", "p2", "c", 1, 1, ONLY_HERE, False, (), FAR_S)), 0.0)


def parked_and_drained(machine: ProducerMachine, k: int) -> None:
    parked_and_passed_by(machine, k)
    machine.handle(ev.Drain(), 0.0)
    machine.handle(ev.Resume(), 0.0)


def parked_and_served(machine: ProducerMachine, k: int) -> None:
    parked_and_passed_by(machine, k)
    (offer,) = [one for one in put(machine, k) if isinstance(one, ev.SendOffer)]
    machine.handle(ev.Acked(-1, offer.offer.grant), 0.0)


def extended_for_ever_less(machine: ProducerMachine, k: int) -> None:
    if k == 1:
        machine.handle(taken(1, ONLY_HERE), 0.0)
    (grant,) = machine.grants
    machine.handle(ev.Extended(-1, grant.id, FAR_S - k), 0.0)


@pytest.mark.parametrize(
    ("one_more", "buffered"),
    [
        (offered_and_gone, 2),
        (offered_and_drained, 2),
        (offered_and_admitted, 2),
        (taken_and_gone, 0),
        (taken_and_given, 1),
        (taken_and_drained, 0),
        (parked_and_passed_by, 0),
        (parked_and_drained, 0),
        (parked_and_served, 0),
        (extended_for_ever_less, 1),
    ],
)
def test_what_is_over_is_not_kept_until_its_deadline(
    one_more: Callable[[ProducerMachine, int], None], buffered: int
) -> None:
    """Thousands a second would be millions, where deadlines are far away."""
    machine = producer(visibility_s=FAR_S, probe_expiry_s=FAR_S, deliveries_max=10**9)
    for number in range(buffered):
        put(machine, number - buffered)
    most = 0
    for k in range(1, 5 * STALE_MAX):
        one_more(machine, k)
        most = max(most, len(machine._agenda))
    machine.check()
    assert 0 < most <= STALE_MAX + 6
