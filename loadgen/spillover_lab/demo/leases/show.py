"""Members share streams on Redis while one is killed, one frozen and woken, one added: each record
is applied exactly once.

The script from top to bottom: write records (`write`), start members (`Member`), hit them (`Show`),
count what the sink has (`Show._result`). The members are plain `spillover lease run`, their handler
is `live.leases.streams.example`.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys
import time
import uuid
from collections.abc import Callable, Coroutine, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, fields
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from spillover.commandline.terminal import open_console, say
from spillover.live.leases.redis_values import GroupKeys
from spillover.live.leases.renewal.lease import Fenced
from spillover.live.leases.streams.effects import Effects
from spillover.live.leases.streams.example import (
    Applied,
    Counting,
    applied_name,
    check,
    counts_name,
)
from spillover.live.leases.streams.keys import StreamKeys
from spillover.live.leases.streams.reader import AsyncStreamReader
from spillover.live.leases.streams.records import Batch, Checkpoint, RecordsTrimmed
from spillover.live.leases.streams.writer import StreamWriter
from spillover.model.errors import InputError, RunError, SpilloverError
from spillover.model.lease_times import RENEWALS_PER_LEASE_MIN, LeaseTimes
from spillover.testbed.last_words import last_words
from spillover.testbed.redis import RedisPlace, open_sync_client, redis_at
from spillover.testbed.watchdog import Watchdog, end_group
from spillover_lab.demo.leases.ownership import (
    FROZEN,
    JOINED,
    KILLED,
    RESUMED,
    START,
    Mark,
    Ownership,
    ownership,
)
from spillover_lab.processes.child import Child

HANDLER = "python:spillover.live.leases.streams.example:consume"
MEMBERS_MIN, MEMBERS_MAX, STREAMS_MAX = 3, 64, 512
RECORDS_MAX = 50_000_000
"""About 2 GB in Redis."""
REDIS_MIN = (6, 2)
"""Older ones cannot read on from an id of a stream."""
SHUTDOWN_MS_MIN, HELD_DELAY_MS = 500.0, 20.0
FED_SHARE = 0.5
"""This share of the records comes in while the members run, so that no stream is at its end before
the last disturbance. The rest is there before they start."""
KILL_LEASES, FREEZE_AFTER_LEASES, JOIN_AFTER_LEASES = (0.4, 0.9), (2.2, 2.6), (1.5, 1.9)
"""In maximum leases after the one before; drawn from the seed."""
FREEZE_LEASES, LAST_LEASES = 2.0, 2.0
"""So long a member stays frozen, and the newcomer is watched."""
LOOK_S, FEED_S, LINE_EVERY_S = 0.1, 0.05, 5.0
LEAVE_WITHIN_S = 10.0
"""Beyond the shutdown time, for members on a busy machine to leave."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to run. Raises InputError."""

    records: int
    streams: int
    members: int
    max_lease_ms: float
    seed: int
    redis: str | None
    """The URL of a Redis that runs already; None: one of the demo's own."""
    keep: bool
    """Leave the data in the Redis that was given."""
    limit_s: float
    """The limit for everything from the start of the members to the last record."""

    def __post_init__(self) -> None:
        why = ": one is killed, one frozen, and somebody has to go on"
        _expect("--members", self.members, MEMBERS_MIN, MEMBERS_MAX, why)
        _expect("--streams", self.streams, 1, STREAMS_MAX)
        _expect("--records", self.records, self.streams, RECORDS_MAX, ": one for each stream")
        if self.keep and self.redis is None:
            raise InputError("--keep", "", "expected together with --redis: one's own Redis ends")
        if self.max_lease_ms < (least_ms := 2.0 * SHUTDOWN_MS_MIN):
            expected = f"expected at least {least_ms:g}, got {self.max_lease_ms:g}"
            raise InputError("--max-lease-ms", "", expected)

    @property
    def times(self) -> LeaseTimes:
        """Returns three renewals a lease, as the rules ask for at least."""
        normal_ms = self.max_lease_ms / RENEWALS_PER_LEASE_MIN
        return LeaseTimes(
            normal_lease_ms=normal_ms,
            max_lease_ms=self.max_lease_ms,
            max_shutdown_ms=max(SHUTDOWN_MS_MIN, normal_ms),
            min_grab_ms=normal_ms / 2.0,
            held_delay_ms=HELD_DELAY_MS,
        )

    @property
    def fed(self) -> int:
        """Returns how many records come in while the members run."""
        return min(self.records - self.streams, round(self.records * FED_SHARE))

    @property
    def schedule(self) -> list[Mark]:
        """Returns what is done to whom, in seconds after all have their share."""
        random, lease_s = Random(f"{self.seed}/lease demo"), self.max_lease_ms / 1000.0
        nodes = [f"m{number + 1}" for number in range(self.members)]
        killed, frozen = random.sample(nodes, 2)
        kill_s = lease_s * random.uniform(*KILL_LEASES)
        freeze_s = kill_s + lease_s * random.uniform(*FREEZE_AFTER_LEASES)
        resume_s = freeze_s + lease_s * FREEZE_LEASES
        join_s = resume_s + lease_s * random.uniform(*JOIN_AFTER_LEASES)
        return [
            Mark(kill_s, KILLED, killed), Mark(freeze_s, FROZEN, frozen),
            Mark(resume_s, RESUMED, frozen), Mark(join_s, JOINED, f"m{self.members + 1}"),
        ]  # fmt: skip


def _expect(option: str, value: int, least: int, most: int, why: str = "") -> None:
    if not least <= value <= most:
        reason = why if value < least else ""
        raise InputError(option, "", f"expected {least} to {most}, got {value}{reason}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What the demo gave. Instants are wall-clock seconds."""

    plan: Plan
    group: str
    redis_version: str
    began_s: float
    """When the members were started."""
    ended_s: float
    """When all records had been applied."""
    marks: list[Mark]
    ownership: Ownership
    checks: list[Applied]
    late_writes: int
    """What the killed and the frozen member had on its way, delivered after others took over."""
    refused: int
    """So many of these the sink has refused."""
    members: dict[str, str]
    """What became of each."""

    @property
    def applied(self) -> int:
        return sum(one.applied for one in self.checks)

    @property
    def duplicates(self) -> int:
        return sum(max(0, one.applied - one.distinct) for one in self.checks)

    @property
    def missing(self) -> int:
        return sum(one.expected - one.distinct for one in self.checks)

    @property
    def records_per_s(self) -> float:
        """Returns the rate from the start of the members on, standstills included."""
        return self.applied / max(self.ended_s - self.began_s, 1e-3)

    @property
    def problems(self) -> list[str]:
        """Returns what contradicts exactly once."""
        found = [
            f"stream {one.partition}: {one.expected} records, applied {one.applied} times, "
            f"{one.expected - one.distinct} never, {one.out_of_order} out of order"
            for one in self.checks
            if not one.is_exactly_once
        ]
        if self.refused < self.late_writes:
            accepted = self.late_writes - self.refused
            found.append(
                f"the sink took {accepted} of {self.late_writes} writes that came too late"
            )
        return found

    def told_end(self) -> list[str]:
        counts = f"{self.applied:,} times applied, {self.duplicates} again, {self.missing} missing"
        rate = f"{self.records_per_s:,.0f}/s with standstills"
        refused = f"The sink refused {self.refused} of {self.late_writes} writes of former holders"
        lines = [
            f"{self.plan.records:,} records: {counts}; {rate}.",
            f"{refused} that came after others had taken over.",
        ]
        if self.problems:
            first, *more = self.problems
            return [*lines, f"NOT EXACTLY ONCE, which is a bug in Spillover: {first}", *more]
        once = f"Each record was applied exactly once, in all {self.plan.streams} streams."
        return [*lines, once]

    def as_json(self, report: str) -> dict[str, Any]:
        moves = self.ownership.moves
        return {
            "records": self.plan.records,
            "applied": self.applied,
            "duplicates": self.duplicates,
            "missing": self.missing,
            "exactly_once": not self.problems,
            "fenced_writes": self.refused,
            "late_writes": self.late_writes,
            "members": [{"node": node, "fate": fate} for node, fate in self.members.items()],
            "moves": sum(moves.values()) - moves[START],
            "moves_by_cause": moves,
            "standstill_ms": self.ownership.standstills_ms,
            "records_per_s": round(self.records_per_s, 1),
            "streams": self.plan.streams,
            "seed": self.plan.seed,
            "max_lease_ms": self.plan.max_lease_ms,
            "group": self.group,
            "redis_version": self.redis_version,
            "report": report,
        }


# --- records --------------------------------------------------------------------------------------


def write(url: str, group: str, plan: Plan, connection: Connection) -> None:
    """Writes the records, in a process of its own: most at once, the others, when it is told to,
    evenly over as many seconds as it is told.

    Record number i goes to stream i modulo the streams and has the value i // streams, so that each
    stream holds 0, 1, 2, ... in order.
    """
    streams = plan.streams
    try:
        with StreamWriter(url, group, streams) as writer:

            def append(first: int, end: int) -> None:
                for number in range(first, end):
                    writer.append(b"%d" % (number // streams), partition=number % streams)
                writer.flush()

            done = plan.records - plan.fed
            append(0, done)
            connection.send("filled")
            over_s = connection.recv()
            began_s = time.monotonic()
            while done < plan.records:
                share = min(1.0, (time.monotonic() - began_s) / over_s)
                due = plan.records - plan.fed + int(share * plan.fed)
                append(done, due)
                done = due
                time.sleep(FEED_S)
    except SpilloverError as error:
        connection.send(RunError(f"records could not be written: {error}"))
    connection.send("fed")


# --- members --------------------------------------------------------------------------------------


@dataclass(slots=True)
class Member:
    """`spillover lease run` as a process: it leads a process group of its own, so that a freeze
    stops its renewals too, as the pause of a whole machine does."""

    node: str
    process: asyncio.subprocess.Process
    log: Path
    held: dict[int, int] = field(default_factory=dict)
    """Epochs by stream, as far as it has told."""
    fate: str = "stayed"
    frozen: bool = False
    listening: asyncio.Task[None] | None = None

    @property
    def is_running(self) -> bool:
        return self.process.returncode is None and not self.frozen

    @property
    def state(self) -> str:
        if self.frozen:
            return FROZEN
        return "running" if self.is_running else KILLED if self.fate == KILLED else "ended"

    async def listen(self, lines: list[dict[str, Any]]) -> None:
        """Takes a JSON line for each event from its stdout, and keeps what it holds."""
        stdout = self.process.stdout
        while stdout is not None and (text := await stdout.readline()):
            try:
                line = json.loads(text)
            except ValueError:
                continue  # cut off in the middle, by a kill
            event, stream = line.get("event"), line.get("partition")
            if event is not None:
                lines.append(line)
            if self.fate == KILLED:
                continue
            if event == "acquired":
                self.held[stream] = line["epoch"]
            elif event in {"released", "lost", "fenced"} and self.held.get(stream) == line["epoch"]:
                del self.held[stream]


# --- the show -------------------------------------------------------------------------------------


class Show:
    """One run, and what it has come to know."""

    def __init__(self, plan: Plan, place: RedisPlace, directory: Path, watchdog: Watchdog) -> None:
        self._plan = plan
        self._place = place
        self._directory = directory
        self._watchdog = watchdog
        self._group = f"demo-{uuid.uuid4().hex[:8]}"
        self._keys = StreamKeys.of(self._group)
        self._redis = open_sync_client(place.url)
        self._members: dict[str, Member] = {}
        self._lines: list[dict[str, Any]] = []
        self._marks: list[Mark] = []
        self._late: dict[str, list[tuple[AsyncStreamReader, Batch]]] = {}
        self._late_writes = self._refused = self._applied = 0
        self._joined: set[str] = set()
        self._screen = Screen(plan)
        self._limit_s = float("inf")

    async def run(self) -> Result:
        """Writes the records, starts the members, hits them, and checks what the sink has."""
        plan = self._plan
        name = "the process that writes records"
        try:
            with Child(name, write, self._place.url, self._group, plan) as writer, self._screen:
                self._screen.tell(f"writing {plan.records - plan.fed} records ...")
                await writer.receive()
                self._screen.began_s, self._limit_s = time.time(), time.monotonic() + plan.limit_s
                await self._hit_members(writer)
                await self._until(lambda: self._applied >= plan.records, "all records are applied")
                ended_s = time.time()
                await self._leave()
            return self._result(ended_s)
        finally:
            for node in self._late:
                await self._drop_late(node)
            await self._end()

    async def _hit_members(self, writer: Child) -> None:
        """All that is done to the members, each when it is due and the one before is over."""
        self._screen.tell("members start and share the streams out")
        for number in range(self._plan.members):
            await self._start(f"m{number + 1}")
        await self._until(self._is_even, "the members have shared the streams out")
        self._screen.tell("all have their share")
        schedule, lease_s = self._plan.schedule, self._plan.max_lease_ms / 1000.0
        writer.send(schedule[-1].at_s + LAST_LEASES * lease_s)
        acts = {KILLED: self._kill, FROZEN: self._freeze, RESUMED: self._resume, JOINED: self._join}
        shared_s = time.monotonic()
        for due in schedule:
            await self._until(due_at(shared_s + due.at_s), f"{due.kind} is due")
            await acts[due.kind](due.node)
        await self._until(writer.connection.poll, "all records are written")
        await writer.receive()

    async def _kill(self, node: str) -> None:
        """SIGKILL to the member alone: what it has started notices."""
        held = self._gone(node, KILLED)
        self._members[node].process.kill()
        self._mark(KILLED, node)
        await self._catch_late(node, held)
        await self._until(self._is_served, f"others serve what {node} had")
        await self._deliver_late(node)

    async def _freeze(self, node: str) -> None:
        """SIGSTOP, for longer than its leases last."""
        os.killpg(self._members[node].process.pid, signal.SIGSTOP)
        self._members[node].frozen = True
        self._mark(FROZEN, node)
        await self._catch_late(node, self._gone(node, FROZEN))

    async def _resume(self, node: str) -> None:
        await self._until(self._is_served, f"others serve what {node} had")
        await self._deliver_late(node)
        os.killpg(self._members[node].process.pid, signal.SIGCONT)
        self._members[node].frozen = False
        self._mark(RESUMED, node)
        await self._until(self._is_even, f"{node} has its share again")

    async def _join(self, node: str) -> None:
        self._mark(JOINED, node)
        await self._start(node)
        self._members[node].fate = JOINED
        await self._until(self._is_even, f"{node} has its share")

    def _mark(self, kind: str, node: str) -> None:
        self._marks.append(Mark(time.time(), kind, node))
        self._screen.tell(f"{node} {kind}")

    def _gone(self, node: str, fate: str) -> dict[int, int]:
        """It holds nothing any more; what it held."""
        member = self._members[node]
        member.fate, held = fate, dict(member.held)
        member.held.clear()
        return held

    # --- processes ------------------------------------------------------------------------------

    async def _start(self, node: str) -> None:
        """The process runs afterwards; it joins by itself."""
        plan, log = self._plan, self._directory / f"{node}.log"
        times = [(one.name, getattr(plan.times, one.name)) for one in fields(plan.times)]
        with log.open("wb") as errors:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "spillover", "lease", "run", "--group", self._group),
                *("--node", node, "--partitions", str(plan.streams), "--handler", HANDLER),
                *("--seed", str(plan.seed), "--bind", "off"),
                *(f"--{name.replace('_', '-')}={value_ms:.3f}" for name, value_ms in times),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=errors,
                env={**os.environ, "SPILLOVER_REDIS_URL": self._place.url},  # `ps` shows options
                start_new_session=True,
            )
        self._watchdog.watch(process.pid)
        member = self._members[node] = Member(node, process, log)
        member.listening = asyncio.create_task(member.listen(self._lines))

    async def _leave(self) -> None:
        """SIGTERM to all that run: they hand over and leave."""
        leaving = [one for one in self._members.values() if one.is_running]
        for one in leaving:
            one.process.send_signal(signal.SIGTERM)
        within_s = self._plan.times.max_shutdown_ms / 1000.0 + LEAVE_WITHIN_S
        try:
            async with asyncio.timeout(within_s):
                for one in leaving:
                    if code := await one.process.wait():
                        raise RunError(
                            f"member {one.node} ended with {code}: {last_words(one.log)}"
                        )
        except TimeoutError:
            raise RunError(f"members were not gone {within_s:g} s after SIGTERM") from None

    async def _end(self) -> None:
        """Leaves nothing of the members and, where it is another's, nothing in Redis."""
        for one in self._members.values():
            end_group(one.process.pid)
        for one in self._members.values():
            await one.process.wait()
            self._watchdog.forget(one.process.pid)
            if one.listening is not None:
                await asyncio.wait([one.listening])
        if not self._place.is_own and not self._plan.keep:
            keys, leases = self._keys, GroupKeys.of(self._group)
            names = [*leases.hashes_with_load, keys.checkpoints, keys.facts]
            for stream in range(self._plan.streams):
                sink = (keys.sink(counts_name(stream)), keys.sink(applied_name(stream)))
                names += [keys.stream(stream), keys.set_aside(stream), *sink]
            with suppress(Exception):  # it may be gone, which is why the demo ends
                self._redis.unlink(*names)
        self._redis.close()

    # --- writes that come too late --------------------------------------------------------------

    async def _catch_late(self, node: str, held: Mapping[int, int]) -> None:
        """Reads the very batches that the victim would have written next, under its own epochs."""
        within_s = self._plan.max_lease_ms / 4000.0
        kept = self._late[node] = []

        async def catch(stream: int, epoch: int) -> None:
            reader = AsyncStreamReader(
                self._place.url, self._group, stream, epoch,
                batch_records=100, read_ahead=False, retry_s=within_s,
            )  # fmt: skip
            try:
                batch = await reader.read(within_s)
            except (Fenced, RecordsTrimmed):
                batch = None  # somebody was faster: there is nothing that could come too late
            except SpilloverError:
                await reader.close()
                raise
            if batch is None:
                await reader.close()
            else:
                kept.append((reader, batch))

        await asyncio.gather(*(catch(*one) for one in held.items()))

    async def _deliver_late(self, node: str) -> None:
        """Writes them now, as the victim would: the sink has to refuse every one."""
        self._screen.tell(f"others serve what {node} had")
        for reader, batch in self._late[node]:
            effects, count = Effects(), Counting(batch.partition)
            for record in batch.records:
                count(record, effects)
            self._late_writes += 1
            try:
                await reader.apply(batch, effects)
            except Fenced:
                self._refused += 1
        await self._drop_late(node)

    async def _drop_late(self, node: str) -> None:
        while self._late[node]:
            await self._late[node].pop()[0].close()

    # --- looking --------------------------------------------------------------------------------

    def _is_served(self) -> bool:
        """Every stream, by a member that runs."""
        held = (one.held for one in self._members.values() if one.is_running)
        return len({stream for own in held for stream in own}) == self._plan.streams

    def _is_even(self) -> bool:
        """All that run have joined, every stream is served, and counts differ by one at most."""
        running = [one for one in self._members.values() if one.is_running]
        counts = [len(one.held) for one in running]
        joined = self._joined.issuperset(one.node for one in running)
        return joined and self._is_served() and max(counts) - min(counts) <= 1

    async def _until(self, condition: Callable[[], bool], what: str) -> None:
        while not condition():
            if time.monotonic() > self._limit_s:
                done = f"{self._applied} of {self._plan.records} records applied"
                limit = f"within the limit of {self._plan.limit_s:g} s"
                raise RunError(f"not {limit}: {what} ({done}); see --limit-s")
            for one in self._members.values():
                if one.process.returncode is not None and one.fate != KILLED:
                    code = one.process.returncode
                    raise RunError(f"member {one.node} ended by itself ({code}): "
                                   f"{last_words(one.log)}")  # fmt: skip
            await asyncio.to_thread(self._look)
            self._screen.show(self._applied, self._members)
            await asyncio.sleep(LOOK_S)

    def _look(self) -> None:
        from redis.exceptions import RedisError  # noqa: PLC0415 - of the extra `leases`

        with suppress(RedisError, OSError):  # busy; the next look follows
            joined: Any = self._redis.hkeys(GroupKeys.of(self._group).members)
            checkpoints: Any = self._redis.hvals(self._keys.checkpoints)
            self._joined = {name.decode() for name in joined}
            self._applied = sum(Checkpoint.parse(one.decode()).handled for one in checkpoints)

    def _result(self, ended_s: float) -> Result:
        streams, records = self._plan.streams, self._plan.records
        counts = [len(range(stream, records, streams)) for stream in range(streams)]
        return Result(
            plan=self._plan,
            group=self._group,
            redis_version=self._place.version,
            began_s=self._screen.began_s,
            ended_s=ended_s,
            marks=self._marks,
            ownership=ownership(self._lines, self._marks, ended_s),
            checks=check(self._redis, self._group, counts),
            late_writes=self._late_writes,
            refused=self._refused,
            members={node: one.fate for node, one in self._members.items()},
        )


class Screen:
    """What is told on stderr: a table on a terminal, else a line now and then."""

    COLORS = ("dodger_blue1", "dark_orange", "green3", "orchid", "gold3", "cyan3", "red3", "purple")

    def __init__(self, plan: Plan) -> None:
        self.began_s = time.time()
        self._plan = plan
        self._console = open_console()
        self._live = Live(console=self._console, refresh_per_second=8)
        self._events: list[str] = []
        self._next_s = 0.0

    def __enter__(self) -> None:
        if self._console.is_terminal:
            self._live.start()

    def __exit__(self, *_: object) -> None:
        if self._console.is_terminal:
            self._live.stop()

    def tell(self, words: str) -> None:
        line = f"{time.time() - self.began_s:5.1f} s  {words}"
        self._events.append(line)
        if not self._console.is_terminal:
            say(self._console, line)

    def show(self, applied: int, members: Mapping[str, Member]) -> None:
        at_s, done = time.time() - self.began_s, f"{applied:,} of {self._plan.records:,} applied"
        if not self._console.is_terminal:
            if at_s >= self._next_s:
                self._next_s = at_s + LINE_EVERY_S
                held = " ".join(f"{node}:{len(one.held)}" for node, one in members.items())
                say(self._console, f"{at_s:5.1f} s  {done}, held {held}")
            return
        table, strip = Table("member", "state", "held", box=None), Text(" streams ", style="dim")
        owners: dict[int, str] = {}
        for (node, one), color in zip(members.items(), self.COLORS * 9, strict=False):
            bar = Text(f"{len(one.held):4} {'█' * len(one.held)}", style=color)
            table.add_row(Text(node, style=color), one.state, bar)
            owners |= dict.fromkeys(one.held, color)
        for stream in range(self._plan.streams):
            strip.append("■" if stream in owners else "·", style=owners.get(stream, "red"))
        told = Text("\n".join(self._events[-10:]), style="dim")
        self._live.update(Group(Text(f"{at_s:5.1f} s  {done}"), table, strip, told))


def due_at(due_s: float) -> Callable[[], bool]:
    """Returns whether that instant of the monotonic clock has come, whenever it is asked."""
    return lambda: time.monotonic() >= due_s


def run_show(plan: Plan) -> Result:
    """Runs it all in real time. Raises InputError without a usable Redis; RunError if a process
    fails, or the members do not finish within the plan's limit; KeyboardInterrupt."""
    with ExitStack() as stack:
        watchdog = stack.enter_context(Watchdog())
        place = stack.enter_context(redis_at(plan.redis, watchdog))
        numbers = re.match(r"(\d+)\.(\d+)", place.version)
        if numbers and tuple(map(int, numbers.groups())) < REDIS_MIN:
            expected = f"expected Redis 6.2 or later, got {place.version}"
            raise InputError("--redis", "", f"{expected}: it cannot read on from an id of a stream")
        directory = Path(stack.enter_context(TemporaryDirectory(prefix="spillover-leases-")))
        watchdog.watch_directory(directory)
        return _interruptibly(Show(plan, place, directory, watchdog).run())


def _interruptibly(main: Coroutine[Any, Any, Result]) -> Result:
    """SIGTERM and SIGHUP end it as Ctrl-C does: by cancelling, so that everything is put away."""

    async def guarded() -> Result:
        task, loop = asyncio.current_task(), asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, lambda: task is not None and task.cancel())
        return await main

    try:
        return asyncio.run(guarded())
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None
