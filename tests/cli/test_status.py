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


@pytest.fixture
def free_url():
    """Where nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return f"http://127.0.0.1:{listening.getsockname()[1]}"


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


@pytest.mark.parametrize(
    "body",
    [
        *(b"", b"<html>", b"5", b"[]", b"null", b'"cluster neighbors"', b"{}", b"\xff"),
        *(b'{"cluster": 1, "neighbors": []}', b'{"cluster": "a", "neighbors": [{}]}'),
    ],
)
def test_somebody_else(body, capsys):
    """What is no node's state is taken for no node."""
    with answering(lambda _: body) as url:
        check_no_node(url, capsys)


def state_of(cluster, url, neighbors):
    return {
        "cluster": cluster,
        "url": url,
        "servers": 5,
        "busy": 2,
        "queue_length": 0,
        "accept_probability": 1.0,
        "neighborhood_accept_probability": 0.5,
        "policy": "paper",
        "version": "0",
        "draining": True,
        "drained": False,
        "forwards": 7,
        "neighbors": neighbors,
    }


def neighbor(cluster, url, age_ms, *, alive):
    return {"id": cluster, "url": url, "age_ms": age_ms, "alive": alive}


def test_a_federation_with_holes(free_url, deaf_url, capsys, monkeypatch):
    """The dead and the deaf are unreachable, with what neighbors last heard of them; the rest is
    shown, in a table or as one object in the shape of the contract."""
    monkeypatch.setenv("COLUMNS", "120")

    def make_body(url):
        neighbors = [
            neighbor("gone", free_url, 2500.0, alive=False),
            neighbor("deaf", deaf_url, None, alive=False),
            neighbor("odd", "http://[", None, alive=False),
            neighbor("homeless", None, None, alive=False),
        ]
        return json.dumps(state_of("a", url, neighbors)).encode()

    with answering(make_body) as url:
        assert main(["status", url, "--json"]) == 0
        out, err = capsys.readouterr()
        assert main(["status", url]) == 0
        table = capsys.readouterr().err.splitlines()
    assert (err, out.count("\n")) == ("", 1)
    federation = json.loads(out)
    unheard = {"unreachable": True, "last_seen_s": None}
    assert federation["clusters"].pop("a")["busy"] == 2
    assert federation["clusters"] == {
        "deaf": unheard,
        "gone": {"unreachable": True, "last_seen_s": 2.5},
        "homeless": unheard,
        "odd": unheard,
    }
    assert federation["links"] == [["a", name] for name in ("deaf", "gone", "homeless", "odd")]
    assert [line.split() for line in table] == [
        ["cluster", "busy", "N", "P", "R", "forwards", "policy", "neighbors", "state"],
        [
            *("a", "2/5", "0", "1.00", "0.50", "7", "paper"),
            *("gone?", "deaf?", "odd?", "homeless?", "draining"),
        ],
        ["deaf", "unreachable"],
        ["gone", "unreachable", "2", "s"],
        ["homeless", "unreachable"],
        ["odd", "unreachable"],
    ]
