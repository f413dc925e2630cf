"""A pool of unlike servers as its users have it: `spillover up` with a service of its own behind
each server, one of which dies; the tokens by `/state` and `/metrics`, and the console in a browser.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections import Counter

import pytest

from support import SERVICES
from support.commands import OPENER, SPILLOVER, ask

BACKEND = SERVICES / "failing_backend.py"
PAUSE_S = 0.05
"""Of a client that got no result."""

SERVERS = ("s1", "s2", "s3")


@pytest.fixture
def backends():
    """A service for each server, by its id: a process and its port."""
    found = {}
    for server in SERVERS:
        command = [sys.executable, BACKEND]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        found[server] = process, int(process.stdout.readline())
    yield found
    for process, _ in found.values():
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.fixture
def pool(backends, up, tmp_path):
    """The url of a node whose three servers have such services. t1 runs on s1 and s2, t2 on s2 and
    s3; four tokens each."""
    servers = ", ".join(
        f'{{id: {server}, handler: "http:http://127.0.0.1:{port}/{server}"}}'
        for server, (_, port) in backends.items()
    )
    classes = ", ".join(f"{{id: {one}, servers: [{one}], tokens: 4}}" for one in SERVERS)
    path = tmp_path / "pool.yaml"
    path.write_text(
        f"name: pool\nclusters:\n  - id: a\n    servers: [{servers}]\n    classes: [{classes}]\n"
        "    types: [{id: t1, classes: [s1, s2]}, {id: t2, classes: [s2, s3]}]\n"
        "    on_block: queue\n"
    )
    _, urls = up(str(path), "--seed", "1")
    return urls["a"]


def tokens_of(url):
    """The pool as `/state` has it, after looking whether each token is in one place."""
    tokens = ask(f"{url}/state")[1]["tokens"]
    for row in tokens["classes"]:
        there = row["available"] + row["held"] + row["out"]
        assert there == row["limit"] + row["retiring"], row
    assert tokens["unaccounted"] == 0
    return tokens


def samples_of(url):
    """What `/metrics` says, by name and labels."""
    with OPENER.open(f"{url}/metrics", timeout=10) as response:
        lines = response.read().decode().splitlines()
    return {
        name: float(value)
        for name, _, value in (line.rpartition(" ") for line in lines if line[0] != "#")
    }


def put(url, change):
    """The pool that answers, by the command that operators have."""
    words = [word for name, value in change for word in (f"--{name}", value)]
    command = [*SPILLOVER, "tokens", url, *words, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


class Load:
    """Clients of two types, each of which asks again as soon as it has its answer."""

    def __init__(self, url, clients):
        self.url = url
        self.answers = Counter()
        self.wrong = []
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._ask, args=(kind,), daemon=True)
            for kind in ("t1", "t2") * clients
        ]
        for thread in self._threads:
            thread.start()

    def _ask(self, kind):
        while not self._stop.is_set():
            status, told = ask(f"{self.url}/requests", {"type": kind, "payload": {}})
            self.answers[kind, status] += 1
            if status != 200:
                self._stop.wait(PAUSE_S)
            else:
                server = told["result"]["from"].strip("/")
                if server not in {"t1": ("s1", "s2"), "t2": ("s2", "s3")}[kind]:
                    self.wrong.append((kind, server))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def stop(self):
        self._stop.set()
        for thread in self._threads:
            thread.join(30.0)


def test_tokens_survive_what_happens_to_their_jobs(pool, backends, until):
    """Under load one server's service dies, work fails and comes too late, a client goes away, a
    server is taken out and back, a limit is lowered and raised. Every token is in one place all the
    time, at the end available, and no type ran where it may not."""
    with Load(pool, clients=4) as load:
        go_through_it(pool, backends, load, until)
    until(lambda: ask(f"{pool}/state")[1]["tokens"]["jobs"] == 0)
    assert load.wrong == []
    assert load.answers["t2", 200] > 20
    classes = {row["id"]: row for row in tokens_of(pool)["classes"]}
    assert {name: row["held"] for name, row in classes.items()} == dict.fromkeys(SERVERS, 0)
    assert classes["s2"]["out"] == 4
    samples = samples_of(pool)
    assert samples['spillover_tokens_unaccounted{cluster="a"}'] == 0.0
    assert samples['spillover_ledger_imbalance{cluster="a"}'] == 0.0
    done = 'spillover_type_requests_total{{cluster="a",outcome="done",type="{}"}}'
    for kind in ("t1", "t2"):
        assert samples[done.format(kind)] == load.answers[kind, 200]


def go_through_it(pool, backends, load, until):
    def state_of(server):
        return next(row for row in tokens_of(pool)["servers"] if row["id"] == server)

    until(lambda: sum(load.answers.values()) > 40)
    told = put(pool, [("limit", "s1=1"), ("out", "s3")])
    assert told["classes"][0]["limit"] == 1
    assert state_of("s3")["state"] == "out"
    until(lambda: state_of("s3")["jobs"] == 0)
    until(lambda: state_of("s1")["jobs"] == 1)
    told = put(pool, [("limit", "s1=6"), ("in", "s3")])
    assert told["classes"][0]["limit"] == 6
    until(lambda: state_of("s3")["jobs"] > 1)

    backends["s2"][0].kill()
    until(lambda: state_of("s2")["state"] == "down")
    until(lambda: state_of("s2")["jobs"] == 0)
    before = sum(load.answers.values())
    until(lambda: sum(load.answers.values()) > before + 40)
    assert samples_of(pool)['spillover_server_up{cluster="a",server="s2"}'] == 0.0
    assert samples_of(pool)['spillover_tokens_available{class="s2",cluster="a"}'] == 0.0

    body = {"type": "t1", "payload": {}}
    assert ask(f"{pool}/requests", body, {"Spillover-Deadline-Ms": "20"})[0] == 504
    with pytest.raises(TimeoutError):  # it had enough
        ask(f"{pool}/requests", body, timeout_s=0.02)
    ask(f"http://127.0.0.1:{backends['s1'][1]}/told/s1", {"status": 500})
    until(lambda: load.answers["t1", 502] > 3)
    ask(f"http://127.0.0.1:{backends['s1'][1]}/told/s1", {})


def test_comte11_is_up_and_refuses_what_is_blocked(up, generate):
    """The load generator sends both types; what finds no token is refused and counted so."""
    _, urls = up("comte11", "--seed", "1")
    result = generate(
        urls, "--workload", "poisson", "--rate", "30", "--duration-s", "3", "--seed", "1",
        "--type", "t1=1", "--type", "t2=4",
    ).result()  # fmt: skip
    assert set(result["per_type"]) == {"t1", "t2"}
    assert result["outcomes"]["refused"] > 0
    assert set(result["reasons"]) == {"blocked"}
    state = ask(f"{urls['a']}/state")[1]
    blocked = {row["id"]: row["blocked_total"] for row in state["tokens"]["types"]}
    told = {kind: row["outcomes"]["refused"] for kind, row in result["per_type"].items()}
    assert blocked == told
    assert sum(told.values()) == result["outcomes"]["refused"]
