"""Hundreds of connected clients: a node is killed under them, and a cluster is taken away."""

from __future__ import annotations

import os
import signal
import time
from itertools import pairwise

import pytest

from support.commands import LOADGEN
from support.waiting import slack

CLIENTS = 300

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
    all_connected([url for name, url in urls.items() if name != "b"], 10.0)
    time.sleep(STAY_S)
    result = load.result_so_far()
    assert (result["unconnected"], result["clients"]["b"]) == (0, 0)
    assert sum(result["clients"].values()) == CLIENTS
    assert (result["lost"], result["moved"]) == (its_own, 0)
    assert result["elsewhere_ms"]["p99"] <= 1000.0 * slack()
    assert result["requests"]["failed"] == 0
    assert_cap_is_kept(result)
    assert bed.end() == 0
