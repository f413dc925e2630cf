"""The handler `http:` against services on loopback: what they get, what becomes of their answers,
and what happens when they hang, break off, go away and come back.
"""

from __future__ import annotations

import asyncio
import socket
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from spillover.core.overflow.events import NotStarted
from spillover.live.handlers.calls import RESULT_LIMIT_BYTES
from spillover.model.request import Outcome
from spillover.model.trace_context import TraceContext
from support import handler_rig
from support.handler_rig import result
from support.loop import turn, until

TRACEPARENT = "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01"


def answer(body=b"", *, status=200, type_="application/json", more=b""):
    head = f"HTTP/1.1 {status} X\r\nContent-Length: {len(body)}\r\n".encode()
    if type_ is not None:
        head += f"Content-Type: {type_}\r\n".encode()
    return head + more + b"\r\n" + body


OK = answer(b"[1]")


@dataclass
class Call:
    """One request as the service got it."""

    target: str
    headers: dict
    body: bytes
    writer: asyncio.StreamWriter

    def reset(self):
        sock = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        self.writer.transport.abort()


@dataclass
class Service:
    """A service on loopback. `says` is what it answers: bytes; None for nothing, ever; or "reset"
    to break the connection off, after `says_first`."""

    says: bytes | str | None = OK
    says_first: bytes = b""
    port: int = 0
    calls: list = field(default_factory=list)
    connections: int = 0
    gone: int = 0

    async def __aenter__(self):
        await self.listen()
        return self

    async def __aexit__(self, *_):
        await self.die()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}/run"

    async def listen(self):
        self.writers = []
        self.server = await asyncio.start_server(self.serve, "127.0.0.1", self.port)
        self.port = self.server.sockets[0].getsockname()[1]

    async def die(self):
        """Stop listening and break all connections off."""
        self.server.close()
        for writer in self.writers:
            writer.transport.abort()
        await until(lambda: self.gone == self.connections)

    async def serve(self, reader, writer):
        self.connections += 1
        self.writers.append(writer)
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
                headers = dict(line.lower().split(": ", 1) for line in head[1:-2])
                body = await reader.readexactly(int(headers["content-length"]))
                call = Call(head[0], headers, body, writer)
                self.calls.append(call)
                self.reply(call)
        except (asyncio.IncompleteReadError, OSError):
            pass
        finally:
            self.gone += 1
            writer.close()

    def reply(self, call):
        call.writer.write(self.says_first)
        if self.says == "reset":
            call.reset()
        elif self.says is not None:
            call.writer.write(self.says)


class Rig(handler_rig.Rig):
    """The servers of one cluster, in front of these services."""

    def __init__(self, *services, servers=4):
        urls = ",".join(getattr(service, "url", service) for service in services)
        super().__init__(f"http:{urls}", servers=servers)

    async def looked(self):
        """The first look has found the upstream, and left a connection."""
        await until(lambda: self.workers.upstreams._all[0].client.idle)


async def port_of_nobody():
    async with Service() as service:
        return service.port


@asynccontextmanager
async def with_service(says):
    async with Service(says) as service, Rig(service) as rig:
        yield service, rig


# --- one upstream -----------------------------------------------------------------------------


async def test_the_service_gets_the_payload_as_it_came_and_the_headers():
    """Spaces and all; the deadline is what remains, and only a name that was given is a key."""
    async with Service() as service:
        url = f"http://127.0.0.1:{service.port}/a/b/?mode=x&y"
        async with Rig(url) as rig:
            await rig.looked()
            trace = TraceContext(TRACEPARENT, "x=y")
            given = {"id": "ä 1", "keyed": True, "trace": trace}
            assert result(await rig.run(b'{ "x": [1] }', deadline_s=5.0, **given)) == [1]
            await rig.run(b"null", deadline_s=-1.0)
    keyed, unkeyed = service.calls
    assert keyed.target == "POST /a/b/?mode=x&y HTTP/1.1"
    assert keyed.body == b'{ "x": [1] }'
    assert keyed.headers["content-type"] == "application/json"
    assert keyed.headers["spillover-request-id"] == keyed.headers["idempotency-key"] == "ä 1"
    assert keyed.headers["traceparent"] == TRACEPARENT
    assert keyed.headers["tracestate"] == "x=y"
    assert 0 < int(keyed.headers["spillover-deadline-ms"]) < 5000
    assert unkeyed.headers["spillover-deadline-ms"] == "0"
    assert unkeyed.headers["spillover-request-id"] == "r2"
    assert not {"idempotency-key", "traceparent", "tracestate"} & set(unkeyed.headers)
    assert service.connections <= 2  # it has to be seen first to keep them open


PROBLEMS = {
    "error": (answer(b"oh\nno", status=500), 500, "answered 500"),
    "not http": (b"SSH-2.0-x\r\n\r\n", None, "not valid HTTP"),
    "head too large": (
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * 150_000,
        None,
        "at most 65536 bytes",
    ),
    "too large": (answer(b"1" * (RESULT_LIMIT_BYTES + 1)), None, f"exceeds {RESULT_LIMIT_BYTES}"),
}


@pytest.mark.parametrize("case", PROBLEMS)
async def test_what_becomes_a_problem(case):
    says, status, line = PROBLEMS[case]

    async with with_service(says) as (service, rig):
        event = await rig.run()
        assert (event.outcome, event.upstream_status) == (Outcome.FAILED, status)
        assert line in event.problem
        assert event.problem.startswith(f"upstream {service.url}")
        assert "\n" not in event.problem
        service.says = OK
        assert result(await rig.run()) == [1]
        assert rig.health() == []


async def test_queries_are_told_to_nobody():
    """They may hold what opens a service: problems name it without."""
    async with (
        Service(answer(status=401)) as service,
        Rig(f"{service.url}?key=hidden", f"{service.url}?hidden") as rig,
    ):
        problems = [(await rig.run()).problem]
        service.says = "reset"
        problems.append((await rig.run()).problem)
        await service.die()
        problems.append((await rig.run()).problem)
        told = " ".join(problems)
        assert all(says in told for says in ("answered 401", "not known", "none of 2"))
        assert "hidden" not in told


async def test_stopping_closes_the_connection_and_frees_the_server_at_once():
    """However long a service hangs; another request is not touched, a second stop does nothing."""
    async with with_service(None) as (service, rig):
        refs = [rig.start(), rig.start()]
        await until(lambda: len(service.calls) == 2)
        rig.workers.stop(refs[0])
        assert rig.ended(refs[0]).outcome is Outcome.CANCELLED
        await until(lambda: service.gone == 1)
        rig.workers.stop(refs[0])
        service.calls[1].writer.write(OK)
        assert result(await rig.end(refs[1])) == [1]
        assert len(rig.told) == 2


@pytest.mark.parametrize("turns", [0, 1, 2])
async def test_stopping_before_it_was_sent(turns):
    async with with_service(None) as (service, rig):
        ref = rig.start()
        for _ in range(turns):
            await turn()
        rig.workers.stop(ref)
        assert rig.ended(ref).outcome is Outcome.CANCELLED
        service.says = OK
        assert result(await rig.run()) == [1]
        assert len(rig.told) == 2


async def test_an_upstream_is_not_busy_with_what_was_stopped():
    """Or after some timeouts no request would go there any more, though it is idle."""
    async with with_service(None) as (_, rig):
        (upstream,) = rig.workers.upstreams._all
        first, second, third = (rig.start() for _ in range(3))
        assert upstream.running == 3
        for ref, left in ((first, 2), (second, 1), (second, 1), (third, 0)):
            rig.workers.stop(ref)
            assert upstream.running == left


async def test_a_node_may_stop_work_as_it_hears_that_nothing_can_be_reached():
    errors = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
    async with with_service(OK) as (service, rig):
        (upstream,) = rig.workers.upstreams._all
        await rig.looked()
        rig.on_health = lambda _: rig.workers.stop(1)
        await service.die()
        await until(lambda: not upstream.client.idle)
        rig.start()
        await until(lambda: not upstream.up)
        assert (await rig.end(1)).outcome is Outcome.CANCELLED
        assert rig.workers._calls == {}
    assert errors == []


async def test_closing_waits_for_nobody():
    """A node that ends breaks off what is under way, and reports nothing more."""
    async with with_service(None) as (service, rig):
        rig.start()
        await until(lambda: len(service.calls) == 1)
        await rig.workers.close()
        await until(lambda: service.gone == service.connections)
        assert rig.told == []


@pytest.mark.parametrize(("idle_s", "connections"), [(1.0, 1), (2.0, 2)])
async def test_a_connection_that_its_service_may_be_closing_is_not_used(idle_s, connections):
    """However open it looks: common services close what has been idle for 2 s, and what is written
    at that moment is lost."""
    async with with_service(OK) as (service, rig):
        await rig.looked()
        for connection in rig.workers.upstreams._all[0].client._kept.idle:
            connection.idle_since_s -= idle_s
        assert result(await rig.run()) == [1]
        assert service.connections == connections


# --- several upstreams, and none --------------------------------------------------------------


async def test_what_was_not_delivered_goes_to_the_next():
    nobody = [f"http://127.0.0.1:{await port_of_nobody()}/" for _ in range(2)]
    async with Service() as service, Rig(*nobody, service) as rig:
        assert [result(await rig.run()) for _ in range(4)] == [[1]] * 4
        assert len(service.calls) == 4
        assert rig.health() == []


async def test_when_none_can_be_reached_the_node_is_told_first():
    nobody = [f"http://127.0.0.1:{await port_of_nobody()}/" for _ in range(2)]
    async with Rig(*nobody) as rig:
        refs = [rig.start() for _ in range(3)]
        for ref in refs:
            event = await rig.end(ref)
            assert isinstance(event, NotStarted)
            assert "none of 2 upstreams can be reached" in event.problem
        assert rig.told[0] is False
        assert isinstance(await rig.run(), NotStarted)
        assert rig.health() == [False]


async def test_a_service_that_is_not_there_is_found_out_without_work():
    service = Service(port=await port_of_nobody())
    async with Rig(service) as rig:
        await until(lambda: rig.health() == [False])
        await service.listen()
        await until(lambda: rig.health() == [False, True])
        assert service.calls == []
        assert result(await rig.run()) == [1]
        await service.die()


async def test_a_service_that_dies_and_comes_back():
    async with with_service(None) as (service, rig):
        lost = rig.start()
        await until(lambda: len(service.calls) == 1)
        await service.die()
        assert "whether it did the work is not known" in (await rig.end(lost)).problem
        refused = await rig.run()
        assert isinstance(refused, NotStarted)
        assert "cannot be reached" in refused.problem
        assert [rig.told.index(False), rig.told.index(refused)] == [1, 2]
        service.says = OK
        await service.listen()
        await until(lambda: rig.health() == [False, True])
        (upstream,) = rig.workers.upstreams._all
        assert upstream.attempt > 0
        assert result(await rig.run()) == [1]
        assert upstream.attempt == 0, "the next search begins with short pauses"


@pytest.mark.parametrize("first", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n[1,"])
async def test_without_a_key_nothing_is_sent_twice(first):
    """Broken off before or within the answer: it may have run, and ends there."""
    async with (
        Service("reset", first) as one,
        Service("reset", first) as two,
        Rig(one, two) as rig,
    ):
        event = await rig.run()
        assert event.outcome is Outcome.FAILED
        assert "whether it did the work is not known" in event.problem
        assert len(one.calls) + len(two.calls) == 1


async def test_with_a_key_it_is_sent_to_another_one_once():
    async with Service("reset") as one, Service("reset") as two, Service("reset") as three:
        async with Rig(one, two, three) as rig:
            event = await rig.run(keyed=True)
            assert event.outcome is Outcome.FAILED
            assert len(one.calls) + len(two.calls) + len(three.calls) == 2
            two.says = three.says = OK
            for _ in range(3):
                assert result(await rig.run(keyed=True)) == [1]
        async with Rig(one) as rig:
            event = await rig.run(keyed=True)
            assert "whether it did the work is not known" in event.problem


async def test_a_name_that_no_header_can_bear_fails_alone():
    """Nodes send none, but the node must not end by it."""
    async with with_service(OK) as (_, rig):
        event = await rig.run(id="a\r\nb")
        assert event.outcome is Outcome.FAILED
        assert result(await rig.run()) == [1]
