"""The journal of a live node, replayed into a fresh machine, gives the same commands: what runs
in real time and what the simulator runs is one machine, and its randomness is its own."""

from __future__ import annotations

import asyncio
import copy
from random import Random

from spillover.core.node import NodeMachine

SEED = 5


def replay(log, settings, neighbors, seed, started_s):
    """The commands that a new machine gives for a log of (event, instant)."""
    random = Random(f"{seed}/node/{settings.cluster}")
    machine = NodeMachine(settings, neighbors, random, started_s)
    return [machine.handle(copy.deepcopy(event), now_s) for event, now_s in log]


def test_a_live_run_is_repeated_by_its_journal(nodes):
    """Arrivals, forwards, refusals, reports and deadlines of a short burst, command by command."""
    log, commands = [], []

    async def main():
        topology = nodes.topology_of(
            "a", "b", delay_ms=2.0, policy="paper", clusters={"a": {"queue_limit": 6}}
        )
        journals = {"a": lambda event, now_s: log.append((copy.deepcopy(event), now_s))}
        async with nodes.Federation(topology, journals=journals, seed=SEED) as federation:
            a = federation["a"]
            handle = a.machine.handle

            def recorded(event, now_s):
                given = handle(event, now_s)
                commands.append((len(log) - 1, copy.deepcopy(given)))
                return given

            a.machine.handle = recorded
            late = [(b"Spillover-Deadline-Ms", b"15")]
            ends = await asyncio.gather(
                *(a.post({"service_ms": 5 + n % 3}, headers=late * (n % 2)) for n in range(40))
            )
            assert len({end.status for end in ends}) > 1
        shell = a.shell
        neighbors = list(zip(("b",), (0.002,), strict=True))
        again = replay(log, shell.machine.settings, neighbors, SEED, shell.started_s)
        assert len(commands) > 40
        for index, given in commands:
            assert again[index] == given

    nodes.run(main)
