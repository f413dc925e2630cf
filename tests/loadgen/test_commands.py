"""The commands as wholes, in this process: what they are asked for reaches the servers, what they
measured is printed, signals end them, and their exit statuses.
"""

import json
import os
import signal
import threading
from contextlib import contextmanager

import pytest

from spillover_loadgen.cli import main
from support import waiting
from support.scripted_server import answer, done, problem, scripted_aside

SESSION = b"HTTP/1.1 200 OK\r\ncontent-type: application/x-ndjson\r\n\r\n"


@pytest.fixture
def trace(tmp_path):
    path = tmp_path / "trace.csv"
    path.write_text("time_s,cluster\n0,a\n0.01,a\n")
    return str(path)


@pytest.fixture
def secret(tmp_path):
    path = tmp_path / "secret"
    path.write_text("shown\n")
    return str(path)


@contextmanager
def session_server():
    """A node that gives two clients a session each, and takes what they say when they leave."""
    with scripted_aside(problem(503, "draining")) as server:
        servers = [{"id": "a", "url": server.url}]
        told = {"cluster": "a", "version": 1, "servers": servers}
        session = SESSION + json.dumps(told).encode() + b"\n"
        server.answers(session, session, answer(204))
        yield server


def clients_of(url, duration_s=0.3):
    return ["clients", "--node", url, "--clients", "2", "--duration-s", str(duration_s)]


@contextmanager
def interrupted_once(condition):
    """This process, as if by Ctrl-C, as soon as that is true."""

    def interrupt():
        waiting.until(condition, limit_s=30.0)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        yield
    finally:
        thread.join(40.0)


def printed(capfd):
    """The one object on stdout; on stderr is nothing but, of a busy machine, that it is one."""
    out, err = capfd.readouterr()
    assert out.count("\n") == 1
    assert err == "" or "left more than" in err
    return json.loads(out)


def test_requests_are_sent_as_they_were_asked_for(trace, secret, capfd):
    """And who is asked who it is before that is shown the secret, too."""
    words = ["--trace", trace, "--deadline-ms", "1500", "--seed", "8", "--json"]
    with scripted_aside(answer(200, {"cluster": "a"}), done()) as server:
        run = ["run", "--target", f"a={server.url}", *words, "--token-file", secret]
        assert main(run) == 0
    assert [asked for asked, _ in server.seen] == ["GET /state", *["POST /requests"] * 2]
    assert {headers["authorization"] for _, headers in server.seen} == {"Bearer shown"}
    for number, (_, headers) in enumerate(server.seen[1:]):
        assert headers["spillover-deadline-ms"] == "1500"
        first, _, last = headers["idempotency-key"].partition("-")
        assert (first, last.rpartition("-")[2]) == ("8", str(number))
    result = printed(capfd)
    assert (result["seed"], result["interrupted"]) == (8, False)
    assert result["outcomes"]["ok"] == 2


def test_an_interrupted_run_tells_what_it_has(trace, node, capfd):
    with open(trace, "a") as lines:  # noqa: PTH123 - of a path that is a word of a command
        lines.write("3600,a\n")
    words = ["--target", f"a={node.url}", "--trace", trace, "--json"]
    with interrupted_once(lambda: len(node.received) == 2):
        assert main(["run", *words]) == 130
    result = json.loads(capfd.readouterr().out)
    assert (result["sent"], result["interrupted"]) == (2, True)


def test_clients_give_one_object(secret, capfd):
    with session_server() as server:
        words = clients_of(server.url)
        assert main([*words, "--seed", "4", "--token-file", secret, "--json"]) == 0
    result = printed(capfd)
    assert (result["clients"], result["unconnected"]) == ({"a": 2}, 0)
    assert (result["seed"], result["rule"], result["interrupted"]) == (4, "stratified", False)
    assert {headers["authorization"] for _, headers in server.seen} == {"Bearer shown"}
