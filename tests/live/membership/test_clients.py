"""Who has a session at a node, as its metrics are told."""

from __future__ import annotations

import asyncio
import math
import time

from spillover.core.membership.letting_in import LettingIn
from spillover.core.membership.session_events import Server
from spillover.live.engine.timers import Timers
from spillover.live.membership.clients import Clients
from spillover.live.membership.session_wire import SIGN_OF_LIFE, decode_line


def test_how_many_there_are_is_told_whenever_that_changes():
    """Also where a response ends and nobody has said goodbye."""

    async def main():
        counts, lines = [], []
        timers = Timers(asyncio.get_running_loop())
        clients = Clients("a", 1, LettingIn(10.0, 10, 10), timers, on_count=counts.append)
        clients.announce(1, "a", ())
        one, two = (clients.open(name, 1, lines.append, lambda: None) for name in ("c1", "c2"))
        clients.drop(one)
        clients.drop(one)
        assert counts == [1, 2, 1]
        assert clients.leave("c2", 1, moved=True)
        clients.drop(two)
        assert counts == [1, 2, 1, 0]
        timers.close()

    asyncio.run(main())


def test_one_client_alone_gets_signs_of_life_as_many_do():
    """Else it takes its node for dead, and asks another one every few seconds."""

    async def main():
        lines = []
        timers = Timers(asyncio.get_running_loop())
        clients = Clients("a", 1, LettingIn(10.0, 10, 10), timers)
        clients.announce(1, "a", ())
        only = clients.open("c1", 1, lines.append, lambda: None)
        due_s = time.monotonic()
        for count in (1, 2):
            due_s -= 5.0
            clients._give_signs_of_life(due_s)
            assert lines.count(SIGN_OF_LIFE) == count
            assert timers.next_s == due_s + 15.0, "when the next one is due"
        clients.drop(only)
        clients._give_signs_of_life(0.0)
        assert lines.count(SIGN_OF_LIFE) == 2
        assert not clients._is_timed, "nobody is there to be told"
        timers.close()

    asyncio.run(main())


def test_what_is_announced_again_is_told_to_all_with_their_ranks():
    """As long as the node has more clients than its share."""

    async def main():
        lines = {f"c{number}": [] for number in range(40)}
        timers = Timers(asyncio.get_running_loop())
        letting_in = LettingIn(100.0, 100, 100)
        clients = Clients("a", 1, letting_in, timers, numbers=lambda: {"b": 0})
        servers = [Server(name, f"http://{name}:1") for name in "ab"]
        clients.announce(1, "a", servers[:1])
        for name, told in lines.items():
            clients.open(name, 1, told.append, lambda: None)
        clients.announce(2, "a", servers)
        before = [len(told) for told in lines.values()]
        assert clients._clients.repeat_s < math.inf
        clients._repeat(clients._clients.repeat_s)
        assert [len(told) for told in lines.values()] == [count + 1 for count in before]
        said = [decode_line(told[-1][:-1]) for told in lines.values()]
        assert [(one.clients, one.rank) for one in said] == [(40, rank) for rank in range(40)]
        assert {one.surplus for one in said} == {1.0}, "half of them, and nodes see all"
        timers.close()

    asyncio.run(main())
