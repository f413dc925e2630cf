"""`spillover status` where the node is none, or the federation has holes."""

import json
import socket
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from spillover.cli import node_calls

NO_SUCH_PATH = b'{"reason": "not_found", "detail": "no such path"}'


@contextmanager
def answering(make_body, paths=("/federation", "/state")):
    """A server that answers each GET of these with `make_body(url)`; gives its url."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            body = make_body(url) if self.path in paths else NO_SUCH_PATH
            self.send_response(404 if body is NO_SUCH_PATH else 200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            """Nobody reads it."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield url
        server.shutdown()
        thread.join()


def check_no_node(url, told):
    assert told("status", url) == (1, "", f"spillover: no Spillover node answers at {url}\n")


def test_nobody_there(free_url, told):
    check_no_node(free_url, told)


def test_somebody_who_never_answers(told, monkeypatch):
    """The same, after the time limit."""
    monkeypatch.setattr(node_calls, "ANSWER_WITHIN_S", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        check_no_node(f"http://127.0.0.1:{listening.getsockname()[1]}", told)


OTHERS = [
    *(b"", b"<html>", b"5", b"[]", b"null", b'"clusters"', b"{}", b"\xff", b"[" * 5000),
    *(b'{"clusters": []}', b'{"clusters": {"a": {}}}', b'{"clusters": {"a": {"cluster": "a"}}}'),
]


def test_somebody_else(told):
    said = b""
    with answering(lambda _: said) as url:
        for said in OTHERS:  # noqa: B007 - it is what the server says
            check_no_node(url, told)


def test_a_federation_with_holes(running, nodes, told, monkeypatch):
    """The dead are unreachable, with what a neighbor last heard of them; the rest is shown, in a
    table or as one object."""
    monkeypatch.setenv("COLUMNS", "120")
    topology = nodes.topology_of("a", "b", "c", links=[("b", "a"), ("a", "c")])
    with running(topology, absent=("c",)) as run:
        run.ask(spoil)
        status, out, err = told("status", run.urls["a"], "--json")
        of_b, table, more = told("status", run.urls["b"])
        run.ask(put_right)
    assert (status, of_b, err, more, out.count("\n")) == (0, 0, "", "", 1)
    federation = json.loads(out)
    assert federation["clusters"]["c"] == {"unreachable": True, "last_seen_s": None}
    assert federation["clusters"]["a"]["stuck"] == 1
    assert federation["links"] == [
        {"between": ["a", "b"], "delay_ms": 0.0},
        {"between": ["a", "c"], "delay_ms": 0.0},
    ]
    _, a, b, c = (" ".join(line.split()) for line in table.splitlines())
    assert a.startswith("a 0/1 ")
    assert a.endswith(" 0 0 0 well two-choice b(12.5 ms 50% lost) c? up, 1 stuck")
    assert b.startswith("b 0/1 0 1.00 ")
    assert b.endswith(" 0 0 0 0 well two-choice a up")
    assert c == "c unreachable"


def state_of(cluster, **more):
    """What an older node says, and what newer ones add."""
    return {
        "cluster": cluster, "servers": 2, "busy": 1, "queue_length": 3, "ledger": {},
        "accept_probability": 0.5, "neighborhood_accept_probability": 1.0, "forwards": 7,
        "policy": "paper", "draining": False, "drained": False, "neighbors": [], **more,
    }  # fmt: skip


@pytest.fixture
def rows_of(told, monkeypatch):
    """The words of each row of the table; nothing but the table is told."""

    def rows(clusters, columns=200):
        monkeypatch.setenv("COLUMNS", str(columns))
        body = json.dumps({"clusters": clusters, "links": []}).encode()
        with answering(lambda _: body) as url:
            status, out, err = told("status", url)
        assert (status, err) == (0, "")
        assert not {"None", "True", "False"} & set(out.split())
        return [" ".join(line.split()) for line in out.splitlines()]

    return rows


def test_what_fails_is_shown_where_it_is_told(rows_of):
    """Health and counts have columns if a node tells them; a dash stands for those that do not."""
    neighbors = [{"id": "b", "alive": True, "degraded": True}, {"id": "c", "alive": False}]
    told = {"health": "recovering", "failed": 4, "rejected": 0, "refused": 12}
    clusters = {
        "a": state_of("a", neighbors=neighbors, **told),
        "b": state_of("b", degraded=True, failed=1),
        "c": state_of("c"),
        "d": {"unreachable": True, "last_seen_s": 3.4},
    }
    # In a narrow terminal neighbors stand below each other, but no word is cut.
    assert set(" ".join(rows_of(clusters, 40)).split()) >= {"forwards", "b(degraded)", "recovering"}
    titles, *rows = rows_of(clusters)
    more = "failed rejected refused health policy neighbors state"
    assert titles == f"cluster busy N P R forwards {more}"
    assert [row.replace("\N{EN DASH}", "-") for row in rows] == [
        "a 1/2 3 0.50 1.00 7 4 0 12 recovering paper b(degraded) c? up",
        "b 1/2 3 0.50 1.00 7 1 - - degraded paper up",
        "c 1/2 3 0.50 1.00 7 - - - - paper up",
        "d unreachable 3 s",
    ]


def test_what_a_cluster_says_of_its_configuration_and_its_nodes(rows_of):
    told = {"version": 4, "by": "b", "superseded": None, "removed": False}
    clusters = {
        "a": state_of("a", configuration=told | {"superseded": 4}),
        "b": state_of("b", configuration=told, site=None),
        "c": state_of("c", configuration=told | {"removed": True}, draining=True),
        "d": state_of("d", site={"node": 2, "nodes": 3, "members": [1, 2], "share": 1}),
    }
    _, *rows = rows_of(clusters)
    assert [row.partition("paper ")[2] for row in rows] == [
        "up, its version 4 was superseded",
        "up",
        "removed, draining",
        "up, 2 of 3 nodes",
    ]


CONFIG = {"version": 4, "by": "b", "superseded": None, "removed": False}
TOKENS = {
    "classes": [{"held": 3, "limit": 5}, {"held": 1, "limit": 6}],
    "types": [{"blocked": 7, "blocked_total": 20}, {"blocked": 8, "blocked_total": 2}],
}


def test_pools_links_and_versions_are_told_where_there_is_something_to_say(rows_of):
    """Tokens held of all, and all that found none; links that somebody changed; who goes by what,
    as long as nodes differ in it."""
    links = [
        {"id": "b", "link": {"cut": True, "loss": 0.5, "delay_ms": 9.0}},
        {"id": "c", "link": {"cut": False, "loss": 0.0, "delay_ms": 12.5}, "degraded": True},
        {"id": "d", "alive": False, "degraded": True, "link": None},
    ]
    clusters = {
        "a": state_of("a", neighbors=links, configuration=CONFIG, tokens=TOKENS),
        "b": state_of("b", configuration=CONFIG | {"version": 3, "by": None}),
    }
    assert [row.replace("\N{EN DASH}", "-") for row in rows_of(clusters)] == [
        "cluster busy N P R tokens blocked forwards config policy neighbors state",
        "a 1/2 3 0.50 1.00 4/11 22 7 4 of b paper b(cut) c(12.5 ms, degraded) d? up",
        "b 1/2 3 0.50 1.00 - - 7 3 paper up",
    ]
    alike = {name: state_of(name, configuration=CONFIG) for name in "ab"}
    assert "config" not in rows_of(alike)[0]


async def spoil(federation):
    shell = federation["a"].shell
    shell.neighborhood.emulated[shell.machine.neighbors.index["b"]].set_faults(
        delay_s=0.0125, loss=0.5
    )
    shell.machine.servers.stuck.add(-1)


async def put_right(federation):
    federation["a"].shell.machine.servers.stuck.clear()


def test_a_lease_member_shows_its_group(told, monkeypatch):
    """Itself first, as it is now, and then others, as Redis has them; and what nobody holds."""
    monkeypatch.setenv("COLUMNS", "200")
    member = {
        "group": "orders",
        "node": "n",
        "state": "member",
        "draining": False,
        "partitions": 12,
        "held": {str(partition): 7 for partition in (11, *range(8))},
        "members": [
            {"node": "[m]", "alive_for_ms": 1500.0, "held": 1},
            {"node": "n", "alive_for_ms": 2900.0, "held": 8},
        ],
        "allocation": [
            {"partition": 8, "node": "[m]", "lease_ms_left": 900.0},
            {"partition": 9, "node": "[m]", "lease_ms_left": 0.0},
            {"partition": 10, "node": "gone", "lease_ms_left": None},
        ],
        "redis": {"up": True, "problem": None},
        "as_of_s": 0.0,
        "renewal": {"kind": "process", "lag_ms_max": 12.4},
    }
    with answering(lambda _: json.dumps(member).encode(), ["/state"]) as url:
        _, out, _ = told("status", url)
        assert json.loads(told("status", url, "--json")[1]) == {"lease": member}
        member |= {"redis": {"up": False, "problem": "it is gone"}, "as_of_s": 4.2}
        member["draining"] = True
        assert "draining, Redis is away, others as 4 s ago: it is gone" in told("status", url)[1]
    assert [" ".join(line.split()) for line in out.splitlines()] == [
        "member holds partitions alive for renewal state",
        "n 9/12 0, 1, 2, 3, 4, 5, 6, 7, ... 2.9 s by process, 12 ms late at most member",
        "[m] 1/12 8 1.5 s member",
        "gone 1/12 10 silent",
        "nobody 1/12 9",
    ]
