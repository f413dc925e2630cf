"""What stands beside nodes, and what is asked of nodes: a bare app, a relay, bodies and states."""

from __future__ import annotations

import asyncio
import gc
import gzip
import json
import time
from contextlib import suppress

import aiohttp
import msgspec
import pytest

from spillover.live.http.client import HttpClient
from spillover.live.process.listening import bind_socket
from spillover.model.errors import RunError
from spillover.tools.bench import nodes, servers
from spillover.tools.bench.bare import BareApp, serve_relay
from spillover.tools.bench.servers import Server
from spillover.tools.processes.child import Child
from support.children import in_this_loop
from support.knots import left_over
from support.loop import turn, until
from support.scripted_server import answer, done, problem, scripted

POST, GET = {"method": "POST"}, {"method": "GET"}


def play(coroutine):
    return asyncio.run(asyncio.wait_for(coroutine, 20.0))


def pieces_of(body, count):
    """As a server hands a body on; after the end nothing comes any more."""
    messages = [
        {"type": "http.request", "body": body[k::count], "more_body": k < count - 1}
        for k in range(count)
    ]
    if count > 1:
        del messages[0]["body"]

    async def receive():
        return messages.pop(0)

    return receive, messages


async def answered(app, scope, body=b"", count=1):
    sent = []
    receive, left = pieces_of(body, count)

    async def send(message):
        sent.append(message)

    await app(scope, receive, send)
    assert scope is GET or not left, "all of the body was read"
    start, content = sent
    headers = dict(start["headers"])
    assert (start["type"], content["type"]) == ("http.response.start", "http.response.body")
    assert headers[b"content-type"] == b"application/json"
    assert int(headers[b"content-length"]) == len(content["body"])
    return start["status"], content["body"]


@pytest.mark.parametrize("count", [1, 3])
def test_a_bare_app_gives_the_same_answer_to_whatever_it_is_sent(count):
    app = BareApp(b'{"n":1}')
    assert play(answered(app, POST, b"no JSON", count)) == (200, b'{"n":1}')
    assert play(answered(app, GET)) == (200, b'{"queue_length":0}')


def test_a_bare_app_that_checks_its_json_reads_all_of_it():
    app = BareApp(b"{}", reads_json=True)
    assert play(answered(app, POST, b'{"payload": {"a": [1, 2]}}')) == (200, b"{}")
    for body in (b'{"payload": {"a": [1, 2}}', b'{"other": 1}', b"[]"):
        with pytest.raises(msgspec.DecodeError):
            play(answered(app, POST, body))


def test_a_bare_app_that_sleeps_takes_that_long():
    began_s = time.monotonic()
    assert play(answered(BareApp(b"{}", sleep_s=0.05), POST)) == (200, b"{}")
    assert 0.045 <= time.monotonic() - began_s < 10.0


def test_a_bare_app_that_holds_never_answers_and_tells_how_many_it_holds():
    async def main():
        app, told = BareApp(b"{}", holds=True), []
        held = []
        for _ in range(12):
            held.append(asyncio.create_task(answered(app, POST, b"x")))
            await turn(0)
        told = await answered(app, GET)
        ended = [one.done() for one in held]
        for one in held:
            one.cancel()
        await asyncio.gather(*held, return_exceptions=True)
        return told, ended

    assert play(main()) == ((200, b'{"queue_length":12}'), [False] * 12)


def test_a_relay_passes_bodies_and_answers_on_as_they_are():
    """Status and type too; both are for the same path, and connections are kept."""

    async def main():
        ready = asyncio.Event()
        plain = answer(418, b"tea", kind="text/plain")
        with bind_socket("127.0.0.1", 0) as listening:
            url = f"http://127.0.0.1:{listening.getsockname()[1]}"
            async with scripted(plain, done()) as upstream:
                relaying = asyncio.create_task(serve_relay(upstream.url, listening, ready.set))
                await ready.wait()
                found = []
                async with aiohttp.ClientSession() as session:
                    for kind, body in (("application/json", b"{}"), ("text/csv", bytes(900_000))):
                        asked = session.post(
                            f"{url}/requests/x", data=body, headers={"content-type": kind}
                        )
                        async with asked as said:
                            found.append((said.status, said.content_type, await said.read()))
                connections = len(upstream._connections)
                relaying.cancel()
                with suppress(asyncio.CancelledError):
                    await relaying
                await until(lambda: not upstream._connections)
                return found, connections, upstream.seen, upstream.bodies

    found, connections, seen, bodies = play(main())
    assert found[0] == (418, "text/plain", b"tea")
    assert found[1][:2] == (200, "application/json")
    assert connections == 1
    assert bodies == [b"{}", bytes(900_000)]
    assert [line for line, _ in seen] == ["POST /requests/x"] * 2
    assert [headers["content-type"] for _, headers in seen] == ["application/json", "text/csv"]


def test_a_relay_passes_on_as_many_at_once_as_come_packed_as_they_are():
    """None waits for another one's answer, and nothing is unpacked on the way."""
    packed = gzip.compress(b"tea")

    async def main():
        ready, both = asyncio.Event(), asyncio.Barrier(2)

        async def talk(reader, writer):
            await reader.readuntil(b"\r\n\r\n")
            async with asyncio.timeout(5.0):
                await both.wait()
            writer.write(answer(200, packed, content_encoding="gzip"))
            await reader.read()
            writer.close()

        async with await asyncio.start_server(talk, "127.0.0.1", 0) as upstream:
            url = f"http://127.0.0.1:{upstream.sockets[0].getsockname()[1]}"
            with bind_socket("127.0.0.1", 0) as listening:
                port = listening.getsockname()[1]
                relaying = asyncio.create_task(serve_relay(url, listening, ready.set))
                await ready.wait()
                client = HttpClient(f"http://127.0.0.1:{port}")
                asked = [client.request("POST", "/x", body=b"", timeout_s=9.0) for _ in range(2)]
                said = [(one.status, one.body) for one in await asyncio.gather(*asked)]
                await client.close()
                relaying.cancel()
                with suppress(asyncio.CancelledError):
                    await relaying
                return said

    assert play(main()) == [(200, packed)] * 2


async def head_of(peer):
    """What a peer's answer to a POST begins with; it goes on in this loop."""

    async def work(there):
        with bind_socket("127.0.0.1", 0) as listening:
            await servers._serve_on(peer, listening, there)

    async with in_this_loop(Child("the peer", servers._serve, peer), work) as child:
        port = await child.receive(5.0)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: 7\r\n\r\nno JSON")
        head = await reader.readuntil(b"\r\n\r\n")
        writer.close()
        return head


def test_a_peer_says_no_more_than_its_answer_and_what_was_before_is_out_of_its_way():
    """Nothing that a node does not add, such as the date; and as at a node, the collector is done
    with all there is when the first request comes."""
    bare = servers.Bare(answer=b"{}")
    assert not any((bare.sleep_s, bare.holds, bare.reads_json)), "it answers, and that is all"
    with left_over() as garbage:
        frozen = gc.get_freeze_count()
        head = play(head_of(bare))
        assert garbage() is None
        assert gc.get_freeze_count() > frozen
    lines = head.lower().split(b"\r\n")
    assert lines[0] == b"http/1.1 200 ok"
    assert sorted(lines[1:-2]) == [b"content-length: 2", b"content-type: application/json"]


def test_nothing_stands_between_a_bare_app_and_its_server():
    """What uvicorn would put there is paid for by the peer, and by no node."""

    async def main():
        config = servers.bare_server(servers.Bare(answer=b"{}")).config
        config.load()
        return config.loaded_app, config.encoded_headers

    app, headers = play(main())
    assert isinstance(app, BareApp)
    assert headers == []


def test_a_bare_app_of_which_nothing_else_is_said_waits_for_nothing():
    """Nor for more of what came, unless it was said that more comes."""
    messages, sent = [{"type": "http.request", "body": b"no JSON"}], []

    async def receive():
        return messages.pop(0)

    async def send(message):
        sent.append(message["type"])

    answering = BareApp(b"{}")(POST, receive, send)
    with pytest.raises(StopIteration):
        answering.send(None)
    assert sent == ["http.response.start", "http.response.body"]


@pytest.mark.parametrize("size_bytes", [64, 1024, 65_536])
def test_a_body_is_as_long_as_it_is_called(size_bytes):
    body = nodes.request_body(4.0, size_bytes)
    payload = json.loads(body)["payload"]
    assert payload["service_ms"] == 4.0
    assert len(body) - len(b'{"payload": }') == size_bytes


def test_nodes_for_measuring_have_no_delay_and_no_deadline_that_is_met():
    """An hour's services are within it."""
    one = nodes.cluster("a", servers=3, queue_limit=7)
    other = nodes.cluster("b", servers=1, queue_limit=0, service_ms=4.0)
    topology = nodes.topology_of([one, other], [("a", "b")])
    assert [(c.id, c.servers, c.queue_limit, c.service_ms) for c in topology.clusters] == [
        ("a", 3, 7, 0.0),
        ("b", 1, 0, 4.0),
    ]
    ((ends, delay_ms),) = [(link.between, link.delay_ms) for link in topology.links]
    assert (ends, delay_ms) == (("a", "b"), 0.0)
    assert topology.default_deadline_ms > 20 * nodes.FOREVER_MS
    assert nodes.topology_of([one]).links == ()


def asked(call, *answers):
    """What a call comes to at a server that answers so, and what it was asked."""

    async def main():
        async with scripted(*answers) as server:
            came_to = await call(Server(server.url, 1))
            await until(lambda: not server._connections)
            return came_to, server.seen, server.bodies

    return play(main())


def test_an_answer_is_had_as_it_came_or_is_none():
    answered, seen, bodies = asked(lambda node: nodes.answer_of(node, b"{}"), answer(200, b"[ 1 ]"))
    assert (answered, seen[0][0], bodies) == (b"[ 1 ]", "POST /requests", [b"{}"])
    with pytest.raises(RunError, match=r'expected a result, got 429: .*"queue_full"'):
        asked(lambda node: nodes.answer_of(node, b"{}"), problem(429, "queue_full"))


@pytest.mark.parametrize(("status", "later"), [(202, True), (200, False), (429, False)])
def test_who_answers_by_202_does_asynchronous_requests(status, later):
    said, seen, _ = asked(lambda node: nodes.answers_later(node, b"{}"), answer(status, {}))
    assert said is later
    assert seen[0][1]["prefer"] == "respond-async"


def test_who_does_not_answer_at_once_does_no_asynchronous_requests(monkeypatch):
    monkeypatch.setattr(nodes, "LATER_WITHIN_S", 0.05)

    async def main():
        leaving = asyncio.Event()

        async def listen(_, writer):
            await leaving.wait()
            writer.close()

        server = await asyncio.start_server(listen, "127.0.0.1", 0)
        node = Server(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", 1)
        said = await nodes.answers_later(node, b"{}")
        leaving.set()
        server.close()
        await server.wait_closed()
        return said

    assert play(main()) is False


async def looked_for_a_while(told):
    """How often, until that is told."""
    async with scripted(state(busy=1, queue_length=0)) as server:
        with pytest.raises(RunError, match=told):
            await nodes.until_state(Server(server.url, 1), busy=1, queue_length=2)
        return len(server.seen)


def state(**fields):
    return answer(200, fields)


def test_a_state_is_waited_for_with_all_its_entries(monkeypatch):
    """As long as it takes, but not for ever."""

    def wait(node):
        return nodes.until_state(node, busy=1, queue_length=2)

    wanted = state(busy=1, queue_length=2, other=3)
    half = (state(busy=1, queue_length=0), state(busy=0, queue_length=2), state(busy=1))
    _, seen, _ = asked(wait, *half, wanted)
    assert [line for line, _ in seen] == ["GET /state"] * 4
    monkeypatch.setattr(nodes, "STATE_WITHIN_S", 0.05)
    told = r"expected \{'busy': 1, 'queue_length': 2\} in time, got \{'busy': 1, 'queue_length': 0}"
    looks = asyncio.run(looked_for_a_while(told))
    assert 1 <= looks <= 5, "now and then: a node that is measured has other things to do"


def test_servers_are_taken_out_by_a_word_to_the_node():
    def change(node):
        return nodes.change_tokens(node, servers={"s1": "out"})

    bucket, seen, bodies = asked(change, answer(200, {"available": 5}))
    assert bucket == {"available": 5}
    ((line, headers),) = seen
    assert (line, headers["content-type"]) == ("PUT /admin/tokens", "application/json")
    assert json.loads(bodies[0]) == {"servers": {"s1": "out"}}
    with pytest.raises(RunError, match=r"expected a bucket, got 422: .*no such server"):
        asked(change, problem(422, "invalid", "no such server"))
