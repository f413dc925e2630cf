"""What documents say of benchmarks, which was measured at these sizes, and what is measured: how
many there are of each, how long, how often, and how far apart."""

from __future__ import annotations

import math
from pathlib import Path
from statistics import NormalDist

import pytest

from spillover.tools.bench import client
from spillover.tools.bench.leases import fenced, holding, lateness, members, renewing, settings
from spillover.tools.bench.membership import measuring as membership
from spillover.tools.bench.membership.rules import RULES
from spillover.tools.bench.model import BenchPlan
from spillover.tools.bench.node import gossip, latency, paths
from spillover.tools.bench.peers import measuring as peers
from spillover.tools.bench.peers import workloads as sites
from spillover.tools.bench.proxy import memory, requests, streams, ways
from spillover.tools.bench.queue import estimates, killed, legs, measuring, waits
from spillover.tools.bench.session import Session
from spillover.tools.bench.sim import scale
from spillover.tools.bench.tokens import dispatch, workloads

DOCUMENTS = Path(__file__).parents[3] / "services"
WORDS = {3: "three", 4: "four", 5: "five", 8: "eight", 10: "ten", 12: "twelve", 20: "twenty"}


def word(count):
    return WORDS.get(int(count), str(count))


def number(count):
    return f"{int(count):,}".replace(",", " ")


def listed(*values):
    return ", ".join(f"{value:g}" for value in values)


def ended(*values):
    """The last after an "and"."""
    return f"{listed(*values[:-1])} and {values[-1]:g}"


def turn_s():
    return paths.Asker(Session(BenchPlan(), print), None)._turn_s


def sizes(workload):
    return [one.servers for one in workload.topology.clusters]


_, JOBS, UNLIKE, OVERLOAD = sites.WORKLOADS
POINTS = [one.virtual_nodes for one in RULES if one.rule == "consistent-hash"]
TIMES = settings.TIMES

SAID = {
    "decisions/0011-bench-node.md": [
        f"{word(paths.CONNECTIONS).title()} askers in a process of their own",
        f"A run of a cost is {word(paths.TURNS)} turns of {turn_s():g} s of each side",
        f"a node with {word(gossip.LINKS)} links less one without, a quarter of it",
        f"where a request every {gossip.PERIOD_S * 1e3:g} ms at each node",
    ],
    "decisions/0024-bench-leases.md": [
        f"{holding.MEMBERS} whole members, {number(holding.PARTITIONS)} partitions, maximum lease",
        f"maximum lease {TIMES.max_lease_ms / 1e3:g} s renewed each second",
        f"round trips and CPU of Redis at {listed(*members.COUNTS)} members",
        f"leases lost | {lateness.P99_MS_MAX:g} ms; a renewing thread",
        f"fenced write; {fenced.BATCH_SIZE}; fence alone",
        f"{word(holding.MEMBERS_PER_HOST).title()} members share a process",
        f"handlers read JSON on {word(renewing.HANDLERS)} threads",
        (
            "never comes to rest at this size; it is looked at after "
            f"{word(holding.EVEN_WITHIN_S['blog'])} seconds"
        ),
    ],
    "decisions/0038-unlike-servers.md": [
        f"with {dispatch.SERVERS} servers and {dispatch.TYPES} types of {dispatch.JOINED} classes",
        f"on a plain cluster (medians of 5 runs, {number(dispatch.DISPATCHES)} each",
    ],
    "decisions/0039-distributed-queue.md": [
        f"{waits.PRODUCERS} producers and {waits.CONSUMERS} consumers on sockets",
        f"quiet machine, 10 runs of {waits.MEASURED_S[0]:g} s",
        f"timed in the same runs at {word(waits.WATCHED)} more producers",
        f"an object lies {legs.LIES_S:g} s",
        f"more memory while nobody takes (4 MiB, {measuring.STUCK_S:g} s)",
        f"**One of {word(killed.PRODUCERS)} producers killed**, all with stores",
        f"the start of {word(killed.PRODUCERS)} processes was counted as *before*",
        "| | " + " | ".join(f"{n} probe{'s' * (n > 1)}" for n in waits.HOPS) + " |",
        *(f"load {load} %" for load in waits.LOADS if load != 100),
    ],
    "decisions/0043-pass-through.md": [
        f"streams of events of {streams.CHUNK_BYTES} bytes from a service straight",
        f"through nodes ({listed(*ways.HOPS.values())} hops)",
        f"({streams.STREAMS} streams of {1e3 / streams.PERIOD_MS:g}/s)",
        f"the same at {number(streams.MANY_STREAMS * 1e3 / streams.PERIOD_MS)} chunks/s",
        f"{number(memory.STREAMS)} streams, MB",
        f"next to {number(ways.SERVERS)} servers",
    ],
    "docs/client.md": [f"from {word(client.USERS)} threads at once"],
    "docs/policies.md": [
        (
            f"Sites are {sites.DELAY_MS:g} ms apart. HAProxy gets the best T of "
            f"{listed(*peers.THRESHOLDS)} for each workload"
        ),
        f"With jobs of {sites.JOB_MS / 1e3:g} s at load {sites.LOAD:g} and",
        f"{len(sizes(JOBS))} sites of {sizes(JOBS)[0]} servers",
        f"With sites of {ended(*sizes(UNLIKE))} servers",
    ],
    "docs/sessions.md": [
        f"{membership.SERVERS[0]} nodes, {number(membership.CLIENTS[0])} clients in one process",
        f"{membership.RATE_PER_S:g} requests a second, and four changes",
        f"medians of {word(membership.SIMULATED[0])} seeds",
        f"overlap (within {membership.WAIT_S[0]:g} s)",
        f"consistent hashing with {ended(*sorted(POINTS))} points a node",
        f"`--quick` has {membership.SERVERS[1]} nodes, {membership.CLIENTS[1]} clients and",
        f"clients and waits of {membership.WAIT_S[1]:g} s",
        f"Clients come over {membership.CONNECT_OVER_S[0]:g} s",
    ],
}


@pytest.mark.parametrize("document", SAID)
def test_what_is_measured_is_what_documents_say(document):
    """Else the figures there would be of something else."""
    text = " ".join((DOCUMENTS / document).read_text("utf-8").split())
    assert [said for said in SAID[document] if said not in text] == []


def test_askers_are_as_many_wherever_requests_are_counted():
    assert paths.CONNECTIONS == requests.CONNECTIONS == client.USERS
    assert paths.TURNS == requests.TURNS == client.TURNS
    assert min(paths.FREE_SERVERS, client.FREE_SERVERS, ways.SERVERS) > 2 * paths.CONNECTIONS


def test_half_load_is_half_of_what_servers_do():
    can_per_s = latency.SERVERS / (latency.SERVICE_MS / 1e3)
    assert can_per_s / 2 == latency.RATE_PER_S
    assert set(sizes(JOBS)) == {8}
    assert sizes(OVERLOAD) == sizes(JOBS)


def test_buffers_are_full_where_a_producer_is_killed():
    """Less is used up than could be made, and each process is idle nearly all the time."""
    made_per_s = killed.PRODUCERS * killed.PRODUCTION_PER_S
    assert made_per_s / 2 >= killed.CONSUMERS * killed.CONSUMPTION_PER_S
    assert made_per_s == waits.PRODUCERS * waits.PRODUCTION_PER_S
    assert (killed.PLACES, killed.GRACE_S) == (waits.PLACES, waits.GRACE_S)


def test_what_nobody_takes_is_more_than_a_producer_keeps():
    """So that it shows where the rest stays."""
    assert measuring.STUCK_COUNT * measuring.SIZES["4 MiB"] >= 3 * 69e6
    for size, (full, quick) in measuring.COUNTS.items():
        moved = full * measuring.SIZES[size]
        assert moved >= 30e6, size
        assert full == 10 * quick, size
        assert full % measuring.AT_ONCE[size] <= full / 10, size


def test_what_was_won_last_has_been_renewed_where_a_group_rests():
    """Settling takes longer than a period, and less than two of them."""
    period_s = TIMES.renewal_period_ms / 1e3
    assert period_s == 1.0  # renewed each second, as documents say
    assert period_s < holding.SETTLE_S < 2 * period_s
    assert period_s < renewing.AFTER_S < 2 * period_s
    assert holding.EVEN_WITHIN_S["guarded"] > holding.EVEN_WITHIN_S["blog"]


def test_a_pool_has_settled_before_jobs_count():
    """It forgets where it was with a time constant of 15 s; at four of those 2 % is left."""
    assert math.exp(-workloads.SETTLED_S / 15.0) <= 0.02
    assert workloads.SETTLED_S <= 5 * 15.0


def student(t, degrees):
    """How much of Student's law is below t > 0, by adding up thin slices of its density."""
    scale = math.gamma((degrees + 1) / 2) / math.gamma(degrees / 2) / math.sqrt(degrees * math.pi)
    slices, power = 20_000, -(degrees + 1) / 2
    middles = (t * (k + 0.5) / slices for k in range(slices))
    return 0.5 + scale * t / slices * sum((1 + x * x / degrees) ** power for x in middles)


def test_intervals_are_of_95_percent():
    assert student(estimates.STUDENT_T, estimates.STRETCHES - 1) == pytest.approx(0.975, abs=1e-4)
    assert NormalDist().cdf(legs.NORMAL) == pytest.approx(0.975, abs=1e-4)


def test_a_large_run_is_as_large_as_it_is_called():
    size = f"10^{math.log10(scale.REQUESTS):g} requests, {number(scale.CLUSTERS)} clusters"
    assert [name.rpartition(":")[0] for name in (scale.WALL, scale.MEMORY)] == [size, size]
