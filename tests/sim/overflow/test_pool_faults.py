"""What happens to one of several unlike servers, and what becomes of the requests at hand."""

from __future__ import annotations

import pytest

from spillover.model.faults import ClusterFault, FaultSchedule, TokensFault
from spillover.model.schedule import Arrival
from spillover.model.topology import Cluster, Topology
from spillover.model.unlike_servers import JobType, Server, ServerClass
from spillover.sim.overflow.run import run_overflow

POOL = {
    "servers": (Server(id="only"), Server(id="other", rate=4.0)),
    "classes": (
        ServerClass(id="c1", servers=("only",), tokens=2),
        ServerClass(id="c2", servers=("other",), tokens=2),
    ),
    "types": (JobType(id="t1", classes=("c1",)), JobType(id="t2", classes=("c1", "c2"))),
}


def topology_of(**fields):
    cluster = Cluster(id="a", service_ms=100.0, **POOL | fields)
    return Topology(name="one", clusters=(cluster,), policy="isolated")


def play(topology, arrivals, *faults):
    """Everything is checked after each event."""
    schedule = FaultSchedule("made", tuple(sorted(faults, key=lambda fault: fault.at_s)))
    return run_overflow(topology, arrivals, 1, faults=schedule)


def fault(at_s, action, server="only", **values):
    return ClusterFault(at_s=at_s, action=action, cluster="a", server=server, **values)


def test_a_type_waits_for_its_only_server():
    """While that is down, one that may join another class runs there; nothing is lost."""
    arrivals = [Arrival(1.0, "a", 100.0, "t1"), Arrival(1.0, "a", 400.0, "t2")]
    run = play(topology_of(), arrivals, fault(0.5, "down"), fault(3.0, "up"))
    assert run.outcomes == {"done": 1, "refused": 1}
    assert run.types["t2"].system_time_ms == pytest.approx([100.0])
    assert run.types["t1"].blocked == 0


def test_what_runs_on_a_server_that_goes_down_fails():
    """And what runs on the other does not."""
    arrivals = [Arrival(1.0, "a", 5000.0, "t1"), Arrival(1.0, "a", 5000.0, "t2")]
    run = play(topology_of(), arrivals, fault(1.5, "down"), fault(2.0, "up"))
    assert run.types["t1"].outcomes == {"failed": 1}
    assert run.types["t2"].outcomes == {"done": 1}


def test_an_only_server_that_was_degraded_is_used_again():
    """It fails so much more than the other that it is left alone, at which time an operator changes
    something. It is tried again by itself, and serves what has come since."""
    topology = topology_of(types=(JobType(id="t1", classes=("c1",)),))
    failing = [Arrival(1.0 + 0.2 * k, "a", 50.0, "t1") for k in range(20)]
    later = [Arrival(40.0 + 0.5 * k, "a", 50.0, "t1") for k in range(20)]
    run = play(
        topology,
        [*failing, *later],
        fault(0.5, "failing", share=1.0),
        TokensFault(at_s=3.0, action="tokens", cluster="a", classes=(("c2", 3),)),
        fault(5.0, "failing", share=0.0),
    )
    assert run.outcomes["failed"] >= 2
    assert run.outcomes["done"] >= 20


def test_limits_and_servers_change_while_jobs_run():
    """A lowered limit takes nothing from running jobs; one that is out finishes what it has."""
    arrivals = [Arrival(1.0, "a", 1000.0, "t1"), Arrival(1.1, "a", 1000.0, "t1")]
    arrivals += [Arrival(2.0, "a", 1000.0, "t2"), Arrival(5.0, "a", 100.0, "t1")]
    changes = (
        TokensFault(at_s=1.2, action="tokens", cluster="a", classes=(("c1", 1),)),
        TokensFault(at_s=1.3, action="tokens", cluster="a", servers=(("only", "out"),)),
        TokensFault(at_s=4.0, action="tokens", cluster="a", servers=(("only", "in"),)),
    )
    run = play(topology_of(on_block="queue"), arrivals, *changes)
    assert run.outcomes == {"done": 4}
    assert run.types["t2"].system_time_ms == pytest.approx([250.0])
