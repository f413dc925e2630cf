"""The parts of the compiled engine: formulas, arrays, bounds, and what it refuses."""

from collections import Counter
from random import Random

import pytest

from spillover.inputs.topology_file import load_topology
from spillover.model.errors import InputError
from spillover.model.schedule import Arrival
from spillover.model.statistics import summarize
from spillover.sim.overflow.run import run_overflow
from support.few import all_in_soak


@pytest.fixture
def topology():
    """The ring of five."""
    return load_topology("ring5")


def test_arrays_are_as_good_as_a_list(fast, topology):
    """And nothing of them is changed by a run."""
    import numpy as np

    from spillover.sim.fast.overflow.arrivals import ArrivalArrays

    random = Random(3)
    times_s = np.sort(np.array([random.random() for _ in range(300)]))
    homes = np.array([random.randrange(5) for _ in range(300)])
    services_ms = np.where(homes == 2, 80.0, np.nan)
    arrays = ArrivalArrays(times_s, homes, services_ms)
    schedule = [
        Arrival(time_s, "abcde"[home], 80.0 if home == 2 else None)
        for time_s, home in zip(times_s.tolist(), homes.tolist(), strict=True)
    ]
    results = [fast.run_fast(topology, given, 3) for given in (arrays, schedule, arrays)]
    for result in results:
        assert result.requests.system_time_ms.tolist() == (
            results[0].requests.system_time_ms.tolist()
        )
    assert results[0].reports == run_overflow(topology, schedule, 3).reports


@pytest.mark.slow
@pytest.mark.parametrize("policy", all_in_soak(["adaptive", "paper"], 1))
def test_more_may_be_under_way_than_there_was_room_for(fast, topology, policy):
    """The arrays grow: all of 12 000 come within the time of one service."""
    topology = topology.with_policy(policy)
    schedule = [Arrival(k * 3e-6, "abcde"[k % 3]) for k in range(12_000)]
    told = fast.run_fast(topology, schedule, 1).as_dict()
    full = run_overflow(topology, schedule, 1).as_dict()
    assert told["queue_length_max"] > 1000
    for field in ("outcomes", "system_time_ms", "per_cluster", "reports", "queue_length_max"):
        assert told[field] == full[field]


def test_an_empty_schedule_is_no_trouble(fast, topology):
    """Nothing was measured, and that is what is said."""
    told = fast.run_fast(topology, [], 1).as_dict()
    assert (told["requests"], told["forwarded_share"], told["hops"]) == (0, 0.0, {})
    assert told["system_time_ms"]["mean"] is None
    assert told["reports"] == 0


def test_progress_is_told(fast, topology, monkeypatch):
    """How many requests have ended, after each stretch of events, and at the end all."""
    monkeypatch.setattr(fast, "EVENTS_AT_ONCE", 1000)
    told = []
    schedule = [Arrival(k * 0.005, "a") for k in range(1500)]
    fast.run_fast(topology, schedule, 1, told.append)
    assert told == sorted(told)
    assert len(told) >= 3
    assert told[-1] == 1500


def test_summaries_are_those_of_lists(fast):
    """Also of one value, and of none. NumPy squares without `pow`, hence the last bit."""
    import numpy as np

    assert fast.summarize_array(np.empty(0)) == summarize([])
    random = Random(5)
    for count in (1, 2, 99, 1000):
        values = [random.expovariate(1.0) for _ in range(count)]
        ours, theirs = fast.summarize_array(np.array(values)), summarize(values)
        assert ours.pop("std") == pytest.approx(theirs.pop("std"), rel=1e-14)
        assert ours == theirs


def test_poisson_arrays_follow_their_law(fast, topology):
    """Gaps of the mean asked for, as many at each home as at the others, the same for a seed."""
    from spillover.sim.fast.overflow.arrivals import poisson_arrays

    arrays = poisson_arrays(topology, rate_per_s=100.0, requests=200_000, seed=1)
    arrays.check(topology)
    assert arrays.time_s[-1] == pytest.approx(400.0, rel=0.01)
    counts = Counter(arrays.cluster.tolist())
    assert min(counts.values()) == pytest.approx(max(counts.values()), rel=0.03)
    again = poisson_arrays(topology, rate_per_s=100.0, requests=200_000, seed=1)
    other = poisson_arrays(topology, rate_per_s=100.0, requests=200_000, seed=2)
    assert (again.time_s == arrays.time_s).all()
    assert (other.time_s != arrays.time_s).any()


@pytest.mark.parametrize(
    ("schedule", "told"),
    [
        ([Arrival(1.0, "a"), Arrival(0.5, "a")], "schedule: time_s: .*descent at request 1"),
        ([Arrival(-1.0, "a")], "schedule: time_s: expected numbers of at least 0"),
        ([Arrival(float("nan"), "a")], "schedule: time_s: expected numbers of at least 0"),
        ([Arrival(0.0, "x")], "schedule: cluster: expected one of a, b, c, d, e, got 'x'"),
        ([Arrival(0.0, "a", -1.0)], "schedule: service_ms: expected numbers of at least 0"),
    ],
)
def test_schedules_that_make_no_sense(fast, topology, schedule, told):
    """One line that names the field."""
    with pytest.raises(InputError, match=told):
        fast.run_fast(topology, schedule, 1)


def test_arrays_that_make_no_sense(fast, topology):
    """Lengths that differ, homes that are none."""
    import numpy as np

    from spillover.sim.fast.overflow.arrivals import ArrivalArrays

    with pytest.raises(InputError, match="expected arrays of one length"):
        fast.run_fast(topology, ArrivalArrays(np.zeros(2), np.zeros(3, np.int32)), 1)
    with pytest.raises(InputError, match="cluster: expected 0 to 4"):
        fast.run_fast(topology, ArrivalArrays(np.zeros(1), np.array([5])), 1)
