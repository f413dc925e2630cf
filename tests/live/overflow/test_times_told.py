"""The times in an answer that came from a neighbor: no moment counts twice, none is left out."""

import pytest

from spillover.live.http1.opening import Opening
from support.loop import turn
from support.scripted_answers import ScriptedShell, Told, take

CLOCKS_MS = 5.0
"""What rounding and uvloop's clock of milliseconds may make of it."""


OPENING_S, DELAY_S = 0.4, 0.04


def open_late(monkeypatch, node):
    """From now on it takes this node long to open a connection, of which it has none."""
    open_at_once = Opening._open_socket

    async def open_socket(self, make):
        await turn(OPENING_S)
        return await open_at_once(self, make)

    (link,) = node.shell.neighborhood.links.values()
    for connection in list(link._client._kept.idle):
        connection.close()
    for line in list(link.shared.lines):
        line._exchange.break_off("for a test")
    monkeypatch.setattr(Opening, "_open_socket", open_socket)


def check_way(node, network_s):
    """The client has waited for the opening, too; the next request need not."""
    (neighbor,) = node.machine.neighbors.by_handle.values()
    assert network_s >= OPENING_S + DELAY_S - CLOCKS_MS / 1e3
    assert DELAY_S / 2 < neighbor.way_s < OPENING_S / 2


@pytest.mark.parametrize("at_once", [True, False])
async def test_nor_is_it_where_answers_pass_through(nodes, monkeypatch, at_once):
    """An answer may be there at once, or come in pieces."""
    passes = {"handler": "proxy:http://127.0.0.1:9"}
    clusters = {"a": passes | {"queue_limit": 0}, "b": passes}
    topology = nodes.topology_of("a", "b", delay_ms=DELAY_S * 1e3, clusters=clusters)
    async with nodes.Federation(topology, make_shell=ScriptedShell) as federation:
        a, b = federation["a"], federation["b"]
        await nodes.until(lambda: all(a.machine.neighbors.accepting))
        take(a.shell, Told())
        open_late(monkeypatch, a)
        sink = Told()
        take(a.shell, sink)
        (service,) = await nodes.until(lambda: b.shell.requests.workers.services)
        if at_once:
            service.whole(b"one")
        else:
            service.begin()
            service.end()
        await nodes.until(lambda: sink.how)
        check_way(a, sink.told[0][2].network_s)
        a.shell.requests.workers.services[0].fail()
