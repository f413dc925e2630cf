"""`spillover status` where the node is none, or the federation has holes."""

from __future__ import annotations

import json
import socket
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from spillover.cli import main


@contextmanager
def answering(make_body):
    """A server that answers every GET with `make_body(url)`; gives its url."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            body = make_body(url)
            self.send_response(200)
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


@pytest.fixture
def deaf_url():
    """Where connections are accepted and never answered."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


def check_no_node(url, capsys):
    assert main(["status", url]) == 1
    out, err = capsys.readouterr()
    assert (out, err) == ("", f"spillover: no Spillover node answers at {url}\n")


def test_nobody_there(free_url, capsys):
    """Exit status 1 and one line."""
    check_no_node(free_url, capsys)


def test_somebody_who_never_answers(deaf_url, capsys):
    """The same, after the time limit."""
    check_no_node(deaf_url, capsys)


OTHERS = [
    *(b"", b"<html>", b"5", b"[]", b"null", b'"clusters"', b"{}", b"\xff", b"[" * 5000),
    *(b'{"clusters": []}', b'{"clusters": {"a": {}}}', b'{"clusters": {"a": {"cluster": "a"}}}'),
]


def test_somebody_else(capsys):
    """What is no federation is taken for no node."""
    said = b""
    with answering(lambda _: said) as url:
        for said in OTHERS:  # noqa: B007 - it is what the server says
            check_no_node(url, capsys)


def test_a_federation_with_holes(running, nodes, capsys, monkeypatch):
    """The dead are unreachable, with what a neighbor last heard of them; the rest is shown, in a
    table or as one object in the shape of the contract."""
    monkeypatch.setenv("COLUMNS", "120")
    topology = nodes.topology_of("a", "b", "c", links=[("b", "a"), ("a", "c")])
    with running(topology, absent=("c",)) as run:
        run.ask(spoil)
        assert main(["status", run.urls["a"], "--json"]) == 0
        out, err = capsys.readouterr()
        assert main(["status", run.urls["b"]]) == 0
        table = capsys.readouterr().err.splitlines()
        run.ask(put_right)
    assert (err, out.count("\n")) == ("", 1)
    federation = json.loads(out)
    assert federation["clusters"]["c"] == {"unreachable": True, "last_seen_s": None}
    assert federation["clusters"]["a"]["stuck"] == 1
    assert federation["links"] == [
        {"between": ["a", "b"], "delay_ms": 0.0},
        {"between": ["a", "c"], "delay_ms": 0.0},
    ]
    assert [line.split() for line in table] == [
        ["cluster", "busy", "N", "P", "R", "forwards", "policy", "neighbors", "state"],
        [
            "a",
            "0/1",
            *table[1].split()[2:7],
            "b(12.5",
            "ms",
            "50%",
            "lost)",
            "c?",
            "up,",
            "1",
            "stuck",
        ],
        ["b", "0/1", "0", "1.00", table[2].split()[4], "0", "two-choice", "a", "up"],
        ["c", "unreachable"],
    ]


async def spoil(federation):
    shell = federation["a"].shell
    shell.set_link(shell.machine.neighbors.index["b"], delay_s=0.0125, loss=0.5)
    shell.machine.servers.stuck.add(-1)


async def put_right(federation):
    federation["a"].shell.machine.servers.stuck.clear()
