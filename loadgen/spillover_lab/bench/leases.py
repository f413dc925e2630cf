"""`spillover bench leases`: what holding partitions costs, how soon they run elsewhere, how late
renewals are while handlers keep all cores busy, and what a fence costs at the sink.

What they are compared with: decision 0024. Each case starts a redis-server of its own. Each member
is a whole one: its machine, its store, its subscription, and its renewing process. Beside them
stands what people write with a library: a lock of redis-py for each partition.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import threading
import time
import uuid
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from random import Random
from typing import TYPE_CHECKING, Any

import psutil

from spillover.live.leases.group import LeaseGroup
from spillover.live.leases.renewal.clock import lease_now_s
from spillover.live.leases.renewal.lease import Lease
from spillover.live.leases.renewal.memory import LeaseMemory
from spillover.live.leases.sinks.redis_sink import RedisSink
from spillover.live.redis.connection import open_client
from spillover.model.errors import RunError
from spillover.model.lease_times import LeaseTimes
from spillover.model.statistics import percentile
from spillover.testbed.redis import open_sync_client
from spillover_lab.bench.servers import own_redis
from spillover_lab.bench.session import Figure, Session, Side, Stage
from spillover_lab.bench.usage import cpu_s
from spillover_lab.processes.child import Child

if TYPE_CHECKING:
    from redis import Redis

# --- a group under way ----------------------------------------------------------------------------


TIMES = LeaseTimes(
    normal_lease_ms=1000.0,
    max_lease_ms=3000.0,
    max_shutdown_ms=1000.0,
    min_grab_ms=300.0,
    held_delay_ms=10.0,
)
"""A maximum lease of 3 s, renewed each second. The delay is so short that twenty partitions at a
node make its waits shorter than a period."""
PERIOD_S = TIMES.renewal_period_ms / 1000.0
READY_WITHIN_S = 60.0
GONE_WITHIN_S = 5.0
REPORT_S = 0.02
HANDLERS = 4
"""That are busy at a time, in each process under load."""
RECORDS = 20_000
"""The size of the batch that a busy handler reads again and again."""


@dataclass(frozen=True, slots=True)
class Report:
    """A handler has begun, or has ended; `at_s` of a clock that all processes share."""

    at_s: float
    node: str
    partition: int
    runs: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class HostPlan:
    """What one process hosts."""

    url: str
    group: str
    locks: bool
    """Whether locks are held, and no members run."""
    nodes: Mapping[str, Sequence[int]]
    """The nodes, and of each the partitions whose locks it holds."""
    partitions: int
    seed: int


async def host(plan: HostPlan, connection: Connection) -> None:
    """Runs as the process, until the benchmark ends it: says that it is ready, begins when told to,
    and then says what has begun and ended, and how late renewals were sent. Each number that it is
    told from then on keeps its interpreter busy for so many seconds."""
    logging.disable(logging.CRITICAL)  # what goes wrong is counted, not told
    await _Host(plan, connection).run()


class _Host:
    """The members of a process, and what they have to say."""

    def __init__(self, plan: HostPlan, connection: Connection) -> None:
        self._plan = plan
        self._connection = connection
        self._said: list[Report] = []
        self._late_s: list[tuple[float, float]] = []

    async def run(self) -> None:
        self._connection.send(None)
        await asyncio.to_thread(self._connection.recv)
        begin = self._hold_locks if self._plan.locks else self._serve
        await asyncio.gather(self._report(), self._be_busy(), *map(begin, self._plan.nodes))

    async def _report(self) -> None:
        while True:
            await asyncio.sleep(REPORT_S)
            if self._said or self._late_s:
                said, self._said = self._said, []
                late_s, self._late_s = self._late_s, []
                self._connection.send((said, late_s))

    async def _be_busy(self) -> None:
        while True:
            until_s = await asyncio.to_thread(self._connection.recv) + time.monotonic()
            for _ in range(HANDLERS):
                threading.Thread(target=_read_json, args=(until_s,), daemon=True).start()

    def _note(self, node: str, partition: int, *, runs: bool) -> None:
        self._said.append(Report(time.monotonic(), node, partition, runs))

    async def _serve(self, node: str) -> None:
        async def handle(partition: int, epoch: int, stop_event: Any) -> None:
            del epoch
            self._note(node, partition, runs=True)
            try:
                await stop_event.wait_async()
            finally:
                self._note(node, partition, runs=False)

        plan = self._plan
        member = LeaseGroup(
            plan.url,
            plan.group,
            node=node,
            partitions=plan.partitions,
            handler=handle,
            times=TIMES,
            seed=plan.seed,
        )
        member.events.observer = self
        await member.__aenter__()

    def renewed(self, late_s: float) -> None:
        """A renewal was sent so late; called in a thread."""
        self._late_s.append((time.monotonic(), late_s))

    def told(self, event: str) -> None:
        """Nothing is counted."""

    def handler_failed(self) -> None:
        """Nothing is counted."""

    async def _hold_locks(self, node: str) -> None:
        """Holds a lock for each partition, renewed once a period each, which is one call of a
        script. What cannot be had, or was lost, is tried for again a period later."""
        from redis.exceptions import LockError, RedisError  # noqa: PLC0415

        plan = self._plan
        client = open_client(plan.url, PERIOD_S / 2.0)
        random = Random(f"{plan.seed}/locks/{node}")

        async def hold(partition: int) -> None:
            name = f"{{{plan.group}}}:lock:{partition}"
            lock = client.lock(name, timeout=TIMES.max_lease_ms / 1000.0, thread_local=False)
            await asyncio.sleep(random.random() * PERIOD_S)
            holds = False
            while True:
                try:
                    asked = lock.reacquire() if holds else lock.acquire(blocking=False)
                    now_holds = bool(await asked)
                except LockError:
                    now_holds = False
                except RedisError:
                    now_holds = holds
                if now_holds != holds:
                    holds = now_holds
                    self._note(node, partition, runs=holds)
                await asyncio.sleep(PERIOD_S)

        await asyncio.gather(*(hold(partition) for partition in plan.nodes[node]))


def _read_json(until_s: float) -> None:
    """Does as handlers do: reads JSON, which keeps the interpreter, then loops over it."""
    batch = json.dumps([{"id": number, "value": number % 7} for number in range(RECORDS)])
    while time.monotonic() < until_s:
        sum(record["value"] for record in json.loads(batch))


def spin(connection: Connection) -> None:
    """Takes time of a core and does nothing else, until the benchmark ends it."""
    connection.send(None)
    while True:
        pass


class Group:
    """Members under way in their processes, and who runs which partition."""

    def __init__(self, children: Sequence[Child], partitions: int, nodes: Sequence[str]) -> None:
        self.children = children
        self.owners: list[set[str]] = [set() for _ in range(partitions)]
        self.reports: list[Report] = []
        self.late_s: list[tuple[float, float]] = []
        """When a renewal was sent, and how late."""
        self.is_expected_dead: Child | None = None
        self._counts = dict.fromkeys(nodes, 0)
        self._changed = asyncio.Event()
        self._failure: RunError | None = None

    async def listen(self, child: Child) -> None:
        try:
            while True:
                said, late_s = await child.receive()
                self.late_s += late_s
                self.reports += said
                for report in said:
                    change = set.add if report.runs else set.discard
                    change(self.owners[report.partition], report.node)
                    self._counts[report.node] += 1 if report.runs else -1
                self._changed.set()
        except RunError as failure:
            if child is not self.is_expected_dead:
                self._failure = failure
            self._changed.set()

    async def until_even(self, within_s: float) -> None:
        """Wait until each partition runs at one node, and none has two more than another. Raises
        RunError if it does not come to that in time."""

        def is_even() -> bool:
            counts = self._counts.values()
            return all(len(one) == 1 for one in self.owners) and max(counts) - min(counts) <= 1

        await self.until(is_even, within_s, "the partitions to be shared out")

    async def until(self, is_so: Callable[[], bool], within_s: float, what: str) -> None:
        """Wait until it is so. Raises RunError if it never is, or a process dies or fails."""
        try:
            async with asyncio.timeout(within_s):
                while not is_so():
                    if self._failure is not None:
                        raise self._failure
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise RunError(f"expected {what} within {within_s:.0f} s") from None

    def cpu_s(self) -> float:
        """Returns the CPU time of the members' processes and of those that renew for them."""
        total_s = 0.0
        for child in self.children:
            total_s += cpu_s(child.pid)
            for process in descendants(child.pid):
                with suppress(RunError):
                    total_s += cpu_s(process.pid)
        return total_s


def descendants(pid: int) -> list[psutil.Process]:
    """Returns what the process has started, directly or not; nothing if it is gone."""
    try:
        return list(psutil.Process(pid).children(recursive=True))
    except psutil.Error:
        return []


@asynccontextmanager
async def running_group(
    url: str, *, members: int, per_host: int, partitions: int, seed: int, locks: bool = False
) -> AsyncIterator[Group]:
    """Starts a group whose members all begin at once, and ends it with all its processes."""
    nodes = [f"n{number}" for number in range(members)]
    shares = {node: range(partitions)[number::members] for number, node in enumerate(nodes)}
    # What the last run left in Redis is not met again.
    name = f"bench-{uuid.uuid4().hex[:12]}"
    with ExitStack() as stack:
        children = []
        for at in range(0, members, per_host):
            own = {node: shares[node] for node in nodes[at : at + per_host]}
            plan = HostPlan(
                url=url, group=name, locks=locks, nodes=own, partitions=partitions, seed=seed
            )
            child = Child(f"host {at // per_host} of the members", host, plan)
            children.append(stack.enter_context(child))
        for child in children:
            await child.receive(READY_WITHIN_S)
        group = Group(children, partitions, nodes)
        for child in children:
            child.send(None)
        listening = [asyncio.create_task(group.listen(child)) for child in children]
        try:
            yield group
        finally:
            renewing = [one for child in children for one in descendants(child.pid)]
            for task in listening:
                task.cancel()
            await asyncio.gather(*listening, return_exceptions=True)
    # Renewing processes end by themselves once their members have.
    _, alive = await asyncio.to_thread(psutil.wait_procs, renewing, GONE_WITHIN_S)
    if alive:
        raise RunError(f"{len(alive)} processes of a member outlived it")


# --- the cases ------------------------------------------------------------------------------------


MEMBERS, PARTITIONS = (50, 12), (1000, 240)
"""In full and quick."""
MEMBERS_PER_HOST = 10
"""They share a process, since it is Redis's side that counts."""
EVEN_WITHIN_S = 60.0
SETTLE_S = 1.5
"""Longer than one period: what was won last has been renewed, and all marks are gone."""
LOCKS = "redis-py Lock for each partition"
TRIPS, REDIS_CPU, MEMBER_CPU = (
    f"at rest: {what}" for what in ("round trips", "CPU of Redis", "CPU of a member")
)
UNITS = {TRIPS: "1/s", REDIS_CPU: "% of a core", MEMBER_CPU: "CPU-ms/s"}
LIMITS = {TRIPS: 200.0, REDIS_CPU: 10.0}
"""What is asked for, of the full sizes."""

FEW_MEMBERS, FEW_PARTITIONS = 4, 32
TAKEOVER = "takeover after kill -9, all partitions"
TAKEN_WITHIN_S = 30.0
BOUND_S = (TIMES.max_lease_ms + TIMES.normal_lease_ms + TIMES.longest_wait_ms) / 1000.0
"""A maximum lease from the last renewal, a period until the next survey, and the longest wait."""

P50, P99, LONGEST = (f"renewal lateness under load, {name}" for name in ("p50", "p99", "max"))
LOST = "leases lost under load"
LOADED_MEMBERS = 8
"""In each process, of which there is one for each core."""
LATE_LIMITS = {P50: None, P99: 50.0, LONGEST: None, LOST: 0.0}

WRITE, BATCH = "fenced write", "20 fenced writes, one call"
LOCAL = "local check of a lease: time"
EPOCH = 1_700_000_000_000
NAME = "bench"
KEYS = [f"{{{NAME}}}:{number}" for number in range(20)]
VALUE = "x" * 100
LOCAL_CALLS = 1000
"""At a time, so that the clock is not what is measured."""


async def _measure_holding(session: Session) -> None:
    """Measures members and locks in turn: a run of a side is a group's whole life."""
    plan = session.plan
    members, partitions = int(plan.of(*MEMBERS)), int(plan.of(*PARTITIONS))
    with own_redis(session) as place, open_sync_client(place.url) as client:

        def side(name: str, *, locks: bool) -> Side:
            async def measure() -> Sequence[float]:
                client.flushall()
                async with running_group(
                    place.url,
                    members=members,
                    per_host=MEMBERS_PER_HOST,
                    partitions=partitions,
                    seed=plan.seed,
                    locks=locks,
                ) as group:
                    await group.until_even(EVEN_WITHIN_S)
                    await asyncio.sleep(SETTLE_S)
                    return await _at_rest(client, group, plan.of(4.0, 1.5), members)

            return Side(name, measure)

        figures = [Figure(case, unit) for case, unit in UNITS.items()]
        sides = [side("members", locks=False), side(LOCKS, locks=True)]
        await session.compare(figures, *sides)
    for row in [row for row in session.rows if row.case in LIMITS and not plan.quick]:
        session.add(replace(row, peer="limit", peer_values=(LIMITS[row.case],)))
    session.note(
        f"{members} members, {partitions} partitions, maximum lease "
        f"{TIMES.max_lease_ms / 1000:g} s, renewed each {PERIOD_S:g} s; a round trip is one read "
        "of Redis from a client: a script, a command or a pipeline"
    )


async def _at_rest(client: Redis, group: Group, for_s: float, members: int) -> Sequence[float]:
    """Returns what Redis and the members do in that time. Our own reading of Redis is taken off."""
    before, members_s, began_s = _read(client), group.cpu_s(), time.monotonic()
    await asyncio.sleep(for_s)
    after, took_s = _read(client), time.monotonic() - began_s
    return (
        (after[0] - before[0] - 1) / took_s,
        (after[1] - before[1]) / took_s * 100.0,
        (group.cpu_s() - members_s) / members / took_s * 1000.0,
    )


def _read(client: Redis) -> tuple[int, float]:
    """Returns the round trips of Redis and its CPU time so far. Raises RunError for one that is too
    old to count."""
    told: Any = client.info("all")
    if "total_reads_processed" not in told:
        raise RunError("expected Redis 6 or later: this one does not count its reads")
    used_s = float(told["used_cpu_user"]) + float(told["used_cpu_sys"])
    return int(told["total_reads_processed"]), used_s


async def _measure_takeover(session: Session) -> None:
    """Measures from the death of a member without a word, at some instant of its period, until all
    that it held runs elsewhere. Each member is a process of its own."""
    random = Random(f"{session.plan.seed}/takeover")
    took_s = []
    with own_redis(session) as place:
        for seed in session.seeds(TAKEOVER):
            async with running_group(
                place.url,
                members=FEW_MEMBERS,
                per_host=1,
                partitions=FEW_PARTITIONS,
                seed=seed,
            ) as group:
                await group.until_even(EVEN_WITHIN_S)
                await asyncio.sleep(random.random() * TIMES.normal_lease_ms / 1000.0)
                took_s.append(await _take_over(group))
    session.add_beside(TAKEOVER, "s", {"": took_s, "bound": [BOUND_S]})
    session.note("takeover: the bound is maximum lease + period + longest wait")


async def _take_over(group: Group) -> float:
    orphans = {number for number, owners in enumerate(group.owners) if "n0" in owners}
    group.is_expected_dead = group.children[0]
    os.kill(group.children[0].pid, signal.SIGKILL)
    killed_s = time.monotonic()

    def taken_s() -> dict[int, float]:
        found: dict[int, float] = {}
        for one in group.reports:
            if one.partition in orphans and one.runs and one.at_s > killed_s and one.node != "n0":
                found.setdefault(one.partition, one.at_s)
        return found

    what = "all of a dead member's partitions to run again"
    await group.until(lambda: taken_s().keys() == orphans, TAKEN_WITHIN_S, what)
    return max(taken_s().values()) - killed_s


async def _measure_lateness(session: Session) -> None:
    """Measures how late renewals are sent, and how many leases that costs, while the handlers of a
    process for each core read JSON, and another process for each core only computes."""
    cores, load_s = os.cpu_count() or 1, session.plan.of(5.0, 2.0)
    runs = []
    with own_redis(session) as place:
        for seed in session.seeds(P50):
            async with running_group(
                place.url,
                members=LOADED_MEMBERS * cores,
                per_host=LOADED_MEMBERS,
                partitions=FEW_PARTITIONS,
                seed=seed,
            ) as group:
                await group.until_even(EVEN_WITHIN_S)
                await asyncio.sleep(SETTLE_S)
                runs.append(await _under_load(group, cores, load_s))
    for (case, limit), values in zip(LATE_LIMITS.items(), zip(*runs, strict=True), strict=True):
        beside = {} if limit is None or session.plan.quick else {"limit": [limit]}
        session.add_beside(case, "leases" if case == LOST else "ms", {"": values, **beside})
    session.note(f"under load: {cores} processes of {HANDLERS} handlers, and {cores} that compute")


async def _under_load(group: Group, cores: int, load_s: float) -> Sequence[float]:
    """Returns the percentiles, the maximum, and how many partitions stopped."""
    with ExitStack() as stack:
        for number in range(cores):
            spinner = stack.enter_context(Child(f"spinner {number}", spin))
            await spinner.receive(READY_WITHIN_S)
        begun_s = time.monotonic()
        for child in group.children:
            child.send(load_s)
        await asyncio.sleep(load_s)
    await asyncio.sleep(PERIOD_S)  # what was due under load may be late
    late_ms = sorted(late_s * 1e3 for at_s, late_s in group.late_s if at_s - late_s >= begun_s)
    if not late_ms:
        raise RunError("no renewal was sent that was due under load")
    lost = sum(one.at_s >= begun_s and not one.runs for one in group.reports)
    return percentile(late_ms, 0.5), percentile(late_ms, 0.99), late_ms[-1], float(lost)


async def _measure_fenced(session: Session) -> None:
    """Measures writes through a fence at the sink beside the same writes without one: one client,
    one call after the other."""
    lease = _lease()
    with own_redis(session) as place, open_sync_client(place.url) as client:
        sink = RedisSink(client, NAME)
        writes = [("SET", key, VALUE) for key in KEYS]

        def transaction() -> None:
            with client.pipeline() as pipe:
                for key in KEYS:
                    pipe.set(key, VALUE)
                pipe.hset(f"{{{NAME}}}:hash", "checkpoint", "7")
                pipe.execute()

        for case, fenced, peer, plain in (
            (WRITE, lambda: sink.apply(lease, writes[0]), "plain SET",
             lambda: client.set(KEYS[0], VALUE)),
            (BATCH, lambda: sink.apply(lease, *writes, checkpoint="7"),
             "MULTI of 20 SET and an HSET", transaction),
        ):  # fmt: skip
            sides = [_calls(session, client, *one) for one in (("fenced", fenced), (peer, plain))]
            figures = [Figure(f"{case}: time", "us"), Figure(f"{case}: CPU of Redis", "us")]
            if session.wants(*(figure.case for figure in figures)):
                await session.compare(figures, *sides)


async def _measure_local(session: Session) -> None:
    """Measures what a handler asks that writes elsewhere: no server is in it."""

    def side(name: str, call: Callable[[], object]) -> Side:
        def thousand() -> None:
            for _ in range(LOCAL_CALLS):
                call()

        return _calls(session, None, name, thousand)

    check = _lease().check
    sides = side("Lease.check", check), side("time.monotonic", time.monotonic)
    await session.compare([Figure(LOCAL, "ns")], *sides)


def _lease() -> Lease:
    """Returns one that lasts as long as any benchmark."""
    memory = LeaseMemory(1)
    memory.grant(0, EPOCH, lease_now_s() + 1e6, 0)
    return Lease(memory, 0, EPOCH, lambda _: None)


def _calls(session: Session, client: Redis | None, name: str, call: Callable[[], Any]) -> Side:
    """Returns a side that calls again and again: the time of each in us, and that of Redis."""

    async def measure() -> Sequence[float]:
        await asyncio.sleep(0)  # here Ctrl-C is heard
        call()
        before_s = _read(client)[1] if client else 0.0
        calls, began_s, passed_s = 0, time.perf_counter(), 0.0
        while passed_s < session.plan.of(0.5, 0.1):
            call()
            calls += 1
            passed_s = time.perf_counter() - began_s
        used_s = (_read(client)[1] if client else 0.0) - before_s
        return passed_s / calls * 1e6, used_s / calls * 1e6

    return Side(name, measure)


STAGES = (
    Stage(tuple(UNITS), _measure_holding),
    Stage((TAKEOVER,), _measure_takeover),
    Stage(tuple(LATE_LIMITS), _measure_lateness),
    Stage(
        tuple(f"{case}: {what}" for case in (WRITE, BATCH) for what in ("time", "CPU of Redis")),
        _measure_fenced,
    ),
    Stage((LOCAL,), _measure_local),
)
