"""The commands as wholes, in this process: what they are asked for reaches the servers, what they
measured is printed, signals end them, and their exit statuses.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import resource
import signal
import socket
import sys
import threading
from contextlib import contextmanager

import pytest
import uvloop

from spillover.model.errors import RunError
from spillover_loadgen import commands, driver
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


def test_without_keys_and_deadline_there_are_none(trace, capfd):
    with scripted_aside(done()) as server:
        words = ["--target", f"a={server.url}", "--trace", trace, "--no-check", "--no-keys"]
        assert main(["run", *words, "--json"]) == 0
    assert len(server.seen) == printed(capfd)["sent"] == 2
    told = {"idempotency-key", "spillover-deadline-ms", "authorization"}
    assert all(told.isdisjoint(headers) for _, headers in server.seen)


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


def test_whoever_interrupts_once_more_does_not_wait_for_answers(tmp_path, node, capfd, monkeypatch):
    monkeypatch.setattr(driver, "STOP_GRACE_S", 10.0)
    path = tmp_path / "trace.csv"
    path.write_text("time_s,cluster,type\n0,a,stall\n")

    def is_interrupted_once():
        if not node.received:
            return False
        if not asked:
            asked.append(signal.getsignal(signal.SIGINT))
            os.kill(os.getpid(), signal.SIGINT)
        return signal.getsignal(signal.SIGINT) is signal.default_int_handler

    asked = []
    words = ["--target", f"a={node.url}", "--trace", str(path), "--json"]
    with interrupted_once(is_interrupted_once):
        assert main(["run", *words]) == 130
    assert capfd.readouterr() == ("", "")


def test_an_interruption_before_anything_is_measured_is_told_by_the_status(capfd):
    """Of a target that takes its time to say who it is."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        silent.settimeout(30.0)
        asked = []

        def ask():
            if not asked:
                asked.append(silent.accept()[0])
            return asked[0].recv(1)

        words = ["--target", f"a={url}", "--workload", "bursts"]
        with interrupted_once(ask):
            assert main(["run", *words]) == 130
        asked[0].close()
    assert capfd.readouterr() == ("", "")


RESULT = {
    "kept_up": True, "schedule_lag_ms": {"p99": 25.4}, "interrupted": False, "sent": 3,
    "outcomes": {"unreachable": 2}, "reasons": {"cannot connect": 2, "another": 1},
}  # fmt: skip


@pytest.mark.parametrize(
    ("changed", "status", "said"),
    [
        ({}, 0, ""),
        ({"interrupted": True}, 130, ""),
        ({"kept_up": False}, 0, "warning: 1 % of the requests left more than 25 ms later than"),
        ({"kept_up": False, "interrupted": True}, 130, "warning: 1 % of the requests"),
        ({"sent": 0, "outcomes": {"unreachable": 0}, "reasons": {}}, 0, ""),
    ],
)
def test_a_run_tells_how_it_ended_by_its_status(changed, status, said, capfd):
    assert commands._status({**RESULT, **changed}) == status
    out, err = capfd.readouterr()
    assert out == ""
    assert err.startswith(f"spillover-loadgen: {said}") if said else err == ""


def test_a_run_of_which_nothing_was_taken_fails_with_the_most_frequent_reason():
    nothing = {**RESULT, "outcomes": {"unreachable": 3}}
    with pytest.raises(RunError, match="no request could be sent: cannot connect"):
        commands._status(nothing)
    assert commands._status({**nothing, "interrupted": True}) == 130


@pytest.mark.slow
def test_the_collector_does_not_walk_a_schedule_while_it_is_sent(trace, node):
    kept = [[number] for number in range(20_000)]
    gc.unfreeze()
    assert main(["run", "--target", f"a={node.url}", "--trace", trace, "--json"]) == 0
    assert gc.get_freeze_count() > len(kept) / 2


def test_the_faster_loop_is_taken_where_it_is_installed(monkeypatch):
    assert commands._event_loop() is uvloop.new_event_loop
    monkeypatch.setitem(sys.modules, "uvloop", None)
    assert commands._event_loop() is asyncio.new_event_loop


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


def test_a_load_on_a_queue_gives_a_table_on_stderr(queue_of, capfd):
    with producers(1) as (one,):
        assert main(queue_of(one.url)) == 0
    out, err = capfd.readouterr()
    assert out == ""
    assert "until one is taken" in err


def test_producers_are_shown_the_secret(queue_of, secret, capfd):
    """When they are asked who they are and when they are given something."""
    with scripted_aside(answer(200, {"producer": "p1"})) as server:
        words = queue_of(server.url, consumers=0)
        assert main([*words, "--token-file", secret, "--json"]) == 0
    assert server.seen[0][0] == "GET /state"
    assert {asked for asked, _ in server.seen[1:]} == {"POST /objects"}
    assert {headers["authorization"] for _, headers in server.seen} == {"Bearer shown"}
    result = printed(capfd)
    assert result["put_outcomes"]["failed"] == result["offered"] > 0


def test_an_interrupted_load_on_a_queue_tells_what_it_has(queue_of, capfd):
    with producers(1) as (one,):
        words = queue_of(one.url, duration_s=60)
        with interrupted_once(lambda: one.state["acknowledged"] > 0):
            assert main([*words, "--json"]) == 130
    result = printed(capfd)
    assert result["interrupted"] is True
    assert result["produced"] > 0


@contextmanager
def gone_after_its_name():
    """The url of a producer that says who it is and is not there any more, and nobody else."""
    with socket.socket() as holder, socket.socket() as listening:
        for one in (holder, listening):
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        holder.bind(("127.0.0.1", 0))
        listening.bind(holder.getsockname())
        listening.listen()

        def say():
            caller, _ = listening.accept()
            listening.close()
            caller.recv(1 << 16)
            caller.sendall(answer(200, {"producer": "p1"}))
            caller.close()

        saying = threading.Thread(target=say)
        saying.start()
        yield f"http://127.0.0.1:{holder.getsockname()[1]}"
        saying.join(30.0)


@pytest.mark.parametrize(("rate", "status"), [(50, 1), (0, 0)])
def test_a_load_of_which_nothing_was_taken_fails(queue_of, capfd, rate, status):
    """Unless nothing was offered."""
    with gone_after_its_name() as url:
        assert main([*queue_of(url, rate=rate, consumers=0), "--json"]) == status
    out, err = capfd.readouterr()
    result = json.loads(out)
    assert result["put_outcomes"]["unreachable"] == result["offered"]
    told = "spillover-loadgen: no object could be put: put: NotDelivered\n"
    assert err == (told if status else "")


# --- clients ------------------------------------------------------------------------------------


def test_clients_give_one_object(secret, capfd):
    with session_server() as server:
        words = clients_of(server.url)
        assert main([*words, "--seed", "4", "--token-file", secret, "--json"]) == 0
    result = printed(capfd)
    assert (result["clients"], result["unconnected"]) == ({"a": 2}, 0)
    assert (result["seed"], result["rule"], result["interrupted"]) == (4, "stratified", False)
    assert {headers["authorization"] for _, headers in server.seen} == {"Bearer shown"}


def test_clients_give_a_table_on_stderr(capfd):
    with session_server() as server:
        assert main(clients_of(server.url)) == 0
    out, err = capfd.readouterr()
    assert out == ""
    assert "stratified, seed 1" in err


def test_interrupted_clients_tell_what_they_have(capfd):
    with session_server() as server:
        words = clients_of(server.url, duration_s=60)
        with interrupted_once(lambda: len(server.seen) >= 2):
            assert main([*words, "--json"]) == 130
    result = printed(capfd)
    assert result["interrupted"] is True
    assert result["duration_s"] < 50


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
