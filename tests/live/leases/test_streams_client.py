"""What carries out the steps of readers, in a thread and on an event loop: what it began beside
them leaves nothing behind."""

import asyncio
import threading

import pytest

pytest.importorskip("redis")

from spillover.live.leases.streams import client as client_module
from spillover.live.leases.streams.client import AsyncClient, Client, _xread
from spillover.live.leases.streams.lags import read_lags
from spillover.live.leases.streams.reader import AsyncStreamReader, StreamReader
from spillover.live.leases.streams.reading import load_script
from spillover.live.leases.streams.steps import Begin, Call, Run, Wait
from spillover.live.leases.streams.writer import AsyncStreamWriter, StreamWriter
from spillover.model.errors import StoreRefused, StoreUnreachable
from support.loop import turn
from support.waiting import until

NOBODY = "redis://127.0.0.1:1/0"


def beginning(steps):
    """Begins these and takes no answer."""
    return (yield Begin(steps))


def test_what_ends_after_its_client_was_closed_leaves_no_connection(redis_servers, tmp_path):
    gate = threading.Event()

    def reading():
        yield Call(gate.wait, (20.0,))
        yield Wait("nothing", "0-0", 0.001)

    with redis_servers.running(tmp_path) as server:

        def connections():
            """Those that were made, and those that are there, besides who asks."""
            made = server.client.info("stats")["total_connections_received"]
            return made, len(server.client.client_list()) - 1

        made, there = connections()
        assert there == 0
        client = Client(server.url, 5.0)
        ticket = client.carry_out(beginning(reading()))
        client.close()
        assert not ticket.done(), "it waits for nobody"
        gate.set()
        assert ticket.result(20.0) is None
        until(lambda: connections() == (made + 1, 0))


async def test_whoever_else_is_on_the_loop_has_a_turn_between_plain_handlers(monkeypatch):
    monkeypatch.setattr(client_module, "TURN_S", -1.0)

    turns = []

    def handling():
        for _ in range(5):
            yield Call(turns.append, ("handled",))

    async def others():
        while turns.count("handled") < 5:
            turns.append("other")
            await turn(0)

    client = AsyncClient(NOBODY, 1.0)
    beside = asyncio.create_task(others())
    await client.carry_out(handling())
    await beside
    assert turns.count("other") >= 2, turns
    await client.close()


KINDS = pytest.mark.parametrize("kind", [Client, AsyncClient])


class Carrier:
    """Either client, for code that does not await."""

    def __init__(self, kind, url, timeout_s):
        self._runner = asyncio.Runner()
        self.client = kind(url, timeout_s)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
        self._runner.close()

    def close(self):
        self._run(self.client.close())

    def _run(self, given):
        return self._runner.run(given) if asyncio.iscoroutine(given) else given

    def ask(self, ask):
        def asking():
            return (yield ask)

        return self._run(self.client.carry_out(asking()))


def opening(group, partitions):
    """A script that writes."""
    return Run(load_script("open"), (f"{{{group}}}:facts", f"{{{group}}}:group"), (partitions,))


@KINDS
def test_after_a_server_was_found_to_be_a_replica_it_connects_anew(redis_servers, tmp_path, kind):
    """Its name may lead to another one by then. What is refused for another reason needs none."""
    with redis_servers.running(tmp_path) as server, Carrier(kind, server.url, 5.0) as carrier:

        def made():
            return server.client.info("stats")["total_connections_received"]

        assert int(carrier.ask(opening("g", 4))) == 4
        server.client.set("text", "no stream")
        before = made()
        for _ in range(3):
            with pytest.raises(StoreRefused, match="WRONGTYPE"):
                carrier.ask(Wait("text", "0-0", 0.001))
        assert made() == before
        server.follow(1)
        for times in (0, 1, 2):
            with pytest.raises(StoreRefused, match="read-only"):
                carrier.ask(opening("other", 4))
            assert made() == before + times


@KINDS
def test_a_script_is_sent_whole_where_the_server_does_not_know_it(redis_servers, tmp_path, kind):
    with redis_servers.running(tmp_path) as server, Carrier(kind, server.url, 5.0) as carrier:

        def sent_whole():
            carrier.ask(opening("g", 3))
            return server.client.info("commandstats")["cmdstat_eval"]["calls"]

        assert [sent_whole() for _ in range(3)] == [1, 1, 1]
        server.client.script_flush()
        assert sent_whole() == 2
        assert len(server.client.client_list()) == 2
        carrier.close()
        until(lambda: len(server.client.client_list()) == 1)


def test_who_was_closed_leaves_no_connection(redis_servers, tmp_path):
    with redis_servers.running(tmp_path) as server:
        place = server.url, "g"
        with StreamWriter(*place, 2) as writer, StreamReader(*place, 1, 1) as reader:
            writer.append("x", partition=1)
            assert reader.read(0.0) is None
        until(lambda: len(server.client.client_list()) == 1)
        assert all((writer, reader)), "whoever made it may keep it"

        async def main():
            async with AsyncStreamWriter(*place, 2) as writer:
                await writer.append("x", partition=0)
            async with AsyncStreamReader(*place, 0, 3) as reader:
                assert len((await reader.read(0.0)).records) == 1
            until(lambda: len(server.client.client_list()) == 1)
            assert all((writer, reader))

        asyncio.run(main())


def test_what_cannot_be_reached_is_tried_again_for_so_long_whoever_asks():
    with (
        pytest.raises(StoreUnreachable, match="records left in the writer: 1"),
        StreamWriter(NOBODY, "g", 1, retry_s=0.05) as writer,
    ):
        writer.append("x", partition=0)
    with pytest.raises(StoreUnreachable), StreamReader(NOBODY, "g", 0, 1, retry_s=0.05) as reader:
        reader.claim()
    with pytest.raises(StoreUnreachable):
        read_lags(NOBODY, "g", 1, retry_s=0.05)


@pytest.mark.parametrize(
    ("limit_s", "timeout_s", "limit_ms"),
    [(0.5, 5.0, 500), (4.0, 5.0, 2_500), (0.0001, 5.0, 1), (9.0, 0.0001, 1)],
)
def test_a_wait_ends_well_before_its_answer_would_be_late(limit_s, timeout_s, limit_ms):
    """And it does end: 0 would be for ever."""
    told = _xread(Wait("s", "7-0", limit_s), timeout_s)
    assert told == ("COUNT", 1, "BLOCK", limit_ms, "STREAMS", "s", "7-0")
