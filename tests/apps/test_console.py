"""`/console` over real sockets: the page and its files, the stream of events, its bounds, and who
may operate. How it looks and behaves in a browser is tested in tests/e2e/test_console_page.py.
"""

import asyncio
import json
import re
import socket
from contextlib import asynccontextmanager

import pytest

from spillover.apps.http.console import assets as files
from spillover.apps.http.console import broadcast, console
from spillover.apps.http.console.operators import (
    FOREIGN_NAME,
    OTHER_SITE,
    OVER_THE_NETWORK,
    Operators,
)
from support.waiting import slack


class Listener:
    """One stream of events, as a browser has it."""

    @classmethod
    async def of(cls, url, **headers):
        one = cls()
        host, port = url.removeprefix("http://").split(":")
        one.reader, one.writer = await asyncio.open_connection(host, int(port), limit=1 << 26)
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        host_line = "" if "host" in headers else f"host: {host}:{port}\r\n"
        one.writer.write(f"GET /console/events HTTP/1.1\r\n{host_line}{lines}\r\n".encode())
        head = (await one.reader.readuntil(b"\r\n\r\n")).decode()
        one.status = int(head.split()[1])
        one.headers = dict(line.lower().split(": ", 1) for line in head.split("\r\n")[1:-2])
        return one

    async def next(self, wanted=None):
        """(event, data) of the next one, or the next of that name; None at the end."""
        name = None
        async with asyncio.timeout(10.0):
            while line := await self.reader.readline():
                if line.startswith(b"event: "):
                    name = line[7:].strip().decode()
                elif line.startswith(b"data: ") and wanted in {None, name}:
                    return name, json.loads(line[6:])
                elif line == b"0\r\n":
                    return None
        return None

    async def leave(self):
        self.writer.close()
        await asyncio.gather(self.writer.wait_closed(), return_exceptions=True)


def console_of(node):
    return node.server.config.app.cold.made().state.console


async def fetch(node, path, method="GET", **headers):
    """(status, headers, body)"""
    response = await node.client.request(
        method, path, headers=[(k.encode(), v.encode()) for k, v in headers.items()], timeout_s=10.0
    )
    told = {name.decode(): value.decode() for name, value in response.headers.items()}
    return response.status, told, response.body


@asynccontextmanager
async def a_pair(nodes):
    async with nodes.Federation(nodes.topology_of("a", "b")) as federation:
        yield federation


# --- page and files -----------------------------------------------------------------------------


async def test_the_page_brings_all_that_it_needs(nodes):
    """Every file it names is there, to be kept for ever; nothing is between the lines, and nothing
    comes from elsewhere."""
    async with a_pair(nodes) as federation:
        node = federation["a"]
        status, headers, body = await fetch(node, "/console")
        assert (status, headers["content-type"]) == (200, "text/html; charset=utf-8")
        assert headers["cache-control"] == "no-cache"
        assert "script-src 'self'" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        text = body.decode()
        assert "<title>Spillover a</title>" in text
        assert not re.findall(r"https?:|<style|\sstyle=|\son\w+=|<script(?![^>]*src=)", text)
        named = re.findall(r'(?:src|href)="(console/[^"]+)"', text)
        assert len(named) > 5
        for path in named:
            status, headers, content = await fetch(node, f"/{path}")
            assert (status, bool(content)) == (200, True), path
            assert headers["cache-control"] == "public, max-age=31536000, immutable"
            assert headers["x-content-type-options"] == "nosniff"
        other = named[0].replace(files.digest(), "0" * 16)
        assert (await fetch(node, f"/{other}"))[0] == 404


def test_scripts_import_only_what_is_there():
    """By relative paths, so that one digest is in all addresses; and none makes markup of text."""
    for name, asset in files.assets().items():
        text = asset.content.decode()
        if name.endswith(".js") and not name.startswith("vendor/"):
            assert {m.removeprefix("./") for m in re.findall(r'from "([^"]+)"', text)} <= set(
                files.assets()
            )
            assert not re.findall(
                r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(", text
            )


# --- events -------------------------------------------------------------------------------------


async def test_listeners_are_told_what_the_federation_is_like(nodes):
    """Who is there first, then the states of all, several times a second, and decisions."""
    async with a_pair(nodes) as federation:
        listener = await Listener.of(federation["a"].url)
        assert listener.status == 200
        assert listener.headers["content-type"] == "text/event-stream"
        assert listener.headers["cache-control"] == "no-store"
        assert listener.headers["x-accel-buffering"] == "no", "a proxy would keep it back"
        event, told = await listener.next()
        assert (event, told["kind"], told["name"]) == ("hello", "node", "a")
        assert told["assets"] == files.digest()
        assert told["actions"] == ["drain", "resume"]
        event, told = await listener.next()
        assert event == "update"
        assert [one["id"] for one in told["clusters"]] == ["a", "b"]
        assert told["links"] == [["a", "b", 0.0]]
        assert told["decisions"] == []
        await federation["a"].post({"service_ms": 1}, id="r<1>")
        told = (await listener.next("update"))[1]
        while not told["decisions"] or told["clusters"][0]["answered"] == 0:
            told = (await listener.next("update"))[1]
        (decision,) = told["decisions"]
        assert (decision["id"], decision["outcome"]) == ("r<1>", "started")
        own = told["clusters"][0]
        assert own["answered"] == own["home"]["done"] == 1
        assert own["system_time_sum_ms"] > 0.0
        assert own["neighbors"][0]["forwards"] == 0
        await federation.stop("b")
        while not told["clusters"][1].get("unreachable"):
            told = (await listener.next("update"))[1]
        assert told["clusters"][1]["last_seen_s"] >= 0.0
        await listener.leave()


async def test_places_are_limited(nodes, monkeypatch):
    """Beyond them 503 with a reason, until one is free again."""
    monkeypatch.setattr(broadcast, "LISTENERS_MAX", 3)
    async with a_pair(nodes) as federation:
        url = federation["a"].url
        listeners = [await Listener.of(url) for _ in range(3)]
        refused = await Listener.of(url)
        assert (refused.status, refused.headers["retry-after"]) == (503, "10")
        assert refused.headers["content-type"] == "application/problem+json"
        body = await refused.reader.readexactly(int(refused.headers["content-length"]))
        assert json.loads(body)["reason"] == "too_many_listeners"
        await refused.leave()
        await listeners.pop().leave()
        await nodes.until(lambda: console_of(federation["a"]).broadcast.listeners == 2)
        listeners.append(await Listener.of(url))
        assert listeners[-1].status == 200
        await asyncio.gather(*(one.leave() for one in listeners))


async def test_who_does_not_read_is_cut_off(nodes, monkeypatch):
    """And holds up nobody meanwhile, nor makes anything pile up."""
    monkeypatch.setattr(console, "UNREAD_S", 0.5)
    async with a_pair(nodes) as federation:
        poller = console_of(federation["a"]).broadcast
        large = b'"%b"' % (b"x" * 4_000_000)

        async def look():
            return large

        poller._look = look
        host, port = federation["a"].url.removeprefix("http://").split(":")
        with socket.socket() as idle:
            idle.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            idle.setblocking(False)
            await asyncio.get_running_loop().sock_connect(idle, (host, int(port)))
            request = f"GET /console/events HTTP/1.1\r\nhost: {host}\r\n\r\n".encode()
            await asyncio.get_running_loop().sock_sendall(idle, request)
            await nodes.until(lambda: poller.listeners == 1)
            reading = await Listener.of(federation["a"].url)
            for _ in range(3):
                assert len((await reading.next("update"))[1]) == 4_000_000
            await nodes.until(lambda: poller.listeners == 1)
        await reading.leave()


async def test_when_there_is_nothing_new_it_is_said_that_somebody_lives(nodes, monkeypatch):
    """Beats, whether looking takes long or fails; and updates go on when it works again."""
    monkeypatch.setattr(broadcast, "HEARTBEAT_S", 0.05)
    async with a_pair(nodes) as federation:
        poller = console_of(federation["a"]).broadcast
        look = poller._look

        async def fails():
            raise RuntimeError("nothing to show")

        poller._look = fails
        listener = await Listener.of(federation["a"].url)
        assert await listener.next("beat") == ("beat", {})
        poller._look = asyncio.get_running_loop().create_future
        assert await listener.next("beat") == ("beat", {})
        await listener.leave()
        await nodes.until(lambda: not poller.polling)
        poller._look = look
        listener = await Listener.of(federation["a"].url)
        assert (await listener.next("update"))[0] == "update"
        await listener.leave()


async def test_open_pages_do_not_hold_up_the_end(nodes):
    """Streams end with the node, in an orderly way and at once."""
    async with a_pair(nodes) as federation:
        listeners = [await Listener.of(federation["b"].url) for _ in range(3)]
        await listeners[0].next("update")
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        await federation.stop("b")
        assert loop.time() - began_s < 1.5 * slack()
        for one in listeners:
            while await one.next() is not None:
                pass
            await one.leave()


# --- operating ----------------------------------------------------------------------------------


async def test_operators_may_drain_and_resume(nodes):
    """From the page itself; requests of other sites, or of none, change nothing."""
    async with a_pair(nodes) as federation:
        node = federation["a"]
        origin = {"origin": node.url}
        for headers in (
            {},
            {"origin": "http://evil.example"},
            {"origin": "null"},
            {"origin": "http://["},
            {"origin": node.url, "sec-fetch-site": "cross-site"},
            {"origin": node.url, "x-forwarded-for": "192.0.2.1"},
        ):
            status, told, body = await fetch(node, "/console/drain", "POST", **headers)
            assert (status, json.loads(body)["reason"]) == (403, "not_allowed"), headers
            assert told["content-type"] == "application/problem+json"
        assert not node.machine.draining
        assert (await fetch(node, "/console/drain", "POST", **origin))[0] == 202
        assert node.machine.draining
        assert (await fetch(node, "/console/resume", "POST", **origin))[0] == 202
        assert not node.machine.draining
        assert (await fetch(node, "/console/explode", "POST", **origin))[0] == 404


@pytest.mark.parametrize(
    ("client", "host", "more", "testbed", "why_not"),
    [
        ("127.0.0.1", "127.0.0.1:8101", {}, False, None),
        ("127.0.0.1", "localhost:8101", {}, False, None),
        ("::1", "[::1]:8101", {}, False, None),
        ("::ffff:127.0.0.1", "127.0.0.1", {}, False, None),
        ("192.0.2.7", "192.0.2.1:8101", {}, False, OVER_THE_NETWORK),
        ("127.0.0.1", "service.example", {}, False, OVER_THE_NETWORK),
        ("127.0.0.1", "127.0.0.1:8101", {"via": "1.1 proxy"}, False, OVER_THE_NETWORK),
        (None, "127.0.0.1:8101", {}, False, OVER_THE_NETWORK),
        ("127.0.0.1", "", {}, False, OVER_THE_NETWORK),
        ("127.0.0.1", "[::1", {}, False, OVER_THE_NETWORK),
        ("172.18.0.1", "127.0.0.1:8101", {}, True, None),
        ("172.18.0.1", "own.example:8101", {}, True, None),
        ("172.18.0.1", "evil.example:8101", {}, True, FOREIGN_NAME),
    ],
)
def test_where_the_page_operates(client, host, more, testbed, why_not):
    """On the machine itself, or in a testbed; never under a name that is not the service's."""
    rule = Operators(testbed=testbed, own_names=frozenset({"own.example"}))
    assert rule.why_not(client, {"host": host, **more}) == why_not


def test_with_api_tokens_it_does_not_matter_where_an_operator_is():
    """But for names and sites, by which others would operate through an operator's browser."""
    rule = Operators(own_names=frozenset({"own.example"}), has_tokens=True)
    assert rule.why_not("192.0.2.7", {"host": "own.example", "via": "1.1 proxy"}) is None
    assert rule.why_not("127.0.0.1", {"host": "evil.example"}) == FOREIGN_NAME
    here = {"host": "own.example", "origin": "http://own.example"}
    assert rule.why_not_now("192.0.2.7", here) is None
    for more in ({"origin": "http://evil.example"}, {"sec-fetch-site": "cross-site"}):
        assert rule.why_not_now("127.0.0.1", {**here, **more}) == OTHER_SITE
