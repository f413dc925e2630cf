"""Requests that pass through, on connections that turn out to be no good before they have left."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from spillover.live.engine.write_batch import WriteBatch
from spillover.live.handlers.proxy.exchange import PassedConnection, PassedExchange, TakenBack
from spillover.live.handlers.proxy.known import KnownAnswers
from spillover.live.http.client import HttpClient
from support.loop import until
from support.scripted_server import answer, scripted

REQUEST = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n"
SAID = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"

HAPPENS = {
    "an answer comes": lambda connection: connection.data_received(SAID),
    "it ends": lambda connection: connection.eof_received(),
    "it breaks": lambda connection: connection.connection_lost(ConnectionResetError()),
}


def client_of(server):
    writes = WriteBatch(asyncio.get_running_loop())
    make = partial(PassedConnection, writes=writes, known=KnownAnswers())
    return HttpClient(server.url, make_connection=make)


@pytest.mark.parametrize("happens", HAPPENS.values(), ids=HAPPENS)
def test_what_comes_before_a_request_has_left_takes_it_back(run, happens):
    """In the same turn of the loop: it is no answer to it, and nothing of it was sent."""

    async def main():
        ends, heads = [], []
        async with scripted(answer(204)) as server:
            client = client_of(server)
            await client.warm(1)
            (connection,) = client._idle
            exchange = PassedExchange(
                "GET", "u", ends.append, 0, on_begin=heads.append, on_piece=heads.append
            )
            client.dispatch(exchange, REQUEST, ())
            happens(connection)
            (error,) = ends
            assert isinstance(error, TakenBack)
            assert "before the request left" in str(error)
            await until(lambda: (client.idle, client.busy) == (0, 0))
            await client.close()
            assert (heads, server.seen) == ([], [])

    run(main())


def test_once_it_has_left_the_same_is_its_answer(run):
    async def main():
        ends, heads = [], []
        async with scripted(answer(204)) as server:
            client = client_of(server)
            exchange = PassedExchange(
                "GET", "u", ends.append, 0, on_begin=heads.append, on_piece=heads.append
            )
            client.dispatch(exchange, REQUEST, ())
            await until(lambda: ends)
            assert [head.status for head in heads] == [204]
            assert ends[0].status == 204
            assert (client.idle, client.busy) == (1, 0)
            await client.close()

    run(main())


def test_who_takes_no_whole_answers_gets_known_ones_piece_by_piece_too(run):
    """Though others were told all of it at once, by its head."""

    async def main():
        told = []
        async with scripted(answer(200, b"ok")) as server:
            client = client_of(server)
            for takes_whole in (True, True, False):
                ends, heads, pieces = [], [], []
                exchange = PassedExchange(
                    "GET",
                    "u",
                    ends.append,
                    0,
                    on_begin=heads.append,
                    on_piece=pieces.append,
                    takes_whole=takes_whole,
                )
                client.dispatch(exchange, REQUEST, ())
                await until(lambda ends=ends: ends)
                told.append((len(heads), b"".join(pieces), exchange.at_once is not None))
            await client.close()
        assert told == [(0, b"", True), (0, b"", True), (1, b"ok", False)]

    run(main())
