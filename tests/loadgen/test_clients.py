"""`spillover-loadgen clients` where something is wrong: no node, one that lies, no Spillover."""

from __future__ import annotations

import asyncio
import json
import re
from contextlib import asynccontextmanager, suppress

import pytest

from spillover_loadgen import clients_driver
from spillover_loadgen.cli import main
from spillover_loadgen.clients_driver import ClientsLoad, Crowd, run
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
def test_clients_begin_where_they_are_told_to():
    """Not only at one of the nodes; who is told nothing begins at any of these."""

    async def main_():
        async with two_nodes(drops=0) as (url, _):
            load = load_of("http://127.0.0.1:1", clients=2, starts=(url,))
            return await run(load, asyncio.Event())

    result = asyncio.run(main_())
    assert (sum(result["clients"].values()), result["unconnected"]) == (1, 1)


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
