"""What a connection may do with a request it has begun: bodies that are late, bad, never asked for
or never end, other protocols asked for, and garbage behind it. Each ends with an answer or closed.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re

import pytest

from spillover.apps.http import connection
from spillover.apps.node import peer_paths
from spillover.core.overflow.events import ServersDown, ServersUp
from spillover.live.http1 import lingering
from spillover.live.overflow.peer_link import REFUSAL_STATUSES
from spillover.model.request import DONE, Answer

GET = b"GET /healthz HTTP/1.1\r\nHost: x\r\n"
CLOSE = b"Connection: close\r\n"
CONTENT = json.dumps({"payload": 1}).encode()
SIZE = len(CONTENT)
NO_TIME = json.dumps({"payload": {"service_ms": 0}}).encode()
HALF = b"1" * 300_000
"""Of a body that is too long for the direct path."""
UPGRADE = b"Connection: Upgrade, HTTP2-Settings\r\nUPGRADE: h2c\r\nHTTP2-Settings: AAMA\r\n"
BAD_HEADER = b"Spillover-Deadline-Ms: x\r\n"
EXPECT = b"Expect: 100-continue\r\n"
CHUNKED = b"POST /requests HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"


def with_node(nodes, check):
    async def main():
        async with nodes.Federation(nodes.topology_of("a", "b")) as federation:
            await check(federation["a"])
            assert (await federation["a"].get("/healthz"))[0] == 200

    nodes.run(main)


def head(*lines, size=SIZE, start=b"POST /requests"):
    """The head of a request with a body of that size."""
    return b"%b HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n%b\r\n" % (
        start,
        size,
        b"".join(lines),
    )


async def connect(node):
    return await asyncio.open_connection("127.0.0.1", int(node.url.rpartition(":")[2]))


async def talk(nodes, node, *segments):
    """Write segments, with time to be read one by one, and read until the connection is closed."""
    reader, writer = await connect(node)
    for segment in segments:
        writer.write(segment)
        for _ in range(4):
            await nodes.turn()
    answer = await reader.read()
    writer.close()
    return answer


async def answered_before(node, begun, rest):
    """As `talk`, but what is left of the request only once it has its answer."""
    reader, writer = await connect(node)
    writer.write(begun)
    answer = await reader.readuntil(b"}")
    writer.write(rest)
    answer += await reader.read()
    writer.close()
    return answer


def reasons(answers):
    """(status, reason) of each answer."""
    found = []
    while answers:
        top, _, rest = answers.partition(b"\r\n\r\n")
        status = int(top.split()[1])
        if status == 100:
            answers = rest
            continue
        lines = dict(line.lower().split(b": ", 1) for line in top.split(b"\r\n")[1:])
        size = int(lines[b"content-length"])
        found.append((status, json.loads(rest[:size]).get("reason")))
        answers = rest[size:]
    return found


@pytest.mark.parametrize(
    "begun",
    [
        head(BAD_HEADER, size=1000) + b"x",
        head(start=b"PUT /requests", size=1000) + b"x",
        head(start=b"GET /nothing", size=1000) + b"x",
        head(start=b"POST /admin/resume", size=1000) + b"x",
    ],
)
def test_bodies_that_come_after_the_answer_must_end_too(nodes, begun):
    """The client has its answer, and the rest is not awaited forever; a rest that ends leaves a
    connection that may be used again."""

    async def check(node):
        node.server.bounds.body_s = 0.3
        assert len(reasons(await talk(nodes, node, begun, b"0123456789"))) == 1
        answers = await talk(nodes, node, begun, b"0123456789", b"x" * 989 + GET + CLOSE + b"\r\n")
        assert reasons(answers)[1:] == [(200, None)]

    with_node(nodes, check)


AT_ONCE = {
    422: head(BAD_HEADER) + CONTENT,
    202: head(b"Prefer: respond-async\r\n") + CONTENT,
    200: head(size=len(NO_TIME)) + NO_TIME,
}
at_once = pytest.mark.parametrize(("status", "request_"), AT_ONCE.items(), ids=map(str, AT_ONCE))


@at_once
def test_nothing_overtakes_an_answer_that_is_ready_at_once(nodes, status, request_):
    """Answers of the hot path are written together with others', those behind it are not."""

    async def check(node):
        for _ in range(10):
            answers = await talk(
                nodes, node, request_ + GET.replace(b"healthz", b"nope") + CLOSE + b"\r\n"
            )
            assert [found for found, _ in reasons(answers)] == [status, 404]

    with_node(nodes, check)


def test_what_comes_after_the_answer_is_thrown_away_within_bounds(nodes, monkeypatch):
    """Beyond them the connection ends."""
    monkeypatch.setattr(connection, "DISCARD_LIMIT_BYTES", 100)

    async def check(node):
        begun = head(BAD_HEADER, size=1000)
        assert reasons(await answered_before(node, begun, b"x" * 101)) == [(422, "invalid")]

    with_node(nodes, check)


@pytest.mark.parametrize(
    "begun",
    [
        head(size=1000) + b"{",
        head(b"Spillover-Deadline-Ms: 6e5\r\n", size=1000) + b"{",
        head(EXPECT),
        CHUNKED + b"5;ext=",
        head(start=b"PUT /admin/policy", size=1000) + b"{",
        head(start=b"POST /peer/v2/forward", size=1000) + b"{",
    ],
)
def test_slow_bodies_end_in_408(nodes, begun, monkeypatch):
    """Whatever deadline was given, on whichever path; also while bytes keep coming."""
    monkeypatch.setattr(lingering, "LINGER_S", 0.3)

    async def check(node):
        node.server.bounds.body_s = 0.3
        assert reasons(await talk(nodes, node, begun)) == [(408, "body_too_slow")]
        reader, writer = await connect(node)
        writer.write(begun)
        while not reader.at_eof() and not writer.is_closing():
            writer.write(b" ")
            await nodes.turn()
        writer.close()

    with_node(nodes, check)


def test_what_is_not_there_by_its_deadline_is_refused_under_its_name(nodes):
    """The head has been read: its client is told what became of the request."""

    async def check(node):
        lines = (b"Idempotency-Key: k-7\r\n", b"Spillover-Deadline-Ms: 100\r\n")
        for begun in (head(*lines, size=1000) + b"{", head(*lines, size=2 * len(HALF)) + HALF):
            top, _, told = (await talk(nodes, node, begun)).partition(b"\r\n\r\n")
            assert top.startswith(b"HTTP/1.1 504")
            assert json.loads(told)["id"] == "k-7"

    with_node(nodes, check)


def test_neighbors_that_are_slow_to_send_get_408(nodes, monkeypatch):
    """Which they take for a refusal, since nothing was accepted. No deadline has passed: 504 would
    say that, and may come from a gateway that has passed the request on."""
    monkeypatch.setattr(peer_paths, "READ_S", 0.2)

    async def check(node):
        for path in (b"forward", b"cancel"):
            begun = head(size=1000, start=b"POST /peer/v2/" + path) + b"{"
            assert reasons(await talk(nodes, node, begun)) == [(408, "body_too_slow")]
            assert 408 in REFUSAL_STATUSES
            assert 504 not in REFUSAL_STATUSES

    with_node(nodes, check)


REPORTS = b"GET /peer/v2/reports?from=b HTTP/1.1\r\nHost: x\r\n\r\n"


def test_a_listener_that_goes_with_another_request_behind(nodes, caplog):
    """Only the newest request is told by uvicorn that its client is gone; the stream ends all the
    same, and quietly."""

    async def check(node):
        reader, writer = await connect(node)
        writer.write(REPORTS)
        await reader.readuntil(b"}\n")
        streams = node.shell.neighborhood.streams._streams[0]
        assert len(streams) == 2
        writer.write(GET + b"\r\n")
        own = writer.get_extra_info("sockname")
        (end,) = (p for p in node.server.server_state.connections if getattr(p, "client", 0) == own)
        await nodes.until(lambda: end._ahead)
        writer.close()
        await nodes.until(lambda: len(streams) == 1)
        await nodes.until(lambda: len(node.server.server_state.tasks) == 1)

    with_node(nodes, check)
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


async def until_broken_off(connection, request=b""):
    """All that comes before its end."""
    reader, writer = connection
    writer.write(request)
    told = b""
    with contextlib.suppress(ConnectionError):
        while piece := await reader.read(65_536):
            told += piece
    writer.close()
    return told


def test_a_bug_within_a_stream_that_has_begun_breaks_it_off(nodes):
    """Reports have been read: then nothing comes any more, not the end of a stream that is whole,
    nor the answer that tells of a bug."""

    async def check(node):
        reader, writer = await connect(node)
        writer.write(REPORTS)
        told = await reader.readuntil(b"}\n")
        assert told.startswith(b"HTTP/1.1 200 ")
        streams = node.shell.neighborhood.streams._streams[0]
        (waits,) = streams[-1]._ended._waiters
        waits.set_exception(RuntimeError("a bug"))
        told += await until_broken_off((reader, writer))
        assert told.count(b"HTTP/1.1") == 1
        assert not told.endswith(b"0\r\n\r\n")
        assert b"internal" not in told
        await nodes.until(lambda: len(streams) == 1)

    with_node(nodes, check)


def test_a_body_behind_a_long_request_has_its_time_from_its_turn_on(nodes):
    """Its connection is not read while another request runs, which is not taken along."""

    async def check(node):
        node.server.bounds.body_s = 0.3
        first = json.dumps({"payload": {"service_ms": 500}}).encode()
        reader, writer = await connect(node)
        writer.write(head(size=len(first)) + first + head(CLOSE) + CONTENT[:3])
        top = await reader.readuntil(b"\r\n\r\n")
        writer.write(CONTENT[3:])
        assert top.startswith(b"HTTP/1.1 200")
        assert reasons(top + await reader.read()) == [(200, None), (200, None)]
        writer.write_eof()
        writer.close()

    with_node(nodes, check)


@pytest.mark.parametrize("start", [b"POST /requests", b"PUT /requests", b"POST /nothing"])
def test_bodies_not_asked_for_desync_nothing(nodes, start):
    """Refused before it was asked to send, a client may send or not: its connection ends."""

    async def check(node):
        refused = await talk(nodes, node, head(EXPECT, BAD_HEADER, start=start))
        assert len(reasons(refused)) == 1
        assert b"100 Continue" not in refused
        assert refused.lower().count(b"connection: close\r\n") == 1
        asked = await talk(nodes, node, head(EXPECT), CONTENT + GET + CLOSE + b"\r\n")
        assert reasons(asked) == [(200, None), (200, None)]

    with_node(nodes, check)


@pytest.mark.parametrize("start", [b"POST /requests", b"POST /nothing", b"PUT /admin/policy"])
@pytest.mark.parametrize("framed", [True, False])
def test_who_uploads_far_too_much_gets_to_read_that(nodes, start, framed):
    """Though it looks up only once all is sent: a connection that closes before is reset."""
    mb = b"x" * 1_000_000
    begun = head(start=start, size=60 * len(mb))
    if not framed:
        begun = re.sub(rb"Content-Length: [0-9]+", b"Transfer-Encoding: chunked", begun)
        mb = b"%x\r\n%b\r\n" % (len(mb), mb)

    async def check(node):
        reader, writer = await connect(node)
        writer.write(begun)
        for _ in range(60):
            writer.write(mb)
            await writer.drain()
        ((status, _),) = reasons(await reader.read())
        assert status == (404 if b"nothing" in start else 413)
        writer.close()

    with_node(nodes, check)


def test_who_asks_by_http_1_0_may_keep_the_connection(nodes):
    """As `ab -k` does. Else it closes behind the answer."""
    kept = b"GET /healthz HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n"

    async def check(node):
        post = kept.replace(b"GET /healthz", b"POST /requests")
        post = post.replace(b"\r\n\r\n", b"\r\nContent-Length: %d\r\n\r\n" % SIZE) + CONTENT
        last = b"GET /healthz HTTP/1.0\r\n\r\n"
        answers = (await talk(nodes, node, kept, post, post, kept, last)).lower()
        assert answers.count(b"http/1.1 200 ok") == 5
        assert answers.count(b"connection: keep-alive\r\n") == 4
        assert answers.count(b"connection: close\r\n") == 1

    with_node(nodes, check)


def test_other_protocols_are_not_spoken_and_asking_costs_nothing(nodes):
    """A client that offers HTTP/2 gets its answer in HTTP/1.1, however its bytes come."""
    last = GET + CLOSE + b"\r\n"

    async def check(node):
        post = head(UPGRADE)
        done = [(200, None), (200, None)]
        assert reasons(await talk(nodes, node, post + CONTENT + last)) == done
        assert reasons(await talk(nodes, node, post, CONTENT + last)) == done
        assert (
            reasons(await talk(nodes, node, post[:60], post[60:] + CONTENT[:4], CONTENT[4:], last))
            == done
        )
        for cut in range(len(post) - 2, len(post) - len(UPGRADE), -9):
            assert reasons(await talk(nodes, node, post[:cut], post[cut:] + CONTENT + last)) == done
        get = GET + UPGRADE + b"\r\n"
        assert reasons(await talk(nodes, node, get + get, get + post + CONTENT + last)) == 5 * [
            (200, None)
        ]
        chunk = b"%x\r\n%b\r\n0\r\n\r\n" % (len(CONTENT), CONTENT)
        chunked = CHUNKED[:-2] + UPGRADE + b"\r\n" + chunk
        assert reasons(await talk(nodes, node, chunked + last)) == done
        socket = (
            b"GET /healthz HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"
        )
        assert reasons(await talk(nodes, node, socket + last)) == done
        connect_to = b"CONNECT x:1 HTTP/1.1\r\nHost: x\r\n\r\n"
        assert reasons(await talk(nodes, node, connect_to)) == [(501, "not_passed")]

    with_node(nodes, check)


def test_garbage_behind_a_request_is_refused_behind_its_answer(nodes):
    """The answer comes first, then 400, in however many segments they came."""

    async def check(node):
        answers = await talk(nodes, node, head() + CONTENT + b"GARBAGE\r\n\r\n")
        assert reasons(answers) == [(200, None), (400, "malformed")]
        refused = head(size=1) + b"{"
        answers = await talk(nodes, node, refused, b"GARBAGE\r\n\r\n")
        assert reasons(answers) == [(422, "invalid"), (400, "malformed")]

    with_node(nodes, check)


def test_bad_chunks_get_an_answer_where_one_is_due(nodes):
    """Not where it would be taken for another request's, or for a second one."""

    async def check(node):
        for segments in (
            (CHUNKED + b"1\r\nxyz\r\n",),
            (CHUNKED, b"zz\r\n"),
            (CHUNKED + b"zz\r\n",),
        ):
            answer = await talk(nodes, node, *segments)
            assert reasons(answer) == [(400, "malformed")]
            assert b"connection: close" in answer
        early = CHUNKED[:-2] + BAD_HEADER + b"\r\n"
        assert reasons(await answered_before(node, early, b"zz\r\n")) == [(422, "invalid")]
        slow = json.dumps({"payload": {"service_ms": 50}}).encode()
        behind = await talk(nodes, node, head(size=len(slow)) + slow + CHUNKED + b"zz\r\n")
        assert reasons(behind) == [(200, None), (400, "malformed")]

    with_node(nodes, check)


def test_a_node_is_ready_while_anyone_runs_requests(nodes):
    """Without servers of its own it is as long as a neighbor accepts."""

    async def main():
        async with nodes.Federation(nodes.topology_of("a", "b")) as federation:
            node = federation["a"]
            node.shell.feed(ServersDown())
            assert (await node.get("/readyz"))[0] == 200
            await federation.stop("b")
            await nodes.until(lambda: not node.may_send_to("b"))
            status, problem = await node.get("/readyz")
            assert (status, problem["reason"]) == (503, "no_servers")
            node.shell.feed(ServersUp())
            assert (await node.get("/readyz"))[0] == 200

    nodes.run(main)


@pytest.mark.parametrize(
    ("path", "field"),
    [
        (["a", "b"], "cluster a"),
        (["b"] * 17, "16 hops"),
        (["b", "c"], "expected it to end with b"),
        (["b"] * 16, None),
    ],
)
def test_requests_that_went_in_circles_are_not_taken(nodes, path, field):
    """By another topology or a neighbor at fault: surely not accepted, so decided again there."""
    forward = {"sender": "b", "id": "x", "path": path, "remaining_ms": 1e300, "payload": 1}

    async def check(node):
        content = json.dumps(forward).encode()
        status, _, answer = await node.send("POST", "/peer/v2/forward", content)
        if field is None:
            assert (status, answer["outcome"]) == (200, "done")
        else:
            assert (status, answer["reason"], answer["id"]) == (422, "invalid", "x")
            assert field in answer["detail"]
            assert node.ledger.foreign["received"] == 0

    with_node(nodes, check)


@pytest.mark.parametrize("told", [None, Answer(DONE, ("b", "a"), b"1", None)])
def test_a_forward_whose_answer_was_a_bug_has_no_second_answer(nodes, monkeypatch, told):
    """As the node ends, it settles all that it has taken."""
    forward = {"sender": "b", "id": "x", "path": ["b"], "remaining_ms": 1e300, "payload": 1}
    content = json.dumps(forward).encode()
    asked = []

    def take(_request, _deadline_s, _origin, asker, *_):
        asked.append(asker)
        raise RuntimeError("a bug")

    async def check(node):
        monkeypatch.setattr(node.shell.requests.foreign, "take", take)
        reader, writer = await connect(node)
        writer.write(head(size=len(content), start=b"POST /peer/v2/forward") + content)
        assert (await reader.readline()).startswith(b"HTTP/1.1 500 ")
        asked[0].settle(1, told, 0.0)
        writer.write(GET + CLOSE + b"\r\n")
        assert (await reader.read()).count(b"HTTP/1.1 ") == 1
        writer.close()

    with_node(nodes, check)
