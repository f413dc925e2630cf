"""From what was measured to the figures that are shown: what is taken off what, what it is divided
by, and in which unit. Without a measurement."""

from __future__ import annotations

import os
import socket
import sys
import time
from contextlib import ExitStack
from random import Random

import psutil
import pytest

from spillover.model.errors import RunError
from spillover.model.ids import ClusterId
from spillover.tools.bench.leases import (
    cluster,
    holding,
    hosts,
    lateness,
    members,
    readings,
    renewing,
    server,
    settings,
    takeover,
)
from spillover.tools.bench.leases.ownership import Report
from spillover.tools.bench.leases.readings import Reading
from spillover.tools.bench.leases.renewing import Loaded
from spillover.tools.bench.membership import one_node
from spillover.tools.bench.model import BenchPlan, Row
from spillover.tools.bench.node import encrypted, gossip, latency, memory
from spillover.tools.bench.peers import sides as peers
from spillover.tools.bench.peers.workloads import WORKLOADS
from spillover.tools.bench.proxy import memory as streams_memory
from spillover.tools.bench.proxy import streams, turns
from spillover.tools.bench.queue import killed
from spillover.tools.bench.queue import measuring as queue
from spillover.tools.bench.session import Session
from spillover.tools.bench.sim import scale
from spillover.tools.bench.tokens import sides as tokens
from spillover.tools.bench.tokens.outcome import Job
from spillover.tools.bench.tokens.sharing_servers import Served
from spillover.tools.bench.usage import CpuUse, connection_count, cpu_s, resident_bytes
from spillover_loadgen.record import Outcome, Record

A = ClusterId("a")


def session_of(**fields):
    return Session(BenchPlan(**fields), say=lambda _: None)


def told(session):
    """(case, unit, values, peer, its values) of each row."""
    return [shown(row) for row in session.rows]


def shown(row):
    return (row.case, row.unit, row.values, row.peer, row.peer_values)


def test_processor_time_is_that_since_then_of_all_of_a_kind():
    """Of this process, once and as two of a kind; what it took before does not count."""
    pid = os.getpid()
    use, began_s = CpuUse({"one": [pid], "two": [pid, pid], "none": []}), time.process_time()
    while time.process_time() < began_s + 0.1:
        pass
    used_s = use.used_s()
    took_s = time.process_time() - began_s
    assert used_s.keys() == {"one", "two", "none"}
    assert 0.08 <= used_s["one"] <= took_s + 0.03
    assert used_s["two"] == pytest.approx(2 * used_s["one"], abs=0.05)
    assert used_s["none"] == 0.0


@pytest.mark.skipif(sys.platform != "linux", reason="others count in steps of some 10 ms")
def test_what_takes_less_than_a_step_of_the_system_is_seen():
    """A node at rest takes 3 ms in a second. None of it is lost, and nothing is added."""
    own = time.process_time()
    before_s = cpu_s(os.getpid())
    while time.process_time() < own + 0.001:
        pass
    assert 0.0009 < cpu_s(os.getpid()) - before_s <= time.process_time() - own


def test_where_the_system_counts_in_steps_user_and_system_time_count(monkeypatch):
    """Of all that a process has used since its start."""
    monkeypatch.setattr(sys, "platform", "another one")
    before = os.times()
    told_s = cpu_s(os.getpid())
    after = os.times()
    assert before.user + before.system - 0.02 <= told_s <= after.user + after.system + 0.02


def test_a_process_that_is_gone_cannot_be_measured():
    """Whatever is asked of it: its end is a failure, not a value."""
    nobody = 2**22 + 1  # beyond what Linux gives
    for ask in (cpu_s, resident_bytes, lambda pid: connection_count(pid, to=os.getpid())):
        with pytest.raises(RunError, match="a process that is measured cannot be looked at: "):
            ask(nobody)


def test_memory_of_a_process_is_what_is_in_ram():
    assert resident_bytes(os.getpid()) == pytest.approx(psutil.Process().memory_info().rss, rel=0.2)


def test_connections_count_that_are_to_where_the_other_one_listens():
    """Neither those that come from there, nor those to somebody who listens no more."""
    before = connection_count(os.getpid(), to=os.getpid())
    with ExitStack() as stack:
        listening, other = (
            stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(2)
        )
        for place in (listening, listening, listening, other):
            address = place.getsockname()
            stack.enter_context(socket.create_connection(address))
            stack.enter_context(place.accept()[0])
        other.close()
        assert connection_count(os.getpid(), to=os.getpid()) == before + 3


def test_a_link_costs_a_share_of_what_a_node_takes_beyond_one_without():
    """Of four links and 5 s: 0.3 s beyond is 15 ms a second and link. Each run is as long as it
    was."""
    row = gossip.row_of(gossip.BUSY, [(5.0, 0.4, 0.1), (10.0, 0.3, 0.2)])
    values, without = (pytest.approx(each) for each in ((15.0, 2.5), (20.0, 20.0)))
    assert shown(row) == (gossip.BUSY, "CPU-ms/s", values, "busy node without links", without)
    assert gossip.row_of(gossip.IDLE, [(5.0, 0.4, 0.1)]).peer == "idle node without links"


def test_memory_of_a_request_is_that_above_the_peer():
    row = memory.row_above_peer([(9000.0, 4000.0), (8000.0, 5000.0)])
    peer = "bare ASGI app, pending"
    assert shown(row) == (memory.SYNC_CASE, "bytes", (5000.0, 3000.0), peer, (4000.0, 5000.0))


@pytest.mark.parametrize(
    ("files", "quick", "held"),
    [(-1, False, 2000), (4256, False, 2000), (4255, False, 1999), (1256, True, 500)],
)
def test_a_process_holds_no_more_connections_than_it_may_have_files(files, quick, held):
    """Twice as many in the end, and some files of its own; -1 is no limit."""
    session = session_of(quick=quick)
    assert memory.connections_of(session, files) == held
    told = f"only {files} files may be open: memory measured with {held} connections"
    assert session.notes == ([told] if files == 4255 else [])


def test_a_connection_costs_what_more_of_them_took():
    """Both ends together; certificates are ours, and the peer is without."""
    assert encrypted.bytes_each([100, 300], [50_000_000, 58_000_000]) == 40_000.0
    assert encrypted.bytes_each([100, 200], [50_000_000, 58_000_000]) == 80_000.0
    with pytest.raises(RunError, match=r"100 connections more between nodes, got \[100, 199\]"):
        encrypted.bytes_each([100, 199], [50_000_000, 58_000_000])
    row = encrypted.idle_row([1.0, 2.0], [3.0, 4.0])
    assert shown(row) == (encrypted.IDLE, "bytes", (3.0, 4.0), "without TLS", (1.0, 2.0))


def test_how_late_the_generator_was_is_told_of_all_requests():
    """In whatever order they came."""
    lags_ms = [float(n) for n in range(100, -1, -1)]
    late = "requests left late by p50 50.00 ms, p99 99.00 ms"
    assert latency.lag_note(lags_ms) == f"{latency.TITLE}: of it, on both sides, {late}"


def test_processors_are_shared_over_a_schedule_until_its_last_answer():
    """Which is not that of the last request; lateness is that of the 99th of a hundred."""
    sent = [
        Record(
            index=n,
            cluster=A,
            intended_s=n * 0.01,
            sent_lag_s=(100 - n) * 1e-3,
            outcome=Outcome.OK,
            response_time_ms=1000.0 if n < 99 else 3.0,
            system_time_ms=7.0,
            hops=0,
        )
        for n in range(101)
    ]
    played = peers.played_of("us", WORKLOADS[0], sent, {"nodes": 0.495, "generator": 0.99})
    assert played.cpu_share == pytest.approx({"nodes": 0.25, "generator": 0.5})
    assert played.lag_ms == pytest.approx(99.0)
    assert [(fate.system_time_ms, fate.hops) for fate in played.fates] == [(7.0, 0)] * 101
    expired = [
        Record(index=0, cluster=A, intended_s=4.0, sent_lag_s=0.0, outcome=Outcome.UNKNOWN),
        Record(index=1, cluster=A, intended_s=2.0, sent_lag_s=0.0, outcome=Outcome.EXPIRED),
    ]
    silent = peers.played_of("us", WORKLOADS[-1], expired, {"nodes": 1.0})
    assert silent.cpu_share == {"nodes": 0.25}, "what has no answer ends when it was sent"


def test_servers_and_clients_have_to_agree_on_what_was_done():
    """The last answer is at 3.5 s; a job that was blocked has taken no time."""
    jobs = [Job(1.0, A, "t", 2500.0), Job(3.0, A, "t", 100.0), Job(3.2, A, "t", None)]
    lags_ms = [float(n) for n in range(100, -1, -1)]
    played = tokens.played_of("us", jobs, Served(jobs=2), {"nodes": 0.7}, lags_ms)
    assert played.cpu_share == pytest.approx({"nodes": 0.2})
    assert (played.lag_ms, played.jobs, played.served.jobs) == (99.0, jobs, 2)
    with pytest.raises(RunError, match="us: 2 jobs were done, and the servers did 3"):
        tokens.played_of("us", jobs, Served(jobs=3), {}, lags_ms)


def test_an_object_costs_a_share_of_what_all_of_them_took():
    """400 objects in 2 s, each of 3 KB; processor time is by queue and by clients, in us."""
    rate, moved_kb, of_queue, of_clients = queue.values_of(400, 2.0, 1_200_000.0, [0.5, 0.2, 0.1])
    assert (rate, moved_kb) == (200.0, 3.0)
    assert of_queue == (500_000.0, 400.0)
    assert of_clients == (pytest.approx(300_000.0), 400.0)
    assert queue.more_mb(10_000_000, 35_500_000) == 25.5
    units = [figure.unit for figure in queue._figures("1 KiB")]
    assert units == ["per s", "KB each", "us each", "us each"]


def test_what_a_killed_producer_means_is_before_and_after():
    """Of those in as many seconds; who still waits in the end has waited, too."""
    waits = [(7.0, 9.0), (8.5, 0.1), (9.0, 0.3), (9.9, 0.2), (10.0, 0.4), (11.0, 0.6), (12.5, 9.0)]
    seen = killed._Seen(given_s=[8.5, 9.9, 11.0], waits=waits, killed_s=10.0)
    found = killed._figures(seen, 2.0)
    assert found[killed.GIVEN] == (1.0, 0.5)
    assert found[killed.WAITED] == pytest.approx((200.0, 500.0))
    assert found[killed.LONGEST] == pytest.approx((300.0, 600.0))
    seen.left_ms.append(1700.0)
    assert killed._figures(seen, 2.0)[killed.LONGEST] == pytest.approx((300.0, 1700.0))
    for nothing in ([(9.0, 0.1)], [(10.0, 0.1)], [(12.0, 0.1), (9.0, 0.1)], [(7.9, 1), (10.0, 1)]):
        with pytest.raises(RunError, match="expected objects before and after"):
            killed._figures(killed._Seen(waits=nothing, killed_s=10.0), 2.0)


READING = Reading(2.5, 400, 0.5, 3000, 7000, {"get": 50, "set": 0})


def test_what_rests_is_told_per_second():
    """Of 2.5 s: round trips, % of a core, kB both ways, and ms of CPU of each of 50 members."""
    figures = holding.at_rest_figures(READING, 2.5, 50)
    assert {case: (figures[case], holding.UNITS[case]) for case in figures} == {
        holding.TRIPS: (160.0, "1/s"),
        holding.REDIS_CPU: (20.0, "% of a core"),
        holding.NETWORK: (4.0, "kB/s"),
        holding.MEMBER_CPU: (20.0, "CPU-ms/s"),
    }
    assert holding.calls_per_s(READING) == {"get": 20.0}


def test_more_members_are_beside_the_fewest():
    """Who came to no rest has no row; without the fewest there is nothing to be beside."""
    session = session_of(case="round trips")
    members.add_rows(session, {10: [(1.0, 5.0), (2.0, 6.0)], 50: [(3.0, 7.0)], 100: []})
    assert told(session) == [
        ("round trips, 10 members", "1/s", (1.0, 2.0), None, ()),
        ("round trips, 50 members", "1/s", (3.0,), "10 members", (1.0, 2.0)),
    ]
    alone = session_of()
    members.add_rows(alone, {10: [], 50: [(3.0, 7.0)], 100: [(4.0, 8.0)]})
    assert told(alone) == [
        ("round trips, 50 members", "1/s", (3.0,), None, ()),
        ("round trips, 100 members", "1/s", (4.0,), None, ()),
        ("CPU of Redis, 50 members", "% of a core", (7.0,), None, ()),
        ("CPU of Redis, 100 members", "% of a core", (8.0,), None, ()),
    ]


def test_rules_have_their_turn_in_the_other_order_on_every_other_run():
    """Who goes first may find it harder."""
    there, back = ("guarded", "blog", "locks"), ("locks", "blog", "guarded")
    assert [tuple(holding.rules_in(run)) for run in range(4)] == [there, back, there, back]


def test_what_is_counted_lasts_for_some_renewals():
    """Of each member: by the whole benchmark four times, twice where only the number of members is
    looked at, and once at least in a quick one."""
    period_ms = settings.TIMES.renewal_period_ms
    lengths_s = [holding.window_s(BenchPlan(quick=quick)) for quick in (False, True)]
    renewals = [length_s * 1e3 / period_ms for length_s in (*lengths_s, members.WINDOW_S)]
    assert (renewals[0], renewals[2]) == (4.0, 2.0)
    assert 1.0 < renewals[1] < 2.0
    # Twenty partitions each, of the few as well.
    each = holding.PARTITIONS_QUICK / holding.MEMBERS_QUICK
    assert each == holding.PARTITIONS / holding.MEMBERS


def test_what_members_wait_for_is_over_within_a_period():
    """Twenty partitions at a node, which is its share: it answers a challenge after a fifth of a
    period at most. The mark of who has won is gone before the next; who hands over may take one."""
    times, share = settings.TIMES, holding.PARTITIONS / holding.MEMBERS
    assert share * times.held_delay_ms == 0.2 * times.normal_lease_ms
    assert times.min_grab_ms <= 0.5 * times.normal_lease_ms
    assert times.max_shutdown_ms <= times.normal_lease_ms


def test_nobody_waits_for_more_than_a_minute_for_what_never_comes():
    """A Redis, a host, a member or a whole group that hangs."""
    waits_s = {
        *(cluster.READY_WITHIN_S, cluster.SILENT_WITHIN_S, *holding.EVEN_WITHIN_S.values()),
        *(lateness.READY_WITHIN_S, lateness.DONE_WITHIN_S),
        *(takeover.EVEN_WITHIN_S, takeover.TAKEN_WITHIN_S),
    }
    assert max(waits_s) <= 60.0
    assert takeover.EVEN_WITHIN_S + takeover.TAKEN_WITHIN_S <= 60.0
    assert max(server.TIMEOUT_S, readings.GONE_WITHIN_S) <= 10.0
    # A host that is at rest says so before.
    assert 10.0 * hosts.SIGN_OF_LIFE_S <= cluster.SILENT_WITHIN_S
    assert hosts.REPORT_S <= hosts.SIGN_OF_LIFE_S / 10.0


def test_members_are_in_processes_of_ten():
    assert [holding.hosts_for(count) for count in (1, 10, 11, 50, 100)] == [1, 1, 2, 5, 10]


def test_what_was_won_last_has_been_renewed_where_members_rest():
    """Once, not twice: nobody waits for what is there already."""
    assert 1.0 < holding.SETTLE_S * 1e3 / settings.TIMES.renewal_period_ms < 2.0


def test_what_is_late_under_load_was_due_in_it():
    """However late it left; in ms, and so is the time of a batch."""
    sent = [(9.5, 0.75), (10.0, 0.25), (11.0, 3.5), (12.0, 0.5), (13.0, 0.125)]
    found = renewing.loaded_of(sent, 3, (10.0, 12.0), 80)
    assert found == Loaded([250.0, 3500.0], 3, 25.0)
    assert renewing.loaded_of([], 0, (10.0, 12.0), 0).batch_ms == 2000.0, "none was done in time"
    assert renewing.loaded_of([], 0, (10.0, 12.0), 1).batch_ms == 2000.0


def test_what_was_due_under_load_may_be_a_period_late():
    """It is waited for, but not for long; a task renews as often as other members do."""
    assert settings.TIMES.renewal_period_ms == renewing.PERIOD_S * 1e3
    assert 1.0 < renewing.AFTER_S / renewing.PERIOD_S < 2.0


@pytest.mark.parametrize(
    ("cores", "quick", "each", "renewals"),
    [(1, False, 16, 80), (2, False, 8, 80), (2, True, 8, 32), (32, True, 1, 64)],
)
def test_members_under_load_send_as_many_renewals_on_any_machine(cores, quick, each, renewals):
    """Unless it has more cores than there are members: then each process has one."""
    plan = lateness.plan_of(BenchPlan(quick=quick), "redis://x", "thread", cores)
    assert (plan.url, plan.mode, plan.members) == ("redis://x", "thread", each)
    assert plan.members * cores * plan.load_s / renewing.PERIOD_S == renewals


def loaded(late_ms, lost=0, batch_ms=10.0):
    return Loaded(late_ms, lost, batch_ms)


def test_lateness_is_that_of_all_processes():
    """And losses add up."""
    late_ms = [float(n) for n in range(100, -1, -1)]
    found = lateness.figures_of("us", [loaded(late_ms[:50], 2), loaded(late_ms[50:], 1)])
    assert found == (50.0, 99.0, 100.0, 3.0)
    with pytest.raises(RunError, match="us sent no renewal that was due under load"):
        lateness.figures_of("us", [loaded([]), loaded([])])


def lateness_told(p99_ms, **plan):
    session = session_of(**plan)
    for mode in (lateness.THREAD, lateness.TASK):
        peer = lateness.SIDES[mode]
        row = Row(case=lateness.P99, unit="ms", values=(p99_ms,), peer=peer, peer_values=(9.0,))
        session.add(row)
    found = {
        lateness.PROCESS: [loaded([9.0, 1.0, 2.0], 1, 30.0), loaded([40.0], 2, 10.0)],
        lateness.THREAD: [loaded([3.0], 0, 20.0)],
    }
    lateness._judge(session, found, 2)
    return session


@pytest.mark.parametrize(("p99_ms", "verdict"), [(50.0, ": met"), (50.1, ": NOT met")])
def test_lateness_is_held_against_what_is_asked_for_once(p99_ms, verdict):
    """However many peers it stands beside; and told with what kept the processes busy."""
    session = lateness_told(p99_ms)
    assert told(session)[2:] == [(lateness.P99, "ms", (p99_ms,), "limit", (50.0,))]
    judged, load, process, thread = session.notes
    assert judged.endswith(verdict)
    assert load.startswith(
        "under load: 2 processes of 4 handlers that read batches of 20000 JSON records (one each "
        "20 ms for each process) and hold 32 leases each, beside 2 that only compute, on 2 cores"
    )
    late = "late by p50 2.0 ms, p99 40.0 ms, max 40.0 ms; 3 leases lost"
    assert process == f"a process: 4 renewals of all runs, {late}"
    late = "late by p50 3.0 ms, p99 3.0 ms, max 3.0 ms; 0 leases lost"
    assert thread == f"a thread: 1 renewals of all runs, {late}"
    assert len(lateness_told(p99_ms, quick=True).rows) == 2, "a quick run has no limit"


def test_a_takeover_ends_with_the_last_that_runs_again():
    """By the first time of each since then; what others do, and what ends, is none of it."""
    said = [
        (9.0, "b", 1, True), (10.0, "b", 2, True), (11.0, "c", 1, True), (11.5, "b", 2, True),
        (12.0, "d", 1, True), (13.0, "b", 2, False), (14.0, "b", 7, True),
    ]  # fmt: skip
    assert takeover.took_s([Report(*one) for one in said], [1, 2], 10.0) == 1.5


def test_a_member_is_killed_at_any_instant_of_its_period():
    """Which is a second: the leases are renewed as often."""
    random = Random(1)
    instants_s = sorted(takeover.instant_s(random) for _ in range(1000))
    assert 0.0 <= instants_s[0] < 0.02
    assert 0.98 < instants_s[-1] < 1.0
    assert instants_s[500] == pytest.approx(0.5, abs=0.06)


def test_a_takeover_is_beside_its_bound():
    session = session_of()
    case = takeover.CASE
    session.add(Row(case=case, unit="s", values=(3.0, 4.0), peer="blog", peer_values=(1.0, 1.0)))
    takeover.add_bound(session)
    assert told(session)[1:] == [(case, "s", (3.0, 4.0), "bound", (takeover.BOUND_S,))]
    times = settings.TIMES
    most_ms = times.max_lease_ms + times.renewal_period_ms + times.longest_wait_ms
    assert pytest.approx(most_ms / 1e3) == takeover.BOUND_S
    assert session.notes[0].startswith(f"{case}: 32 partitions on 4 processes; ")
    assert session.notes[0].endswith("longest of 2: 4.00 s: met")
    assert "by the blog's rule: silence is a vote" in session.notes[1], "why it is sooner there"


def test_clients_cost_a_node_what_it_takes_more_with_them():
    assert one_node.mb_more(70_000_000, 94_000_000) == 24.0
    assert one_node.percent_more(0.25, 1.75, 30.0) == pytest.approx(5.0)
    assert one_node.others_of({"lost": 120, "moved": 3}, 112) == 11.0
    assert list(one_node.UNITS.values()) == ["MB", "% of a core", "ms", "in all"]
    assert list(one_node.WANTED.values()) == [60.0, 5.0, 1000.0, 0.0]


def test_streams_that_nobody_reads_cost_what_a_process_grew():
    """The one that grew most; of a hundred of them in KiB each, of a large one in MiB."""
    before, after = [1 << 20, 0], [3 << 20, 50 << 20]
    assert streams_memory._of_stalled(before, after) == {streams_memory.STALL: 512.0}
    assert streams_memory._of_large(before, after) == {streams_memory.LARGE: 50.0}
    assert list(streams_memory.UNITS.values()) == ["KiB", "MB", "KiB", "MiB"]


def test_memory_of_each_way_is_beside_ours():
    session = session_of()
    taken = {
        name: [{streams_memory.IDLE: value, streams_memory.ALL: 2 * value}]
        for name, value in (("nodes", 3.0), ("nginx", 5.0))
    }
    both = (streams_memory.IDLE, streams_memory.ALL)
    streams_memory._add(session, "one hop", both, taken)
    assert told(session) == [
        ("memory of an idle stream, one hop", "KiB", (3.0,), "nginx", (5.0,)),
        ("memory of 1000 streams, one hop", "MB", (6.0,), "nginx", (10.0,)),
    ]


def test_a_cancel_that_nobody_heard_of_took_as_long_as_was_waited():
    """Of a hundred and one the 99th is told, in ms."""
    left = {number: 10**9 * number for number in range(101)}
    lost = {number: at + 10**6 * (100 - number) for number, at in left.items()}
    assert streams._known_p99_ms(left, lost) == 99.0
    assert streams._known_p99_ms(left, {n: at for n, at in lost.items() if n > 1}) == 3000.0


def test_neighbors_cost_more_than_the_fewest():
    session = session_of(case="4 neighbors")
    costs_us = {case: [reach + 0.5, reach + 0.25] for case, reach in scale.NEIGHBORS.items()}
    scale.add_neighbors(session, costs_us)
    case = "cost of a request, 4 neighbors"
    assert told(session) == [(case, "us", (2.5, 2.25), "2 neighbors", (1.5, 1.25))]


def test_an_end_that_took_a_core_is_told():
    """Of two seconds: 1.81 s are hardly a moment left."""
    (limit,) = turns.busy({"service": 1.81, "clients": 1.79}, 2.0)
    assert limit == "the service of the benchmark took a core: they, not it, are the limit"
