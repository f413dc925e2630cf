"""`spillover lease run` as a process on a real Redis: its life, and what it says to bad input."""

import json
import re
import signal
import socket
import sys
from functools import partial

import pytest

from spillover.inputs.api_tokens import dump_api_token, new_api_token
from spillover.model.access import Role
from support import waiting
from support.commands import SPILLOVER, ask

LIMIT_S = 60.0
PARTITIONS = 4
TIMES = {
    "--normal-lease-ms": "300",
    "--max-lease-ms": "1500",
    "--max-shutdown-ms": "300",
    "--min-grab-ms": "100",
    "--held-delay-ms": "5",
}
OPTIONS = {
    "--node": "a",
    "--partitions": str(PARTITIONS),
    "--handler": "python:handlers_here:works",
    **TIMES,
}
HANDLERS = """
import threading

def works(partition, epoch, stop_event):
    stop_event.wait()

def stays(partition, epoch, stop_event):
    threading.Event().wait()

async def blocks(partition, epoch, stop_event):
    threading.Event().wait()

def takes_two(partition, epoch):
    pass

NO_FUNCTION = 1
"""


class Member:
    """A process, and its lines as they come."""

    def __init__(self, running):
        self.running, self._at = running, 0

    def line(self, event, count=1):
        """The next line of that event, or the last of so many."""
        for _ in range(count):
            found = until(lambda: self._next(event))
        return found

    def _next(self, event):
        *lines, _ = self.running.stdout.split("\n")
        for at in range(self._at, len(lines)):
            line = json.loads(lines[at])
            if line["event"] == event:
                self._at = at + 1
                return line
        return None

    def signal(self, number):
        self.running.process.send_signal(number)

    def end(self):
        """Its exit status."""
        return self.running.process.wait(LIMIT_S)

    def refusal(self):
        """The one line that it says which ends with status 2."""
        assert self.end() == 2
        assert "Traceback" not in self.running.stderr
        said = self.running.stderr.splitlines()
        (line,) = [one for one in said if one.startswith("spillover: ")]
        return line


@pytest.fixture
def lease_run(redis_server, redis_servers, start, tmp_path):
    """`lease_run({"--node": "a"})`: a process with these options beside those that it takes; None
    stands for one without a value."""
    (tmp_path / "handlers_here.py").write_text(HANDLERS, encoding="utf-8")
    group = redis_servers.new_name()

    def begin(given=None):
        options = {"--redis": redis_server.url, "--group": group, "--seed": "1", **OPTIONS}
        pairs = (options | (given or {})).items()
        words = [word for pair in pairs for word in pair if word is not None]
        return Member(start(*SPILLOVER, "lease", "run", *words))

    return begin


def get(url):
    return ask(url)[1]


until = partial(waiting.until, limit_s=LIMIT_S)


def test_serving_first_then_draining(lease_run, tmp_path):
    """The first line tells where; a drain, by HTTP or by signal, ends it with status 0 after all
    has been released. Lines are JSON whether asked for or not. With API tokens the service asks for
    one."""
    a = lease_run({"--bind": "127.0.0.1:0", "--json": None})
    serving = a.line("serving")
    assert serving["node"] == "a"
    assert a.running.stdout.startswith('{"')
    # The keys that every line has, also where there is nothing to say.
    assert {"at_s": serving["at_s"], "partition": None, "epoch": None}.items() <= serving.items()
    challenged = a.line("challenged")
    assert (challenged["partition"] in range(PARTITIONS), challenged["epoch"]) == (True, None)
    a.line("acquired", PARTITIONS)
    made = new_api_token("reader", "secret", "", [Role.READ])
    (tmp_path / "tokens.yaml").write_text(dump_api_token(made), encoding="utf-8")
    b = lease_run({"--node": "b", "--tokens": "tokens.yaml"})
    url = b.line("serving")["url"]
    until(lambda: [m["held"] for m in get(f"{serving['url']}/state")["members"]] == [2, 2])
    assert ask(f"{serving['url']}/admin/drain", {})[0] == 202
    a.line("released", PARTITIONS)
    assert a.end() == 0
    b.line("acquired", PARTITIONS)
    assert ask(f"{url}/state")[0] == 401
    b.signal(signal.SIGHUP)  # read again, and goes on
    shown = {"authorization": "Bearer secret"}
    assert ask(f"{url}/state", None, shown)[0] == 200
    b.signal(signal.SIGTERM)
    b.line("released", PARTITIONS)
    assert b.end() == 0
    assert b.running.stderr.count("Traceback") == 0


@pytest.mark.parametrize("handler", ["stays", "blocks"])
def test_a_second_signal_ends_it_at_once(lease_run, handler):
    """Even where the event loop is kept from hearing of it; the leases run out by themselves."""
    times = {"--max-shutdown-ms": "60000", "--max-lease-ms": "90000", "--normal-lease-ms": "1000"}
    a = lease_run({"--handler": f"python:handlers_here:{handler}", "--partitions": "1", **times})
    url = a.line("serving")["url"]
    a.line("acquired")
    a.signal(signal.SIGTERM)
    until(lambda: get(f"{url}/state")["draining"])
    a.signal(signal.SIGTERM)
    assert a.end() == 130


def test_the_blogs_rule_as_a_process(lease_run):
    """Epochs are 0, and `/state` says which rule it is. SIGHUP ends nothing."""
    a = lease_run({"--rule": "blog"})
    url = a.line("serving")["url"]
    assert a.line("acquired", PARTITIONS)["epoch"] == 0
    seen = until(lambda: (s := get(f"{url}/state")) and len(s["allocation"]) == PARTITIONS and s)
    assert (seen["rule"], seen["renewal"]["kind"]) == ("blog", "none")
    assert seen["members"] == [{"node": "a", "alive_for_ms": None, "held": PARTITIONS}]
    assert seen["allocation"][0]["lease_ms_left"] is None
    a.signal(signal.SIGHUP)
    until(lambda: a.running.stderr.count("SIGHUP changes nothing") == 1)
    a.signal(signal.SIGTERM)
    assert a.end() == 0


SHORT = "--max-shutdown-ms 0.1 --min-grab-ms 0.05 --held-delay-ms 0.01"
BAD_INPUT = {
    f"{SHORT} --normal-lease-ms 0.1 --max-lease-ms 0.4": "normal_lease_ms: expected at least 10, ",
    f"{SHORT} --normal-lease-ms 10 --max-lease-ms 40": "max_lease_ms: expected at least 50, got 40",
    "--max-lease-ms 500": "lease times: max_lease_ms: expected at least three renewals",
    "--min-grab-ms 400": "min_grab_ms: expected less than normal_lease_ms 300, got 400: a",
    "--held-delay-ms 100": "lease times: held_delay_ms: expected less",
    "--max-shutdown-ms 1500": "max_shutdown_ms: expected less than",
    "--min-grab-ms 0": "--min-grab-ms",
    "--partitions 0": "partitions: expected at least 1, got 0",
    "--handler python:nowhere:f": "--handler: cannot import 'nowhere'",
    "--handler python:handlers_here:g": "expected a function 'g'",
    "--handler python:handlers_here:NO_FUNCTION": "expected a function",
    "--handler python:handlers_here:takes_two": "FUNCTION(partition, epoch, stop_event)",
    "--handler works": "--handler: expected python:MODULE:FUNCTION",
    "--redis localhost:6379": "redis: url: expected redis://",
    "--node a|b": "node: expected 1 to 63 of",
    "--group {g}": "group: expected 1 to 63 of",
    "--rule fair": "--rule",
    "--rule blog --balance load": "balance: expected count with the blog's rule",
    "--tls-cert a.crt": "--tls-key: expected a file (or SPILLOVER_TLS_KEY) along with --tls-cert",
    "--bind here": "--bind: expected HOST:PORT",
    "--tokens nowhere.yaml": "nowhere.yaml: expected a YAML file of API tokens",
}


@pytest.fixture
def refused_run(refused, tmp_path, monkeypatch):
    """The line that is said in this process before anything is begun."""
    (tmp_path / "handlers_here.py").write_text(HANDLERS, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "handlers_here", raising=False)
    usual = {"--redis": "redis://127.0.0.1:1/0", "--group": "g", **OPTIONS}
    words = [word for pair in usual.items() for word in pair]
    return lambda *more: refused("lease", "run", *words, *more)


@pytest.mark.parametrize("options", BAD_INPUT)
def test_bad_options(options, refused_run):
    assert BAD_INPUT[options] in refused_run(*options.split())


def test_a_port_in_use(refused_run):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        place = f"127.0.0.1:{taken.getsockname()[1]}"
        told = refused_run("--bind", place)
    assert f"--bind: expected an address that can be bound, got {place}" in told


def test_a_redis_that_is_away_or_read_only_is_waited_for_visibly(
    lease_run, redis_server, redis_servers, tmp_path
):
    """An event line and a state that say so; when Redis comes, it joins. A replica is refused at
    the start; one that becomes it later is retried."""
    with redis_servers.running(tmp_path) as server:
        server.kill()
        a = lease_run({"--redis": server.url})
        url = a.line("serving")["url"]
        assert f"127.0.0.1:{server.port}/0 cannot be reached" in a.line("redis_down")["problem"]
        seen = get(f"{url}/state")
        assert (seen["state"], seen["redis"]["up"]) == ("joining", False)
        server.restart()
        a.line("redis_up")
        a.line("acquired", PARTITIONS)
        server.follow(redis_server.port)
        told = lease_run({"--redis": server.url, "--node": "b"}).refusal()
        assert "is read-only" in told
        assert "--redis: " in told
        assert is_read_only(a.line("redis_down"))
        until(lambda: is_read_only(get(f"{url}/state")["redis"]))
        server.client.replicaof("NO", "ONE")
        a.line("redis_up")
        # What was still held is written anew, what was not is acquired.
        until(lambda: len(get(f"{url}/state")["held"]) == PARTITIONS)
        a.signal(signal.SIGTERM)
        assert a.end() == 0


def is_read_only(told):
    return re.search("(?i)read-?only", told["problem"] or "")
