"""What a connection may do with a request it has begun: bodies that are late, bad, never asked for
or never end, other protocols asked for, and garbage behind it. Each ends with an answer or closed.
"""

import json
import re

import pytest

from spillover.apps.http import connection
from spillover.apps.node import peer_paths
from spillover.core.overflow.events import ServersDown, ServersUp
from spillover.live.http1 import bounds, lingering
from spillover.live.overflow.identity import HELLO
from spillover.live.overflow.peer_link import REFUSAL_STATUSES

GET = b"GET /healthz HTTP/1.1\r\nHost: x\r\n"
CLOSE = b"Connection: close\r\n"
CONTENT = json.dumps({"payload": 1}).encode()
SIZE = len(CONTENT)
UPGRADE = b"Connection: Upgrade, HTTP2-Settings\r\nUPGRADE: h2c\r\nHTTP2-Settings: AAMA\r\n"
BAD_HEADER = b"Spillover-Deadline-Ms: x\r\n"
EXPECT = b"Expect: 100-continue\r\n"
CHUNKED = b"POST /requests HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.fixture(autouse=True)
def _looked_at_often(monkeypatch):
    monkeypatch.setattr(bounds, "SWEEP_S", 0.02)


def head(*lines, size=SIZE, start=b"POST /requests"):
    """The head of a request with a body of that size."""
    return b"%b HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n%b\r\n" % (
        start,
        size,
        b"".join(lines),
    )


async def talk(nodes, node, *segments):
    """Write segments, with time to be read one by one, and read until the connection is closed."""
    reader, writer = await node.connect()
    for segment in segments:
        writer.write(segment)
        for _ in range(4):
            await nodes.turn()
    answer = await reader.read()
    writer.close()
    return answer


async def answered_before(node, begun, rest):
    """As `talk`, but what is left of the request only once it has its answer."""
    reader, writer = await node.connect()
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


async def test_bodies_that_come_after_the_answer_must_end_too(nodes):
    """The client has its answer, and the rest is not awaited forever; a rest that ends leaves a
    connection that may be used again."""
    async with nodes.alone() as node:
        in_time_s = node.server.bounds.body_s
        for begun in (
            head(BAD_HEADER, size=1000) + b"x",
            head(start=b"GET /nothing", size=1000) + b"x",
            head(start=b"POST /admin/resume", size=1000) + b"x",
        ):
            node.server.bounds.body_s = 0.2
            assert len(reasons(await talk(nodes, node, begun, b"0123456789"))) == 1
            node.server.bounds.body_s = in_time_s
            rest = b"x" * 989 + GET + CLOSE + b"\r\n"
            answers = await talk(nodes, node, begun, b"0123456789", rest)
            assert reasons(answers)[1:] == [(200, None)]


async def test_what_comes_after_the_answer_is_thrown_away_within_bounds(nodes, monkeypatch):
    """Beyond them the connection ends."""
    monkeypatch.setattr(connection, "DISCARD_LIMIT_BYTES", 100)
    async with nodes.alone() as node:
        begun = head(BAD_HEADER, size=1000)
        assert reasons(await answered_before(node, begun, b"x" * 101)) == [(422, "invalid")]


SLOW = [
    head(size=1000) + b"{",
    head(b"Spillover-Deadline-Ms: 6e5\r\n", size=1000) + b"{",
    head(EXPECT),
    CHUNKED + b"5;ext=",
    head(start=b"PUT /admin/policy", size=1000) + b"{",
    head(start=b"POST /peer/v2/forward", size=1000) + b"{",
]


async def test_slow_bodies_end_in_408(nodes, monkeypatch):
    """Whatever deadline was given, on whichever path; also while bytes keep coming."""
    monkeypatch.setattr(lingering, "LINGER_S", 0.05)
    async with nodes.alone() as node:
        node.server.bounds.body_s = 0.05
        for begun in SLOW:
            assert reasons(await talk(nodes, node, begun)) == [(408, "body_too_slow")]
            reader, writer = await node.connect()
            writer.write(begun)
            while not reader.at_eof() and not writer.is_closing():
                writer.write(b" ")
                await nodes.turn()
            writer.close()


REPORTS = b"GET /peer/v2/reports HTTP/1.1\r\nHost: x\r\nSpillover-Peer: from=b\r\n\r\n"


async def test_a_listener_that_goes_with_another_request_behind(nodes, caplog):
    """Only the newest request is told by uvicorn that its client is gone; the stream ends all the
    same, and quietly."""
    async with nodes.alone("a", "b") as node:
        reader, writer = await node.connect()
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
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


async def test_bodies_not_asked_for_desync_nothing(nodes):
    """Refused before it was asked to send, a client may send or not: its connection ends."""
    async with nodes.alone() as node:
        for start in (b"POST /requests", b"PUT /requests", b"POST /nothing"):
            refused = await talk(nodes, node, head(EXPECT, BAD_HEADER, start=start))
            assert len(reasons(refused)) == 1
            assert b"100 Continue" not in refused
            assert refused.lower().count(b"connection: close\r\n") == 1
        asked = await talk(nodes, node, head(EXPECT), CONTENT + GET + CLOSE + b"\r\n")
        assert reasons(asked) == [(200, None), (200, None)]


@pytest.mark.parametrize(
    ("start", "framed"), [(b"POST /requests", True), (b"POST /nothing", False)]
)
async def test_who_uploads_far_too_much_gets_to_read_that(nodes, start, framed):
    """Though it looks up only once all is sent: a connection that closes before is reset."""
    mb = b"x" * 1_000_000
    begun = head(start=start, size=20 * len(mb))
    if not framed:
        begun = re.sub(rb"Content-Length: [0-9]+", b"Transfer-Encoding: chunked", begun)
        mb = b"%x\r\n%b\r\n" % (len(mb), mb)
    async with nodes.alone() as node:
        reader, writer = await node.connect()
        writer.write(begun)
        for _ in range(20):
            writer.write(mb)
            await writer.drain()
        ((status, _),) = reasons(await reader.read())
        assert status == (404 if b"nothing" in start else 413)
        writer.close()


async def test_who_asks_by_http_1_0_may_keep_the_connection(nodes):
    """As `ab -k` does. Else it closes behind the answer."""
    kept = b"GET /healthz HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n"
    async with nodes.alone() as node:
        post = kept.replace(b"GET /healthz", b"POST /requests")
        post = post.replace(b"\r\n\r\n", b"\r\nContent-Length: %d\r\n\r\n" % SIZE) + CONTENT
        last = b"GET /healthz HTTP/1.0\r\n\r\n"
        answers = (await talk(nodes, node, kept, post, post, kept, last)).lower()
        assert answers.count(b"http/1.1 200 ok") == 5
        assert answers.count(b"connection: keep-alive\r\n") == 4
        assert answers.count(b"connection: close\r\n") == 1


async def test_other_protocols_are_not_spoken_and_asking_costs_nothing(nodes):
    """A client that offers HTTP/2 gets its answer in HTTP/1.1, however its bytes come."""
    last = GET + CLOSE + b"\r\n"
    async with nodes.alone() as node:
        post = head(UPGRADE)
        done = [(200, None), (200, None)]
        assert reasons(await talk(nodes, node, post + CONTENT + last)) == done
        assert reasons(await talk(nodes, node, post, CONTENT + last)) == done
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


async def test_garbage_behind_a_request_is_refused_behind_its_answer(nodes):
    """The answer comes first, then 400, in however many segments they came."""
    async with nodes.alone() as node:
        answers = await talk(nodes, node, head() + CONTENT + b"GARBAGE\r\n\r\n")
        assert reasons(answers) == [(200, None), (400, "malformed")]
        refused = head(size=1) + b"{"
        answers = await talk(nodes, node, refused, b"GARBAGE\r\n\r\n")
        assert reasons(answers) == [(422, "invalid"), (400, "malformed")]


async def test_bad_chunks_get_an_answer_where_one_is_due(nodes):
    """Not where it would be taken for another request's, or for a second one."""
    async with nodes.alone() as node:
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


async def test_a_node_is_ready_while_anyone_runs_requests(nodes):
    """Without servers of its own it is as long as a neighbor accepts."""
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


async def test_requests_that_went_in_circles_are_not_taken(nodes):
    """By another topology or a neighbor at fault: surely not accepted, so decided again there."""
    forward = {"id": "x", "remaining_ms": 1e300, "payload": 1}
    wrong = {
        "cluster a": ["a", "b"],
        "16 hops": ["b"] * 17,
        "expected it to end with b": ["b", "c"],
    }
    async with nodes.alone("a", "b") as node:

        async def send(path):
            content = json.dumps(forward | {"path": path}).encode()
            said = [(HELLO, b"from=b")]
            status, _, answer = await node.send("POST", "/peer/v2/forward", content, said)
            return status, answer

        for field, path in wrong.items():
            status, answer = await send(path)
            assert (status, answer["reason"], answer["id"]) == (422, "invalid", "x")
            assert field in answer["detail"]
        assert node.ledger.foreign["received"] == 0
        status, answer = await send(["b"] * 16)
        assert (status, answer["outcome"]) == (200, "done")


async def test_neighbors_that_are_slow_to_send_get_408(nodes, monkeypatch):
    """Which they take for a refusal, since nothing was accepted. No deadline has passed: 504 would
    say that, and may come from a gateway that has passed the request on."""
    monkeypatch.setattr(peer_paths, "READ_S", 0.2)
    async with nodes.alone() as node:
        for path in (b"forward", b"cancel"):
            begun = head(size=1000, start=b"POST /peer/v2/" + path) + b"{"
            assert reasons(await talk(nodes, node, begun)) == [(408, "body_too_slow")]
        assert 408 in REFUSAL_STATUSES
        assert 504 not in REFUSAL_STATUSES
