"""`spillover bench peers`: HAProxy's sites do what an operator wants of them, their servers are as
fast as ours, and figures come from all requests of the same schedule."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from contextlib import suppress
from itertools import pairwise

import psutil
import pytest

from spillover.cli import main
from spillover.model.errors import InputError, RunError
from spillover.model.ids import ClusterId
from spillover.model.schedule import Arrival
from spillover.model.topology import Cluster, Link, Topology
from spillover.tools.bench import foreign, haproxy
from spillover.tools.bench.load_process import LoadProcess
from spillover.tools.bench.model import BenchPlan, Row
from spillover.tools.bench.peers.outcome import Done, best_threshold, fates_of, values_of
from spillover.tools.bench.peers.sides import ThresholdSites, Turn, simulate
from spillover.tools.bench.peers.sites import running_sites
from spillover.tools.bench.peers.workloads import SYSTEM_TIMES, WORKLOADS, Workload, jobs, mesh
from spillover_loadgen import driver
from spillover_loadgen.record import Outcome, Record
from support.few import few_at_first

BENCH = [sys.executable, "-m", "spillover", "bench", "peers", "--quick", "--case", "bursts"]
BURSTS, JOBS, UNLIKE, OVERLOAD = WORKLOADS
DELAY_MS, SERVICE_MS, DELIVERY_MS = 35.0, 600.0, 6.0


@pytest.fixture(scope="module")
def with_haproxy(require):
    require(haproxy.find_haproxy() is not None, "haproxy is not installed")


def line(*names):
    """Sites of one server each, linked one after the other."""
    return Topology(
        name="line",
        clusters=tuple(
            Cluster(id=ClusterId(name), servers=1, service_ms=SERVICE_MS, delivery_ms=DELIVERY_MS)
            for name in names
        ),
        links=tuple(
            Link(between=(ClusterId(one), ClusterId(other)), delay_ms=DELAY_MS)
            for one, other in pairwise(names)
        ),
    )


def names_of(processes):
    """Of those that are still there."""
    names = []
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            names.append(process.name())
    return names


def played(topology, threshold, schedule):
    """The records of a schedule that HAProxy's sites have played."""

    async def play():
        async with running_sites(topology, threshold) as sites:
            running = [psutil.Process(pid).name() for pid in sites.haproxies]
            assert running == ["haproxy"] * len(topology.clusters), "what is told of processor time"
            assert len({*sites.emulation}) == 2
            assert all(int(url.rpartition(":")[2]) >= 1024 for url in sites.urls.values())
            return await driver.run(schedule, sites.urls, seed=1, keyed=False)

    return asyncio.run(play())


@pytest.mark.e2e
@pytest.mark.quiet
@pytest.mark.usefixtures("with_haproxy")
@pytest.mark.parametrize(("threshold", "kept"), [(0, 1), (2, 3)])
def test_a_full_site_spills_once_that_many_wait(threshold, kept):
    """To its neighbor, which is full too by then and keeps them all: none is spilled twice."""
    schedule = [Arrival(number * 0.02, ClusterId("a")) for number in range(6)]
    records = played(line("a", "b", "c"), threshold, schedule)
    assert [record.outcome for record in records] == [Outcome.OK] * 6
    own, spilled = records[:kept], records[kept:]
    assert [record.path for record in own] == [("a",)] * kept
    assert [record.path for record in spilled] == [("a", "b")] * (6 - kept)
    for turn, record in enumerate(own):
        late_ms = record.system_time_ms - (turn + 1) * SERVICE_MS - DELIVERY_MS
        assert -20.0 * turn - 1.0 <= late_ms <= 100.0
    for record in spilled:
        assert record.system_time_ms >= DELAY_MS + SERVICE_MS + DELIVERY_MS
        # The client waits for the way back too, but not for the delivery, which is only counted.
        assert record.response_time_ms >= 2 * DELAY_MS + SERVICE_MS


@pytest.mark.e2e
@pytest.mark.quiet
@pytest.mark.usefixtures("with_haproxy")
def test_servers_behind_haproxy_are_as_fast_as_a_nodes():
    """In bursts each loss would add up over the queue: without a neighbor the times are those of
    isolated clusters in virtual time."""
    never = 10**9
    schedule = BURSTS.draw(4.5, 1)

    async def play():
        with LoadProcess() as load:
            turn = Turn(BURSTS, schedule, 1, load, asyncio.Barrier(1))
            return await ThresholdSites(never).play(turn)

    live = values_of(BURSTS, schedule, asyncio.run(play()).fates)
    virtual = values_of(BURSTS, schedule, simulate(BURSTS, "isolated", schedule, 1))
    mean, _, _, moved, hops = SYSTEM_TIMES
    assert virtual[mean] > 150.0  # there was a queue
    assert 0.99 <= live[mean] / virtual[mean] <= 1.15
    assert live[moved] == live[hops] == 0.0


@pytest.mark.e2e
@pytest.mark.quiet
@pytest.mark.usefixtures("with_haproxy")
def test_the_command_puts_policies_beside_haproxy_and_virtual_time(tmp_path):
    command = [*BENCH, "--json", "--duration-s", "3", "--policy", "paper,isolated"]
    run = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=100
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.count("\n") == 1
    result = json.loads(run.stdout)
    rows = {(row["case"], row["peer"]): row for row in result["rows"]}
    beside = {
        "paper": ["HAProxy, queue 1", "itself, simulated"],
        "isolated": ["HAProxy, queue 1", "itself, simulated", "paper"],
    }
    assert set(rows) == {
        (f"bursts, {policy}: {figure.case}", peer)
        for policy, peers in beside.items()
        for peer in peers
        for figure in SYSTEM_TIMES
    }
    assert rows["bursts, paper: moved", "HAProxy, queue 1"]["peer_value"] > 0
    for (case, _), row in rows.items():
        if case.endswith(("mean", "p99", "max")):
            assert min(row["value"], row["peer_value"]) >= 46.0  # the service and its delivery
    notes = "\n".join(result["notes"])
    for told in ("of one core nodes", "of one core HAProxy", "left late by", "Too few seeds"):
        assert told in notes


@pytest.mark.e2e
@pytest.mark.quiet
@pytest.mark.usefixtures("with_haproxy")
def test_ended_early_it_leaves_no_process(tmp_path):
    """Neither HAProxy nor what it stands between."""
    command = [*BENCH, "--duration-s", "2", "--runs", "1000"]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as bench:
        parent = psutil.Process(bench.pid)
        children = []
        try:
            for line in bench.stderr:
                if "HAProxy, queue 1" in line:
                    break
            # All five run for two seconds and more: so they are seen together.
            while names_of(children).count("haproxy") < 5:
                children = parent.children(recursive=True)
            bench.send_signal(signal.SIGINT)
            said = bench.stderr.read()
            assert bench.wait(20) == 130, said
            assert "Traceback" not in said
            gone, alive = psutil.wait_procs(children, timeout=5)
            assert not alive, gone
        finally:
            for process in (*children, parent):
                if process.is_running():
                    process.kill()


def test_a_missing_haproxy_is_told_in_one_line(monkeypatch, tmp_path, capsys):
    """Before anything is started, and with how to get it."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(foreign, "SYSTEM_DIRECTORIES", ())
    assert main(["bench", "peers"]) == 2
    assert capsys.readouterr() == ("", f"spillover: haproxy: {haproxy.HOW_TO_GET_IT}\n")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["node", "--policy", "paper"], "--policy: expected with bench peers alone"),
        (["sim", "--duration-s", "9"], "--duration-s: expected with bench peers or tokens alone"),
        (["peers", "--policy", "papr"], "--policy: expected some of isolated, paper, "),
        (["peers", "--duration-s", "0"], "--duration-s: expected a whole number from 1 to 3600"),
    ],
)
def test_bad_usage_is_told_in_one_line(arguments, told, capsys):
    assert main(["bench", *arguments]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert told in err


def test_paired_runs_are_compared_one_by_one():
    """Seeds differ far more than sides do."""
    row = Row(
        case="c",
        unit="ms",
        values=(10.0, 200.0, 33.0),
        peer="p",
        peer_values=(20.0, 100.0, 30.0),
        paired=True,
    )
    assert row.ratio == pytest.approx(1.1)
    assert (row.value, row.peer_value) == (33.0, 30.0)
    told = {"case": "c", "unit": "%", "peer": "p", "paired": True}
    assert Row(**told, values=(1.0, 9.0), peer_values=(0.5, 0.0)).ratio == 2.0
    assert Row(**told, values=(1.0,), peer_values=(0.0,)).ratio is None


def test_the_threshold_is_the_best_over_all_runs():
    """Least for times, most for goodput; of equals the lowest."""
    mean, goodput = SYSTEM_TIMES[0], OVERLOAD.figures[0]

    def runs(figure, *values):
        return [{figure: value} for value in values]

    times = {0: runs(mean, 50, 90), 1: runs(mean, 60, 60), 2: runs(mean, 60, 60)}
    assert best_threshold(mean, times) == (1, {0: 70, 1: 60, 2: 60})
    shares = {0: runs(goodput, 60), 4: runs(goodput, 66), 2: runs(goodput, 64)}
    assert best_threshold(goodput, shares)[0] == 4


def test_waits_are_what_is_left_without_the_own_service():
    schedule = [Arrival(0.0, ClusterId("a"), service_ms=ms) for ms in (1000.0, 10.0, 500.0)]
    fates = [Done(1000.0, 0), Done(310.0, 2), Done(570.0, 1)]
    values = [values_of(JOBS, schedule, fates)[figure] for figure in JOBS.figures]
    assert values == pytest.approx([(0 + 300 + 70) / 3, 300, 300, 200 / 3, 100])
    at_once = values_of(JOBS, schedule[:1], fates[:1])
    assert list(at_once.values()) == [0.0] * 5


def test_goodput_is_what_was_done_in_time_of_all_that_came():
    late = Done(OVERLOAD.deadline_ms + 1, 0)
    schedule = [Arrival(0.0, ClusterId("a"))] * 4
    fates = [Done(1000.0, 1), late, None, None]
    assert list(values_of(OVERLOAD, schedule, fates).values()) == [25.0, 50.0, 50.0]
    with pytest.raises(RunError, match="not one request was done"):
        values_of(OVERLOAD, schedule, [None] * 4)


def test_overload_counts_once_queues_are_full():
    """Else who lets them grow longer would seem to do more."""
    schedule = [Arrival(time_s, ClusterId("a")) for time_s in (0.0, 19.9, 20.0, 60.0)]
    fates = [Done(1.0, 0), Done(1.0, 0), Done(1.0, 1), None]
    assert list(values_of(OVERLOAD, schedule, fates).values()) == [50.0, 100.0, 100.0]
    short = [Arrival(time_s, ClusterId("a")) for time_s in (0.0, 3.9, 4.0, 8.0)]
    assert list(values_of(OVERLOAD, short, fates).values()) == [50.0, 100.0, 100.0]


@pytest.mark.parametrize(
    ("workload", "outcome", "is_told"),
    [
        (BURSTS, Outcome.REFUSED, True),
        (OVERLOAD, Outcome.REFUSED, False),
        (OVERLOAD, Outcome.UNREACHABLE, True),
        (OVERLOAD, Outcome.FAILED, True),
    ],
)
def test_a_failure_is_never_left_out_of_the_figures(workload, outcome, is_told):
    """Only who is overloaded may refuse."""
    record = Record(
        index=7, cluster=ClusterId("a"), intended_s=0, sent_lag_s=0, outcome=outcome, reason="why"
    )
    if is_told:
        with pytest.raises(RunError, match=f"HAProxy: request 7 has failed: {outcome}, why"):
            fates_of("HAProxy", workload, [record])
    else:
        assert fates_of("HAProxy", workload, [record]) == [None]


@pytest.mark.slow
@pytest.mark.parametrize("load", few_at_first([0.9, 1.5], 1))
def test_jobs_offer_each_site_its_load(load):
    """However many servers it has; and a longer schedule begins with the shorter one."""
    topology = mesh("unlike", (2, 16))
    schedule = jobs(topology, load, 4000.0, 3)
    for cluster in topology.clusters:
        own = [arrival.service_ms for arrival in schedule if arrival.cluster == cluster.id]
        assert sum(own) / 4e6 / cluster.servers == pytest.approx(load, rel=0.06)
    shorter = jobs(topology, load, 50.0, 3)
    assert schedule[: len(shorter)] == shorter


def test_the_plan_says_how_long_schedules_are():
    def ends_s(workload: Workload, **fields) -> float:
        return workload.schedule(BenchPlan(**fields), 1)[-1].time_s

    assert 44 < ends_s(BURSTS) < 45
    assert ends_s(BURSTS, quick=True) < 5
    assert 8 < ends_s(UNLIKE, quick=True, duration_s=9) < 9
    with pytest.raises(InputError, match="--duration-s: expected longer: no request of unlike"):
        ends_s(UNLIKE, duration_s=1)
