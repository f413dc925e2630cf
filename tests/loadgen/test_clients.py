"""`spillover-loadgen clients` where something is wrong: no node, one that lies, no Spillover."""

from __future__ import annotations

import argparse
import asyncio
import json
import re
from contextlib import asynccontextmanager, suppress

import pytest

from spillover_loadgen import clients_command, clients_driver
from spillover_loadgen.cli import main
from spillover_loadgen.clients_driver import ClientsLoad, Crowd, _times, run
from support.loop import until
from support.scripted_server import RESET, done, problem, scripted

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/x-ndjson\r\n\r\n"


def load_of(url, **fields):
    given = {
        "clients": 3, "rule": "stratified", "virtual_nodes": 1, "duration_s": 0.8,
        "change_wait_s": 0.0, "rate_per_s": 0.0, "service_ms": 1.0, "seed": 1,
    }  # fmt: skip
    return ClientsLoad(nodes=(url,), **given | fields)


@asynccontextmanager
async def answering(*pieces):
    """The url of a server that says this to whoever comes, and holds the connection then."""
    asked = []

    async def answer(reader, writer):
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        for piece in pieces:
            writer.write(piece)
        await reader.read()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", asked
    finally:
        server.close()


def line(url, **fields):
    told = {"cluster": "a", "version": 1, "servers": [{"id": "a", "url": url}], **fields}
    return json.dumps(told).encode() + b"\n"


@pytest.mark.parametrize(
    "said",
    [
        b"HTTP/1.1 200 OK\r\ncontent-length: 20\r\n\r\n<html>no node</html>",
        HEAD + b"<html>\n",
        HEAD + b'{"cluster": "a", "version": 1, "servers": []}\n',
        HEAD + b'{"cluster": "a", "version": 1, "servers": [{"id": "a", "url": "ftp://x"}]}\n',
        HEAD + b"{}\n",
        b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1 503 no\r\nretry-after: never\r\ncontent-length: 0\r\n\r\n",
        b"\x00\x01\x02",
    ],
)
def test_an_answer_that_is_none_of_ours_is_no_session(said):
    """And whoever gives it is not asked all the time."""

    async def main_():
        async with answering(said) as (url, asked):
            result = await run(load_of(url), asyncio.Event())
            assert (result["unconnected"], result["clients"]) == (3, {})
            assert 3 <= len(asked) <= 3 * 8

    asyncio.run(main_())


@pytest.mark.slow
def test_lies_leave_the_list_as_it_is():
    """An empty list, a line that is none, an older version, a server twice."""

    async def main_():
        lies = [b"no json\n", b'{"cluster": "a", "version": 9, "servers": []}\n']

        async def answer(reader, writer):
            await reader.readuntil(b"\r\n\r\n")
            own = f"http://127.0.0.1:{writer.get_extra_info('sockname')[1]}"
            twice = [{"id": "a", "url": own}, {"id": "a", "url": own}]
            writer.write(HEAD + line(own) + b"".join(lies) + line(own, version=5, servers=twice))
            writer.write(line(own, version=0, servers=[{"id": "b", "url": "http://127.0.0.1:1"}]))
            await reader.read()
            writer.close()

        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        looks = []
        result = await run(load_of(url), asyncio.Event(), looks.append)
        server.close()
        assert (result["clients"], result["lies"], result["moved"]) == ({"a": 3}, 3, 0)
        assert looks[-1]["clients"] == {"a": 3}, "and whoever looks on sees it"
        assert (looks[-1]["lies"], looks[-1]["unconnected"]) == (3, 0)
        assert [one["at_s"] for one in looks] == [one["at_s"] for one in result["timeline"]]

    asyncio.run(main_())


@asynccontextmanager
async def two_nodes(drops):
    """Two that know each other: the url of the first one, which drops so many sessions, and the
    urls of those that take no request."""
    left, writers, refusing = drops, [], []

    def url_of(port):
        return f"http://127.0.0.1:{port}"

    async def serve(reader, writer):
        nonlocal left
        writers.append(writer)
        own = writer.get_extra_info("sockname")[1]
        while head := await reader.readuntil(b"\r\n\r\n"):
            if not head.startswith(b"POST /requests"):
                break
            await reader.readexactly(int(re.search(rb"content-length: (\d+)", head.lower())[1]))
            writer.write(problem(503, "draining") if url_of(own) in refusing else done())
        urls = [url_of(port) for port in ports]
        servers = [{"id": name, "url": url} for name, url in zip("ab", urls, strict=True)]
        writer.write(HEAD + line("", servers=servers))
        if own == ports[0] and left > 0:
            left -= 1
            writer.close()
            return
        with suppress(ConnectionError):
            await reader.read()

    opened = [await asyncio.start_server(serve, "127.0.0.1", 0) for _ in "ab"]
    ports = [one.sockets[0].getsockname()[1] for one in opened]
    try:
        yield url_of(ports[0]), refusing
    finally:
        for one in (*writers, *opened):
            one.close()


@pytest.mark.slow
def test_a_loss_is_no_move_and_lasts_until_the_next_session():
    async def main_():
        async with two_nodes(drops=1) as (url, _):
            load = load_of(url, clients=1, duration_s=1.5, starts=(url,))
            return await run(load, asyncio.Event())

    result = asyncio.run(main_())
    assert (result["lost"], result["moved"], result["unconnected"]) == (1, 0, 0)
    assert 0.1 < result["elsewhere_ms"]["max"] < 1500.0, "in ms, with a connection opened meanwhile"


@pytest.mark.slow
def test_clients_begin_where_they_are_told_to():
    """Not only at one of the nodes; who is told nothing begins at any of these."""

    async def main_():
        async with two_nodes(drops=0) as (url, _):
            load = load_of("http://127.0.0.1:1", clients=2, starts=(url,))
            return await run(load, asyncio.Event())

    result = asyncio.run(main_())
    assert (sum(result["clients"].values()), result["unconnected"]) == (1, 1)


@pytest.mark.slow
def test_what_the_own_node_does_not_take_goes_to_another_one_of_its_list(monkeypatch):
    monkeypatch.setattr(clients_driver, "PAUSE_S", 0.0)

    async def main_():
        async with two_nodes(drops=0) as (url, refusing):
            crowd = Crowd(load_of(url, clients=1, starts=(url,)))
            (session,) = crowd._sessions
            session.start()
            await until(lambda: session.in_use is not None and len(session.servers) == 2)
            refusing.append(session.in_use.url)
            await crowd._send(0)
            await session.close()
            for client in crowd._nodes.values():
                await client.close()
            return crowd._requests

    requests = asyncio.run(asyncio.wait_for(main_(), 30.0))
    assert (requests["ok"], requests["failed"]) == (1, 0)
    assert requests["retried"] >= 1


def test_what_is_asked_for_reaches_the_clients():
    parser = argparse.ArgumentParser()
    clients_command.configure(parser)
    given = "--node http://a:1 --node http://b:1 --node http://a:1 --clients 7 --duration-s 9 "
    given += "--rule consistent-hash --virtual-nodes 5 --change-wait-s 2 --rate 3 --service-ms 4 "
    load = clients_command.load_of(parser.parse_args([*given.split(), "--seed", "6"]))
    assert load.nodes == ("http://a:1", "http://b:1"), "each once"
    assert (load.clients, load.rule, load.virtual_nodes) == (7, "consistent-hash", 5)
    assert (load.duration_s, load.change_wait_s, load.rate_per_s) == (9.0, 2.0, 3.0)
    assert (load.service_ms, load.seed) == (4.0, 6)


def test_nobody_there(capsys):
    """One line, and status 1."""
    arguments = ["clients", "--node", "http://127.0.0.1:1", "--clients", "2", "--duration-s", "0.3"]
    assert main(arguments) == 1
    assert "no client has a session" in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize("url", ["127.0.0.1:8101", "ftp://127.0.0.1", "http://"])
def test_a_url_that_is_none(url, capsys):
    assert main(["clients", "--node", url, "--clients", "2", "--duration-s", "1"]) == 2
    assert "--node" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("said", "counts", "why"),
    [
        ([problem(503, "no"), problem(429, "full"), done()], {"ok": 1, "retried": 2}, []),
        ([problem(502, "handler_failed"), done()], {"failed": 1}, ["status 502"]),
        ([problem(503, "no")], {"failed": 1, "retried": 19}, ["status 503"]),
        ([RESET, done()], {"unknown": 1}, ["http://127.0.0.1:"]),
    ],
)
def test_only_what_surely_did_not_run_is_sent_again(monkeypatch, said, counts, why):
    """Twenty times in all; and why it came to nothing is told."""
    monkeypatch.setattr(clients_driver, "PAUSE_S", 0.0)

    async def main():
        async with scripted(*said) as server:
            crowd = Crowd(load_of(server.url))
            await crowd._send(0)
            assert {name: count for name, count in crowd._requests.items() if count} == counts
            assert list(crowd._reasons.values()) == [1] * len(why)
            assert all(word in told for told, word in zip(crowd._reasons, why, strict=True))
            for client in crowd._nodes.values():
                await client.close()
            keys = {headers["idempotency-key"] for _, headers in server.seen}
            assert len(keys) == 1, "the same one, by its key"

    asyncio.run(main())


def test_who_has_had_no_session_has_lost_none():
    """How long it takes to be elsewhere is of losses alone."""

    async def main():
        crowd = Crowd(load_of("http://127.0.0.1:1"))
        crowd._changed(0)
        return crowd._lost_s

    assert asyncio.run(main()) == [0.0] * 3


def test_times_are_of_those_that_were_there():
    """The smallest that so large a share does not exceed."""
    assert _times([30.0, 10.0, 20.0]) == {"p50": 20.0, "p99": 30.0, "max": 30.0}
    assert _times([]) == {"p50": None, "p99": None, "max": None}
