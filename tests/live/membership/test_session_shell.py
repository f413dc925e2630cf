"""The session of one client at servers that say what the test has them say: what its machine hears
of that, what is counted, and what the log tells."""

import asyncio
import logging
from contextlib import AsyncExitStack, asynccontextmanager
from random import Random

import pytest

from spillover.core.membership.client_session import ClientSession
from spillover.core.membership.session_events import (
    Announced,
    Connected,
    Ended,
    Lost,
    NotReached,
    Parting,
    SessionServer,
    Started,
    TimerFired,
)
from spillover.live.http1.client import HttpClient
from spillover.live.membership.session_shell import SessionShell
from spillover.live.membership.session_wire import (
    SIGN_OF_LIFE,
    encode_announcement,
    encode_head,
    encode_parting,
)
from support.loop import turn, until
from support.scripted_server import answer, scripted

BEGUN = b"HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\n\r\n"
CUT = BEGUN.replace(b"Content-Type", b"Content-Length: 9999\r\nContent-Type")
"""Longer than it is when its connection ends."""


class Recorded(ClientSession):
    """A machine that writes down what it is told."""

    def __init__(self, urls):
        super().__init__("me", urls, Random(1), in_order=True)
        self.heard = []
        self.on_connected = lambda: None

    def handle(self, event, now_s):
        self.heard.append(event)
        if isinstance(event, Connected):
            self.on_connected()
        return super().handle(event, now_s)

    def of(self, *kinds):
        return [event for event in self.heard if isinstance(event, kinds)]


def line(*urls, rank=0):
    """An announcement of these servers, as the first of them says it."""
    listed = [SessionServer(f"s{number}", url) for number, url in enumerate(urls)]
    return encode_announcement(encode_head("s0", 1, (1, "s0", 1), listed), 3, rank, 0.0)


@asynccontextmanager
async def with_servers(count, may_ask=lambda _: True):
    """The shell, its machine and so many servers; none of them has an answer yet."""
    async with AsyncExitStack() as stack, asyncio.timeout(20.0):
        servers = [await stack.enter_async_context(scripted(answer(200))) for _ in range(count)]
        clients = {server.url: HttpClient(server.url) for server in servers}
        for client in clients.values():
            stack.push_async_callback(client.close)
        machine = Recorded([server.url for server in servers])
        shell = SessionShell("a & b", machine, clients.__getitem__, lambda: None, may_ask)
        yield shell, machine, servers
        for server in servers:
            server.answers(answer(200))
        await shell.close()


def told(caplog):
    return [one.msg.fields for one in caplog.records if one.msg.words == "no session"]


@pytest.mark.parametrize(
    ("said", "later_s"),
    [("2.5", 2.5), ("0", 0.0), ("-3", 0.0), ("soon", None), (None, None)],
)
async def test_who_is_asked_to_come_later_goes_by_what_is_said(said, later_s, caplog):
    """Only by 429 and 503, whatever else says so; it is told of once, until there is a session."""
    header = {} if said is None else {"retry_after": said}

    with caplog.at_level(logging.INFO):
        async with with_servers(5) as (shell, machine, servers):
            for server, status in zip(servers, (404, 503, 429, 502), strict=False):
                server.answers(answer(status, **header))
            servers[-1].answers(BEGUN + line(servers[-1].url))
            shell.start()
            await until(lambda: shell.in_use)
            assert machine.heard[:5] == [
                Started(),
                Lost(1),
                NotReached(2, later_s),
                NotReached(3, later_s),
                Lost(4),
            ]
            assert (shell.put_off, shell.connects, shell.losses) == (2, 5, 0)
            assert "502" in shell.why
            ((node, reason),) = [(fields["node"], fields["reason"]) for fields in told(caplog)]
            assert node == servers[0].url
            assert "404" in reason


async def test_lines_that_are_none_are_lies_and_the_session_goes_on(caplog):
    with caplog.at_level(logging.INFO):
        async with with_servers(1) as (shell, machine, servers):
            (server,) = servers
            lines = [
                line(server.url),
                b"nonsense\n",
                SIGN_OF_LIFE,
                b"{}}\n",
                line(server.url, rank=2),
            ]
            server.answers(BEGUN + b"".join(lines))
            shell.start()
            await until(lambda: machine.of(Announced))
            assert [type(event) for event in machine.heard] == [Started, Connected, Announced]
            assert machine.heard[-1].announcement.rank == 2
            assert (shell.lies, shell.losses, shell.in_use.url) == (2, 0, server.url)
            assert [fields["node"] for fields in told(caplog)] == [server.url]


async def test_what_ends_and_was_a_session_is_a_loss_and_the_next_one_is_news(caplog):
    with caplog.at_level(logging.INFO):
        async with with_servers(2) as (shell, machine, servers):
            first, second = servers
            body = line(first.url, second.url)
            first.answers(answer(200, body, kind="application/x-ndjson"), answer(404))
            second.answers(answer(404), CUT + line(first.url, second.url))
            shell.start()
            await until(lambda: shell.in_use and shell.in_use.url == second.url)
            assert machine.heard[2] == Lost(1)
            assert shell.losses == 1
            assert len(told(caplog)) == 1
            second.hang_up()
            first.answers(BEGUN + line(first.url, second.url))
            await until(lambda: shell.losses == 2)
            await until(lambda: shell.in_use)
            assert len(told(caplog)) == 2


async def test_a_bug_ends_the_following_with_a_line_in_the_log(caplog):
    """Else the client would stay for good where it is, and nobody would know."""
    async with with_servers(1) as (shell, machine, servers):

        def fail():
            raise ZeroDivisionError("it divides")

        (server,) = servers
        machine.on_connected = fail
        server.answers(BEGUN + line(server.url))
        shell.start()
        await until(lambda: shell.why)
        assert "it divides" in shell.why
        (one,) = [one for one in caplog.records if one.levelno == logging.ERROR]
        assert "not followed any more" in one.msg.words
        assert one.exc_info[0] is ZeroDivisionError


@pytest.mark.parametrize(
    "first",
    [SIGN_OF_LIFE, encode_parting(1.0), b"<html>\n", line(), line("http://x", "http://x"), None],
)
async def test_who_does_not_begin_with_servers_is_no_node(first):
    async with with_servers(1, may_ask=lambda url: url != "http://x:1") as (
        shell,
        machine,
        servers,
    ):
        (server,) = servers
        server.answers(BEGUN + (line("http://x:1") if first is None else first))
        shell.start()
        await until(lambda: machine.of(Lost))
        assert (shell.in_use, shell.losses, shell.put_off) == (None, 0, 0)
        assert ("http, and this client" if first is None else "it is no node") in shell.why


async def test_a_node_that_parts_is_left_for_another_with_a_word_to_it():
    async with with_servers(2) as (shell, machine, servers):
        first, second = servers
        everyone = line(first.url, second.url)
        first.answers(BEGUN + everyone + encode_parting(0.0), answer(200))
        second.answers(BEGUN + everyone)
        shell.start()
        await until(lambda: len(first.seen) == 2)
        await until(lambda: set(shell._streams) == {2})
        assert not shell._farewells
        assert machine.of(Parting) == [Parting(1, 0.0)]
        assert (shell.in_use.url, shell.moves, shell.losses) == (second.url, 1, 0)
        path = "/session?client=a%20%26%20b&attempt="
        asked = [words for words, _ in first.seen]
        assert asked == [f"GET {path}1", f"DELETE {path}1&moved=1"]
        second.answers(answer(200))
        await shell.close()
        assert [words for words, _ in second.seen] == [f"GET {path}2", f"DELETE {path}2"]
        assert machine.heard[-1] == Ended()
        assert (shell.moves, shell._streams) == (1, {})


async def test_a_session_that_was_left_is_no_loss_however_it_ends():
    """Its node may be gone before it has the word."""
    async with with_servers(2) as (shell, machine, servers):
        first, second = servers
        everyone = line(first.url, second.url)
        first.answers(BEGUN + everyone + encode_parting(0.0), b"")
        second.answers(BEGUN + everyone)
        shell.start()
        await until(lambda: len(first.seen) == 2)
        first.hang_up("GET ")
        await until(lambda: machine.of(Lost))
        assert shell._farewells
        assert (set(shell._streams), shell._heard) == ({2}, {2})
        first.hang_up()
        await until(lambda: not shell._farewells)
        assert (shell.in_use.url, shell.moves, shell.losses) == (second.url, 1, 0)


async def test_who_is_let_go_of_before_it_has_answered_is_not_kept():
    async with with_servers(1) as (shell, _, servers):
        servers[0].answers(b"")
        shell.start()
        await until(lambda: servers[0].seen)
        await shell.close()
        assert shell._streams == {}
        assert [words.partition(" ")[0] for words, _ in servers[0].seen] == ["GET"]


class LetInLast:
    """A client whose node lets it in between the end of the attempt and its task's."""

    def __init__(self):
        self.parting = asyncio.get_running_loop().create_future()
        self.asked = []

    async def stream_lines(self, _, hear, **__):
        try:
            await asyncio.Event().wait()
        finally:
            hear(line("http://x:1"))

    def request(self, *asked, **_):
        self.asked.append(asked)
        return self.parting


async def test_who_is_let_in_as_it_ends_still_leaves_with_a_word():
    client, machine = LetInLast(), Recorded(["http://x:1"])
    shell = SessionShell("me", machine, lambda _: client, lambda: None)
    shell.start()
    await turn(0)
    closing = asyncio.create_task(shell.close())
    await until(lambda: client.asked)
    await turn()
    assert not closing.done()
    client.parting.set_result(None)
    await closing
    assert client.asked == [("DELETE", "/session?client=me&attempt=1")]
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_who_takes_too_long_is_let_go_of_and_the_next_one_asked():
    async with with_servers(2) as (shell, machine, servers):
        silent, other = servers
        silent.answers(b"")
        other.answers(BEGUN + line(other.url))
        shell.start()
        await until(lambda: silent.seen)
        machine._expires_s = 0.0  # its time is up
        shell._feed(TimerFired())
        await until(lambda: shell.in_use)
        await until(lambda: set(shell._streams) == {2})
        assert (shell.in_use.url, shell.connects, shell.losses) == (other.url, 2, 0)
