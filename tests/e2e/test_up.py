"""`spillover up`: a testbed that comes up as a whole, and of which nothing is ever left."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import socket
import time
import urllib.request
from pathlib import Path

import pytest

from support.waiting import slack

pytestmark = pytest.mark.threes

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


def test_a_signal_ends_it_all(up, until, pair):
    """One JSON line when ready; SIGTERM ends an idle testbed soon, status 0, as SIGINT does
    elsewhere here. SIGHUP ends nothing: there is nothing to read again."""
    bed, urls = up(pair, "--seed", "1")
    assert json.loads(bed.stdout)["ready"] is True
    assert list(urls) == ["a", "b"]
    assert list(bed.nodes()) == list(urls)
    assert bed.temporary_directories()
    bed.process.send_signal(signal.SIGHUP)
    until(lambda: bed.stderr)
    began_s = time.monotonic()
    assert bed.end(signal.SIGTERM) == 0
    assert time.monotonic() - began_s < 3.0 * slack()
    bed.nothing_left()
    assert bed.stdout.count("\n") == 1
    told = "spillover: SIGHUP changes nothing: nodes have no files to read again\n"
    assert bed.stderr == told
    assert not bed.temporary_directories()


def test_nodes_end_with_a_supervisor_that_is_killed(up, pair, tmp_path, monkeypatch):
    """They end although it had no chance to end them. The next one removes its logs and its
    topology, and leaves alone those of one that is up."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # no other test's next one
    one = tmp_path / "one.yaml"
    one.write_text("clusters: [{id: a, servers: 1}]\n")
    killed, _ = up(pair)
    assert killed.end(signal.SIGKILL) == -signal.SIGKILL
    killed.nothing_left()
    (directory,) = killed.temporary_directories()
    first, _ = up(str(one))
    assert not directory.exists()
    second, _ = up(str(one))
    assert len(first.temporary_directories()) == len(second.temporary_directories()) == 1
    assert (first.end(signal.SIGTERM), second.end(signal.SIGTERM)) == (0, 0)
    assert not first.temporary_directories() + second.temporary_directories()


def test_pages_of_one_other_site_may_be_let_in(up, ask, two):
    """On every node; others are refused."""
    bed, urls = up(two[0], "--allow-origin", "http://app.example:80")
    for url in urls.values():
        path, work = f"{url}/requests", {"payload": {}}
        assert ask(path, work, {"Origin": "http://app.example"})[0] == 200
        status, problem = ask(path, work, {"Origin": "http://evil.example"})
        assert (status, problem["reason"]) == (403, "another_site")
    assert bed.end(signal.SIGTERM) == 0


def test_one_node_may_die(up, until, spillover, pair):
    """One line tells of a node that was killed; the other goes on and knows it; the last one's end
    is the testbed's."""
    bed, urls = up(pair, "--no-restart")
    nodes = bed.nodes()
    os.kill(nodes["b"], signal.SIGKILL)
    until(lambda: bed.stderr.endswith("\n"))
    log = json.loads(bed.stdout)["logs"]["b"]
    assert bed.stderr == (
        f"spillover: cluster b is gone (killed by SIGKILL); the others go on (log {log})\n"
    )
    federation = spillover("status", urls["a"], "--json").result()
    assert federation["clusters"]["b"]["unreachable"] is True
    assert federation["clusters"]["b"]["last_seen_s"] < 10
    assert sorted(federation["clusters"]) == ["a", "b"]
    table = spillover("status", urls["a"])
    assert table.process.wait(10) == 0
    assert re.search(r"b .* unreachable\s+\d+ s *\n", table.stdout)  # narrow tables wrap
    assert table.stderr == ""
    until(lambda: _neighbor(spillover, urls["a"], "b")["alive"] is False)
    os.kill(nodes["a"], signal.SIGKILL)
    assert bed.process.wait(10) == 1
    assert bed.stderr.count("is gone (killed by SIGKILL)") == 2
    last = r"is gone \(killed by SIGKILL\) \(log \S+\)\nspillover: no node is left\n$"
    assert re.search(last, bed.stderr)
    bed.nothing_left()
    assert not bed.temporary_directories()


def test_a_node_that_dies_comes_back(up, until, ask, pair):
    """After a second, at its own port, with a new epoch; its neighbors hear it again. What is told
    of it is a line each, and its log goes on."""
    bed, urls = up(pair)
    epoch = ask(f"{urls['b']}/state")[1]["ledger"]["epoch"]
    log = Path(json.loads(bed.stdout)["logs"]["b"])
    said = log.read_text()
    os.kill(bed.nodes()["b"], signal.SIGKILL)
    until(lambda: bed.stderr.count("\n") == 2, 20.0)
    assert bed.stderr == (
        "spillover: cluster b is gone (killed by SIGKILL); the others go on; it starts again in 1 s"
        f" (log {log})\nspillover: cluster b is back at {urls['b']} (log {log})\n"
    )
    assert ask(f"{urls['b']}/state")[1]["ledger"]["epoch"] != epoch
    until(lambda: all(n["alive"] for n in ask(f"{urls['a']}/state")[1]["neighbors"]))
    assert log.read_text().startswith(said)
    assert bed.stdout.count("\n") == 1
    bed.look()
    assert bed.end() == 0
    bed.nothing_left()
    assert not bed.temporary_directories()


def test_a_node_that_was_drained_and_told_to_end_stays_away(up, ask, until, pair):
    """It has not crashed."""
    bed, urls = up(pair)
    ask(f"{urls['b']}/admin/drain", {})
    os.kill(bed.nodes()["b"], signal.SIGTERM)
    until(lambda: bed.stderr.endswith("\n"))
    assert bed.stderr.startswith(
        "spillover: cluster b is gone (exit status 0); the others go on; it stays down: "
    )
    assert "starts again" not in bed.stderr
    assert bed.end() == 0
    bed.nothing_left()


def test_who_types_r_has_them_back(start, spillover, until, ask, two):
    """At the terminal: at once, also what was left dead, or was told to end; other words are told
    what there is."""
    ours, theirs = pty.openpty()
    try:
        bed = spillover("up", two[0], "--json", "--no-restart", stdin=theirs)
        urls = bed.ready()
        os.write(ours, b"r\n")
        until(lambda: "all nodes run, none is started" in bed.stderr)
        os.write(ours, b"help\n")
        until(lambda: "expected r and Enter" in bed.stderr)
        os.kill(bed.nodes()["b"], signal.SIGTERM)
        until(lambda: "cluster b is gone" in bed.stderr)
        os.write(ours, b"r\n")
        until(lambda: "spillover: starting b again\n" in bed.stderr)
        until(lambda: f"cluster b is back at {urls['b']}" in bed.stderr, 20.0)
        assert ask(f"{urls['b']}/state")[1]["cluster"] == "b"
        bed.look()
        assert bed.end() == 0
        bed.nothing_left()
    finally:
        os.close(ours)
        os.close(theirs)


def test_the_end_comes_while_a_node_is_to_come_back(up, until, pair):
    """Nobody starts it any more."""
    bed, _ = up(pair)
    os.kill(bed.nodes()["b"], signal.SIGKILL)
    until(lambda: "it starts again in 1 s" in bed.stderr)
    assert bed.end() == 0
    bed.nothing_left()
    assert bed.stderr.count("\n") == 1
    assert not bed.temporary_directories()


def test_the_first_port(tmp_path, spillover, free_ports, until):
    """Given by --port; that others have it is said, with where the clusters are instead."""
    (port,) = free_ports(1)
    with socket.create_server(("127.0.0.1", port)):
        (tmp_path / "one.yaml").write_text("clusters: [{id: a, servers: 1}]\n")
        bed = spillover("up", "one.yaml", "--json", "--port", str(port), cwd=tmp_path)
        url = bed.ready()["a"]
        shifted = url.rpartition(":")[2]
        assert re.fullmatch(
            rf"spillover: ports? {port}.* not free; shifted to {shifted}\n", bed.stderr
        )
        assert bed.end() == 0
    again = spillover("up", "one.yaml", "--json", "--port", url.rpartition(":")[2], cwd=tmp_path)
    assert again.ready() == {"a": url}
    assert again.end() == 0
    assert again.stderr == ""


def _neighbor(spillover, url, neighbor):
    state = spillover("status", url, "--json").result()["clusters"]["a"]
    return next(n for n in state["neighbors"] if n["id"] == neighbor)


def test_two_that_start_together_do_not_mix(spillover, pair):
    """Each testbed gets ports and nodes of its own."""
    beds = [spillover("up", pair, "--json") for _ in range(2)]
    urls = [set(bed.ready().values()) for bed in beds]
    assert len(urls[0] | urls[1]) == 4
    for bed in beds:
        assert len(bed.nodes()) == 2
        assert bed.end() == 0
        bed.nothing_left()
        assert bed.stderr == ""


def put(url, body):
    """(status, what was told)."""
    request = urllib.request.Request(url, json.dumps(body).encode(), method="PUT")  # noqa: S310 - loopback only
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=10) as response:
        return response.status, json.loads(response.read())


def test_operators_may_spoil_links_and_see_it(two, up, spillover, ask):
    """Nodes of a testbed let them; the federation is shown with a frozen node in it, in time."""
    bed, urls = up(two[0])
    link = {"delay_ms": 250.0, "loss": 0.5, "cut": False}
    assert put(f"{urls['a']}/admin/links/b", {"delay_ms": 250, "loss": 0.5}) == (200, link)
    shown = spillover("status", urls["a"], "--json").result()
    assert shown["clusters"]["a"]["neighbors"][0]["link"] == link
    assert put(f"{urls['b']}/admin/policy", {"policy": "isolated"})[1]["policy"] == "isolated"
    os.kill(bed.nodes()["b"], signal.SIGSTOP)
    began_s = time.monotonic()
    shown = ask(f"{urls['a']}/federation")[1]
    assert time.monotonic() - began_s < 1.3 * slack()
    assert shown["clusters"]["b"]["unreachable"] is True
    assert 0.0 <= shown["clusters"]["b"]["last_seen_s"] < 10.0
    os.kill(bed.nodes()["b"], signal.SIGCONT)
    drained = spillover("drain", urls["b"], "--json").result()
    assert drained["drained"] is True
    assert spillover("resume", urls["b"], "--json").result()["draining"] is False
    assert bed.end() == 0
    bed.nothing_left()


def test_a_url_in_use_is_bad_input(two, spillover):
    """The file, the field and the address are named before anything is started."""
    file, (_, port) = two
    with socket.create_server(("127.0.0.1", port)):
        bed = spillover("up", file)
        assert bed.process.wait(10) == 2
    assert bed.stderr == (
        f"spillover: {file}: clusters[1].url: expected an address that is free, "
        f"got http://127.0.0.1:{port} (Address already in use)\n"
    )
    assert bed.stdout == ""


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


def test_a_handler_that_cannot_be_imported(tmp_path, spillover, until):
    """One line names the file, the cluster and the reason; nothing is left."""
    file = tmp_path / "broken.yaml"
    file.write_text(
        "clusters:\n"
        "  - {id: a, servers: 1}\n"
        "  - {id: b, servers: 1, handler: 'python:not_there:run'}\n"
    )
    bed = spillover("up", str(file), "--json")

    def has_ended():
        bed.look()
        return bed.process.poll() is not None

    until(has_ended, 30.0)
    assert bed.process.returncode == 2
    assert bed.stdout == ""
    assert bed.stderr == (
        f"spillover: {file}: cluster b: handler: cannot import 'not_there': "
        "ModuleNotFoundError: No module named 'not_there'\n"
    )
    assert bed.seen
    bed.nothing_left()
    assert not bed.temporary_directories()


def test_interrupted_while_it_starts(spillover, until):
    """Ctrl-C before all is ready: status 0, no word, nothing left."""
    bed = spillover("up", "ring5", "--json")
    until(lambda: len(bed.nodes()) >= 2)
    assert bed.end() == 0
    bed.nothing_left()
    assert (bed.stdout, bed.stderr) == ("", "")
    assert not bed.temporary_directories()


def test_a_second_signal_ends_a_drain(two, up, ask, until):
    """The first one waits for what is under way, the second does not."""
    bed, urls = up(two[0])
    nodes = bed.nodes()
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
    assert not bed.temporary_directories()


def test_results_that_nobody_fetches_do_not_hold_up_the_end_for_long(two, up, ask, until):
    """What is awaited is said, and what was lost."""
    bed, urls = up(two[0], "--results-timeout-s", "2")
    headers = {"Prefer": "respond-async"}
    status, shown = ask(f"{urls['a']}/requests", {"payload": {"service_ms": 1}}, headers)
    assert (status, shown["state"]) == (202, "running")
    until(lambda: ask(f"{urls['a']}/state")[1]["ledger"]["home"]["done"] == 1)
    began_s = time.monotonic()
    assert bed.end() == 0
    assert time.monotonic() - began_s < 6.0 * slack()
    awaited, lost = bed.stderr.splitlines()
    begin = "spillover: cluster a is ending: "
    assert awaited == f"{begin}waits for 1 result that nobody has fetched, at most 2.0 s more"
    assert lost == f"{begin}lost 1 result that nobody has fetched"
    bed.nothing_left()
    assert not bed.temporary_directories()
