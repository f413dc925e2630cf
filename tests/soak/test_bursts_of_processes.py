"""Bursts on ring5, where each site is two processes behind one address, alive and in virtual time.
For a machine that does nothing else, which has to be said: ten nodes and the load share its cores.

It is asked that the median over five seeds is within 15 % of what is simulated:
SPILLOVER_QUIET=1 SPILLOVER_SOAK_S=30 .venv/bin/pytest -s tests/soak/test_bursts_of_processes.py
"""

import os
import signal
from dataclasses import replace
from statistics import median

import pytest

from spillover.inputs.topology_file import dump_topology, load_topology

pytestmark = pytest.mark.skipif(
    os.environ.get("SPILLOVER_QUIET") != "1",
    reason="set SPILLOVER_QUIET=1 on a machine that does nothing else",
)

SEEDS = range(1, 6)
POLICY = "paper"


@pytest.fixture
def ring(tmp_path, spillover, ask, until, free_ports):
    """The urls of the five clusters, once all processes hear their siblings and neighbors."""
    topology = load_topology("ring5")
    ports = iter(free_ports(2 * len(topology.clusters)))
    clusters = [
        replace(one, url=at(next(ports)), peer_url=at(next(ports))) for one in topology.clusters
    ]
    file = tmp_path / "ring.yaml"
    file.write_text(dump_topology(replace(topology, clusters=tuple(clusters), policy=POLICY)))
    told = "--topology", str(file), "--processes", "2", "--lame-duck-s", "0"
    running = [spillover("node", *told, "--cluster", one.id) for one in clusters]
    urls = {one.id: one.url for one in clusters}
    until(lambda: all(is_whole(ask, url) for url in urls.values()), what=lambda: running[0].stderr)
    yield urls
    for one in running:
        assert one.end(signal.SIGTERM, 30.0) == 0


def at(port):
    return f"http://127.0.0.1:{port}"


def is_whole(ask, url):
    """Whether each of two processes, as connections find them, hears the other and all
    neighbors."""
    try:
        states = [ask(f"{url}/state")[1] for _ in range(8)]
    except OSError:
        return False
    return {state["site"]["node"] for state in states} == {1, 2} and all(
        state["site"]["members"] == [1, 2] and all(one["alive"] for one in state["neighbors"])
        for state in states
    )


def test_bursts_at_sites_of_two_processes_are_as_simulated(ring, generate, spillover, soak_s):
    shares = {"mean": [], "p99": []}
    for seed in SEEDS:
        told = "--workload", "bursts", "--duration-s", str(soak_s), "--seed", str(seed)
        simulated = spillover(
            "sim", "overflow", "--topology", "ring5", "--policy", POLICY, *told, "--json"
        ).result(soak_s + 60.0)
        live = generate(ring, *told).result(soak_s + 60.0)
        assert live["sent"] == live["outcomes"]["ok"] == simulated["requests"]
        for name, told_shares in shares.items():
            told_shares.append(live["system_time_ms"][name] / simulated["system_time_ms"][name])
        print(seed, {name: round(told_shares[-1], 3) for name, told_shares in shares.items()})  # noqa: T201
    for name, told_shares in shares.items():
        assert median(told_shares) == pytest.approx(1.0, rel=0.15), name
