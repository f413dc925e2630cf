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
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from spillover.client import Spillover
from spillover.model.access import Role
from support.api_tokens import let_in
from support.commands import SPILLOVER
from support.ports import free_row
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


@pytest.fixture(scope="module")
def backend():
    with Backend() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture(scope="module")
def site(module_start, tmp_path_factory, backend):
    """`site(*options)`: a site of two nodes beside another one, once they share; its urls."""

    def up_it(*options):
        directory = tmp_path_factory.mktemp("site")
        port = backend.server_address[1]
        (directory / "site.yaml").write_text(TOPOLOGY % (SERVERS, 2, port, port))
        more = ("--json", "--port", str(free_row(3)), *options)
        bed = module_start(*SPILLOVER, "up", "site.yaml", *more, cwd=directory)
        return bed, bed.ready()

    return up_it


@pytest.fixture(scope="module")
def bed_of_all(site):
    """For what leaves a site as it was, or waits until it is."""
    bed, urls = site()
    yield bed, urls
    assert bed.end() == 0


@pytest.fixture
def bed(bed_of_all, until):
    until(lambda: shares_are_whole(bed_of_all[1]), 30.0, "two nodes that share")
    return bed_of_all


def runs_of(backend, beginning):
    """How often those ran whose name begins so."""
    return {runs for name, runs in backend.times.items() if name and name.startswith(beginning)}


def test_a_name_is_found_at_both_nodes(bed, backend, until):
    _, urls = bed
    nodes = [urls["a/1"], urls["a/2"]]
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


def test_servers_go_to_the_node_that_has_requests(bed, backend):
    """All clients are at one node, and all servers of the site work for them."""
    _, urls = bed
    backend.most = 0
    with Spillover([urls["a/1"]]) as spillover:
        answers = list(spillover.map(list(range(60)), at_most=12))
    assert [answer.result for answer in answers] == list(range(60))
    assert backend.most == SERVERS


def test_a_node_is_killed_under_load(bed, backend, until):
    """Clients with keys notice nothing, the other node has all servers soon, and there are never
    more requests at the backend than servers. What is dead comes back and has its part."""
    running, urls = bed
    nodes = [urls["a/1"], urls["a/2"]]
    backend.most = 0
    with load(nodes, until) as more:
        os.kill(running.nodes()["a/1"], signal.SIGKILL)
        killed_s, at = time.monotonic(), nodes[1]
        until(
            lambda: share(at) == (SERVERS, [2]),
            what="all servers at the node that is left",
        )
        assert time.monotonic() - killed_s < 2.0 * slack()
        until(lambda: shares_are_whole(urls), what="both nodes again")
        more()
    assert backend.most <= SERVERS


def test_a_node_that_drains_does_not_speak_for_its_cluster(bed, backend, until):
    """Its neighbor listens to the other node, and is answered what it has at this one. Only where
    all drain, it is told so."""
    _, urls = bed
    nodes = [urls["a/1"], urls["a/2"]]
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


def a_at(url):
    """What the only neighbor of a knows of it."""
    (neighbor,) = call(f"{url}/state")[2]["neighbors"]
    return neighbor


def told_to_drain(neighbor):
    return neighbor["alive"] and not neighbor["accept_probability"]


def test_nodes_that_are_all_told_to_end_under_load_do_not_wait_for_each_other(bed, backend, until):
    """Each client has its answer or hears whether its request has surely not run, and all processes
    end as soon as what they run is done. Names belong to either node, also to that whose door is
    closed. What one runs is answered to a client of the other, which ends after that."""
    running, urls = bed
    nodes = [urls["a/1"], urls["a/2"]]
    told, ending = [], threading.Event()
    lasting = name_of(1, "lasts")

    def ask(client):
        where = urlsplit(nodes[client % 2])
        with contextlib.closing(HTTPConnection(where.hostname, where.port, timeout=60)) as line:
            for count in itertools.count():
                key = f"all-{client}-{count}" if client % 4 else f"all-{count}"
                headers = {"idempotency-key": key, "spillover-deadline-ms": "60000"}
                try:
                    line.request("POST", "/requests", b'{"payload": {"takes_s": 0.05}}', headers)
                    answer = line.getresponse()
                except OSError:
                    assert ending.is_set()
                    return  # the door is closed, or the connection was while nothing was asked
                told.append((answer.status, json.loads(answer.read()).get("reason")))

    with ThreadPoolExecutor(25) as pool:
        clients = [pool.submit(ask, client) for client in range(24)]
        until(lambda: len(told) > 100 or any(map(Future.done, clients)), what="load")
        body = {"payload": {"takes_s": 1.0}}
        passed_on = pool.submit(call, f"{nodes[1]}/requests", "POST", body, idempotency_key=lasting)
        until(lambda: backend.times[lasting], what="a request that is passed on and runs")
        pids = [running.nodes()[name] for name in ("a/1", "a/2")]
        ending.set()
        begun_s = time.monotonic()
        for pid in pids:
            os.kill(pid, signal.SIGTERM)
        for client in clients:
            client.result()
        assert passed_on.result()[0] == 200
        until(lambda: not set(pids) & set(running.nodes().values()), 30.0, "the end of both")
    assert time.monotonic() - begun_s < 8.0 * slack()
    # Of a name of the other node it is not known whether that took it before it closed its door.
    assert set(told) <= {(200, None), (503, "draining"), (502, "outcome_unknown")}
    assert runs_of(backend, "all-") == {1}


def test_a_node_is_not_drained_while_a_client_waits_for_another_nodes_answer(bed, backend, until):
    """Nor is it waited for when the client has gone."""
    _, urls = bed
    body, named = {"payload": {"is_held": True}}, {"idempotency-key": name_of(1, "drains")}
    where = urlsplit(urls["a/2"])
    client = HTTPConnection(where.hostname, where.port)
    client.request("POST", "/requests", json.dumps(body), named)
    until(lambda: backend.running, what="a request under way")
    call(f"{urls['a/2']}/admin/drain", "POST")
    assert call(f"{urls['a/2']}/state")[2]["drained"] is False
    client.close()
    until(lambda: call(f"{urls['a/2']}/state")[2]["drained"], what="a drained node")
    assert backend.running
    backend.lets_go.set()
    call(f"{urls['a/2']}/admin/resume", "POST")
    assert call(f"{urls['a/1']}/requests", "POST", body, **named)[0] == 200  # it has gone on


def test_a_node_that_hangs_holds_nobody_up(bed):
    """What was passed on to it is soon another node's business, and not its client's deadline's."""
    running, urls = bed
    hung = running.nodes()["a/1"]
    os.kill(hung, signal.SIGSTOP)
    begun_s = time.monotonic()
    try:
        named = {"idempotency_key": name_of(1, "hangs")}
        status, _, answer = call(f"{urls['a/2']}/requests", "POST", {"payload": 1}, **named)
    finally:
        os.kill(hung, signal.SIGCONT)
    assert (status, answer["result"]) == (200, 1)
    assert time.monotonic() - begun_s < 8.0 * slack()


def test_who_is_no_sibling_hears_nothing_of_the_site(bed, spillover, free_ports, tmp_path):
    """Also a node that goes by another topology: it ends, and does not take all servers."""
    _, urls = bed
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
    assert third.process.wait(60) == 2
    expected = "--topology: cluster a: expected that of its other nodes, node "
    assert third.stderr.splitlines()[-1].startswith(f"spillover: {expected}")


def test_who_may_do_what_holds_at_all_nodes(site, backend, tmp_path, until, monkeypatch):
    """A tenant's quota counts at all of them; who may only read is told why, wherever the request
    is. So it is where nodes of a site prove to each other who they are."""
    tokens, shown = tmp_path / "tokens.yaml", {}
    for role in (Role.READ, Role.SUBMIT):
        secret = let_in(tokens, role.value, "shop", role)
        shown[role.value] = {"authorization": f"Bearer {secret}"}
    quota = "  quota: {max_running: 1}\n"
    tokens.write_text(tokens.read_text().replace("- name", f"{quota}- name")[len(quota) :] + quota)
    bed, urls = site("--tls", "--tokens", str(tokens))
    monkeypatch.setenv("SSL_CERT_FILE", bed.ready_line()["ca_file"])
    one, other = (f"{urls[node]}/requests" for node in ("a/1", "a/2"))
    named, read = {"idempotency_key": "k", **shown["submit"]}, shown["read"]

    def told_at_the_other():
        return call(other, "POST", {"payload": 1}, **shown["submit"])

    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(call, one, "POST", {"payload": {"takes_s": 9.0}}, **named)
        until(lambda: backend.running, what="a request under way")
        until(lambda: told_at_the_other()[2].get("reason") == "rate_limited", 6.0, "the quota")
        call(f"{one}/k", "DELETE", **shown["submit"])
        assert asked.result()[0] == 409
    until(lambda: told_at_the_other()[0] == 200, what="room again")
    for url in (urls["a/1"], urls["a/2"]):
        assert call(f"{url}/explain/k", **read)[0] == 200
        assert call(f"{url}/explain/nobody", **read)[0] == 404
    for log in bed.ready_line()["logs"].values():
        assert "turned away" not in Path(log).read_text()
    assert call(f"{one}/k", "DELETE", **read)[0] == 403
    assert bed.end() == 0
