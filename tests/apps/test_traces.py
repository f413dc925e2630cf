"""Traces of requests by OpenTelemetry: nodes, services and a collector of spans, with and without
`--otel`, for requests of all kinds.
"""

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
from support.federation import until
from support.passed_requests import get
from support.scripted_server import answer, scripted

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


@asynccontextmanager
async def in_front(hops=0, without="", **options):
    """As `proxy_doors.in_front`, traced."""
    traced = Traced(without)
    ids = "ab"[: hops + 1]
    try:
        async with proxy_doors.doors(*ids, shell=traced, **options) as here:
            if hops:
                here["a"].shell.feed(ServersDown())
            yield here
    finally:
        await traced.close()


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


async def test_one_trace_over_two_sites(collector):
    """A request that goes on: the sites and the service are links of one chain, and each span tells
    what the conventions say."""
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


@pytest.mark.parametrize("hops", [0, 1])
async def test_what_passes_through(collector, hops):
    """Any method and path; the service is told of the last call, in place of what the client
    sent, and everything else as it was."""
    async with in_front(hops) as here:
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


@pytest.mark.parametrize("without", ["a", "b", "ab"])
async def test_sites_that_trace_nothing_pass_traces_on(collector, without):
    """Untouched where no site traces; else what the one before has said."""
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
