"""What a crowd of clients means for nodes: what it costs one that has nothing else to do, and how
soon it is elsewhere when its node is killed."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from spillover.model.errors import RunError
from spillover.tools.bench.membership.crowd import CrowdProcess
from spillover.tools.bench.membership.measuring import CLIENTS, CONNECTED_WITHIN_S, SERVERS, load_of
from spillover.tools.bench.membership.rules import EVEN
from spillover.tools.bench.model import Row, Stage
from spillover.tools.bench.nodes import cluster, running_nodes, topology_of
from spillover.tools.bench.session import Session
from spillover.tools.bench.usage import cpu_s, resident_bytes

IDLE_S = 30.0, 1.0
"""In full and quick. In full, two signs of life come to each client."""

MEMORY = "idle clients: memory that they add to a node"
CPU = "idle clients: processor time that they add to a node"
ELSEWHERE = "killed node: until its clients are elsewhere, p99"
OTHERS = "killed node: other clients that move or lose theirs"
UNITS = {MEMORY: "MB", CPU: "% of a core", ELSEWHERE: "ms", OTHERS: "in all"}
WANTED = {MEMORY: 60.0, CPU: 5.0, ELSEWHERE: 1000.0, OTHERS: 0.0}
"""At most, of a thousand."""


async def _measure_idle(session: Session) -> None:
    """One node, before its clients come and while they are there."""
    clients, idle_s = int(session.plan.of(*CLIENTS)), session.plan.of(*IDLE_S)
    alone = topology_of([cluster("a", servers=1, queue_limit=0)])
    alone = replace(alone, client_connects_burst=clients)
    memory, cpu = [], []
    for run in range(session.plan.runs):
        session.say_run(MEMORY, run)
        seed = session.plan.seed + run
        async with running_nodes(alone, seed) as nodes:
            node = nodes["a"]
            before = resident_bytes(node.pid), cpu_s(node.pid)
            await asyncio.sleep(idle_s)
            alone_s = cpu_s(node.pid) - before[1]
            load = load_of(EVEN, session.plan, seed, clients, {"a": node.url})
            with CrowdProcess(replace(load, rate_per_s=0.0)) as crowd:
                await _until(crowd, lambda look: look["clients"] == {"a": clients})
                begun_s, then_s = time.monotonic(), cpu_s(node.pid)
                while time.monotonic() < begun_s + idle_s:
                    await crowd.look()
                used_s = cpu_s(node.pid) - then_s
                memory.append(mb_more(before[0], resident_bytes(node.pid)))
                cpu.append(percent_more(alone_s, used_s, idle_s))
                await crowd.finish()
    _add(session, MEMORY, memory)
    _add(session, CPU, cpu)
    session.note(f"idle clients: {clients} at one node, for {idle_s:g} s")


def mb_more(before_bytes: int, then_bytes: int) -> float:
    """Returns by how much a node has grown."""
    return (then_bytes - before_bytes) / 1e6


def percent_more(alone_s: float, used_s: float, lasts_s: float) -> float:
    """Returns what clients add to a node, in % of a core, by its CPU time in so many seconds
    without them and with them."""
    return (used_s - alone_s) / lasts_s * 100


def others_of(found: Mapping[str, Any], its_own: int) -> float:
    """Returns how many clients lost their node or moved, of all but the killed node's own."""
    return float(found["lost"] - its_own + found["moved"])


async def _measure_killed(session: Session) -> None:
    """As many clients at each node; the first node dies without a word."""
    clients, servers = int(session.plan.of(*CLIENTS)), int(session.plan.of(*SERVERS))
    names = [f"s{number}" for number in range(1, servers + 1)]
    mesh = topology_of(
        [cluster(name, servers=1, queue_limit=0) for name in names],
        itertools.combinations(names, 2),
    )
    elsewhere, others = [], []
    for run in range(session.plan.runs):
        session.say_run(ELSEWHERE, run)
        seed = session.plan.seed + run
        async with running_nodes(mesh, seed) as nodes:
            urls = {name: node.url for name, node in nodes.items()}
            load = load_of(EVEN, session.plan, seed, clients, urls)
            with CrowdProcess(replace(load, rate_per_s=0.0)) as crowd:
                look = await _until(crowd, lambda look: sum(look["clients"].values()) == clients)
                its_own = look["clients"]["s1"]
                os.kill(nodes["s1"].pid, signal.SIGKILL)
                await _until(crowd, partial(_are_elsewhere, its_own))
                found = await crowd.finish()
        elsewhere.append(found["elsewhere_ms"]["p99"])
        others.append(others_of(found, its_own))
    _add(session, ELSEWHERE, elsewhere)
    _add(session, OTHERS, others)
    session.note(f"killed node: one of {servers}, with {clients} clients in all")


def _are_elsewhere(its_own: int, look: dict[str, Any]) -> bool:
    return bool(look["lost"] >= its_own and not look["unconnected"])


async def _until(crowd: CrowdProcess, is_so: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """Returns the first look of which it is so."""
    limit_s = time.monotonic() + CONNECTED_WITHIN_S
    while not is_so(look := await crowd.look()):
        if time.monotonic() > limit_s:
            raise RunError(f"{look['unconnected']} clients have no session after all that time")
    return look


def _add(session: Session, case: str, values: Sequence[float]) -> None:
    row = Row(
        case=case,
        unit=UNITS[case],
        values=tuple(values),
        peer="wanted, at most",
        peer_values=(WANTED[case],),
    )
    if session.wants(case):
        session.add(row)


STAGES = (Stage((MEMORY, CPU), _measure_idle), Stage((ELSEWHERE, OTHERS), _measure_killed))
