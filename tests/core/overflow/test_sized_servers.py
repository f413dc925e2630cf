"""Stories of a cluster whose requests say how large they are."""

from random import Random

import pytest

from spillover.core.overflow import events as ev
from spillover.model.load import LoadNow
from spillover.model.ranges import AHEAD_MAX
from spillover.model.request import DONE, Outcome
from spillover.model.server_bounds import ServerBounds

B = 0
SMALL, LARGE = 1.0, 100.0
"""What requests say; each 1 of it takes 10 ms."""


def time_s(size):
    return 0.01 * size


@pytest.fixture
def node(story):
    """Cluster a with one server and neighbor b, which goes by load, once it knows how long requests
    run. Small ones are as frequent as large ones."""

    def make(**settings):
        told = {"policy": "adaptive", "counts_work": True, "service_s": 0.5, **settings}
        one = story(neighbors=("b",), **told)
        for ref in range(1_001, 1_101):
            size = SMALL if ref % 2 else LARGE
            one.arrive(ref, features=(size,))
            one.now_s += time_s(size)
            one.end(ref, service_s=time_s(size))
        return one

    return make


def told_ahead(one):
    """What b hears of the queue."""
    report = one.tell(ev.ReportAsked())[-1].report
    return report.ahead


def huge_one_ends(one):
    """A first one that is ten times as large as others has told the truth."""
    one.arrive(2_000, features=(10 * LARGE,), deadline_s=1e9)
    one.now_s += time_s(10 * LARGE)
    one.end(2_000, service_s=time_s(10 * LARGE))


def test_neighbors_are_told_of_work_and_not_of_requests(node):
    """Ten small ones that wait are a fifth of a mean request, ten large ones twenty."""
    one = node()
    one.arrive(1, features=(SMALL,), deadline_s=1e9)
    for ref in range(2, 12):
        one.arrive(ref, features=(SMALL,), deadline_s=1e9)
    assert told_ahead(one) == 0
    for ref in range(12, 22):
        one.arrive(ref, features=(LARGE,), deadline_s=1e9)
    assert 17 <= told_ahead(one) <= 22


def test_the_rest_of_what_runs_counts(node):
    """A large request that has just begun is waited for, one that is nearly over is not."""
    one = node()
    huge_one_ends(one)
    one.arrive(1, features=(10 * LARGE,), deadline_s=1e9)
    early = told_ahead(one)
    one.now_s += 0.98 * time_s(10 * LARGE)
    assert early >= 14
    assert told_ahead(one) <= 1


def test_a_request_that_says_nothing_counts_as_the_mean(node):
    one = node()
    one.arrive(1, deadline_s=1e9)
    for ref in range(2, 12):
        one.arrive(ref, deadline_s=1e9)
    assert 8 <= told_ahead(one) <= 12


def test_a_neighbor_that_asks_is_given_what_waits_longer_than_the_way(node):
    """Behind a small request the next one is better off here; behind a large one it is not."""
    one = node(delay_s=0.2)
    one.hear(B, ahead=30, departure_s=0.5)  # so that all wait here
    for ref, size in ((1, SMALL), (2, LARGE), (3, SMALL)):
        one.arrive(ref, features=(size,), deadline_s=1e9)
    asked = ev.WorkAsked(B, LoadNow(1, 3, -1, 0.0, True))
    (forward,) = [command for command in one.tell(asked) if isinstance(command, ev.Forward)]
    assert forward.ref == 3
    asked = ev.WorkAsked(B, LoadNow(1, 4, -1, 0.0, True))
    assert [type(command) for command in one.tell(asked)] == [ev.NoWork]


def test_servers_that_are_to_go_take_nothing_more(node):
    """Of four one stays, the one that is busy for longest: ten seconds."""
    one = node(servers=4)
    huge_one_ends(one)
    for ref, size in ((1, SMALL), (2, SMALL), (3, SMALL), (4, 10 * LARGE), (5, SMALL)):
        one.arrive(ref, features=(size,), deadline_s=1e9)
    one.tell(ev.SettingsChanged(servers=1))
    assert told_ahead(one) >= 14


@pytest.mark.parametrize("bounds", [None, ServerBounds(min=1, max=1)])
def test_services_that_are_said_to_take_no_time_are_sized(story, bounds):
    """As a topology may say it, until something else is known."""
    one = story(policy="adaptive", counts_work=True, service_s=0.0, bounds=bounds)
    for ref in (1, 2, 3):
        one.arrive(ref, features=(LARGE,), deadline_s=1e9)
    assert told_ahead(one) >= 1


def test_a_request_that_cannot_be_done_in_time_is_refused_by_its_size(node):
    """What waits takes two seconds: a small one can be done in three, a large one cannot."""
    one = node(queue_limit=100)
    for ref in (1, 2, 3):
        one.arrive(ref, features=(LARGE,), deadline_s=1e9)
    left_s = one.now_s + 3.5
    small = one.arrive(4, features=(SMALL,), deadline_s=left_s)
    large = one.arrive(5, features=(LARGE,), deadline_s=left_s)
    assert not any(isinstance(command, ev.Refuse) for command in small)
    assert any(isinstance(command, ev.Refuse) for command in large)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("bounds", [None, ServerBounds(min=1, max=8)])
def test_the_sums_are_those_of_what_waits_whatever_happens(story, seed, bounds):
    """The machine is checked after each event."""
    random = Random(seed)
    one = story(
        policy="adaptive", counts_work=True, servers=3, bounds=bounds, neighbors=("b", "c"),
        queue_limit=20,
    )  # fmt: skip
    one.hear(0, 1, ahead=-1, departure_s=0.1)
    running = set()
    for ref in range(1, 400):
        one.now_s += random.expovariate(20.0)
        size = random.choice([None, (random.lognormvariate(0.0, 1.5),)])
        path = random.choice([(), (), ("b",)])
        deadline_s = one.now_s + random.choice([0.05, 5.0])
        commands = one.arrive(ref, features=size, path=path, deadline_s=deadline_s)
        commands += one.tell(ev.TimerFired())
        running |= {c.ref for c in commands if isinstance(c, ev.Start)}
        for ended in random.sample(sorted(running), len(running) // 2):
            outcome = random.choice([DONE, DONE, Outcome.FAILED])
            commands = one.end(ended, outcome=outcome, service_s=random.expovariate(10.0))
            running.discard(ended)
            running |= {c.ref for c in commands if isinstance(c, ev.Start)}


def test_no_queue_is_longer_than_neighbors_can_be_told(story):
    """Years of work beside look-ups of less than a millisecond: a report that is not understood
    would cut the cluster off."""
    one = story(neighbors=("b",), policy="adaptive", counts_work=True, queue_limit=10_000)
    for ref in range(1, 101):
        size = float(1 + ref % 10)
        one.arrive(ref, features=(size, size), deadline_s=1e9)
        one.now_s += 1e4 * size
        one.end(ref, service_s=1e4 * size)
    for ref in range(101, 2_101):
        one.arrive(ref, features=(1.0,), deadline_s=1e9)
        one.now_s += 1e-4
        one.end(ref, service_s=1e-4)
    for ref in range(4_001, 4_501):
        one.arrive(ref, features=(8.0, 8.0), deadline_s=1e12)
    assert told_ahead(one) == AHEAD_MAX
