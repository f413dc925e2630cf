"""`spillover-loadgen clients` where something is wrong: no node, one that lies, no Spillover."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager

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


def test_nobody_there(capsys):
    """One line, and status 1."""
    arguments = ["clients", "--node", "http://127.0.0.1:1", "--clients", "2", "--duration-s", "0.3"]
    assert main(arguments) == 1
    assert "no client has a session" in capsys.readouterr().err.splitlines()[-1]


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
