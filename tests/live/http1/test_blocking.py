"""HTTP for a thread that waits: which connection carries a request, for how long it is opened, and
whom another thread wakes. What answers are is tested where connections are."""

import asyncio
import contextlib
import socket
import threading

import pytest

from spillover.live.http1 import blocking
from spillover.live.http1.blocking import BlockingClient, _Line
from spillover.live.http1.connection import Connection
from spillover.live.http1.outgoing import Response
from spillover.model.errors import NotDelivered, OutcomeUnknown
from support.waiting import until

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
LIMIT_S = 20.0


@contextlib.contextmanager
def serving(answer=OK, *, hangs_up=False, **options):
    """A client of a server in a thread, and the heads that came, by connection. One that hangs up
    does so after each answer, and does not say it."""
    heads, told, ready = [], {}, threading.Event()

    async def serve(reader, writer):
        heads.append([])
        own = heads[-1]
        try:
            while True:
                own.append(await reader.readuntil(b"\r\n\r\n"))
                writer.write(answer)
                if hangs_up:
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def work():
        told["loop"], told["stop"] = asyncio.get_running_loop(), asyncio.Event()
        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            told["port"] = server.sockets[0].getsockname()[1]
            ready.set()
            await told["stop"].wait()

    thread = threading.Thread(target=asyncio.run, args=(work(),))
    thread.start()
    ready.wait(LIMIT_S)
    limits = {"connect_timeout_s": 5.0, "idle_s_max": 30.0, "user_timeout_s": 9.0} | options
    client = BlockingClient(f"http://127.0.0.1:{told['port']}", (), body_limit_bytes=1000, **limits)
    try:
        yield client, heads
    finally:
        client.close()
        told["loop"].call_soon_threadsafe(told["stop"].set)
        thread.join(LIMIT_S)


def carried(client, timeout_s=LIMIT_S):
    """What a request comes to."""
    ends = []
    exchange = client.begin("GET", "/", ends.append)
    client.carry(exchange, "/", (), b"", timeout_s)
    return ends


def test_a_connection_is_used_again_until_it_is_too_old():
    """By then the server may be about to close it."""
    with serving() as (client, heads):
        for age_s in (0, 29, 31):
            for connection in client._idle:
                connection.idle_since_s -= age_s
            ((answer),) = carried(client)
            assert isinstance(answer, Response)
        assert [len(of_one) for of_one in heads] == [2, 1]


def test_a_connection_that_has_ended_meanwhile_is_not_used_again():
    with serving(hangs_up=True) as (client, heads):
        for _ in range(2):
            ((answer),) = carried(client)
            assert isinstance(answer, Response)
            assert until(lambda: not client._lines[client._idle[-1]].is_quiet(), limit_s=LIMIT_S)
        assert [len(of_one) for of_one in heads] == [1, 1]
        assert len(client._lines) == 1


def test_a_connection_notices_that_its_server_is_gone_and_holds_nothing_back():
    """It waits as long as each request says, not as long as a connection may take."""
    with serving(user_timeout_s=9.0) as (client, _):
        carried(client)
        (line,) = client._lines.values()
        assert line._socket.gettimeout() is None
        assert line._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert line._socket.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            tcp = socket.IPPROTO_TCP
            assert line._socket.getsockopt(tcp, socket.TCP_USER_TIMEOUT) == 9_000


@pytest.mark.parametrize(("timeout_s", "waits_s"), [(0.5, 0.5), (60.0, 5.0)])
def test_a_connection_is_waited_for_no_longer_than_the_request_may_take(
    monkeypatch, timeout_s, waits_s
):
    asked = []

    def opened(_host, _port, within_s):
        asked.append(within_s)
        raise TimeoutError

    with serving() as (client, heads):
        monkeypatch.setattr(blocking, "connect", opened)
        ((error),) = carried(client, timeout_s)
        monkeypatch.undo()
        assert isinstance(error, NotDelivered)
        assert (asked, heads) == ([waits_s], [])


def test_what_another_has_taken_over_meanwhile_is_not_sent(monkeypatch):
    """It may have ended by then."""
    with serving() as (client, heads):
        exchange = client.begin("GET", "/", lambda _: None)
        opened = client._open

        def open_late(timeout_s):
            exchange.on_end = None
            return opened(timeout_s)

        monkeypatch.setattr(client, "_open", open_late)
        client.carry(exchange, "/", (), b"", LIMIT_S)
        assert not client._idle
        monkeypatch.undo()
        carried(client)
        assert sum(map(len, heads)) == 1


def test_whoever_waits_for_what_nobody_reads_any_more_is_woken(monkeypatch):
    """At once, and not at the next look at the clock."""
    monkeypatch.setattr(blocking, "LOOK_S", 3600.0)
    with serving(answer=b"") as (client, heads):
        exchange = client.begin("GET", "/", lambda _: None)
        waiting = threading.Thread(
            target=client.carry, args=(exchange, "/", (), b"", 3600.0), daemon=True
        )
        waiting.start()
        while not (heads and heads[0]):
            waiting.join(0.01)
        exchange.on_end = None
        client.interrupt(exchange)
        waiting.join(LIMIT_S)
        assert not waiting.is_alive()


def test_an_answer_that_does_not_come_is_waited_for_no_longer_than_said():
    ends = []
    with serving(answer=b"") as (client, heads):
        waiting = threading.Thread(target=lambda: ends.extend(carried(client, 0.2)), daemon=True)
        waiting.start()
        waiting.join(LIMIT_S)
        assert len(heads) == 1
        (error,) = ends
        assert isinstance(error, OutcomeUnknown)
        assert "no complete answer within 0.2 s" in str(error)
        assert not client._lines


@pytest.mark.parametrize("timeout_s", [0.0, -1.0])
def test_what_has_no_time_left_is_not_sent(timeout_s):
    with serving() as (client, heads):
        (error,) = carried(client, timeout_s)
        assert isinstance(error, NotDelivered)
        assert str(error).endswith("no time was left to send it")
        assert (heads, client._lines) == ([], {})


@pytest.mark.parametrize(("look_s", "longest_s"), [(0.05, 0.05), (60.0, 0.12)])
def test_who_waits_looks_at_the_clock_now_and_then_and_in_the_end(monkeypatch, look_s, longest_s):
    """In steps that are no longer than what is left."""
    monkeypatch.setattr(blocking, "LOOK_S", look_s)
    waited = []
    read = _Line.read

    def noted(line, exchange, within_s):
        waited.append(within_s)
        read(line, exchange, within_s)

    monkeypatch.setattr(_Line, "read", noted)
    with serving(answer=b"") as (client, _):
        (error,) = carried(client, 0.12)
        assert "no complete answer within 0.12 s" in str(error)
    assert all(0.0 < one <= longest_s for one in waited)
    assert waited


# --- the socket, as a connection has it ---------------------------------------------------------


@contextlib.contextmanager
def lined():
    """A line, what its connection carries and comes to, and the other end."""
    here, there = socket.socketpair()
    ends = []
    with here, there:
        client = BlockingClient(
            "http://h",
            (),
            connect_timeout_s=1.0,
            idle_s_max=1.0,
            body_limit_bytes=1000,
            user_timeout_s=1.0,
        )
        connection = Connection(client)
        line = client._lines[connection] = _Line(here, connection)
        connection.connection_made(line)
        exchange = client.begin("GET", "/", ends.append)
        yield line, connection, exchange, ends, there


def test_an_answer_may_come_in_parts_and_nothing_for_a_while():
    with lined() as (line, connection, exchange, ends, there):
        connection.send(exchange, b"GET / HTTP/1.1\r\n\r\n", (b"",))
        assert there.recv(100) == b"GET / HTTP/1.1\r\n\r\n"
        line.read(exchange, 1e-6)
        there.sendall(OK[:5])
        line.read(exchange, LIMIT_S)
        line.read(exchange, 1e-6)
        assert ends == []
        there.sendall(OK[5:])
        line.read(exchange, LIMIT_S)
        assert [one.body for one in ends] == [b"ok"]


def test_what_becomes_of_a_write_is_told_to_who_reads():
    """The other end has closed; what is read of it would look like an end, too."""
    with lined() as (line, connection, exchange, ends, there):
        there.close()
        connection.send(exchange, b"GET / HTTP/1.1\r\n\r\n", (b"",))
        assert ends == []
        line.read(exchange, LIMIT_S)
        (error,) = ends
        assert isinstance(error, OutcomeUnknown)
        assert "broke before the answer was whole: [Errno" in str(error)


def test_a_connection_is_quiet_until_anything_comes():
    with lined() as (line, _, _, _, there):
        assert line.is_quiet()
        there.sendall(b"x")
        assert until(lambda: not line.is_quiet(), limit_s=LIMIT_S)
        assert line._socket.recv(10) == b"x", "it was only looked at"
        assert line.is_quiet()
        there.close()
        assert until(lambda: not line.is_quiet(), limit_s=LIMIT_S)
        line.abort()
        assert not line.is_quiet()
        assert line.is_closing()
