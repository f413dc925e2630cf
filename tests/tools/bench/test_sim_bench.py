"""`spillover bench sim`: its cases, its federations, and a quick run of it as a command."""

from __future__ import annotations

import importlib.util
import json
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress

import psutil
import pytest

from spillover.inputs.topology_file import load_topology
from spillover.tools.bench import catalog
from spillover.tools.bench.machine import describe_machine
from spillover.tools.bench.sim import STAGES, scale

BENCH = [sys.executable, "-m", "spillover", "bench", "sim", "--quick", "--json", "--case"]


@pytest.fixture
def bench(require):
    """Runs one case: its rows and its notes."""
    require(importlib.util.find_spec("numba"), "numba, from the extra `sim`")

    def run(case):
        done = subprocess.run(
            [*BENCH, case], capture_output=True, text=True, check=False, timeout=100
        )
        assert done.returncode == 0, done.stderr
        result = json.loads(done.stdout)
        assert result["name"] == "sim"
        return result["rows"], result["notes"]

    return run


def test_cases_have_names_of_their_own():
    """--case picks by them."""
    names = [case for stage in STAGES for case in stage.cases]
    assert len(names) == len(set(names)) == 8


@pytest.mark.parametrize("reach", scale.REACHES)
def test_circles_have_the_neighbors_they_are_named_after(reach):
    """Twice the reach for each cluster."""
    topology = scale.circulant(scale.RING, reach)
    degrees = Counter(end for link in topology.links for end in link.between)
    assert set(degrees.values()) == {2 * reach}
    assert len(degrees) == scale.RING
    assert all(len({*link.between}) == 2 for link in topology.links)


def test_circles_are_of_the_paper_s_clusters_and_links():
    """At most of what they can do, and nearly all of it where decisions are what is timed."""
    topology, paper = scale.circulant(5, 1), load_topology("ring5")
    values = {(c.servers, c.service_ms, c.delivery_ms) for c in topology.clusters}
    assert values == {(c.servers, c.service_ms, c.delivery_ms) for c in paper.clusters}
    assert {x.delay_ms for x in topology.links} == {x.delay_ms for x in paper.links}
    ((servers, service_ms, _),) = values
    can_per_s = servers / (service_ms / 1e3)
    assert scale.RATE_PER_S / can_per_s == 0.8
    assert 0.9 * can_per_s < scale.BUSY_RATE_PER_S < can_per_s


@pytest.mark.processes
def test_the_engines_stand_beside_their_peers(bench):
    """A row for each library, and the compiled engine is the fastest by far even so."""
    rows, _ = bench("fast engine, ring5")
    assert [row["peer"] for row in rows] == ["SimPy", "Ciw"]
    for row in rows:
        assert row["unit"] == "requests/s"
        assert row["ratio"] == pytest.approx(row["value"] / row["peer_value"])
        assert row["ratio"] > 5


@pytest.mark.processes
def test_the_large_run_has_a_process_of_its_own(bench):
    """Time and memory. A quick run is called by what ran, and stands beside no limit."""
    rows, _ = bench("1 000 clusters")
    assert [(row["case"], row["unit"], row["peer"]) for row in rows] == [
        ("200 000 requests, 1 000 clusters: time", "s", None),
        ("200 000 requests, 1 000 clusters: memory", "MB", None),
    ]
    assert all(row["value"] > 0 for row in rows)


def test_only_the_large_run_stands_beside_its_limits():
    """What a quick run needs says nothing of them."""
    full = [row for _, row in scale.large_rows([30.0], [900.0], quick=False)]
    assert [(row.case, row.peer_value) for row in full] == [
        (scale.WALL, 120.0),
        (scale.MEMORY, 2000.0),
    ]
    quick = [row for _, row in scale.large_rows([3.0], [90.0], quick=True)]
    assert not any("10^7" in row.case or row.peer for row in quick)
    assert all(f"{scale.REQUESTS_QUICK:_.0f}".replace("_", " ") in row.case for row in quick)


@pytest.mark.parametrize(
    ("name", "told"),
    [("sim", {"ciw", "numba", "numpy", "simpy"}), ("node", {"aiohttp", "uvicorn"})],
)
def test_the_machine_tells_the_packages_that_are_measured(name, told):
    """Each benchmark its own; those that are not installed are left out."""
    packages = describe_machine([*catalog._MEASURED[name], "no-such-package"])["packages"]
    installed = {package for package in told if importlib.util.find_spec(package)}
    assert installed <= set(packages) <= set(catalog._MEASURED[name])


@pytest.mark.processes
@pytest.mark.parametrize(
    ("case", "number"),
    [
        ("fast engine, ring5", signal.SIGINT),
        ("neighbors", signal.SIGTERM),
        ("10^7", signal.SIGINT),
    ],
)
def test_one_ctrl_c_ends_it_at_once(require, case, number):
    """Wherever it computes, its own process or another."""
    require(importlib.util.find_spec("numba"), "numba, from the extra `sim`")
    command = [*BENCH[:5], "--runs", "1000", "--case", case]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as bench:
        parent = psutil.Process(bench.pid)
        try:
            for line in bench.stderr:
                if "run 1 of 1000" in line:
                    break
            with suppress(subprocess.TimeoutExpired):  # in the middle of a run, whichever
                bench.wait(0.7)
            children = parent.children(recursive=True)
            sent_s = time.monotonic()
            bench.send_signal(number)
            said = bench.stderr.read()
            assert bench.wait(20) == 130, said
            assert time.monotonic() - sent_s < 5
            assert "Traceback" not in said
            assert not psutil.wait_procs(children, timeout=5)[1]
        finally:
            bench.kill()


@pytest.mark.processes
def test_the_cost_of_neighbors_is_told_beside_the_fewest(bench):
    rows, _ = bench("neighbors")
    assert [row["case"] for row in rows] == list(scale.NEIGHBORS)[1:]
    assert {row["peer"] for row in rows} == {"2 neighbors"}
    assert all(row["value"] > 0 for row in rows)
