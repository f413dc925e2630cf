"""What is believed of the neighbors' loads: the newest word, however it came, and what was sent
since; and what a cluster makes of its own clients' arrivals."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillover.core.overflow.home_load import HomeLoad
from spillover.core.overflow.neighbor import SENDS_MAX
from spillover.model.load import LoadNow, LoadReport
from spillover.policy.overflow.home_load import STEPS
from support.loads import neighbors_of, worked_out

DELAY_S = 0.035


def report(sequence, ahead=3, *, epoch=1, accepting=True, hears=("a",), degraded=False):
    told = {"ahead": ahead, "load": 0.5, "departure_s": 0.008, "residual": 0.75}
    return LoadReport(epoch, sequence, 0.5, 0.5, 7, 5, accepting, hears, degraded, **told)


def load(sequence, ahead=9, *, epoch=1, accepting=True):
    return LoadNow(epoch, sequence, ahead, 1.5, accepting)


@pytest.fixture
def table():
    """Of b, heard at time 0 with report 5."""
    table = neighbors_of("b", DELAY_S)
    table.heard(0, report(5), 0.0)
    return table


def told(table):
    """What policies are told of b: those ahead, the load, since when; and whether it accepts."""
    known = table.knowledge()
    loads = known.loads
    return loads.ahead[0], loads.load[0], loads.told_s[0], known.accepting[0]


def test_one_that_tells_no_load_is_taken_by_its_queue():
    """And is not asked for work."""
    table = neighbors_of("b")
    table.heard(0, LoadReport(1, 1, 0.5, 0.5, 7, 5, True, ("a",)), 0.0)
    assert told(table) == (7, 0.0, 0.0, True)
    assert table.knowledge().loads.departure_s == (0.0,)
    assert not table.by_handle[0].tells_load


def test_a_load_that_comes_with_something_else_is_newer_than_the_report(table):
    """What only reports tell stays."""
    before = table.knowledge()
    table.heard_load(0, load(6), 0.25)
    assert told(table) == (9, 1.5, 0.25, True)
    assert table.knowledge().loads.queue_length == before.loads.queue_length
    assert table.knowledge().reported_s == (0.0,)


@pytest.mark.parametrize("number", [4, 5])
def test_an_older_load_changes_nothing(table, number):
    before = table.knowledge()
    table.heard_load(0, load(number, accepting=False), 0.25)
    assert table.knowledge() is before


@pytest.mark.parametrize("epoch", [0, 2])
def test_a_load_of_another_life_changes_nothing(table, epoch):
    """Its report will tell of that life."""
    before = table.knowledge()
    table.heard_load(0, load(900, epoch=epoch), 0.25)
    assert table.knowledge() is before


def test_before_any_report_and_after_the_link_went_down_loads_say_nothing(table):
    table.lost(0)
    table.heard_load(0, load(6), 0.25)
    assert told(table)[3] is False
    table.heard(0, report(1, epoch=2), 0.5)
    assert told(table) == (3, 0.5, 0.5, True)
    table.heard_load(0, load(2, epoch=2), 0.75)
    assert told(table) == (9, 1.5, 0.75, True)


def test_a_report_that_was_overtaken_takes_nothing_back(table):
    """A refusal with load 8 comes before report 7: what is only in the report is news, the load and
    whether it accepts are not."""
    table.heard_load(0, load(8, accepting=False), 0.25)
    table.heard(0, report(7), 0.5)
    assert told(table) == (9, 1.5, 0.25, False)
    assert table.knowledge().reported_s == (0.5,)
    table.heard(0, report(9), 0.75)
    assert told(table) == (3, 0.5, 0.75, True)


def test_nobody_accepts_who_does_not_hear_us():
    table = neighbors_of("b", DELAY_S)
    table.heard(0, report(5, hears=()), 0.0)
    table.heard_load(0, load(6), 0.25)
    assert told(table) == (9, 1.5, 0.25, False)
    table.heard(0, report(7), 0.5)
    assert told(table)[3] is True


def test_a_load_of_a_silent_neighbor_does_not_make_it_known(table):
    """It is no sign of life of the stream, on which it would hear us."""
    table.expire(2.0)
    table.heard_load(0, load(6), 2.0)
    known = table.knowledge()
    assert (known.known, known.accepting, known.takes) == ((False,), (False,), (False,))


def test_who_takes_no_more_takes_no_probe_either():
    """A degraded neighbor that has invited one, and says no with the next message."""
    table = neighbors_of("b", DELAY_S)
    table.heard(0, report(5, degraded=True), 0.0)
    assert table.knowledge().takes == (True,)
    table.heard_load(0, load(6, accepting=False), 0.25)
    assert table.knowledge().takes == (False,)


def test_what_was_sent_counts_until_it_can_be_told_of(table):
    """A load that is heard now was told 35 ms ago, when what had left 70 ms ago was there."""
    for at_s in (0.10, 0.13, 0.14):
        table.sent(0, at_s, 0)
    assert table.unreported() == (3,)
    table.heard_load(0, load(6), 0.2)
    assert table.unreported() == (1,)
    table.heard(0, report(7), 0.22)
    assert table.unreported() == (0,)


def test_an_old_load_tells_of_nothing_that_was_sent(table):
    table.sent(0, 0.1, 0)
    table.heard_load(0, load(5), 10.0)
    assert table.unreported() == (1,)


def test_what_was_sent_is_counted_up_to_a_bound(table):
    for number in range(2 * SENDS_MAX):
        table.sent(0, 0.1 + number * 1e-6, 0)
    assert table.unreported() == (SENDS_MAX,)


def test_arrivals_are_told_as_a_share_of_what_the_cluster_can_do():
    """125/s where 125/s can be done, in 64ths: 1; and after a pause hardly anything."""
    home = HomeLoad(0.0)
    home.arrivals = 125 * 4
    assert home.at(4.0, 0.008) == 1.0
    assert home.arrivals == 0
    assert home.at(4.0, 0.008) == 1.0, "asking changes nothing"
    assert home.at(4.0 + 32 * 0.008, 0.008) == pytest.approx(math.exp(-1.0), abs=1 / STEPS)
    assert home.at(30.0, 0.008) == 0.0


def test_a_rate_at_rest_is_told_alike():
    """Else a report each 50 ms would be news for as long as the rate fades."""
    home = HomeLoad(0.0)
    home.arrivals = 20
    told = [home.at(0.05 * step, 0.008) for step in range(1, 200)]
    assert len(set(told)) <= STEPS
    assert set(told[60:]) == {0.0}
    assert all(load * STEPS == int(load * STEPS) for load in told)


LOADS = st.sampled_from([0.0, 0.25, 0.79, 0.8, 1.0, 1.5, 9.0])
REPORTS = st.builds(
    LoadReport,
    epoch=st.integers(1, 2),
    sequence=st.integers(1, 9),
    accept_probability=st.just(0.5),
    neighborhood_accept_probability=st.just(0.5),
    queue_length=st.integers(0, 9),
    servers=st.integers(0, 4),
    accepting=st.booleans(),
    hears=st.just(("a",)),
    ahead=st.none() | st.integers(-4, 9),
    load=LOADS,
    residual=st.sampled_from([0.5, 1.0, 2.5]),
)
NOWS = st.builds(
    LoadNow, st.integers(1, 2), st.integers(1, 9), st.integers(-4, 9), LOADS, st.booleans()
)
STEP = st.one_of(REPORTS, NOWS, st.sampled_from(["lost", "leave", "join", "silence", "way"]))


def take_step(table, handle, step, now_s):
    """Of the neighbor with this handle, if it is one."""
    match step:
        case LoadReport():
            table.heard(handle, step, now_s)
        case LoadNow():
            table.heard_load(handle, step, now_s)
        case "lost":
            table.lost(handle)
        case "leave":
            table.leave(handle)
        case "join":
            if table.objection_to(f"new{now_s}") is None:
                table.join(f"new{now_s}", DELAY_S)
        case "silence":
            table.expire(now_s + 60.0)
        case "way":
            if handle in table.by_handle:
                table.took(table.by_handle[handle], 1.0)


@given(st.lists(st.tuples(st.integers(0, 3), STEP), max_size=30))
def test_what_is_looked_up_is_what_would_be_worked_out_now(steps):
    """After anything that was heard, in any order, and whoever comes and goes."""
    table = neighbors_of("bc", DELAY_S)
    for at, (handle, step) in enumerate(steps):
        take_step(table, handle, step, float(at))
        loads = table.knowledge().loads
        columns = worked_out(loads.servers, loads.load, loads.residual)
        assert {name: getattr(loads, name) for name in columns} == columns
