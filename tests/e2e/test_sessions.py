"""Hundreds of connected clients: a node is killed under them, and a cluster is taken away."""

from __future__ import annotations

import os
import signal
import time
from itertools import pairwise

import pytest
import yaml

from support.commands import LOADGEN
from support.waiting import slack

pytestmark = pytest.mark.threes

CLIENTS = 300
REPAIRED_MAX = CLIENTS // 10
"""Clients begin anywhere: half of what a node has beyond its neighbors moves with a change."""

CONNECTS_PER_S, BURST = 100, 50
CONNECTED_S = 40.0
"""For all of them to have a session at first, of the load's minute and a half."""
STAY_S = 2.0
"""Once all have a session again, nobody else moves for so long."""


@pytest.fixture
def all_connected(ask, until):
    """`all_connected(urls, limit_s)`: waits until all clients have a session at one of these."""

    def wait(urls, limit_s):
        def connected():
            states = [ask(f"{url}/state")[1] for url in urls]
            return sum(state["clients"]["connected"] for state in states)

        until(lambda: connected() == CLIENTS, limit_s, "clients that have a session")

    return wait


@pytest.fixture
def connect(start, all_connected):
    """`connect(urls)`: clients that begin at any of these nodes, once all have one."""

    def connect_them(urls):
        nodes = [word for url in urls.values() for word in ("--node", url)]
        load = start(
            *LOADGEN, "clients", *nodes, "--clients", str(CLIENTS), "--rate", "40", "--json",
            "--duration-s", "90",
        )  # fmt: skip
        all_connected(urls.values(), CONNECTED_S)
        return load

    return connect_them


def assert_cap_is_kept(result):
    """No node lets in more than its burst and its rate, whatever happens to it."""
    for before, after in pairwise(result["timeline"]):
        allowed = BURST + CONNECTS_PER_S * (after["at_s"] - before["at_s"]) + 5
        for server, count in after["clients"].items():
            assert count - before["clients"].get(server, 0) <= allowed


def test_a_killed_node(up, connect, ask, all_connected):
    """Its clients are elsewhere within a second, and only they move."""
    bed, urls = up("ring5", "--seed", "1", "--no-restart")
    load = connect(urls)
    its_own = ask(f"{urls['b']}/state")[1]["clients"]["connected"]
    os.kill(bed.nodes()["b"], signal.SIGKILL)
    all_connected([url for name, url in urls.items() if name != "b"], 10.0 * slack())
    time.sleep(STAY_S)
    result = load.result_so_far()
    assert (result["unconnected"], result["clients"]["b"]) == (0, 0)
    assert sum(result["clients"].values()) == CLIENTS
    assert (result["lost"], result["moved"]) == (its_own, 0)
    assert result["elsewhere_ms"]["p99"] <= 1000.0 * slack()
    assert result["requests"]["failed"] == 0
    assert_cap_is_kept(result)
    assert bed.end() == 0


def test_a_cluster_is_taken_away(up, connect, spillover, ask, all_connected, tmp_path):
    """Its clients leave within the wait and two seconds, the others stay but for what repairs the
    uneven start, and no request fails."""
    bed, urls = up("ring5", "--seed", "1")
    load = connect(urls)
    before = {name: ask(f"{url}/state")[1]["clients"]["connected"] for name, url in urls.items()}
    got = spillover("config", "get", urls["a"])
    assert got.process.wait(20) == 0, got.stderr
    told = yaml.safe_load(got.stdout)
    told["clusters"] = [one for one in told["clusters"] if one["id"] != "e"]
    told["links"] = [one for one in told["links"] if "e" not in one["between"]]
    file = tmp_path / "without-e.yaml"
    file.write_text(yaml.safe_dump(told))
    done = spillover("config", "set", urls["a"], str(file), "--if-version", "0")
    assert done.process.wait(20) == 0, done.stderr
    all_connected([url for name, url in urls.items() if name != "e"], 7.0 * slack())
    time.sleep(STAY_S)
    result = load.result_so_far()
    assert (result["unconnected"], result["clients"].get("e", 0)) == (0, 0)
    assert result["lost"] == 0
    assert before["e"] <= result["moved"] <= before["e"] + REPAIRED_MAX
    assert all(result["clients"][name] >= before[name] for name in "abcd")
    assert (result["requests"]["failed"], result["requests"]["unknown"]) == (0, 0)
    assert_cap_is_kept(result)
    assert bed.end() == 0
