"""Waiting for a request to end: by GET, and by a POST that would rather not wait for long."""

import asyncio
import json
import time

import pytest

from spillover.apps.node import preferences
from spillover.apps.node.preferences import Preferences, read_preferences
from spillover.live.overflow import waiters as waiters_module

LONG = {"service_ms": 60_000}


def body(payload=None, **fields):
    return json.dumps({"payload": payload, **fields}).encode()


async def accepted(node, payload, name="k", prefer=b"respond-async"):
    status, _, shown = await node.send(
        "POST", "/requests", body(payload, id=name), [(b"Prefer", prefer)]
    )
    assert status == 202
    return shown


def waiters(node, name="k"):
    entry = node.shell.requests.home.find(name)
    return () if entry is None else node.shell.requests.waiters.of(entry.ref)


def asking(node, name):
    """How many ask for a neighbor's request here, the neighbor itself aside."""
    ref = node.shell.requests.foreign.ref_of(name)
    return len(node.shell.requests.waiters.of(ref)) - 1


def lookup(node, target="/requests/k", headers=()):
    return asyncio.ensure_future(node.send("GET", target, b"", headers))


@pytest.mark.parametrize("how", ["query", "prefer", "both"])
async def test_a_get_that_waits_is_answered_at_the_end(nodes, how):
    """With the state as usual, which counts as fetched; the preference is confirmed."""
    async with nodes.alone() as node:
        await accepted(node, {"service_ms": 80})
        target = "/requests/k" if how == "prefer" else "/requests/k?wait_ms=9000"
        headers = [] if how == "query" else [(b"Prefer", b"wait=9")]
        status, sent, shown = await lookup(node, target, headers)
        assert (status, shown["state"], shown["result"]) == (200, "done", {"service_ms": 80})
        applied = b"wait=9" if how == "prefer" else None
        assert sent.get(b"preference-applied") == applied
        assert node.shell.requests.home.unfetched == 0
        assert not len(node.shell.requests.home)


async def test_a_get_that_has_waited_long_enough_is_told_how_it_stands(nodes, monkeypatch):
    """Neither earlier nor forgotten later; nobody waits longer than the longest wait."""
    monkeypatch.setattr(preferences, "WAIT_MS_MAX", 100)
    async with nodes.alone() as node:
        await accepted(node, LONG)
        began_s = time.monotonic()
        status, _, shown = await lookup(node, "/requests/k?wait_ms=50.5")
        assert time.monotonic() - began_s >= 0.05
        assert (status, shown["state"]) == (200, "running")
        assert not waiters(node)
        assert (await lookup(node, "/requests/k?wait_ms=1e300"))[2]["state"] == "running"
        # 0 is a time, too, whatever is preferred.
        _, sent, shown = await lookup(node, "/requests/k?wait_ms=0", [(b"Prefer", b"wait=60")])
        assert (shown["state"], b"preference-applied" in sent) == ("running", False)
        assert (await node.send("DELETE", "/requests/k"))[0] == 200


WRONG = [
    *("wait_ms=-1", "wait_ms=x", "wait_ms=", "wait_ms=nan", "wait_ms=inf", "wait_ms=1e999"),
    *("wait_ms=5_0", "wait_ms=1&wait_ms=2", "wait_ms=0x10", "wait%5Fms=-1", "wait_ms=%C3%B6"),
    "&".join("x" for _ in range(101)) + "&wait_ms=1",
]


async def test_a_parameter_that_is_wrong_is_refused(nodes):
    """In one line that names it."""
    async with nodes.alone() as node:
        for query in WRONG:
            status, _, problem = await lookup(node, f"/requests/k?{query}")
            assert (status, problem["reason"]) == (422, "invalid")
            assert problem["detail"].startswith(("wait_ms: expected ", "query: expected at most"))
            assert "\n" not in problem["detail"]


@pytest.mark.parametrize(
    ("value", "respond_async", "wait_s"),
    [
        (b"", False, None),
        (b"respond-async", True, None),
        (b"Respond-Async , WAIT = 5", True, 5),
        (b"wait=5,respond-async;x=1", True, 5),
        (b"wait=5;x, wait=7", False, 5),
        (b'wait="5"', False, 5),
        (b'x="a, wait=3, \\" respond-async", wait=4', False, 4),
        (b'x="never closed, wait=3', False, None),
        (b"respond-async; wait=5", True, None),
        (b"respond-async=no", False, None),
        (b"wait=0", False, 0),
        (b"wait=0060", False, 60),
        (b"wait=61", False, 60),
        (b"wait=" + b"9" * 60_000, False, 60),
        (b"wait=x, wait=5", False, None),
        (b'"\\' * 30_000, False, None),
        (b",;=" * 20_000, False, None),
    ],
)
def test_preferences_are_read_as_rfc_7240_has_them(value, respond_async, wait_s):
    """The first of a name counts, also if it means nothing; lists may be long, strange or both."""
    assert read_preferences(value) == Preferences(respond_async, wait_s)


async def test_too_many_waiters_are_answered_at_once(nodes, monkeypatch):
    """With the state; that nothing was applied shows why."""
    monkeypatch.setattr(waiters_module, "WAITERS_MAX", 2)
    async with nodes.alone() as node:
        await accepted(node, LONG)
        waiting = [lookup(node, headers=[(b"Prefer", b"wait=60")]) for _ in range(2)]
        await nodes.until(lambda: len(waiters(node)) == 2)
        status, sent, shown = await lookup(node, headers=[(b"Prefer", b"wait=60")])
        assert (status, shown["state"]) == (200, "running")
        assert b"preference-applied" not in sent
        headers = [(b"Prefer", b"respond-async, wait=60")]
        status, sent, shown = await node.send("POST", "/requests", body(LONG, id="k"), headers)
        assert (status, sent[b"preference-applied"]) == (202, b"respond-async")
        await node.send("DELETE", "/requests/k")  # 202: it cannot wait for the end either
        assert {(await one)[2]["state"] for one in waiting} == {"cancelled"}


async def test_waiting_at_clusters_that_relay_and_run_it(nodes, monkeypatch):
    """Each tells what it knows at the end, after a while, and when too many ask."""
    monkeypatch.setattr(waiters_module, "WAITERS_MAX", 2)
    topology = nodes.topology_of("a", "b", clusters={"a": {"queue_limit": 0}})
    async with nodes.Federation(topology) as federation:
        a, b = federation["a"], federation["b"]
        blocker = a.post(LONG, id="x")
        await nodes.until(lambda: a.machine.servers.busy)
        post = a.post({"service_ms": 150}, id="k")
        await nodes.until(lambda: b.machine.servers.busy)
        waiting = lookup(b, "/requests/k?wait_ms=9000")
        await nodes.until(lambda: asking(b, "k"))
        status, sent, shown = await lookup(b, headers=[(b"Prefer", b"wait=9")])
        assert (status, shown["state"]) == (200, "running")
        assert b"preference-applied" not in sent
        shown = (await waiting)[2]
        assert (shown["state"], shown["result"]) == ("done", {"service_ms": 150})
        assert shown["path"] == ["a", "b"]
        assert (await post).status == 200
        post = a.post(LONG, id="l")
        await nodes.until(lambda: b.machine.servers.busy)
        assert (await lookup(b, "/requests/l?wait_ms=20"))[2]["state"] == "running"
        assert not asking(b, "l"), "nothing is kept of it"
        gone = b.client.request("GET", "/requests/l?wait_ms=60000", timeout_s=10)
        await nodes.until(lambda: asking(b, "l"))
        gone.cancel()
        await nodes.until(lambda: not asking(b, "l"))
        waiting = lookup(b, "/requests/l?wait_ms=60000")
        await nodes.until(lambda: asking(b, "l"))
        await b.shell.close()
        status, _, shown = await waiting
        assert (status, shown["state"]) == (200, "running"), "its home decides again"
        for name in ("x", "l"):
            await a.send("DELETE", f"/requests/{name}")
        await asyncio.gather(blocker, post)


async def test_an_asynchronous_post_may_wait_a_little(nodes):
    """200 if the answer comes in time, else 202; what was applied is said. Repeats do as well."""
    async with nodes.alone() as node:
        short, long = {"service_ms": 20}, {"service_ms": 1300}
        soon = [(b"Prefer", b"respond-async, wait=9")]
        status, sent, answer = await node.send("POST", "/requests", body(short), soon)
        assert (status, answer["result"]) == (200, short)
        assert sent[b"preference-applied"] == b"wait=9"
        assert node.shell.requests.home.unfetched == 0
        late = [(b"Prefer", b"wait=1"), (b"Prefer", b"respond-async")]
        status, sent, shown = await node.send("POST", "/requests", body(long, id="k"), late)
        assert (status, shown["state"]) == (202, "running")
        assert sent[b"preference-applied"] == b"respond-async, wait=1"
        assert sent[b"location"] == b"/requests/k"
        status, sent, answer = await node.send("POST", "/requests", body(long, id="k"), soon)
        assert (status, answer["result"]) == (200, long)
        assert sent[b"preference-applied"] == b"wait=9"
        assert sent[b"spillover-replayed"] == b"true"
