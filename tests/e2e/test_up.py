"""`spillover up`: a testbed that comes up as a whole, and of which nothing is ever left."""

import json
import os
import re
import signal
import socket
import threading
import time
import urllib.request
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from spillover.cli import main
from spillover.client import Spillover
from support.waiting import slack

TWO = """
name: two
clusters:
  - {id: a, servers: 2, service_ms: 20, url: "http://127.0.0.1:%d"}
  - {id: b, servers: 2, service_ms: 20, url: "http://127.0.0.1:%d"}
links: [{between: [a, b], delay_ms: 5}]
"""


PAIR = """
clusters: [{id: a, servers: 1}, {id: b, servers: 1}]
links: [{between: [a, b], delay_ms: 5}]
"""


@pytest.fixture
def pair(tmp_path):
    """A file with two clusters, and no more: each node takes most of a second to start."""
    path = tmp_path / "pair.yaml"
    path.write_text(PAIR)
    return str(path)


@pytest.fixture
def two(tmp_path, free_ports):
    """A file with two clusters whose urls are given, and its ports."""
    ports = free_ports(2)
    path = tmp_path / "two.yaml"
    path.write_text(TWO % tuple(ports))
    return str(path), ports


def put(url, body):
    """(status, what was told)."""
    request = urllib.request.Request(url, json.dumps(body).encode(), method="PUT")  # noqa: S310 - loopback only
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=10) as response:
        return response.status, json.loads(response.read())


def printed(capsys, *words):
    """What a command prints as an object, in this process."""
    capsys.readouterr()
    assert main([*words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_nodes_end_with_a_supervisor_that_is_killed(up, until, free_ports, tmp_path, monkeypatch):
    """They end although it had no chance to end them. The next one removes its logs and its
    topology. That others have its port is said, with where its cluster is instead. SIGTERM ends it
    soon, status 0, as SIGINT does elsewhere here; SIGHUP does not: there is nothing to read."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # no other test's next one
    one = tmp_path / "one.yaml"
    one.write_text("clusters: [{id: a, servers: 1}]\n")
    killed, _ = up(str(one))
    assert killed.end(signal.SIGKILL) == -signal.SIGKILL
    killed.nothing_left()
    (directory,) = killed.temporary_directories()
    (port,) = free_ports(1)
    with socket.create_server(("127.0.0.1", port)):
        bed, urls = up(str(one), "--port", str(port))
    assert not directory.exists()
    assert bed.temporary_directories()
    shifted = urls["a"].rpartition(":")[2]
    told = rf"spillover: ports? {port}.* not free; shifted to {shifted}\n"
    assert re.fullmatch(told, bed.stderr)
    bed.process.send_signal(signal.SIGHUP)
    until(lambda: bed.stderr.count("\n") == 2)
    began_s = time.monotonic()
    assert bed.end(signal.SIGTERM) == 0
    assert time.monotonic() - began_s < 3.0 * slack()
    bed.nothing_left()
    said = "spillover: SIGHUP changes nothing: nodes have no files to read again"
    assert bed.stderr.splitlines()[1:] == [said]
    assert not bed.temporary_directories()


def test_a_node_that_dies_comes_back_and_one_that_is_told_to_end_does_not(
    up, until, ask, pair, capsys
):
    """It does after a second, at its own port, with a new epoch; its neighbors hear it again. What
    is told of it is a line each, and its log goes on. Clients see no error. Drained and told to
    end, it has not crashed, and stays away. At the end the first signal waits for what is under
    way, the second does not."""
    bed, urls = up(pair)
    assert bed.stdout.count("\n") == 1
    assert bed.ready_line()["ready"] is True
    assert list(bed.nodes()) == list(urls) == ["a", "b"]
    epoch = ask(f"{urls['b']}/state")[1]["ledger"]["epoch"]
    log = Path(bed.ready_line()["logs"]["b"])
    said = log.read_text()
    with asked_all_the_while([urls["b"], urls["a"]], until) as (homes, ask_more):
        os.kill(bed.nodes()["b"], signal.SIGKILL)
        killed = len(homes)
        ask_more()
        until(lambda: "a" in homes[killed:], what="a client that goes to another node")
        until(lambda: bed.stderr.count("\n") == 2)
        back = len(homes)
        until(lambda: "b" in homes[back:], what="a client that goes back to its own node")
    assert bed.stderr == (
        "spillover: cluster b is gone (killed by SIGKILL); the others go on; it starts again in 1 s"
        f" (log {log})\nspillover: cluster b is back at {urls['b']} (log {log})\n"
    )
    assert ask(f"{urls['b']}/state")[1]["ledger"]["epoch"] != epoch
    until(lambda: all(n["alive"] for n in ask(f"{urls['a']}/state")[1]["neighbors"]))
    assert log.read_text().startswith(said)
    assert bed.stdout.count("\n") == 1
    operators_may_spoil_links(bed, urls, ask, capsys)
    before = bed.stderr
    nodes = bed.nodes()
    ask(f"{urls['b']}/admin/drain", {})
    os.kill(nodes["b"], signal.SIGTERM)
    until(lambda: bed.stderr.count("\n") == 3)
    assert bed.stderr.removeprefix(before).startswith(
        "spillover: cluster b is gone (exit status 0); the others go on; it stays down: "
    )
    work = {"payload": {"service_ms": 60_000}, "id": "long"}
    ask(f"{urls['a']}/requests", work, {"Prefer": "respond-async"})
    until(lambda: ask(f"{urls['a']}/state")[1]["busy"] == 1)
    bed.process.send_signal(signal.SIGINT)
    until(lambda: ask(f"{urls['a']}/state")[1]["draining"])
    assert bed.process.poll() is None
    assert nodes["a"] in bed.left()
    began_s = time.monotonic()
    assert bed.end() == 0
    assert time.monotonic() - began_s < 2.0 * slack()
    waits = r"spillover: cluster a is ending: waits for 1 request under way, at most [0-9.]+ s more"
    assert re.search(waits, bed.stderr)
    bed.nothing_left()


@contextmanager
def asked_all_the_while(urls, until):
    """The clusters that were home to what a client asked for, which sees no error, and a function
    that has it ask for more once it has seen the first of them die. What that one had is sent to it
    again, under the same names; others take over meanwhile."""
    homes, over = [], threading.Event()

    def ask_on():
        while not over.is_set():
            homes.append(client.run({"service_ms": 20}).path[0])

    with Spillover(urls) as client, ThreadPoolExecutor(16) as pool:
        asking = [pool.submit(ask_on) for _ in range(8)]
        until(lambda: len(homes) >= 50 or any(map(Future.done, asking)), what="answers")

        def ask_more():
            until(lambda: client.stats.retries >= 1, what="a client that sees it")
            asking.extend([pool.submit(ask_on) for _ in range(8)])

        try:
            yield homes, ask_more
        finally:
            over.set()
        for one in asking:
            one.result()
        assert client.stats.retries >= 1
        assert client.stats.failed == 0


def operators_may_spoil_links(bed, urls, ask, capsys):
    """Nodes of a testbed let them; the federation is shown with a frozen node in it, in time."""
    link = {"delay_ms": 250.0, "loss": 0.5, "cut": False}
    assert put(f"{urls['a']}/admin/links/b", {"delay_ms": 250, "loss": 0.5}) == (200, link)
    shown = printed(capsys, "status", urls["a"])
    assert shown["clusters"]["a"]["neighbors"][0]["link"] == link
    assert put(f"{urls['b']}/admin/policy", {"policy": "isolated"})[1]["policy"] == "isolated"
    os.kill(bed.nodes()["b"], signal.SIGSTOP)
    began_s = time.monotonic()
    shown = ask(f"{urls['a']}/federation")[1]
    assert time.monotonic() - began_s < 1.3 * slack()
    assert shown["clusters"]["b"]["unreachable"] is True
    assert 0.0 <= shown["clusters"]["b"]["last_seen_s"] < 10.0
    os.kill(bed.nodes()["b"], signal.SIGCONT)
    assert printed(capsys, "drain", urls["b"])["drained"] is True
    assert printed(capsys, "resume", urls["b"])["draining"] is False


def test_a_port_that_is_taken_meanwhile(two, spillover, until):
    """One line, nothing left, and the cluster that could start ends too."""
    file, (_, port) = two
    bed = spillover("up", file, "--json")
    # The node of b is already being started here, and binds only after its imports.
    node = until(lambda: bed.nodes().get("b"))
    os.kill(node, signal.SIGSTOP)
    with socket.create_server(("127.0.0.1", port)):
        os.kill(node, signal.SIGCONT)
        assert bed.process.wait(10) == 2
    assert bed.stderr.count("\n") == 1
    assert f"{file}: cluster b: " in bed.stderr
    assert f"127.0.0.1:{port} (Address already in use)" in bed.stderr
    bed.nothing_left()
    assert not bed.temporary_directories()


def test_interrupted_while_it_starts(spillover, until, pair):
    """Ctrl-C before all is ready: status 0, no word, nothing left."""
    bed = spillover("up", pair, "--json")
    until(lambda: len(bed.nodes()) >= 2)
    assert bed.end() == 0
    bed.nothing_left()
    assert (bed.stdout, bed.stderr) == ("", "")
    assert not bed.temporary_directories()
