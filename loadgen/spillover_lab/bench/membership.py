"""`spillover bench membership`: connected clients of a federation whose configuration changes four
times, as in Shraer & Reed's evaluation, on real sockets and beside the same machines in virtual
time; what clients cost a node; and what becomes of them when it is killed.

All nodes stay up throughout: one that is removed drains, tells its clients and waits to be added
again, as a site does that somebody takes out of a federation.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing.connection import Connection
from random import Random
from typing import Any, TypeAlias

from spillover.core.membership.choosing import Chooser
from spillover.core.membership.list_change import change_between
from spillover.inputs.topology_file import dump_topology
from spillover.model.errors import RunError
from spillover.model.topology import Topology
from spillover.sim.membership.following import follow
from spillover.sim.membership.rebalancing import least_moves, reconfigurations
from spillover.testbed.supervisor import Testbed
from spillover_lab.bench.load_process import JSON_HEADER
from spillover_lab.bench.nodes import ask, cluster, running_nodes, topology_of
from spillover_lab.bench.session import Session, Stage
from spillover_lab.bench.usage import cpu_s, resident_bytes
from spillover_lab.processes.child import Child
from spillover_loadgen.clients_driver import ClientsLoad, client_name
from spillover_loadgen.clients_driver import run as run_clients

SERVERS, CLIENTS, WAIT_S, SIMULATED = (9, 5), (1000, 60), (5.0, 0.5), (8, 10)
"""In full and quick, as all pairs here."""
CONNECT_OVER_S = 3.0, 1.0
"""So that no node puts any of them off, and the start is as the rule has it."""
RATE_PER_S = 20.0
SERVICE_MS = 5.0
EVENTS = ("one removed", "two removed", "one removed, three added", "one added")
DONE_AFTER_S = 2.0
"""What a change may take beyond the wait."""
QUIET_S = 1.0
"""Without a move for so long, what was begun is over."""
LOOK_WITHIN_S = 30.0
CONNECTED_WITHIN_S = 60.0
QUIET_WITHIN_S = 20.0
FOREVER_S = 86_400.0

FULLEST, EMPTIEST, MOVED, FAILED, PUT_OFF, DONE = (
    "fullest server", "emptiest server", "clients moved", "requests failed", "connects put off",
    "until done",
)  # fmt: skip
UNITS = {
    FULLEST: "x mean", EMPTIEST: "x mean", MOVED: "in all", FAILED: "in all", PUT_OFF: "in all",
    DONE: "s",
}  # fmt: skip

IDLE_S = 30.0, 1.0
"""In full, two signs of life come to each client."""
MEMORY = "idle clients: memory that they add to a node"
CPU = "idle clients: processor time that they add to a node"
ELSEWHERE = "killed node: until its clients are elsewhere, p99"
OTHERS = "killed node: other clients that move or lose theirs"
WANTED = {MEMORY: 60.0, CPU: 5.0, ELSEWHERE: 1000.0, OTHERS: 0.0}
"""What is asked for, at most, of a thousand."""

Look: TypeAlias = Mapping[str, Any]
"""What the load generator says a few times a second: where the clients are, and what has been
counted so far."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One way to choose servers, and where its clients begin: "random", each at any server, or
    "balanced". With `consistent-hash` the circle says."""

    label: str
    rule: str
    start: str = "random"
    virtual_nodes: int = 1

    def starts(self, names: Sequence[str], servers: Sequence[str]) -> list[str]:
        """Returns the server at which each client of these names begins; none where it draws."""
        if self.rule == "consistent-hash":
            change = change_between((), servers)
            choosers = [Chooser(self.rule, Random(0), name, self.virtual_nodes) for name in names]
            return [change.after[one.place(change, "", None)] for one in choosers]
        if self.start == "balanced":
            return [servers[number % len(servers)] for number in range(len(names))]
        return []

    def cases(self) -> tuple[str, ...]:
        return tuple(f"{self.label}: {what}" for what in UNITS)


EVEN = Rule("stratified from an even start", "stratified", start="balanced")
RULES = (
    Rule("probabilistic", "probabilistic"),
    Rule("stratified", "stratified"),
    EVEN,
    Rule("baseline", "baseline"),
    *(Rule(f"consistent hashing, k = {k}", "consistent-hash", virtual_nodes=k) for k in (1, 5, 20)),
)


class Crowd(Child):
    """The clients of the load generator, in a process of their own."""

    def __init__(self, load: ClientsLoad) -> None:
        super().__init__("the clients' process", _have_clients, load)

    async def look(self) -> Look:
        """Waits for the next look. Raises RunError if there is none."""
        found: Look = await self.receive(LOOK_WITHIN_S)
        if "timeline" in found:
            raise RunError("the clients ended before they were to")
        return found

    async def until(self, is_so: Callable[[Look], bool]) -> Look:
        """Returns the first look of which it is so. Raises RunError if that takes too long."""
        limit_s = time.monotonic() + CONNECTED_WITHIN_S
        while not is_so(look := await self.look()):
            if time.monotonic() > limit_s:
                raise RunError(f"{look['unconnected']} clients have no session after all that time")
        return look

    async def finish(self) -> Look:
        """Have them all leave; returns the load generator's result."""
        self.send(None)
        async with asyncio.timeout(CONNECTED_WITHIN_S):
            while "timeline" not in (found := await self.receive(CONNECTED_WITHIN_S)):
                pass
        result: Look = found
        return result


async def _have_clients(load: ClientsLoad, connection: Connection) -> None:
    """Has clients until there is a word, or nobody who could say one."""
    stop, loop = asyncio.Event(), asyncio.get_running_loop()

    def end() -> None:
        loop.remove_reader(connection.fileno())
        stop.set()

    loop.add_reader(connection.fileno(), end)
    connection.send(await run_clients(load, stop, connection.send))


def _load_of(rule: Rule, session: Session, seed: int, urls: Mapping[str, str]) -> ClientsLoad:
    """Returns clients that begin where the rule has them, until they are told to end."""
    plan, run_id = session.plan, f"bench-{seed}"
    clients = int(plan.of(*CLIENTS))
    names = [client_name(run_id, number) for number in range(clients)]
    return ClientsLoad(
        nodes=tuple(urls.values()),
        clients=clients,
        rule=rule.rule,
        virtual_nodes=rule.virtual_nodes,
        duration_s=FOREVER_S,
        change_wait_s=plan.of(*WAIT_S),
        rate_per_s=RATE_PER_S,
        service_ms=SERVICE_MS,
        seed=seed,
        run_id=run_id,
        starts=tuple(urls[server] for server in rule.starts(names, list(urls))),
        connect_over_s=plan.of(*CONNECT_OVER_S),
    )


async def _measure_changes(session: Session) -> None:
    """Measures rule after rule on the same nodes."""
    plan = session.plan
    rules = [rule for rule in RULES if session.wants(*rule.cases())]
    live: dict[Rule, list[dict[str, float]]] = {rule: [] for rule in rules}
    virtual: dict[Rule, dict[str, list[float]]] = {}
    count = int(plan.of(*SERVERS))
    for seed in session.seeds(f"{count} nodes start"):
        # Names carry the seed, so that another seed is another circle.
        names = [f"s{place}-{seed}" for place in range(1, count + 1)]
        lists = reconfigurations(names, seed)
        mesh = topology_of(
            [cluster(name, servers=1, queue_limit=1000) for name in names],
            itertools.combinations(names, 2),
        )
        async with Testbed(mesh, seed=seed, drain_timeout_s=0.0) as bed:
            urls = {str(name): url for name, url in bed.urls.items()}
            for rule in rules:
                virtual.setdefault(rule, _simulate(rule, session, lists))
                load = _load_of(rule, session, seed, urls)
                live[rule].append(await _play(session, rule, load, bed.topology, urls, lists))
    for rule in rules:
        figures = {what: [one[what] for one in live[rule]] for what in (*UNITS, "least")}
        peers: dict[str, dict[str, Sequence[float]]] = {
            what: {"simulated": virtual[rule][what]} for what in (FULLEST, EMPTIEST, MOVED)
        }
        peers[MOVED]["least possible"] = figures["least"]
        peers[DONE] = {"wait + 2 s": [plan.of(*WAIT_S) + DONE_AFTER_S]}
        for what, unit in UNITS.items():
            values = {"": figures[what], **peers.get(what, {})}
            session.add_beside(f"{rule.label}: {what}", unit, values)
    session.note(
        f"{int(plan.of(*CLIENTS))} clients on {count} nodes, all in one mesh; they wait up to "
        f"{plan.of(*WAIT_S):g} s; a removed node's process stays up"
    )
    session.note("fullest and emptiest: over the mean, the worst of the states after the 4 changes")


def _simulate(
    rule: Rule, session: Session, lists: Sequence[Sequence[str]]
) -> dict[str, list[float]]:
    """Returns what the machines of clients do in virtual time, with the seeds from 1."""
    found: dict[str, list[float]] = {FULLEST: [], EMPTIEST: [], MOVED: []}
    for seed in range(1, int(session.plan.of(*SIMULATED)) + 1):
        steps = follow(
            int(session.plan.of(*CLIENTS)),
            lists,
            rule=rule.rule,
            start=rule.start,
            virtual_nodes=rule.virtual_nodes,
            seed=seed,
        )
        told = [step.as_dict() for step in steps]
        found[FULLEST].append(max(one["max_over_mean"] for one in told))
        found[EMPTIEST].append(min(one["min_over_mean"] for one in told))
        found[MOVED].append(sum(one["moved"] for one in told))
    return found


async def _play(
    session: Session,
    rule: Rule,
    load: ClientsLoad,
    topology: Topology,
    urls: Mapping[str, str],
    lists: Sequence[Sequence[str]],
) -> dict[str, float]:
    """Have the clients come, change the configuration four times, and have them leave."""
    session.say(f"{rule.label}: {load.clients} clients connect")
    found = {FULLEST: 0.0, EMPTIEST: float("inf"), "least": 0.0, DONE: 0.0}
    with Crowd(load) as crowd:
        look = await crowd.look()
        look, _ = await _settled(crowd, look, CONNECTED_WITHIN_S, connected=load.clients)
        first = look
        for event, servers in zip(EVENTS, lists[1:], strict=True):
            session.say(f"{rule.label}: {event}")
            found["least"] += least_moves(dict(look["clients"]), tuple(servers))
            begun_s = time.monotonic()
            # The last of the first list is in all of them.
            await _go_by(urls[lists[0][-1]], topology, servers)
            window_s = load.change_wait_s + DONE_AFTER_S
            within_s = window_s + QUIET_WITHIN_S
            look, moved_s = await _settled(crowd, look, within_s, at_least_s=window_s)
            even = sum(look["clients"].values()) / len(servers)
            counts = [look["clients"].get(name, 0) for name in servers]
            found[FULLEST] = max(found[FULLEST], max(counts) / even)
            found[EMPTIEST] = min(found[EMPTIEST], min(counts) / even)
            found[DONE] = max(found[DONE], moved_s - begun_s)
        requests = (await crowd.finish())["requests"]
    found[MOVED] = look["moved"] - first["moved"]
    found[PUT_OFF] = look["put_off"] - first["put_off"]
    found[FAILED] = requests["failed"] + requests["unknown"]
    return found


async def _settled(
    crowd: Crowd,
    last: Look,
    within_s: float,
    *,
    at_least_s: float = 0.0,
    connected: int | None = None,
) -> tuple[Look, float]:
    """Returns the first look after so long that tells of no move for `QUIET_S`, and when it was
    last seen that somebody is elsewhere. Raises RunError if not all are `connected` in time."""
    begun_s = moved_s = time.monotonic()
    while True:
        look, now_s = await crowd.look(), time.monotonic()
        if any(look[what] != last[what] for what in ("clients", "moved")):
            moved_s = now_s
        last = look
        there = sum(look["clients"].values())
        is_there = connected is None or (there == connected and not look["unconnected"])
        if is_there and now_s - begun_s >= at_least_s and now_s - moved_s >= QUIET_S:
            return look, moved_s
        if now_s - begun_s > within_s:
            if not is_there:
                raise RunError(f"{there} of {connected} clients were connected in time")
            return look, moved_s


async def _go_by(url: str, topology: Topology, servers: Sequence[str]) -> None:
    """Have the configuration be these servers. Raises RunError if the node will not."""
    wanted = replace(
        topology,
        clusters=tuple(one for one in topology.clusters if one.id in servers),
        links=tuple(one for one in topology.links if set(one.between) <= set(servers)),
        version=0,
    )
    version = json.loads((await ask(url, "GET", "/admin/config")).body)["version"]
    body = json.dumps({"if_version": version, "topology": dump_topology(wanted)}).encode()
    await ask(url, "PUT", "/admin/config", headers=[JSON_HEADER], body=body, statuses=(200,))


async def _measure_idle(session: Session) -> None:
    """Measures one node, before its clients come and while they are there."""
    clients, idle_s = int(session.plan.of(*CLIENTS)), session.plan.of(*IDLE_S)
    alone = topology_of([cluster("a", servers=1, queue_limit=0)])
    alone = replace(alone, client_connects_burst=clients)
    memory_mb, cpu_percent = [], []
    for seed in session.seeds(MEMORY):
        async with running_nodes(alone, seed) as nodes:
            node = nodes["a"]
            before_bytes, before_s = resident_bytes(node.pid), cpu_s(node.pid)
            await asyncio.sleep(idle_s)
            alone_s = cpu_s(node.pid) - before_s
            load = replace(_load_of(EVEN, session, seed, {"a": node.url}), rate_per_s=0.0)
            with Crowd(load) as crowd:
                await crowd.until(lambda look: look["clients"] == {"a": clients})
                begun_s, then_s = time.monotonic(), cpu_s(node.pid)
                while time.monotonic() < begun_s + idle_s:
                    await crowd.look()
                used_s = cpu_s(node.pid) - then_s
                memory_mb.append((resident_bytes(node.pid) - before_bytes) / 1e6)
                cpu_percent.append((used_s - alone_s) / idle_s * 100)
                await crowd.finish()
    _add(session, {MEMORY: ("MB", memory_mb), CPU: ("% of a core", cpu_percent)})
    session.note(f"idle clients: {clients} at one node, for {idle_s:g} s")


async def _measure_killed(session: Session) -> None:
    """Measures as many clients at each node, of which the first dies without a word."""
    clients, servers = int(session.plan.of(*CLIENTS)), int(session.plan.of(*SERVERS))
    names = [f"s{number}" for number in range(1, servers + 1)]
    mesh = topology_of(
        [cluster(name, servers=1, queue_limit=0) for name in names],
        itertools.combinations(names, 2),
    )
    elsewhere_ms, others = [], []
    for seed in session.seeds(ELSEWHERE):
        async with running_nodes(mesh, seed) as nodes:
            urls = {name: node.url for name, node in nodes.items()}
            with Crowd(replace(_load_of(EVEN, session, seed, urls), rate_per_s=0.0)) as crowd:
                look = await crowd.until(lambda look: sum(look["clients"].values()) == clients)
                its_own = look["clients"]["s1"]
                os.kill(nodes["s1"].pid, signal.SIGKILL)
                await crowd.until(partial(_are_elsewhere, its_own))
                found = await crowd.finish()
        elsewhere_ms.append(found["elsewhere_ms"]["p99"])
        others.append(found["lost"] - its_own + found["moved"])
    _add(session, {ELSEWHERE: ("ms", elsewhere_ms), OTHERS: ("in all", others)})
    session.note(f"killed node: one of {servers}, with {clients} clients in all")


def _are_elsewhere(its_own: int, look: Look) -> bool:
    return bool(look["lost"] >= its_own and not look["unconnected"])


def _add(session: Session, found: Mapping[str, tuple[str, Sequence[float]]]) -> None:
    for case, (unit, values) in found.items():
        session.add_beside(case, unit, {"": values, "wanted, at most": [WANTED[case]]})


STAGES = (
    Stage(tuple(case for rule in RULES for case in rule.cases()), _measure_changes),
    Stage((MEMORY, CPU), _measure_idle),
    Stage((ELSEWHERE, OTHERS), _measure_killed),
)
