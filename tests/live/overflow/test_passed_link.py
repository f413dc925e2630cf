"""Answers that pass through two and three nodes on loopback as they come: whole, broken off,
cancelled, and with nobody who reads them."""

import pytest

from spillover.model.causes import Cause
from spillover.model.passed import PassedHead
from spillover.model.request import DONE, FAILED, Outcome
from support.scripted_answers import ScriptedShell, Told, passed, take

PASSES = {"handler": "proxy:http://127.0.0.1:9"}


def chain(nodes, *ids, delay_ms=0.0, queue_limit=0):
    """Nodes, the last of which has room for what finds the servers before it taken."""
    clusters = {c: PASSES | {"queue_limit": 100} for c in ids}
    clusters["a"] = PASSES | {"queue_limit": queue_limit}
    clusters[ids[-1]] = PASSES | {"queue_limit": 100, "servers": 20}
    topology = nodes.topology_of(*ids, delay_ms=delay_ms, clusters=clusters, max_hops=2)
    return nodes.Federation(topology, make_shell=ScriptedShell)


async def fill(nodes, federation, *ids):
    """Have these hand on all that is new: their servers are taken, and where a neighbor's requests
    may wait, as much waits as is worth the way."""
    machines = [node.machine for node in federation.nodes.values()]
    await nodes.until(lambda: all(all(m.neighbors.accepting) for m in machines))
    for cluster in ids:
        shell = federation[cluster].shell
        take(shell, Told())
        await nodes.until(lambda shell=shell: shell.requests.workers.running)
        while shell.machine.settings.queue_limit and shell.machine.ledger.home["away"] < 2:
            take(shell, Told())
            await nodes.turn()


async def ran_at(nodes, federation, cluster, sink, **fields):
    """A client's request at a that runs at this cluster: (its entry, its service)."""
    workers = federation[cluster].shell.requests.workers
    entry = take(federation["a"].shell, sink, **fields)

    def found():
        return next((s for s in workers.services if s.name == entry.name), None)

    return entry, await nodes.until(found)


async def nothing_left(nodes, federation):
    """All that runs ends, and then nobody holds anything of any request."""
    shells = [node.shell for node in federation.nodes.values()]

    def is_left():
        for shell in shells:
            for service in list(shell.requests.workers.running.values()):
                if service.relay is None:
                    service.begin()
                service.end()
        under_way = (shell.requests for shell in shells)
        parts = ((one.relays, one.foreign, one.waiters, one.home) for one in under_way)
        return any(len(part) for of_shell in parts for part in of_shell)

    await nodes.until(lambda: not is_left())
    for shell in shells:
        machine = shell.machine
        await nodes.until(lambda m=machine: not m.register.visits and not m.servers.busy)
        machine.check()
        assert (shell.requests.relays.begun, machine.held.request_bytes) == (0, 0)


HOPS = pytest.mark.parametrize("ids", [("a",), ("a", "b", "c")], ids=len)


@HOPS
async def test_what_is_written_is_read_over_any_number_of_hops(nodes, ids):
    delay_ms = 3.0

    async with chain(nodes, *ids, delay_ms=delay_ms) as federation:
        await fill(nodes, federation, *ids[:-1])
        sink, body = Told(), bytes(range(256)) * 700
        entry, service = await ran_at(nodes, federation, ids[-1], sink, body=body)
        assert service.request == passed(body)
        head = PassedHead(206, b"Sure", ((b"Set-Cookie", b"a"), (b"set-cookie", b"b")))
        service.begin(head)
        await nodes.until(lambda: sink.head)
        assert sink.head == head
        assert sink.so_far.path == ids
        assert sink.so_far.network_s >= delay_ms / 1e3 * (len(ids) - 1)
        for piece in (b"one", b"x" * 100_000, b"", b"three"):
            service.piece(piece)
        await nodes.until(lambda: len(sink.body) == 100_008)
        assert sink.how is None
        service.end(((b"Checksum", b"7"),))
        await nodes.until(lambda: sink.how)
        _, trailers, answer = sink.told[0]
        assert (trailers, answer.outcome, answer.path) == (((b"Checksum", b"7"),), DONE, ids)
        assert sink.body == b"one" + b"x" * 100_000 + b"three"
        assert federation["a"].shell.requests.relays.ends["whole"] == 1
        assert entry.answer is answer
        await nothing_left(nodes, federation)


@HOPS
async def test_what_breaks_off_is_never_an_end(nodes, ids):
    """At every boundary between frames, and with a key that would have it tried again."""
    async with chain(nodes, *ids) as federation:
        await fill(nodes, federation, *ids[:-1])
        for frames in range(4):
            for _ in range(8):  # else so many failures would have work go elsewhere
                sink = Told()
                _, service = await ran_at(nodes, federation, ids[-1], sink)
                service.begin()
                service.end()
                await nodes.until(lambda s=sink: s.how)
            sink = Told()
            name = f"key-{frames}"
            entry, service = await ran_at(nodes, federation, ids[-1], sink, name=name)
            service.begin()
            await nodes.until(lambda s=sink: s.head)
            for k in range(frames):
                service.piece(b"%d" % k)
                await nodes.until(lambda s=sink, k=k: len(s.body) == k + 1)
            service.fail("it was closed", Cause.CONNECTION)
            await nodes.until(lambda s=sink: s.how)
            assert (sink.how, sink.told[0][1].outcome) == ("broken", FAILED)
            told = "" if len(ids) == 1 else "the answer broke off after it had begun: "
            where = "".join(f"at cluster {name}: " for name in ids[1:])
            assert entry.answer.problem == f"{told}{where}it was closed"
            assert entry.answer.cause is Cause.CONNECTION
        machine = federation["a"].machine
        assert machine.truncated == federation["a"].shell.requests.relays.ends["truncated"] == 4
        names = [
            service.name
            for node in federation.nodes.values()
            for service in node.shell.requests.workers.services
        ]
        assert len(set(names)) == len(names), "something ran twice"
        await nothing_left(nodes, federation)


async def test_a_client_that_leaves_ends_the_service_and_a_neighbor_that_ends_breaks_off(nodes):
    """What fails before it begins is answered as any forward."""
    async with chain(nodes, "a", "b") as federation:
        home = federation["a"].shell.requests
        await fill(nodes, federation, "a")
        left, failed, broken = Told(), Told(), Told()
        entry, service = await ran_at(nodes, federation, "b", left)
        service.begin()
        service.piece(b"x")
        await nodes.until(lambda: left.body)
        home.home.abandon(entry)
        assert left.how == "broken"
        await nodes.until(lambda: service.how)
        assert service.how is Outcome.CANCELLED
        assert home.relays.ends["cancelled"] == 1
        _, service = await ran_at(nodes, federation, "b", failed)
        service.fail("no upstream")
        await nodes.until(lambda: failed.how)
        answer = failed.told[0][1]
        assert (failed.how, answer.outcome) == ("settled", FAILED)
        assert (answer.problem, answer.path) == ("no upstream", ("a", "b"))
        _, service = await ran_at(nodes, federation, "b", broken, name="key")
        service.begin()
        service.piece(b"x")
        await nodes.until(lambda: broken.body)
        await federation.stop("b")
        await nodes.until(lambda: broken.how)
        assert (broken.how, broken.told[0][1].outcome) == ("broken", FAILED)
        await nothing_left(nodes, federation)
