"""Nodes in front of services that answer with no: which of them is asked how often, and all that a
client gets. What becomes of one answer: `test_http_handler_answers`.
"""

import asyncio
import json
import time
from contextlib import asynccontextmanager

from support.lying_service import lying_service

KEY = (b"Idempotency-Key", b"one")


def answer(status, body=b""):
    head = b"HTTP/1.1 %d X\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    return head % (status, len(body)) + body


OK = answer(200, b"[1]")


async def busy_endlessly(talk, *_):
    await talk.say(b"HTTP/1.1 503 X\r\nTransfer-Encoding: chunked\r\n\r\n")
    while True:
        await talk.say(b"10000\r\n%b\r\n" % (b"x" * 65536))


@asynccontextmanager
async def node_before(nodes, *services, **fields):
    """A node of one cluster in front of these."""
    urls = ",".join(f"{service.url}/run" for service in services)
    fields = {"handler": f"http:{urls}", "service_ms": 20.0, **fields}
    async with nodes.Federation(nodes.topology_of("a", clusters={"a": fields})) as federation:
        yield federation["a"]


def problem_of(response):
    assert dict(response.headers)[b"content-type"] == b"application/problem+json"
    return json.loads(response.body)


async def test_a_rejection_reaches_the_client_as_it_was_said(nodes):
    """Nothing is held against the upstream, and the name keeps it."""
    async with lying_service() as service, node_before(nodes, service) as node:
        service.answer = answer(404, b'{"field": [1, 2.50]}')
        told = await node.post(1, headers=[KEY])
        problem = problem_of(told)
        assert (told.status, problem["reason"]) == (404, "handler_rejected")
        assert (problem["status"], problem["upstream_status"]) == (404, 404)
        assert problem["upstream_body"] == {"field": [1, 2.5]}
        assert (problem["title"], problem["id"]) == ("Not Found", "one")
        service.answer = OK
        again = await node.post(1, headers=[KEY])
        assert again.status == 404
        assert problem_of(again)["upstream_body"] == {"field": [1, 2.5]}
        assert len(service.seen) == 1, "replayed"
        upstreams = node.shell.requests.workers.upstreams
        assert (upstreams._all[0].failures, upstreams._all[0].running) == (0.0, 0)
        assert upstreams._usual_s == 0.02, "it was no success"
        assert node.machine.servers.cooling == 0
        assert node.machine.health.failed_share(time.monotonic()) == 0.0


async def test_an_endless_body_of_what_was_not_run_loses_nothing(nodes):
    async with (
        lying_service() as endless,
        lying_service() as well,
        node_before(nodes, endless, well, servers=4) as node,
    ):
        endless.answer, well.answer = busy_endlessly, OK
        answers = await asyncio.gather(*(node.post(1) for _ in range(8)))
        assert [answer.status for answer in answers] == [200] * 8


async def test_however_fast_services_are_a_busy_one_is_not_stormed(nodes):
    """What says 503 at once must not be asked thousands of times a second for one request."""
    async with (
        lying_service() as service,
        node_before(nodes, service, servers=2, service_ms=0.0) as node,
    ):
        service.answer = answer(503)
        waiting = node.post(1)
        begun_s = time.monotonic()
        await nodes.until(lambda: time.monotonic() - begun_s > 1.0)
        assert len(service.seen) <= 20 * (time.monotonic() - begun_s)
        service.answer = OK
        assert (await waiting).status == 200
