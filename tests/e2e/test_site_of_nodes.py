"""A site of two nodes in front of a backend that counts: names are found at both, servers go to
where requests are, and one of the nodes is killed under load (decision 0049)."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml

from spillover.client import Spillover
from support.site_of_nodes import (
    SERVERS,
    TOPOLOGY,
    Backend,
    call,
    load,
    name_of,
    share,
    shares_are_whole,
)
from support.waiting import slack

THREE = """
name: site-of-nodes
clusters:
  - id: a
    servers: 4
    nodes: [{url: "%s"}, {url: "%s"}, {url: "http://127.0.0.1:%d"}]
"""


@pytest.fixture
def backend():
    with Backend() as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()


@pytest.fixture
def site(up, tmp_path, backend):
    """Three nodes: `site(*options)` gives the bed and its urls."""

    def up_it(*options, nodes=2):
        port = backend.server_address[1]
        (tmp_path / "site.yaml").write_text(TOPOLOGY % (SERVERS, nodes, port, port))
        return up("site.yaml", *options, cwd=tmp_path)

    return up_it


def test_a_name_is_found_at_both_nodes(site, backend, until):
    bed, urls = site()
    nodes = [urls["a/1"], urls["a/2"]]
    until(lambda: shares_are_whole(urls), what="two nodes that share")
    for number in range(8):
        name, here, there = f"n-{number}", nodes[number % 2], nodes[1 - number % 2]
        status, _, first = call(
            f"{here}/requests", "POST", {"payload": number}, idempotency_key=name
        )
        assert (status, first["result"]) == (200, number)
        status, headers, again = call(
            f"{there}/requests", "POST", {"payload": number}, idempotency_key=name
        )
        assert (status, again) == (200, first)
        assert headers["spillover-replayed"] == "true"
        assert headers["spillover-cluster"] == "a"
        assert [call(f"{url}/requests/{name}")[2]["state"] for url in nodes] == ["done"] * 2
        assert [call(f"{url}/explain/{name}")[0] for url in nodes] == [200] * 2
        status, _, other = call(
            f"{there}/requests", "POST", {"payload": "another"}, idempotency_key=name
        )
        assert (status, other["reason"]) == (409, "conflict")
    assert all(backend.times[f"n-{number}"] == 1 for number in range(8))
    status, _, unnamed = call(
        f"{nodes[0]}/requests", "POST", {"payload": 1}, prefer="respond-async"
    )
    assert status == 202
    until(lambda: call(f"{nodes[1]}/requests/{unnamed['id']}")[2]["state"] == "done")
    call(f"{nodes[0]}/requests", "POST", {"payload": 1}, idempotency_key="two words/%")
    for path in ("requests", "explain"):  # names are quoted anew where they are passed on
        asked = [call(f"{url}/{path}/two%20words/%25") for url in nodes]
        assert [status for status, _, _ in asked] == [200] * 2
    assert [call(f"{url}/requests/no%20body%ff")[0] for url in nodes] == [404] * 2
    assert [call(f"{url}/requests/nobody")[2]["reason"] for url in nodes] == ["unknown_request"] * 2
    status, _, cancelled = call(f"{nodes[1]}/requests/{unnamed['id']}", "DELETE")
    assert (status, cancelled["state"]) == (200, "done")
    assert bed.end() == 0


def test_servers_go_to_the_node_that_has_requests(site, backend):
    """All clients are at one node, and all servers of the site work for them."""
    bed, urls = site()
    with Spillover([urls["a/1"]]) as spillover:
        answers = list(spillover.map(list(range(60)), at_most=12))
    assert [answer.result for answer in answers] == list(range(60))
    assert backend.most == SERVERS
    assert bed.end() == 0


@pytest.mark.parametrize("number", [1, 2])
def test_a_node_is_killed_under_load(site, backend, until, number):
    """Clients with keys notice nothing, the other node has all servers soon, and there are never
    more requests at the backend than servers. What is dead comes back and has its part."""
    bed, urls = site()
    nodes = [urls["a/1"], urls["a/2"]]
    until(lambda: shares_are_whole(urls), what="two nodes that share")
    with load(nodes, until) as more:
        os.kill(bed.nodes()[f"a/{number}"], signal.SIGKILL)
        killed_s, at = time.monotonic(), nodes[2 - number]
        until(
            lambda: share(at) == (SERVERS, [3 - number]),
            what="all servers at the node that is left",
        )
        assert time.monotonic() - killed_s < 2.0 * slack()
        until(lambda: shares_are_whole(urls), what="both nodes again")
        more()
    assert backend.most <= SERVERS
    assert bed.end() == 0


def test_nodes_are_restarted_under_load_one_after_the_other(site, backend, until):
    """No client notices, and no name runs twice."""
    bed, urls = site()
    nodes = [urls["a/1"], urls["a/2"]]
    until(lambda: shares_are_whole(urls), what="two nodes that share")
    with load(nodes, until) as more:
        for name in ("a/1", "a/2"):
            pid = bed.nodes()[name]
            os.kill(pid, signal.SIGTERM)
            until(lambda: bed.nodes().get(name, pid) != pid, 30.0, "a new process")  # noqa: B023
            until(lambda: shares_are_whole(urls), 30.0, "both nodes again")
            more()
    assert backend.most <= SERVERS
    assert set(backend.times.values()) == {1}
    assert bed.end() == 0


def test_a_cluster_gets_more_nodes_and_fewer_under_load(site, backend, free_ports, until):
    """From one to three and back: no client notices, no name runs twice, and the backend never has
    more than the servers."""
    bed, urls = site(nodes=1)
    first = urls["a"]
    nodes = [first, *(f"http://127.0.0.1:{port}" for port in free_ports(2))]
    with load([first], until) as more_at_first:
        go_by(urls["b"], nodes=[{"url": url} for url in nodes])
        until(lambda: members(nodes) == [[1, 2, 3]] * 3, 60.0, "three nodes that share")
        with load([*nodes[1:], first], until, of="new") as more:
            go_by(first, nodes=[{"url": first}])
            until(lambda: members([first]) == [[1]], 60.0, "the first node alone")
            until(lambda: set(bed.nodes()) == {"a", "b"}, 60.0, "the end of the others")
            more()
        assert share(first) == (SERVERS, [1])
        more_at_first()
    assert backend.most <= SERVERS
    assert set(backend.times.values()) == {1}
    assert bed.end() == 0


def go_by(url, **changed):
    """Sets the configuration: that which there is, with another cluster a."""
    told = call(f"{url}/admin/config")[2]
    topology = yaml.safe_load(told["topology"])
    (own,) = [one for one in topology["clusters"] if one["id"] == "a"]
    for name in ("url", "nodes"):
        own.pop(name, None)
    own |= changed
    put = {"if_version": told["version"], "topology": topology}
    assert call(f"{url}/admin/config", "PUT", put)[0] == 200


def members(nodes):
    """Which nodes each of these hears, as far as it answers."""
    found = []
    for url in nodes:
        try:
            found.append((call(f"{url}/state")[2].get("site") or {}).get("members"))
        except OSError:
            found.append(None)
    return found


def test_a_node_that_drains_does_not_speak_for_its_cluster(site, backend, until):
    """Its neighbor listens to the other node, and is answered what it has at this one. Only where
    all drain, it is told so."""
    bed, urls = site()
    nodes = [urls["a/1"], urls["a/2"]]
    until(lambda: shares_are_whole(urls), what="two nodes that share")
    with ThreadPoolExecutor(1) as pool, Spillover([urls["b"]]) as spillover:
        for node in nodes:
            until(lambda: a_at(urls["b"])["accept_probability"], what="a cluster that accepts")
            handed = a_at(urls["b"])["forwards"]
            asked = pool.submit(lambda: list(spillover.map(list(range(40)), at_most=12)))
            until(lambda: a_at(urls["b"])["forwards"] > handed, what="work at a")  # noqa: B023
            call(f"{node}/admin/drain", "POST")
            until(lambda: call(f"{node}/state")[2]["drained"], what="a drained node")  # noqa: B023
            until(lambda: a_at(urls["b"])["accept_probability"], what="the other node")
            assert [answer.result for answer in asked.result(30)] == list(range(40))
            assert a_at(urls["b"])["came_back"].get("lost", 0) == 0
            call(f"{node}/admin/resume", "POST")
        for node in nodes:
            call(f"{node}/admin/drain", "POST")
        until(lambda: told_to_drain(a_at(urls["b"])), what="a cluster that drains")
        for node in nodes:
            call(f"{node}/admin/resume", "POST")
        until(lambda: a_at(urls["b"])["accept_probability"], what="a cluster that is back")
    assert bed.end() == 0


def a_at(url):
    """What the only neighbor of a knows of it."""
    (neighbor,) = call(f"{url}/state")[2]["neighbors"]
    return neighbor


def told_to_drain(neighbor):
    return neighbor["alive"] and not neighbor["accept_probability"]


def test_a_node_ends_once_its_clients_have_the_answers_of_other_nodes(site, backend, until):
    bed, urls = site()
    until(lambda: shares_are_whole(urls), what="two nodes that share")
    at, named = f"{urls['a/2']}/requests", {"idempotency_key": name_of(1)}
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(call, at, "POST", {"payload": {"takes_s": 2.0}}, **named)
        until(lambda: backend.running, what="a request under way")
        pid = bed.nodes()["a/2"]
        os.kill(pid, signal.SIGTERM)
        assert asked.result()[0] == 200
        until(lambda: bed.nodes().get("a/2", pid) != pid, 30.0, "a new process")
    assert bed.end() == 0


def test_nodes_that_are_all_told_to_end_under_load_do_not_wait_for_each_other(site, backend, until):
    """Each client has its answer, or hears that its request has surely not run, and all processes
    end as soon as what they run is done. Names belong to either node, also to that whose door is
    closed."""
    bed, urls = site()
    nodes = [urls["a/1"], urls["a/2"]]
    until(lambda: shares_are_whole(urls), what="two nodes that share")
    told, ending = [], threading.Event()

    def ask(client):
        where = urlsplit(nodes[client % 2])
        with contextlib.closing(HTTPConnection(where.hostname, where.port, timeout=60)) as line:
            for count in itertools.count():
                key = f"k-{client}-{count}" if client % 4 else f"of-all-{count}"
                headers = {"idempotency-key": key, "spillover-deadline-ms": "60000"}
                try:
                    line.request("POST", "/requests", b'{"payload": {"takes_s": 0.05}}', headers)
                    answer = line.getresponse()
                except OSError:
                    assert ending.is_set()
                    return  # the door is closed, or the connection was while nothing was asked
                told.append((answer.status, json.loads(answer.read()).get("reason")))

    with ThreadPoolExecutor(24) as pool:
        clients = [pool.submit(ask, client) for client in range(24)]
        until(lambda: len(told) > 100 or any(map(Future.done, clients)), what="load")
        pids = [bed.nodes()[name] for name in ("a/1", "a/2")]
        ending.set()
        begun_s = time.monotonic()
        for pid in pids:
            os.kill(pid, signal.SIGTERM)
        for client in clients:
            client.result()
        until(lambda: not set(pids) & set(bed.nodes().values()), 30.0, "the end of both")
    assert time.monotonic() - begun_s < 8.0 * slack()
    assert set(told) <= {(200, None), (503, "draining")}
    assert set(backend.times.values()) == {1}
    assert bed.end() == 0


def test_nodes_that_are_all_told_to_end_as_clients_ask_them_end_at_once(site, backend, until):
    """Nothing is under way, so both close their doors at once; names that are asked for then belong
    to one that the other cannot ask any more."""
    bed, urls = site()
    nodes = [urls["a/1"], urls["a/2"]]
    until(lambda: shares_are_whole(urls), what="two nodes that share")
    places = [urlsplit(url) for url in nodes]
    lines = [HTTPConnection(at.hostname, at.port, timeout=60) for at in places * 20]
    for line in lines:
        line.connect()
    pids = [bed.nodes()[name] for name in ("a/1", "a/2")]
    begun_s, told = time.monotonic(), []
    for pid in pids:
        os.kill(pid, signal.SIGTERM)
    headers = {"spillover-deadline-ms": "60000"}
    for number, line in enumerate(lines):
        with contextlib.suppress(OSError):  # its connection may be closed by now
            line.request("POST", "/requests", b'{"payload": {}}', headers | {
                "idempotency-key": str(number)
            })  # fmt: skip
    for line in lines:
        with contextlib.suppress(OSError, HTTPException):
            answer = line.getresponse()
            told.append((answer.status, json.loads(answer.read()).get("reason")))
        line.close()
    until(lambda: not set(pids) & set(bed.nodes().values()), 60.0, "the end of both")
    assert time.monotonic() - begun_s < 8.0 * slack()
    # A question may come to the other node as that ends, and be reset with its connection.
    assert set(told) <= {(200, None), (503, "draining"), (502, "outcome_unknown")}
    assert set(backend.times.values()) <= {1}
    assert bed.end() == 0


def test_a_node_is_not_drained_while_a_client_waits_for_another_nodes_answer(site, backend, until):
    """Nor is it waited for when the client has gone."""
    bed, urls = site()
    until(lambda: shares_are_whole(urls), what="two nodes that share")
    body, named = {"payload": {"takes_s": 5.0}}, {"idempotency-key": name_of(1)}
    where = urlsplit(urls["a/2"])
    client = HTTPConnection(where.hostname, where.port)
    client.request("POST", "/requests", json.dumps(body), named)
    until(lambda: backend.running, what="a request under way")
    call(f"{urls['a/2']}/admin/drain", "POST")
    assert call(f"{urls['a/2']}/state")[2]["drained"] is False
    client.close()
    until(lambda: call(f"{urls['a/2']}/state")[2]["drained"], what="a drained node")
    assert backend.running
    assert call(f"{urls['a/1']}/requests", "POST", body, **named)[0] == 200  # it has gone on
    assert bed.end() == 0


def test_a_node_that_hangs_holds_nobody_up(site, until):
    """What was passed on to it is soon another node's business, and not its client's deadline's."""
    bed, urls = site()
    until(lambda: shares_are_whole(urls), what="two nodes that share")
    hung = bed.nodes()["a/1"]
    os.kill(hung, signal.SIGSTOP)
    begun_s = time.monotonic()
    try:
        named = {"idempotency_key": name_of(1)}
        status, _, answer = call(f"{urls['a/2']}/requests", "POST", {"payload": 1}, **named)
    finally:
        os.kill(hung, signal.SIGCONT)
    assert (status, answer["result"]) == (200, 1)
    assert time.monotonic() - begun_s < 8.0 * slack()
    assert bed.end() == 0


def test_nodes_of_a_site_prove_who_they_are(site, until):
    """With certificates the same holds, and whoever is no sibling is told so."""
    bed, urls = site("--tls")
    ca_file = bed.ready_line()["ca_file"]
    with Spillover([urls["a/1"], urls["a/2"]], ca_file=ca_file) as spillover:
        answers = [spillover.run(number, key=f"n-{number}").result for number in range(6)]
    with Spillover([urls["a/2"]], ca_file=ca_file) as spillover:
        again = [spillover.run(number, key=f"n-{number}").result for number in range(6)]
    assert again == answers == list(range(6))
    for log in bed.ready_line()["logs"].values():
        assert "turned away" not in Path(log).read_text()
    assert bed.end() == 0


def test_a_tenants_quota_counts_at_all_nodes(site, backend, spillover, tmp_path, until):
    tokens = tmp_path / "tokens.yaml"
    told = ("--name", "shop", "--tenant", "shop", "--role", "submit")
    made = spillover("token", "new", "--json", "--append", str(tokens), *told)
    shown = {"authorization": f"Bearer {made.result()['secret']}"}
    tokens.write_text(tokens.read_text() + "  quota: {max_running: 1}\n")
    bed, urls = site("--tokens", str(tokens))
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(
            call, f"{urls['a/1']}/requests", "POST", {"payload": {"takes_s": 8.0}}, **shown
        )
        until(lambda: backend.running, what="a request under way")

        def told_at_the_other():
            return call(f"{urls['a/2']}/requests", "POST", {"payload": 1}, **shown)

        until(lambda: told_at_the_other()[2].get("reason") == "rate_limited", 6.0, "the quota")
        assert asked.result()[0] == 200
    until(lambda: told_at_the_other()[0] == 200, what="room again")
    assert bed.end() == 0


def test_who_may_only_read_is_told_why_by_any_node(site, spillover, tmp_path):
    """An explanation needs no role to submit, wherever the request is."""
    tokens = tmp_path / "tokens.yaml"
    shown = {}
    for role in ("submit", "read"):
        told = ("--name", role, "--tenant", "shop", "--role", role)
        made = spillover("token", "new", "--json", "--append", str(tokens), *told)
        shown[role] = {"authorization": f"Bearer {made.result()['secret']}"}
    bed, urls = site("--tokens", str(tokens))
    nodes = [urls["a/1"], urls["a/2"]]
    named = {"idempotency_key": "k", **shown["submit"]}
    assert call(f"{nodes[0]}/requests", "POST", {"payload": 1}, **named)[0] == 200
    assert [call(f"{url}/explain/k", **shown["read"])[0] for url in nodes] == [200] * 2
    assert [call(f"{url}/explain/nobody", **shown["read"])[0] for url in nodes] == [404] * 2
    assert call(f"{nodes[0]}/requests/k", "DELETE", **shown["read"])[0] == 403
    assert bed.end() == 0


def test_who_is_no_sibling_hears_nothing_of_the_site(site, spillover, free_ports, tmp_path):
    """Also a node that goes by another topology: it ends, and does not take all servers."""
    bed, urls = site()
    for path in ("siblings?node=2", "site/requests/x"):
        status, _, problem = call(f"{urls['a/1']}/peer/v2/{path}", spillover_peer="from=b&to=a")
        assert (status, problem["reason"]) == (403, "not_a_neighbor")
    hello = {"spillover_peer": "from=a&to=a&federation=site-of-nodes"}
    for node in ("1", "3", "x", "", "9" * 5000, "2" + "&more=1" * 16):
        status, _, problem = call(f"{urls['a/1']}/peer/v2/siblings?node={node}", **hello)
        assert (status, problem["reason"]) == (422, "invalid")
    for path in ("state", "admin/drain", "metrics", "peer/v2/siblings"):  # its own are not asked so
        status, _, problem = call(f"{urls['a/1']}/peer/v2/site/{path}", **hello)
        assert (status, problem["reason"]) == (404, "not_found")
    status, _, problem = call(f"{urls['b']}/peer/v2/siblings?node=1", spillover_peer="from=b&to=b")
    assert (status, problem["reason"]) == (404, "not_found")
    port = free_ports(1)[0]
    (tmp_path / "other.yaml").write_text(THREE % (urls["a/1"], urls["a/2"], port))
    third = spillover(
        "node", "--topology", "other.yaml", "--cluster", "a", "--node", "3", cwd=tmp_path
    )
    assert third.process.wait(30) == 2
    expected = "--topology: cluster a: expected that of its other nodes, node "
    assert third.stderr.splitlines()[-1].startswith(f"spillover: {expected}")
    assert bed.end() == 0
