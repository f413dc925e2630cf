"""Traces of requests by OpenTelemetry: nodes, services and a collector of spans, with and without
`--otel`, for requests of all kinds.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import asynccontextmanager

import pytest

from spillover.apps.node.answers import status_of
from spillover.core.overflow.events import ServersDown
from spillover.live.overflow.shell import NodeShell
from spillover.live.overflow.tracing.telemetry import make_tracing
from support import federation, proxy_doors
from support.collector import collecting
from support.federation import turn, until
from support.passed_requests import get
from support.scripted_server import answer, scripted
from support.typed_sites import linked, unlike

TRACE_ID, CLIENTS = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
STATE = "vendor=x1,other=y"


def headers_of(sampled=True, trace_id=TRACE_ID):
    parent = f"00-{trace_id}-{CLIENTS}-0{int(sampled)}"
    return [(b"traceparent", parent.encode()), (b"tracestate", STATE.encode())]


TRACED = headers_of()
LINES = [b"%b: %b" % field for field in TRACED]


@pytest.fixture
def collector(monkeypatch):
    """A collector that the variables of OpenTelemetry point to."""
    switch_s = sys.getswitchinterval()
    with collecting() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "10")
        yield collector
    sys.setswitchinterval(switch_s)


class Traced:
    """Makes shells of nodes that are traced, all but those named."""

    def __init__(self, without=""):
        self.without = without
        self.made = []

    def __call__(self, topology, cluster, **given):
        if cluster in self.without:
            return NodeShell(topology, cluster, **given)
        tracing = make_tracing(topology.name, topology.cluster(cluster), status_of)
        self.made.append(tracing)
        given.pop("journal", None)
        return tracing.make_shell(topology, cluster, **given)

    async def close(self):
        for tracing in self.made:
            await asyncio.to_thread(tracing.close)


@asynccontextmanager
async def sites(*ids, without="", **options):
    """Traced nodes, and the spans that came of them at the end."""
    traced = Traced(without)
    topology = federation.topology_of(*ids, **options)
    try:
        async with federation.Federation(topology, make_shell=traced) as nodes:
            yield nodes
    finally:
        await traced.close()


def in_front(check, hops=0, without="", **options):
    """As `proxy_doors.in_front`, traced."""

    async def main():
        traced = Traced(without)
        ids = "ab"[: hops + 1]
        try:
            async with proxy_doors.doors(*ids, shell=traced, **options) as here:
                if hops:
                    here["a"].shell.feed(ServersDown())
                await check(here)
        finally:
            await traced.close()

    federation.run(main)


def in_front_of(url):
    """Two clusters."""
    return {cluster: {"handler": f"http:{url}"} for cluster in "ab"}


def chain(spans):
    """Each is the child of the one before it, that of the first the client's."""
    parents = [CLIENTS, *(span.id for span in spans)]
    return [span.parent_id for span in spans] == parents[: len(spans)]


def traces_seen(head):
    """What a service was told, of bytes."""
    lines = [line.partition(b": ") for line in head.split(b"\r\n")]
    told = {name.lower().decode(): value.decode() for name, _, value in lines}
    return told.get("traceparent"), told.get("tracestate")


def test_one_trace_over_two_sites(collector):
    """A request that goes on: the sites and the service are links of one chain, and each span tells
    what the conventions say."""

    async def main():
        async with scripted(answer(200, {"x": 1})) as service:
            clusters = in_front_of(f"{service.url}/work?key=secret")
            async with sites("a", "b", clusters=clusters) as nodes:
                nodes["a"].shell.feed(ServersDown())
                sent = await nodes["a"].post(1, headers=TRACED, type="draw", id="r1")
                assert sent.status == 200
        spans = collector.of(TRACE_ID)
        home, forward, there, call = spans
        assert chain(spans)
        assert [span.kind for span in spans] == ["SERVER", "CLIENT", "SERVER", "CLIENT"]
        assert [span.name for span in spans] == [
            *("POST /requests", "POST /peer/v3/forward", "POST /peer/v3/forward", "POST"),
        ]
        assert not any(span.error for span in spans)
        assert all(span["http.response.status_code"] == 200 for span in spans)
        assert all(span.state == STATE for span in spans)
        assert home["url.path"] == home["http.route"] == "/requests"
        assert home["http.request.method"] == "POST"
        assert (home["spillover.request.id"], home["spillover.request.type"]) == ("r1", "draw")
        assert (home["spillover.outcome"], home["spillover.path"]) == ("done", ["a", "b"])
        assert (home["server.address"], home["url.scheme"]) == ("127.0.0.1", "http")
        assert forward["server.port"] == there["server.port"]
        assert forward["spillover.neighbor"] == "b"
        assert forward["url.full"].endswith("/peer/v3/forward")
        assert call["url.full"] == f"{service.url}/work", "a query may hold secrets"
        assert home.resource["service.name"] == "spillover"
        assert home.resource["service.instance.id"] == "a"
        assert there.resource["service.instance.id"] == "b"
        decided = dict(home.events)["decided"]
        assert decided["spillover.outcome"] == "forwarded"
        assert decided["spillover.neighbor"] == "b"
        assert decided["spillover.policy"] == "two-choice"
        (_, told) = service.seen[0]
        assert told["traceparent"] == f"00-{TRACE_ID}-{call.id}-01"
        assert told["tracestate"] == STATE

    federation.run(main)


def test_failures_and_what_is_tried_again(collector):
    """One that is busy is a failed attempt and the next one tells that it is another; an answer
    that is an error is one at every site, and one of the client's is none of the server's."""

    async def main():
        answers = [answer(500, "no"), answer(404, "no")]
        async with (
            scripted(answer(503)) as one,
            scripted(answer(200, 1)) as other,
            scripted(*answers) as faulty,
        ):
            clusters = {
                "a": {"handler": f"http:{one.url},{other.url}"},
                "c": {"handler": f"http:{faulty.url}"},
            }
            async with sites("a", "c", clusters=clusters, links=()) as nodes:
                sent = [await nodes["a"].post(1, headers=TRACED)]
                for last in "12":
                    headers = headers_of(trace_id=TRACE_ID[:-1] + last)
                    sent.append(await nodes["c"].post(1, headers=headers))
        assert [one.status for one in sent] == [200, 502, 404]
        home, busy, again = collector.of(TRACE_ID)
        assert (busy["http.response.status_code"], busy["error.type"]) == (503, "503")
        assert busy.error
        assert busy["http.request.resend_count"] is None
        assert again["http.request.resend_count"] == 1
        assert again["url.full"].startswith(other.url)
        assert not any(span.error for span in (again, home))
        home, failed = collector.of(TRACE_ID[:-1] + "1")
        assert (home.error, home["error.type"]) == (True, "handler_failed")
        assert (home["http.response.status_code"], home["spillover.outcome"]) == (502, "failed")
        assert (failed.error, failed["http.response.status_code"]) == (True, 500)
        assert "500" in failed.words
        home, *_, rejected = collector.of(TRACE_ID[:-1] + "2")
        assert (home.error, home["error.type"]) == (False, None)
        assert home["http.response.status_code"] == 404
        assert (rejected.error, rejected["http.response.status_code"]) == (True, 404)

    federation.run(main)


def test_what_is_refused_and_what_is_cancelled(collector):
    """A refusal is a span, too, and a cancel ends what is under way at the other site."""

    async def main():
        clusters = {"a": {"queue_limit": 0}, "b": {"service_ms": 60_000.0}}
        async with sites("a", "b", clusters=clusters) as nodes:
            nodes["a"].shell.feed(ServersDown())
            under_way = nodes["a"].post(1, headers=TRACED, id="r1")
            await until(lambda: nodes["b"].machine.servers.busy)
            status, _, told = await nodes["a"].send("DELETE", "/requests/r1")
            assert (status, told["state"]) == (200, "cancelled")
            assert (await under_way).status == 409
            await nodes.stop("b")
            await until(lambda: not nodes["a"].knows("b"))
            refused = await nodes["a"].post(1, headers=headers_of(trace_id=TRACE_ID[:-1] + "1"))
            assert refused.status in (429, 503)
        spans = collector.of(TRACE_ID)
        assert chain(spans)
        assert [span.name.partition(" ")[2] for span in spans] == [
            *("/requests", "/peer/v3/forward", "/peer/v3/forward", ""),
        ]
        assert all(span.error for span in spans)
        assert {span["error.type"] for span in spans} == {"cancelled"}
        assert ("cancel_asked", {"spillover.neighbor": "b"}) in spans[0].events
        (span,) = collector.of(TRACE_ID[:-1] + "1")
        assert (span["spillover.outcome"], span["http.response.status_code"]) == (
            "refused", refused.status,
        )  # fmt: skip
        assert span.error == (refused.status >= 500)

    federation.run(main)


def test_a_typed_request_tells_which_server_it_was_given(collector):
    """Of a pool of unlike servers; at a neighbor too."""

    async def main():
        topology = linked(unlike("a", {"x": "s"}), unlike("b", {"y": "t"}), policy="two-choice")
        traced = Traced()
        try:
            async with federation.Federation(topology, make_shell=traced) as nodes:
                sent = [
                    await nodes["a"].post({"service_ms": 1}, type="x", headers=TRACED),
                    await nodes["a"].post({"service_ms": 1}, type="y", headers=TRACED),
                ]
                assert [one.status for one in sent] == [200, 200]
        finally:
            await traced.close()
        spans = collector.of(TRACE_ID)
        assert [span["spillover.path"] for span in spans if span.parent_id == CLIENTS] == [
            ["a"], ["a", "b"],
        ]  # fmt: skip
        runs = [span for span in spans if span.name == "run"]
        owners = {span.id: span for span in spans}
        given = [dict(owners[run.parent_id].events) for run in runs]
        servers = [
            {told.get("spillover.granted.server") for told in events.values()} - {None}
            for events in given
        ]
        assert servers == [{"s"}, {"t"}]

    federation.run(main)


@pytest.mark.parametrize("hops", [0, 1])
def test_what_passes_through(collector, hops):
    """Any method and path; the service is told of the last call, in place of what the client
    sent, and everything else as it was."""

    async def check(here):
        read = await here.ask(get(b"A: b", *LINES, target=b"/v1/x?secret=1"))
        assert read.status == 200
        await until(lambda: len(collector.of(TRACE_ID)) == 2 + 2 * hops)
        spans = collector.of(TRACE_ID)
        assert chain(spans)
        home, call = spans[0], spans[-1]
        assert (home.name, home["url.path"], home["http.route"]) == ("GET", "/v1/x", None)
        assert call.name == call["http.request.method"] == "GET"
        assert call["url.full"] == f"{here.service.url}/v1/x"
        assert all(span["http.response.status_code"] == 200 for span in spans)
        assert not any(span.error for span in spans)
        head, _ = here.service.seen[0]
        assert traces_seen(head) == (f"00-{TRACE_ID}-{call.id}-01", STATE)
        assert head.lower().count(b"traceparent") == head.lower().count(b"tracestate") == 1
        assert "answer_began" in dict(home.events)
        await here.ask(get(target=b"/", method=b"PROPFIND"))
        await until(lambda: len(collector.spans) == 2 * (2 + 2 * hops))
        odd = [span for span in collector.spans if span["http.request.method"] == "_OTHER"]
        assert {span.name for span in odd} == {"HTTP"}
        assert {span["http.request.method_original"] for span in odd} == {"PROPFIND"}
        await here.ask(get(target=b"*", method=b"OPTIONS"))
        await until(lambda: len(collector.spans) == 3 * (2 + 2 * hops))
        assert here.service.url in {span["url.full"] for span in collector.spans}

    in_front(check, hops)


@pytest.mark.parametrize("hops", [0, 1])
def test_answers_that_break_off_and_clients_that_leave(collector, hops):
    """What has begun has its status, and is an error all the same."""
    begun = b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nab"

    async def check(here):
        async def break_off(talk, *_):
            await talk.say(begun)

        here.service.answer = break_off
        read = await here.ask(get(*LINES))
        assert (read.status, read.is_whole) == (200, False)
        await until(lambda: len(collector.of(TRACE_ID)) == 2 + 2 * hops)
        spans = collector.of(TRACE_ID)
        assert all(span["http.response.status_code"] == 200 for span in spans)
        assert all(span.error for span in spans)
        ends = {span["error.type"] for span in spans if span["spillover.neighbor"] is None}
        assert ends == {"truncated"}
        assert spans[0]["spillover.outcome"] == "failed"

        async def stay(talk, *_):
            await talk.say(begun.replace(b": 9", b": 99999999"))
            while True:  # until the node closes the connection, which ends this
                await talk.say(b"c")
                await turn()

        here.service.answer = stay
        other = headers_of(trace_id=TRACE_ID[:-1] + "1")
        client = await here.client()
        client.writer.write(get(*(b"%b: %b" % field for field in other)))
        await client.reader.readuntil(b"abc")
        client.close()
        await until(lambda: len(collector.of(TRACE_ID[:-1] + "1")) >= 2 + 2 * hops)
        left = collector.of(TRACE_ID[:-1] + "1")
        assert {span["error.type"] for span in left if span.name != "queue"} == {"cancelled"}

    in_front(check, hops)


@pytest.mark.parametrize("hops", [0, 1])
def test_what_is_not_sampled_leaves_no_spans_and_its_trace_as_it_was(collector, hops):
    """Nor does any site behind the first one begin a trace of its own."""

    async def check(here):
        not_sampled = [b"%b: %b" % field for field in headers_of(sampled=False)]
        await here.ask(get(*not_sampled))
        assert traces_seen(here.service.seen[0][0]) == (f"00-{TRACE_ID}-{CLIENTS}-00", STATE)
        await here.ask(get(b"traceparent: 00-" + b"1" * 32 + b"-" + b"2" * 16 + b"-01"))
        await until(lambda: len(collector.spans) == 2 + 2 * hops)
        assert {span.trace_id for span in collector.spans} == {"1" * 32}

    in_front(check, hops)


@pytest.mark.parametrize("without", ["a", "b", "ab"])
def test_sites_that_trace_nothing_pass_traces_on(collector, without):
    """Untouched where no site traces; else what the one before has said."""

    async def main():
        async with (
            scripted(answer(200, 1)) as service,
            sites("a", "b", clusters=in_front_of(service.url), without=without) as nodes,
        ):
            nodes["a"].shell.feed(ServersDown())
            assert (await nodes["a"].post(1, headers=TRACED)).status == 200
        spans = collector.of(TRACE_ID)
        told = service.seen[0][1]
        last = spans[-1].id if spans else CLIENTS
        assert told["traceparent"] == f"00-{TRACE_ID}-{last}-01"
        assert told["tracestate"] == STATE
        assert len(spans) == 4 - 2 * len(without)
        assert chain(spans)

    federation.run(main)
