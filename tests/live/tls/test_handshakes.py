"""Handshakes that come all at once, in pieces, or not at all."""

import asyncio
import contextlib
import ssl
from collections import Counter
from functools import partial

import pytest
import uvloop

from spillover.live.http1.client import HttpClient
from spillover.live.tls import handshakes
from spillover.live.tls.contexts import client_context, server_context
from spillover.live.tls.failures import TIMEOUT, reason_of
from spillover.live.tls.handshakes import STEPS_PER_TURN, Front, Handshake, Turns, at_door
from spillover.model.errors import PeerError
from support.loop import turn, until

AT_ONCE = 40

LOOPS = pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])


class Echo(asyncio.Protocol):
    """Says what it hears."""

    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        self.transport.write(data)


class Asker(asyncio.Protocol):
    """Says something as soon as it may, and keeps what it hears."""

    def __init__(self, said=b"ping"):
        self.said, self.heard, self.is_lost = said, b"", False

    def connection_made(self, transport):
        self.transport = transport
        transport.write(self.said)

    def data_received(self, data):
        self.heard += data

    def connection_lost(self, exc):
        del exc
        self.is_lost = True


def run(loop, main):
    with asyncio.Runner(loop_factory=loop) as runner:
        return runner.run(main)


async def listen(material, under_way, context=None):
    found = context or server_context(material, callers=ssl.CERT_REQUIRED)
    tls = Front(lambda: found)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(at_door(Echo, tls, under_way), "127.0.0.1", 0)
    return server, server.sockets[0].getsockname()[1]


async def call(material, port, context=None, said=b"ping"):
    """Say something, hear it, and leave."""
    loop = asyncio.get_running_loop()
    over, tls = loop.create_future(), context or client_context(material)
    asker = Asker(said)
    handshake = Handshake(asker, lambda: tls, set(), "a.test.spillover", over)
    await loop.create_connection(lambda: handshake, "127.0.0.1", port)
    await over
    await until(lambda: asker.heard == said)
    asker.transport.close()
    await until(lambda: asker.is_lost)


@LOOPS
def test_few_steps_in_a_turn(loop, material):
    """However many handshakes there are, at both ends: all else has its turn in between."""
    steps, turns = Counter(), [0]

    class Counting(ssl.SSLObject):
        def do_handshake(self):
            steps[turns[0]] += 1
            super().do_handshake()

    async def main():
        def next_turn():
            turns[0] += 1
            asyncio.get_running_loop().call_soon(next_turn)

        next_turn()
        under_way = set()
        contexts = server_context(material, callers=ssl.CERT_REQUIRED), client_context(material)
        for context in contexts:
            context.sslobject_class = Counting
        server, port = await listen(material, under_way, contexts[0])
        await asyncio.gather(*(call(material, port, contexts[1]) for _ in range(AT_ONCE)))
        assert not under_way
        server.close()

    run(loop, main())
    assert sum(steps.values()) >= 4 * AT_ONCE
    assert max(steps.values()) <= STEPS_PER_TURN


@LOOPS
def test_a_step_that_breaks_holds_up_nobody(loop):
    """Those behind it have their turn all the same, and later ones as well."""
    done, told = [], []

    def breaks():
        raise MemoryError

    async def main():
        running = asyncio.get_running_loop()
        running.set_exception_handler(lambda _, context: told.append(context["exception"]))
        turns = Turns.of(running)
        assert Turns.of(running) is turns
        for step in (breaks, partial(done.append, 1), breaks, breaks, partial(done.append, 2)):
            turns.add(step)
        await until(lambda: len(done) == 2)
        turns.add(partial(done.append, 3))
        await until(lambda: len(done) == 3)

    run(loop, main())
    assert done == [1, 2, 3]
    assert [type(error) for error in told] == [MemoryError] * 3


def test_each_loop_has_its_own_tls():
    """As in connections that it opens itself; a loop that is made of another has that one's."""

    class Derived(asyncio.SelectorEventLoop):
        pass

    for make, kind in (
        (asyncio.new_event_loop, "asyncio.sslproto"),
        (Derived, "asyncio.sslproto"),
        (uvloop.new_event_loop, "uvloop.loop"),
    ):
        loop = make()
        found = handshakes._kind_of(loop)
        assert (found.__module__, found.__name__) == (kind, "SSLProtocol")
        loop.close()


@LOOPS
async def test_a_handshake_in_pieces(loop, material):
    """Each byte by itself, at both ends; and a first message that is longer than any buffer."""
    server, port = await listen(material, set())
    way = await asyncio.start_server(
        lambda reader, writer: _carry_by_bytes(reader, writer, port), "127.0.0.1", 0
    )
    through = way.sockets[0].getsockname()[1]
    await call(material, through)
    await call(material, port, said=b"x" * 1_000_000)
    way.close()
    server.close()


async def _carry_by_bytes(from_client, to_client, port):
    from_server, to_server = await asyncio.open_connection("127.0.0.1", port)

    async def carry(reader, writer):
        while piece := await reader.read(65_536):
            for byte in piece:
                writer.write(bytes([byte]))
                await turn(0)

        writer.close()

    await asyncio.gather(carry(from_client, to_server), carry(from_server, to_client))


@LOOPS
async def test_what_is_read_before_a_pause_counts_is_kept(loop, material):
    """Loops may read more than once in a turn."""

    class ReadTwice(Handshake):
        def data_received(self, data):
            super().data_received(data[:99])
            super().data_received(data[99:])

    tls = server_context(material, callers=ssl.CERT_REQUIRED)
    server = await asyncio.get_running_loop().create_server(
        lambda: ReadTwice(Echo(), lambda: tls, set()), "127.0.0.1", 0
    )
    await call(material, server.sockets[0].getsockname()[1])
    server.close()


@LOOPS
async def test_nothing_more_is_read_before_its_turn(loop, material):
    """However much somebody says at once: it would be held in memory."""

    class Waiting(Handshake):
        def _do(self, step):
            del step  # its turn does not come

    made, under_way = [], set()

    def make():
        made.append(Waiting(Echo(), lambda: server_context(material), under_way))
        return made[-1]

    server = await asyncio.get_running_loop().create_server(make, "127.0.0.1", 0)
    _, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    writer.write(b"x" * 8_000_000)
    await until(lambda: made and made[0]._received)
    for _ in range(50):
        await turn()
    assert len(made[0]._received) < 1_000_000
    writer.transport.abort()
    made[0]._socket.abort()
    await until(lambda: not under_way)
    server.close()


def test_what_a_socket_has_no_room_for_waits(material):
    """A handshake says no more until there is room again, and then goes on."""

    class Full(Handshake):
        def connection_made(self, transport):
            super().connection_made(transport)
            self.pause_writing()

    async def main():
        heard, running = [], asyncio.get_running_loop()

        async def hear(reader, writer):
            heard.append(await reader.read(65_536))
            writer.close()

        server = await asyncio.start_server(hear, "127.0.0.1", 0)
        over, context = running.create_future(), client_context(material)
        full = Full(Asker(), lambda: context, set(), "a.test.spillover", over)
        await running.create_connection(lambda: full, *server.sockets[0].getsockname())
        await until(lambda: not full._turns._waiting)
        for _ in range(20):
            await turn()
        assert heard == []
        full.resume_writing()
        with pytest.raises((ConnectionError, ssl.SSLError)):
            await over
        assert heard[0].startswith(b"\x16\x03"), "a hello"
        server.close()

    run(asyncio.new_event_loop, main())


@LOOPS
async def test_who_leaves_before_the_end(loop, material):
    """At any moment: nothing is left under way, and who waits for it hears."""
    under_way = set()
    server, port = await listen(material, under_way)
    for begun in (b"", b"\x16\x03\x01\x02\x00", b"GET / HTTP/1.1\r\n\r\n"):
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        await until(lambda: len(under_way) == 1)
        writer.write(begun)
        writer.close()
        await until(lambda: not under_way)
    server.close()

    async def leave(reader, writer):
        writer.close()

    leaving = await asyncio.start_server(leave, "127.0.0.1", 0)
    with pytest.raises((ConnectionError, ssl.SSLError)):
        await call(material, leaving.sockets[0].getsockname()[1])
    leaving.close()


@LOOPS
async def test_who_is_hung_up_on_politely_hears_of_it_at_once(loop, material):
    """The other end has read all that was said, and says no more: that is no success."""
    gone = asyncio.Event()

    async def hang_up(reader, writer):
        await reader.read(65_536)  # the hello, in one piece
        writer.write_eof()
        with contextlib.suppress(ConnectionError):
            await reader.read()
            writer.close()
            await writer.wait_closed()
        gone.set()

    server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    running = asyncio.get_running_loop()
    over, under_way = running.create_future(), set()
    context = client_context(material)
    handshake = Handshake(Asker(), lambda: context, under_way, "a.test.spillover", over)
    await running.create_connection(
        lambda: handshake, "127.0.0.1", server.sockets[0].getsockname()[1]
    )
    with pytest.raises(ConnectionError):
        await over
    await until(lambda: not under_way)
    assert handshake.transport is None
    await gone.wait()
    server.close()


@pytest.mark.parametrize(
    ("loop", "said"),
    [
        (asyncio.new_event_loop, b""),
        (uvloop.new_event_loop, b""),
        (uvloop.new_event_loop, b"\x16\x03\x01\x02\x00"),
    ],
    ids=["nothing, asyncio", "nothing, uvloop", "a byte late"],
)
def test_who_says_too_little_is_cut_off_in_time(loop, material, monkeypatch, said):
    """Nothing that takes memory is made for who is silent. One time limit is for all: a first word
    halfway does not begin another."""
    limit_s, failures = (2.4 if said else 0.2), []  # a busy machine may be late by a second
    monkeypatch.setattr(handshakes, "HANDSHAKE_S", limit_s)

    async def main():
        running, under_way = asyncio.get_running_loop(), set()
        context = server_context(material)
        tls = Front(lambda: context, lambda error, _: failures.append(reason_of(error)))
        server = await running.create_server(at_door(Echo, tls, under_way), "127.0.0.1", 0)
        begun_s = running.time()
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        await until(lambda: len(under_way) == 1)
        (handshake,) = under_way
        assert handshake._secure is None
        if said:
            await until(lambda: running.time() - begun_s > limit_s / 2)
            writer.write(said)
        with contextlib.suppress(ConnectionError):
            await reader.read()
        took_s = running.time() - begun_s
        await until(lambda: failures and not under_way)
        assert (handshake._secure is None) == (not said)
        writer.close()
        server.close()
        return took_s

    took_s = run(loop, main())
    assert failures == [TIMEOUT]
    assert limit_s * 0.9 <= took_s
    assert not said or took_s < limit_s * 3 / 2


async def test_who_has_spoken_is_not_cut_off_for_silence(material):
    """Its connection lives on when that time is over."""
    made = []
    running = asyncio.get_running_loop()
    call_later = running.call_later

    def recorded(delay_s, callback, *args, **options):
        handle = call_later(delay_s, callback, *args, **options)
        if getattr(callback, "__name__", "") == "_said_nothing":
            made.append((delay_s, handle))
        return handle

    running.call_later = recorded
    server, port = await listen(material, set())
    await call(material, port)
    server.close()
    ((delay_s, handle),) = made
    assert (delay_s, handle.cancelled()) == (handshakes.HANDSHAKE_S, True)


@LOOPS
def test_whoever_gives_up_between_socket_and_handshake(loop, material, monkeypatch):
    """While the handshake waits for its turn: nothing comes of it, not a word."""
    told, clients, closings = [], [], []
    begin = Handshake.connection_made

    def give_up(self, transport):
        for _ in range(4 * STEPS_PER_TURN):  # others, whose turn comes before
            self._turns.add(lambda: None)
        begin(self, transport)
        if self._over is not None:
            closings.append(asyncio.create_task(clients[0].close()))

    monkeypatch.setattr(Handshake, "connection_made", give_up)

    async def main():
        running = asyncio.get_running_loop()
        running.set_exception_handler(lambda _, context: told.append(context))
        server, port = await listen(material, set())
        tls = client_context(material)
        clients.append(HttpClient(f"https://127.0.0.1:{port}", tls=tls, server_name="a"))
        with pytest.raises(PeerError):
            await clients[0].request("GET", "/", timeout_s=5.0)
        await closings[0]
        await until(lambda: not Turns.of(running)._waiting)
        server.close()

    run(loop, main())
    assert told == []


class Broken(Echo):
    """What a bug, or a process without memory, makes of one."""

    def connection_made(self, transport):
        del transport
        raise MemoryError


@LOOPS
async def test_a_connection_whose_protocol_breaks_is_closed(loop, material):
    """As loops do with their own: else its file would stay open, and nobody would know."""
    running = asyncio.get_running_loop()
    told, under_way = [], set()
    running.set_exception_handler(lambda _, context: told.append(context))
    context = server_context(material, callers=ssl.CERT_REQUIRED)
    tls = Front(lambda: context)
    server = await running.create_server(at_door(Broken, tls, under_way), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    believing = client_context(material)
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", port, ssl=believing, server_hostname="a.test.spillover"
    )
    with contextlib.suppress(ConnectionError):
        assert not await asyncio.wait_for(reader.read(), 5.0)
    writer.transport.abort()
    await until(lambda: not under_way)
    assert told
    server.close()
