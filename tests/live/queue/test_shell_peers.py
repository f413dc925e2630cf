"""A producer among its peers, without its server: what it asks them and shows them, what it makes
of their answers, and what becomes of callers that have gone."""

import asyncio
import logging
import socket
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from spillover.core.queue import events as ev
from spillover.core.queue.settings import ProducerSettings
from spillover.live.queue import shell as shell_module
from spillover.live.queue import wire
from spillover.live.queue.history import OBJECT, PROBE
from spillover.live.queue.shell import QueueShell
from spillover.live.queue.store import ObjectStore
from support.loop import until
from support.scripted_server import RESET, answer, scripted

SETTINGS = ProducerSettings(
    id="p1", buffers=1, visibility_s=60.0, waiting_limit=3, deliveries_max=3
)
SHOWN = ((b"authorization", b"Bearer of-p1"),)
LEFT_S = 30.0
DESCRIPTORS = Path("/proc/self/fd")


@pytest.fixture(autouse=True)
def told(monkeypatch, caplog):
    """What is logged: levels and messages in words. Other tests may just have had the same."""
    monkeypatch.setattr(shell_module._log, "filters", [])
    caplog.set_level(logging.INFO, "spillover.live.queue.shell")

    def lines():
        return [(one.levelname, str(one.msg)) for one in caplog.records]

    return lines


@asynccontextmanager
async def alone_with(*answers):
    """A producer p1 and its one peer p2, which gives these answers."""
    async with scripted(*answers) as peer, asyncio.timeout(20.0):
        shell = QueueShell(SETTINGS, {"p2": peer.url}, None, "http://127.0.0.1:1", headers=SHOWN)
        try:
            yield shell, peer
        finally:
            await shell.close()


async def put(shell, content):
    admitted = await shell.ask(lambda ref: ev.Offered(ref, shell.now_s + LEFT_S, len(content)))
    return await shell.object_read(admitted.ref, "text/plain", content)


def take(shell, access, max_hops=2):
    """A consumer's call that is under way."""
    until_s = shell.now_s + LEFT_S
    return asyncio.create_task(
        shell.ask(lambda ref: ev.Taken(ref, "t", "c", max_hops, access, False, until_s))
    )


def probe_of(first):
    """One that came here on its last hop, for a call that is held there."""
    return ev.Probe(
        id="far", first=first, consumer="c", hop=2, max_hops=2, access={"p1": 1.0},
        avoid_visited=False, visited=(first,), left_s=LEFT_S,
    )  # fmt: skip


def words_of(shell, kind, name):
    return [words for _, words in shell.history.story(kind, name)]


async def test_a_probe_goes_on_to_a_peer_and_shows_who_sends_it(told):
    async with alone_with(answer(202)) as (shell, peer):
        asking = take(shell, {"p2": 1.0})
        await until(lambda: peer.seen and shell._clients["p2"].idle)
        ((line, headers),) = peer.seen
        assert (line, headers["authorization"]) == ("POST /peer/v1/queue/probe", "Bearer of-p1")
        probe = wire.decode_probe(peer.bodies[0])
        assert (probe.id, probe.first, probe.consumer, probe.hop) == ("t", "p1", "c", 2)
        assert probe.visited == ("p1",)
        assert 0.0 < probe.left_s <= SETTINGS.probe_expiry_s
        assert not shell.machine.parked_probes, "it is there now"
        assert told() == []
        assert words_of(shell, PROBE, "t")[-1] == "sent on to p2: hop 2"
        asking.cancel()


@pytest.mark.parametrize(
    ("said", "problem"), [(answer(503), "status 503"), (answer(203), "status 203"), (RESET, None)]
)
async def test_a_peer_that_a_probe_does_not_reach_is_named(told, said, problem):
    async with alone_with(said) as (shell, _):
        asking = take(shell, {"p2": 1.0})
        await until(lambda: len(shell.machine.parked_probes) == 1)
        ((level, line),) = told()
        assert level == "WARNING"
        assert line.startswith("a peer cannot be reached peer=p2 problem=")
        assert problem is None or line.endswith(f'problem="{problem}"')
        assert words_of(shell, PROBE, "t")[1:] == [
            "sent on to p2: hop 2",
            "did not reach p2, which is passed over",
        ]
        asking.cancel()


@pytest.mark.parametrize(
    ("said", "line"),
    [
        (answer(200, {"taken": False}), None),
        (answer(201, {"taken": True}), 'a peer cannot be reached peer=p2 problem="status 201"'),
        *[
            (said, "a peer says what no producer says peer=p2 problem=")
            for said in (
                answer(200, {"taken": 7}),
                answer(200, b""),
                answer(200, b"[]"),
                answer(200, b"\xff\xfe"),
                answer(200, b"<html>", kind="text/html"),
            )
        ],
        (b"SSH-2.0-OpenSSH_9.2\r\n\r\n", "a peer cannot be reached peer=p2 problem="),
        (RESET, "a peer cannot be reached peer=p2 problem="),
    ],
)
async def test_an_offer_that_is_not_taken_comes_back(told, said, line):
    """Only what is no answer of a producer is told to operators."""
    async with alone_with(said) as (shell, peer):
        await put(shell, b"one")
        shell.feed(ev.ProbeCame(probe_of("p2")))
        await until(lambda: peer.seen and shell.machine.objects.buffered == 1)
        assert words_of(shell, OBJECT, 1)[-1] == "the offer is not taken: it is back"
        assert [level for level, _ in told()] == ["WARNING"] * (line is not None)
        assert line is None or told()[0][1].startswith(line)


async def test_who_asks_for_a_producer_that_is_no_peer_gets_nothing(told):
    """A probe may name any producer as the one that holds its call: its object is free at once."""
    async with alone_with(answer(200, {"taken": True})) as (shell, peer):
        await put(shell, b"one")
        shell.feed(ev.ProbeCame(probe_of("p9")))
        assert (shell.machine.objects.buffered, len(shell.machine.grants)) == (1, 0)
        assert words_of(shell, OBJECT, 1)[1:] == [
            "granted to probe far, offered to p9, which holds the call",
            "the offer is not taken: it is back",
        ]
        assert peer.seen == []


async def test_a_connection_to_a_peer_is_kept_for_the_next_probe_and_not_for_a_peer_that_is_gone():
    async with alone_with(answer(202)) as (shell, _):
        asking = take(shell, {"p2": 1.0})
        client = shell._clients["p2"]
        await until(lambda: client.idle)
        left_s = client._kept.sweep.when() - asyncio.get_running_loop().time()
        assert shell_module.PEER_IDLE_S - 20.0 < left_s < shell_module.PEER_IDLE_S + 0.1
        (connection,) = client._kept.idle
        opened = connection._transport.get_extra_info("socket")
        assert opened.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) != 0
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            gone_ms = opened.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)
            assert gone_ms == 1_000 * shell_module.PEER_TIMEOUT_S
        asking.cancel()


async def test_who_waits_for_an_answer_as_the_producer_ends_waits_no_more():
    async with alone_with(answer(202)) as (shell, _):
        asking = take(shell, {"p1": 1.0}, max_hops=1)
        await until(lambda: len(shell.machine.takes) == 1)
        failed = asyncio.ensure_future(asyncio.wait([shell.failed]))
        await shell.close()
        await asyncio.wait([asking, failed])
        assert asking.cancelled()
        assert shell.failed.cancelled()
        shell.feed(ev.ProbeCame(probe_of("p2")))
        assert shell.machine.parked_probes.keys() == {("p1", "t")}, "it hears nothing any more"


@pytest.mark.skipif(not DESCRIPTORS.exists(), reason="only Linux counts them there")
async def test_who_has_ended_leaves_no_file_open(tmp_path):
    """Neither its clock's nor its store's; a process may have any number of them in turn."""

    def opened():
        return {path.name for path in DESCRIPTORS.iterdir()}

    before = opened()
    store = ObjectStore(tmp_path, "p1", "test")
    shell = QueueShell(SETTINGS, {}, store, "http://127.0.0.1:1")
    asking = take(shell, {"p1": 1.0})
    await until(lambda: len(shell.machine.takes) == 1)
    assert not opened() <= before
    await shell.close()
    asking.cancel()
    assert opened() <= before


async def test_what_comes_for_a_consumer_that_has_just_gone_is_back_at_once():
    """Its call has ended here, and the machine has not heard of that yet."""
    async with alone_with(answer(202)) as (shell, _):
        asking = take(shell, {"p1": 1.0}, max_hops=1)
        await until(lambda: len(shell.machine.takes) == 1)
        asking.cancel()
        await until(asking.done)
        await put(shell, b"one")
        objects = shell.machine.objects
        assert (objects.buffered, len(objects.granted)) == (1, 0)
        assert words_of(shell, OBJECT, 1)[-1] == (
            "its consumer went away before it was sent: it is back"
        )


async def test_a_place_for_a_producer_that_has_just_gone_is_for_the_next_one():
    async with alone_with(answer(202)) as (shell, _):
        await put(shell, b"one")
        gone = asyncio.create_task(put(shell, b"two"))
        await until(lambda: shell.machine.waiting == 1)
        gone.cancel()
        await until(gone.done)
        waits = asyncio.create_task(put(shell, b"three"))
        await until(lambda: shell.machine.waiting == 2)
        given = await take(shell, {"p1": 1.0})
        assert isinstance(given, ev.Give)
        assert isinstance(await waits, ev.Accept)
        assert (shell.machine.waiting, shell.machine.objects.buffered) == (0, 1)
        assert bytes(shell.bodies[2].content) == b"three"
