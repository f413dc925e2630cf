"""The commands as wholes, in this process: what they are asked for reaches the servers, what they
measured is printed, signals end them, and their exit statuses.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import threading
from contextlib import contextmanager

import pytest

from spillover_loadgen.cli import main
from support import waiting
from support.queue_service import producers
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


@pytest.fixture
def queue_of():
    """The words of a command on a queue: producers by their urls."""

    def words(*urls, rate=40, consumers=2, duration_s=0.3):
        targets = [word for k, url in enumerate(urls) for word in ("--target", f"p{k + 1}={url}")]
        numbers = {"--produce-rate": rate, "--consumers": consumers, "--duration-s": duration_s}
        return ["queue", *targets, *[str(word) for pair in numbers.items() for word in pair]]

    return words


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


# --- run ----------------------------------------------------------------------------------------


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


def test_a_terminal_sees_how_far_a_run_is_and_its_table(trace, capfd, monkeypatch, tmp_path):
    """What is written takes the place of an earlier run's."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "120")
    out = tmp_path / "out.jsonl"
    out.write_text("an earlier run\n" * 50)
    with scripted_aside(done()) as server:
        words = ["--target", f"a={server.url}", "--trace", trace, "--no-check", "--out", str(out)]
        assert main(["run", *words]) == 0
    said, told = capfd.readouterr()
    assert said == ""
    assert "sent 2 of 2" in told
    assert "system time in ms by home" in told
    assert [json.loads(line)["index"] for line in out.read_text().splitlines()] == [0, 1]


def test_an_interrupted_run_tells_what_it_has(trace, node, capfd):
    with open(trace, "a") as lines:  # noqa: PTH123 - of a path that is a word of a command
        lines.write("3600,a\n")
    words = ["--target", f"a={node.url}", "--trace", trace, "--json"]
    with interrupted_once(lambda: len(node.received) == 2):
        assert main(["run", *words]) == 130
    result = json.loads(capfd.readouterr().out)
    assert (result["sent"], result["interrupted"]) == (2, True)


# --- queue --------------------------------------------------------------------------------------


def test_a_load_on_a_queue_gives_one_object(queue_of, capfd):
    with producers(2) as them:
        words = queue_of(*(one.url for one in them))
        assert main([*words, "--seed", "6", "--json"]) == 0
    result = printed(capfd)
    assert (result["seed"], result["duration_s"], result["interrupted"]) == (6, 0.3, False)
    assert result["offered"] == result["produced"] == result["acknowledged"] > 0
    assert list(result["put_outcomes"]) == ["ok", "refused", "failed", "unknown", "unreachable"]
    assert list(result["take_outcomes"]) == ["object", "nothing", "refused", "failed"]
    assert result["take_outcomes"]["object"] >= result["acknowledged"]
    assert set(result["schedule_lag_ms"]) == {"p99", "max"}
    assert isinstance(result["kept_up"], bool)


# --- clients ------------------------------------------------------------------------------------


def test_clients_give_one_object(secret, capfd):
    with session_server() as server:
        words = clients_of(server.url)
        assert main([*words, "--seed", "4", "--token-file", secret, "--json"]) == 0
    result = printed(capfd)
    assert (result["clients"], result["unconnected"]) == ({"a": 2}, 0)
    assert (result["seed"], result["rule"], result["interrupted"]) == (4, "stratified", False)
    assert {headers["authorization"] for _, headers in server.seen} == {"Bearer shown"}


# --- all of them --------------------------------------------------------------------------------


@pytest.fixture
def few_files():
    """No more than 1000 may be open, though the system allows more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard <= 1_000:
        pytest.skip("the system does not allow more")
    resource.setrlimit(resource.RLIMIT_NOFILE, (1_000, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_each_command_may_open_many_connections(few_files, trace, queue_of, capfd):
    def run(words):
        assert main([*words, "--json"]) == 0
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        assert soft > 1_000
        resource.setrlimit(resource.RLIMIT_NOFILE, (1_000, hard))

    with scripted_aside(done()) as server:
        run(["run", "--target", f"a={server.url}", "--trace", trace, "--no-check"])
    with scripted_aside(answer(200, {"producer": "p1"})) as server:
        run(queue_of(server.url, consumers=0, duration_s=0.05))
    with session_server() as server:
        run(clients_of(server.url, duration_s=0.05))
