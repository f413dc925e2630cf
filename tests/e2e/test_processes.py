"""A cluster that is two processes behind one address, beside a neighbor (decision 0050)."""

import json
import os
import signal
import urllib.error
import urllib.request
from contextlib import ExitStack

import pytest

from support.ports import free_ports

TOPOLOGY = """
name: processes
clusters:
  - {{id: a, servers: 4, service_ms: 20, url: "http://127.0.0.1:{0}", peer_url: "http://127.0.0.1:{1}"}}
  - {{id: b, servers: 1, service_ms: 20, url: "http://127.0.0.1:{2}"}}
links: [{{between: [a, b], delay_ms: 1}}]
"""


@pytest.fixture
def two(tmp_path, spillover, ask, until):
    """The command under way that runs two processes, the url of its cluster and of its neighbor."""
    ports = free_ports(3)
    file = tmp_path / "two.yaml"
    file.write_text(TOPOLOGY.format(*ports))
    told = "--topology", str(file), "--lame-duck-s", "0"
    neighbor = spillover("node", *told, "--cluster", "b")
    running = spillover("node", *told, "--cluster", "a", "--processes", "2")
    url, other = f"http://127.0.0.1:{ports[0]}", f"http://127.0.0.1:{ports[2]}"
    until(lambda: is_whole(ask, url), what=lambda: running.stderr)
    yield running, url, other
    neighbor.end(signal.SIGTERM, 30.0)


def state_of(ask, url):
    try:
        return ask(f"{url}/state")[1]
    except OSError:
        return {}


def is_whole(ask, url):
    """Whether both processes share the servers, by either's account."""
    states = [state_of(ask, url) for _ in range(8)]
    sites = [state.get("site") or {} for state in states]
    return {site.get("node") for site in sites} == {1, 2} and all(
        site["members"] == [1, 2] for site in sites
    )


def neighbors_hear(ask, url, other):
    """Whether the two clusters hear each other, by every account."""
    states = [state_of(ask, one) for one in (*[url] * 8, other)]
    return all(state and state["neighbors"][0]["alive"] for state in states)


def metrics(url):
    with urllib.request.urlopen(f"{url}/metrics", timeout=10) as answer:  # noqa: S310 - loopback
        return answer.read().decode()


def put(url, body):
    request = urllib.request.Request(url, body, method="PUT")  # noqa: S310 - loopback
    urllib.request.urlopen(request, timeout=10).close()  # noqa: S310 - loopback


def test_two_processes_are_one_cluster(two, ask, until, tmp_path):
    """One that is killed is started again, and neither outlives the process that was started."""
    running, url, other = two
    until(lambda: neighbors_hear(ask, url, other))

    # A name is found, whichever process is asked.
    names = [f"name-{number}" for number in range(8)]
    for name in names:
        status, told = ask(f"{url}/requests", {"payload": 1}, {"Idempotency-Key": name})
        assert (status, told["cluster"]) == (200, "a")
    assert {ask(f"{url}/requests/{name}")[0] for name in names * 3} == {200}

    # One page has the series of both, those of a family together.
    page = metrics(url)
    heads = [line for line in page.splitlines() if line.startswith("# HELP")]
    assert len(heads) == len(set(heads))
    nodes = {word for line in servers_told(page)[0] for word in line[18:-5].split(",")}
    assert servers_told(page)[1] == 4.0
    assert {'node="1"', 'node="2"'} <= nodes
    assert 'node="' not in metrics(other)

    # What an operator asks of one is done by both.
    for path, drains in (("drain", True), ("resume", False)):
        assert ask(f"{url}/admin/{path}", {})[0] in (200, 202)
        assert {state_of(ask, url)["draining"] for _ in range(16)} == {drains}
    with pytest.raises(urllib.error.HTTPError) as refused:
        put(f"{url}/admin/config", b"{}")
    with refused.value as told:
        assert b"with --processes the configuration is fixed" in told.read()

    are_clients_of_one_cluster(url, until)
    is_started_again(running, url, other, ask, until, tmp_path)
    running.process.kill()
    running.nothing_left()


def servers_told(page):
    """The series of servers on a page of metrics, and their sum."""
    servers = [line for line in page.splitlines() if line.startswith("spillover_servers{")]
    return servers, sum(float(line.rpartition(" ")[2]) for line in servers)


def is_started_again(running, url, other, ask, until, tmp_path):
    """It goes by what all have read, though the file has changed, and by what they were told."""
    file = tmp_path / "two.yaml"
    file.write_text(file.read_text().replace("servers: 4", "servers: 8"))
    put(f"{url}/admin/policy", b'{"policy": "two-choice"}')
    children = set(running.look())
    os.kill(min(children), signal.SIGKILL)  # it was first, and speaks with the neighbor
    until(lambda: state_of(ask, url).get("site", {}).get("members") == [2])
    assert ask(f"{url}/requests", {"payload": 1})[0] == 200
    until(lambda: is_whole(ask, url), what=lambda: running.stderr)
    until(lambda: neighbors_hear(ask, url, other), what=lambda: running.stderr)
    assert len(set(running.look()) - children) == 1
    assert servers_told(metrics(url))[1] == 4.0
    assert "process has ended process=1 status=-9" in running.stderr
    assert {state_of(ask, url).get("policy") for _ in range(16)} == {"two-choice"}


def are_clients_of_one_cluster(url, until):
    """Each is told how many there are in all and where it stands among them; a goodbye ends its
    session, whichever process it comes to."""
    names = [f"client-{number}" for number in range(8)]
    with ExitStack() as sessions:
        for name in names:
            told_of(url, name, sessions)

        def place():
            with ExitStack() as alone:  # it leaves at once
                told = told_of(url, "one-more", alone)
                return told["clients"], told["rank"] < told["clients"]

        until(lambda: place() == (9, True), what="a client that is told of all")
        found = [goodbye(url, name) for name in names]
        assert found == [{"found": True}] * 8
        assert goodbye(url, names[0]) == {"found": False}


def told_of(url, name, sessions):
    """What a client is told first in a session that lasts as long as these."""
    asked = urllib.request.urlopen(f"{url}/session?client={name}", timeout=10)  # noqa: S310
    return json.loads(sessions.enter_context(asked).readline())


def goodbye(url, name):
    asked = urllib.request.Request(f"{url}/session?client={name}", method="DELETE")  # noqa: S310
    with urllib.request.urlopen(asked, timeout=10) as answer:  # noqa: S310 - loopback
        return json.loads(answer.read())


def test_a_start_that_fails_is_told_once(tmp_path, spillover):
    file = tmp_path / "one.yaml"
    file.write_text("clusters: [{id: a, servers: 4, handler: 'python:not_there:run'}]\n")
    told = "--topology", str(file), "--cluster", "a", "--bind", "127.0.0.1:0"
    running = spillover("node", *told, "--processes", "2")
    assert running.process.wait(60.0) == 2
    assert running.stderr.count("cannot import 'not_there'") == 1
    running.nothing_left()
