"""The handler `proxy:`: what a service is told of a request, a client's or a neighbor's, and what
is refused before any service hears of it."""

from __future__ import annotations

import pytest

from spillover.core.overflow.events import ServiceEnded
from spillover.live.handlers.proxy.framing import FIELDS_MAX
from spillover.live.handlers.proxy.handler import added_fields
from spillover.model.passed import PassedRequest
from spillover.model.request import DONE, Outcome
from spillover.model.trace_context import TraceContext
from support.proxy_workers import Front, in_front_of, own

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
PARENT = "00-" + "a" * 32 + "-" + "b" * 16 + "-01"
OTHER = "00-" + "a" * 32 + "-" + "c" * 16 + "-01"


def passed(*fields, method="GET", target=b"/", body=b""):
    """As a neighbor's neighbor has sent it."""
    return PassedRequest(method, target, ((b"Host", b"h"), *fields), body)


def fields_of(head):
    """Of a head with its empty line: the values by name, in lower case."""
    told = {}
    for line in head.split(b"\r\n")[1:-2]:
        name, _, value = line.partition(b": ")
        told.setdefault(name.lower(), []).append(value)
    return told


@pytest.mark.parametrize(
    ("left_s", "told_ms"), [(1.5, b"1500"), (0.0019, b"1"), (0.0, b"0"), (-3.0, b"0")]
)
def test_a_service_is_told_the_name_and_the_time_that_is_left(left_s, told_ms):
    assert added_fields("r", left_s) == (
        (b"Spillover-Request-Id", b"r"),
        (b"Spillover-Deadline-Ms", told_ms),
    )


WORKS = {
    "a client's": own(method=b"POST", target=b"/a?b", body=b"hello"),
    "one without a body": own(target=b"/a?b"),
    "a neighbor's": passed((b"Content-Length", b"5"), method="POST", target=b"/a?b", body=b"hello"),
    "as it has come": passed(
        (b"Content-Length", b""), method="POST", target=b"/a?b", body=b"hello"
    ).encode(),
}


@pytest.mark.parametrize("name", WORKS)
def test_each_request_comes_with_its_body_and_with_what_the_node_adds(run, name):
    work, path = WORKS[name], () if isinstance(WORKS[name], type(own())) else ("b",)

    async def main():
        async with in_front_of(OK) as (front, service):
            event = await front.ask(work, left_s=50.0, path=path)
            assert event.outcome is DONE
            ((head, body),) = service.seen
            method = b"GET" if name == "one without a body" else b"POST"
            assert head.startswith(b"%b /a?b HTTP/1.1\r\nHost: h\r\n" % method)
            assert body == (b"" if method == b"GET" else b"hello")
            told = fields_of(head)
            assert told[b"spillover-request-id"] == [b"r"]
            assert 0 < int(told[b"spillover-deadline-ms"][0]) <= 50_000

    run(main())


def bad(*fields):
    """A neighbor's, which its own door would not have let in."""
    return passed(*fields).encode()


REFUSED = {
    "no request": (b"\0\0", 400, "MalformedPassed: expected "),
    "another head": (bad((b"A", b"b\r\nC: d")), 400, "ValueError: its head would be read"),
    "no host": (bad((b"Host", b"i")), 400, "Refused: Host: expected once"),
    "too many lines": (bad(*[(b"A", b"b")] * FIELDS_MAX), 431, "Refused: expected at most"),
    "another protocol": (
        bad((b"Connection", b"Upgrade"), (b"Upgrade", b"websocket")),
        501,
        "Refused: Upgrade",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_no_service_may_hear_is_the_fault_of_who_sent_it(run, name):
    work, status, why = REFUSED[name]

    async def main():
        async with in_front_of(OK) as (front, service):
            event = await front.ask(work, path=("b",))
            assert isinstance(event, ServiceEnded)
            assert (event.ref, event.outcome) == (7, Outcome.REJECTED)
            assert event.upstream_status == status
            assert why in event.problem
            assert front.told.answer == []
            assert (front.upstreams[0].running, front.upstreams[0].failures) == (0, 0.0)
            front.workers.stop(7)
            assert front.told.event is event, "it has ended already"
            assert not service.seen

    run(main())


def test_who_asks_the_node_itself_is_sent_to_where_requests_are_passed_on(run):
    async def main():
        for told, where in (({"proxy_url": "http://a:1"}, "http://a:1"), ({}, "its own address")):
            front = Front(["http://127.0.0.1:1"], **told)
            assert front.workers.problem_with(b"{}") == (
                f"a service is behind this cluster: expected its own requests, at {where}"
            )
            await front.workers.close()

    run(main())


# --- traces ---------------------------------------------------------------------------------------


class Recorded(TraceContext):
    """Whoever records a trace: a service is told another place in it."""

    def __init__(self, *told):
        super().__init__(PARENT, "x=y")
        self.sent, self.told = [], told

    def sent_to(self, method, url):
        self.sent.append((method, url))
        return TraceContext(*self.told)


IN_TRACE = (b"Traceparent", PARENT.encode()), (b"TraceState", b"x=y"), (b"A", b"b")
LINES = tuple(b"%b: %b" % field for field in IN_TRACE)


@pytest.mark.parametrize(
    ("told", "lines"),
    [
        ((PARENT, "x=y"), [b"Traceparent: " + PARENT.encode(), b"TraceState: x=y", b"A: b"]),
        ((OTHER, "z=1"), [b"A: b", b"traceparent: " + OTHER.encode(), b"tracestate: z=1"]),
        ((OTHER, ""), [b"A: b", b"traceparent: " + OTHER.encode()]),
    ],
)
@pytest.mark.parametrize("kind", ["client", "neighbor", "bytes"])
def test_a_service_is_told_its_own_place_in_a_trace(run, kind, told, lines):
    works = {
        "client": own(*LINES),
        "neighbor": passed(*IN_TRACE),
        "bytes": passed(*IN_TRACE).encode(),
    }
    path = () if kind == "client" else ("b",)

    async def main():
        async with in_front_of(OK) as (front, service):
            trace = Recorded(*told)
            assert (await front.ask(works[kind], trace=trace, path=path)).outcome is DONE
            assert trace.sent == [("GET", service.url + "/")]
            ((head, _),) = service.seen
            of_trace = [
                line for line in head.split(b"\r\n") if line.lower().startswith((b"trace", b"a:"))
            ]
            assert of_trace == lines

    run(main())


def test_where_a_request_was_sent_is_told_without_its_query(run):
    async def main():
        async with in_front_of(OK) as (front, service):
            for method, target, path in (
                (b"GET", b"/a/b?secret=1", "/a/b"),
                (b"OPTIONS", b"*", ""),
            ):
                trace = Recorded(OTHER, "")
                await front.ask(own(method=method, target=target), trace=trace)
                assert trace.sent == [(method.decode(), service.url + path)]
            assert [head.split(b" ")[1] for head, _ in service.seen] == [b"/a/b?secret=1", b"*"]

    run(main())
