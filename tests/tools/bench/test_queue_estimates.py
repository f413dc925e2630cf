"""Means beside each other, and what messages take: arithmetic of `spillover bench queue`."""

from __future__ import annotations

import pytest

from spillover.model.errors import RunError
from spillover.sim.queue import wires as kinds
from spillover.sim.queue.replay import Came, Instants
from spillover.tools.bench.model import BenchPlan
from spillover.tools.bench.queue import waits as stage
from spillover.tools.bench.queue.closed import ClosedLoad, Seen
from spillover.tools.bench.queue.estimates import STRETCHES, estimate
from spillover.tools.bench.queue.legs import Legs
from spillover.tools.bench.session import Session

WAITS_S = (1.0, 4.0, 2.0, 8.0, 5.0, 7.0, 1.0, 3.0, 6.0, 9.0)


def came(waits_s):
    """One in each of as many seconds, from 10 on."""
    return [Came(10.5 + at, wait_s, 1) for at, wait_s in enumerate(waits_s)]


def waits(runs, since_s=10.0):
    return estimate(runs, since_s, since_s + STRETCHES, lambda one: one.wait_s)


def test_all_runs_are_one_mean():
    """What came before or after does not count."""
    more = [Came(9.9, 100.0, 1), Came(20.0, 100.0, 1)]
    seen = waits([came(WAITS_S) + more, came(reversed(WAITS_S))])
    assert seen.mean == pytest.approx(4.6)
    alone = waits([came(WAITS_S)]).half_width
    assert 0 < seen.half_width < alone
    # 2.262 of Student's law, a deviation of (74.4 / 9) ** 0.5, and the root of 10.
    assert alone == pytest.approx(2.0567, abs=1e-4)


def test_what_both_saw_alike_is_not_between_them():
    """However much one stretch differs from the next."""
    ours, theirs = waits([came(one + 0.5 for one in WAITS_S)]), waits([came(WAITS_S)])
    assert ours.mean - theirs.mean == pytest.approx(0.5)
    assert ours.half_width > 1.0
    assert ours.half_width_beside(theirs) == pytest.approx(0.0, abs=1e-9)
    assert ours.half_width_beside(waits([came(reversed(WAITS_S))])) > ours.half_width


def test_hardly_any_objects_are_no_mean():
    """There may be none in a stretch, but not in all of them."""
    assert waits([came(WAITS_S)[:5] * 2]).mean == pytest.approx(4.0)
    with pytest.raises(RunError, match="expected objects, got 9"):
        waits([came(WAITS_S)[1:]])


def test_messages_are_what_one_way_takes_more_than_another():
    """A producer that is asked between two takes a probe; how sure that is counts once for each."""
    legs = Legs([2.0, 2.0, 5.0], [7.0, 7.0], [9.0, 9.0], [4.0, 4.0])
    assert legs.means_s() == {
        kinds.TAKE: 1.5,
        kinds.OBJECT: 1.5,
        kinds.PROBE: 2.0,
        kinds.OFFER: 1.75,
        kinds.POINTER: 1.75,
        kinds.FETCH: 2.5,
    }
    assert legs.half_width_s([1, 1]) == pytest.approx(1.96)
    assert legs.half_width_s([1, 3]) == pytest.approx(1.96 / 2)
    assert legs.half_width_s([2, 5]) == 0.0


def many(*kinds):
    """So many objects each second, by probes and wait, in ten seconds from the second on."""
    return [
        Came(1.0 + number / count * 10.0, wait_s, probes)
        for probes, wait_s, count in kinds
        for number in range(count)
    ]


def test_waits_are_told_by_probes():
    """Each kind beside the same kind, but one that hardly any object is of; what came as the system
    warmed up is in none."""
    load = ClosedLoad(
        consumers=2,
        production_rate=1.0,
        consumption_rate=1.0,
        max_hops=5,
        warm_up_s=1.0,
        measured_s=10.0,
        seed=1,
    )
    cold = [Came(0.5, 9.0, 1)]
    ours = many((1, 0.001, 100), (2, 0.004, 50), (3, 0.006, 20), (5, 0.010, 20)) + cold
    theirs = many((1, 0.001, 100), (2, 0.003, 50), (3, 0.006, 20), (5, 0.006, 9))
    legs = Legs([2.0, 2.0], [3.0, 3.0], [4.0, 4.0], [1.0, 1.0])
    played = stage._Played("a case", load, [Seen(Instants([], [], []), ours)], legs)
    session = Session(BenchPlan(), lambda _: None)
    told = stage._note_by_probes(played, [ours], [theirs], session)
    counts = "100 and 100 by one probe, 50 and 50 by two probes, 40 and 29 by three or more"
    assert told == f"; live and simulated, {counts}"
    assert [(row.case, row.value, row.peer_value) for row in session.rows] == [
        ("a case: wait for an object, by one probe", pytest.approx(1.0), pytest.approx(1.0)),
        ("a case: wait for an object, by two probes", pytest.approx(4.0), pytest.approx(3.0)),
    ]
