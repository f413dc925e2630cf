"""`spillover pool`, and what `status` and `explain` say, of nodes with pools that run."""

import importlib.util
import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import httpx
import pytest

from spillover.cli import plan_tokens
from spillover.cli.pool_measured import measure
from spillover.core.tokens.answers import NOT_RUN, RUN_LENGTH
from spillover.model.unlike_servers import JobType, Server, ServerClass

POOL = {
    "servers": (Server(id="big", rate=4.0), Server(id="small", rate=1.0)),
    "classes": (
        ServerClass(id="fast", servers=("big",), tokens=4),
        ServerClass(id="any", servers=("big", "small"), tokens=2),
    ),
    "types": (JobType(id="llm", classes=("fast",)), JobType(id="text", classes=("fast", "any"))),
}


@pytest.fixture
def pool(running, nodes, monkeypatch):
    """The url of a node with a pool, beside one without."""
    monkeypatch.setenv("COLUMNS", "300")
    with running(nodes.topology_of("a", "b", clusters={"a": POOL})) as run:
        yield run


def test_a_pool_is_shown_and_changed(pool, told):
    url = pool.urls["a"]
    status, out, err = told("pool", url)
    assert (status, err) == (0, "")
    lines = [line.split() for line in out.splitlines()]
    assert lines[0] == ["server", "rate", "jobs", "queued", "tokens", "state"]
    assert lines[1] == ["big", "4", "0", "0", "6", "up"]
    assert ["fast", "4", "0", "0", "0", "4"] in lines
    assert ["text", "0", "0", "10", "ms", "fast", "any"] in lines
    change = ("--limit", "fast=2", "--limit", "any=3", "--out", "small")
    status, out, _ = told("pool", url, *change, "--json")
    tokens = json.loads(out)
    assert [row["limit"] for row in tokens["classes"]] == [2, 3]
    assert [row["state"] for row in tokens["servers"]] == ["up", "out"]
    assert told("pool", url)[1].splitlines()[2].split()[-1] == "out"
    status, out, _ = told("status", url)
    rows = [line.split() for line in out.splitlines()]
    assert rows[0][5:7] == ["tokens", "blocked"]
    assert rows[1][5:7] == ["0/5", "0"]
    assert out.splitlines()[1].rstrip().endswith("up: small out")
    assert rows[2][5:7] == ["\N{EN DASH}"] * 2
    assert told("pool", url, "--in", "small")[0] == 0


async def lie(federation):
    """Server small does nothing of type text; of that, one by one."""
    answers = federation["a"].machine.servers.answers
    for _ in range(RUN_LENGTH):
        answers.not_done(1, 1, NOT_RUN, "http://x answered [503]")


def test_what_a_server_does_not_do_is_shown(pool, told):
    pool.ask(lie)
    _, out, _ = told("pool", pool.urls["a"])
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert lines[-2:] == [
        "server in a row done elsewhere does not do said last",
        "small 5 0 text (not run) http://x answered [503]",
    ]


WRONG = [
    (("--limit", "fst=2"), 1, "invalid: body.classes: expected the id of a class (fast, any)"),
    (("--out", "large"), 1, "invalid: body.servers: expected the id of a server (big, small)"),
    (("--limit", "fast=0"), 2, "usage: --limit: expected a whole number from 1 to 10000"),
    (("--limit", "fast=2", "--limit", "fast=3"), 2, "--limit: expected each name once, got 'fast'"),
    (("--out", "big", "--in", "big"), 2, "--out and --in: expected each name once, got 'big'"),
    (("--limit", "fast"), 2, "usage: --limit: expected CLASS=N, got 'fast'"),
]


@pytest.mark.parametrize(("change", "status", "says"), WRONG)
def test_a_change_that_cannot_be_made_is_one_line(pool, told, change, status, says):
    found, out, err = told("pool", pool.urls["a"], *change)
    assert (found, out) == (status, "")
    assert says in err
    assert err.count("\n") == 1


def test_a_cluster_without_a_pool_says_so(pool, told):
    status, out, err = told("pool", pool.urls["b"])
    assert (status, out) == (1, "")
    assert err == "spillover: the servers of cluster b are alike: it has no tokens\n"
    status, _, err = told("pool", pool.urls["b"], "--in", "s1")
    assert status == 1
    assert err.startswith("spillover: servers_alike: the servers of cluster b are alike")


async def ask(federation):
    await federation["a"].post({"service_ms": 1}, type="text", id="one")


def test_which_token_is_explained(pool, told):
    pool.ask(ask)
    _, out, _ = told("explain", pool.urls["a"], "one")
    line = out.splitlines()[2].strip()
    assert line.startswith("token fast-1 of class fast, on server big: the longest available, for ")
    assert line.endswith("others by releases: any 4")


class Full(BaseHTTPRequestHandler):
    """Has no place."""

    def do_POST(self):
        self.send_error(503)

    def log_message(self, *_):
        """Nothing."""


def test_that_a_server_did_not_run_it_is_explained(running, nodes, told):
    with HTTPServer(("127.0.0.1", 0), Full) as full:
        threading.Thread(target=full.serve_forever, daemon=True).start()
        small = Server(id="small", handler=f"http:http://127.0.0.1:{full.server_port}")
        servers = {"servers": (small, Server(id="big"))}
        with running(nodes.topology_of("a", clusters={"a": servers})) as run:
            run.ask(ask_any)
            _, out, _ = told("explain", run.urls["a"], "one")
        full.shutdown()
    assert "not started on server small (" in out
    assert "token big-1 of class big, on server big, not again on small: " in out


async def ask_any(federation):
    await federation["a"].post({"service_ms": 1}, id="one")


@pytest.mark.slow
def test_limits_are_planned_from_what_comes(pool, require, told, monkeypatch):
    """`plan tokens --from`: the pool as it is, at the rates that were measured; who brings nothing
    is told so. Requests come once the measuring has begun."""
    require(importlib.util.find_spec("numpy"), "numpy, from the extra `sim`")
    url, kinds = pool.urls["a"], iter(("llm", "text", "llm"))
    plan = ("plan", "tokens", "--from", url, "--for-s", "1", "--at-most", "8")

    def measured_while_some_come(url, duration_s, _):
        return measure(url, duration_s, lambda _: [post(url, kind) for kind in kinds])

    monkeypatch.setattr(plan_tokens, "measure", measured_while_some_come)
    status, out, err = told(*plan, "--json")
    assert (status, err) == (0, f"measuring {url} for 1 s\n")
    found = json.loads(out)
    types = found["measured"]["types"]
    assert {kind: each["arrived"] for kind, each in types.items()} == {"llm": 2, "text": 1}
    assert types["llm"]["rate"] == pytest.approx(2 / found["measured"]["duration_s"])
    assert found["given"]["tokens"] == {"fast": 4, "any": 2}
    assert set(found["best"]["tokens"]) == {"fast", "any"}
    status, out, err = told(*plan[:-3], "0.3")
    assert (status, out) == (1, "")
    assert err.splitlines()[1].startswith(f"spillover: no client's request came to {url} in ")
    status, _, err = told("plan", "tokens", "--from", pool.urls["b"], "--for-s", "0.1")
    assert status == 1
    assert "the servers of cluster b are alike" in err


def post(url, kind):
    httpx.post(f"{url}/requests", json={"payload": {}, "type": kind}).raise_for_status()
