"""Members of a lease group that a test may harm: processes of `spillover lease run`, killed, frozen
and started again by their pids. What they say is read as they say it; what their handlers do is
read from the handlers' diaries.

All instants are of time.monotonic(), which is the same for all processes. What must not come of it
is in `support.leases.reckoning`, the handlers are `lease_handlers_of_tests`.

    async with members.Group(directory=tmp_path, url=redis_server.url, partitions=8) as group:
        group.spawn("a", "b", "c")
        await group.until_even()
        killed_s = group.kill("b")
        took_s = await group.until_served(since_s=killed_s)
"""

from __future__ import annotations

import asyncio
import json
import os
import selectors
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

from spillover.model.lease_times import LeaseTimes
from support import HANDLERS
from support.loop import until
from support.process_table import is_stopped

MODULE = "python:lease_handlers_of_tests"
LIMIT_S = 60.0
LOOK_S = 0.02

TIMES = LeaseTimes(
    normal_lease_ms=500,
    max_lease_ms=2000,
    max_shutdown_ms=600,
    min_grab_ms=200,
    held_delay_ms=5,
)


MEMBER, RENEWER = "member", "renewer"
now_s = time.monotonic


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a member's standard output, and when it came here."""

    at_s: float
    event: str
    partition: int | None
    epoch: int | None
    given: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Note:
    """One line of a handler's diary. `what`: begin, act, refused, stop, cancelled, end.
    `at_s` of begin, act and refused was read before the handler asked its lease or sink."""

    partition: int
    epoch: int
    node: str
    pid: int
    what: str
    at_s: float
    number: int = 0
    left_s: float = 0.0
    gap_s: float = 0.0
    by: str = ""


@dataclass(frozen=True, slots=True)
class Record:
    """What a sink took, in its order. `deadline_s`: as the handler saw it just before."""

    partition: int
    epoch: int
    node: str
    pid: int
    number: int
    at_s: float
    deadline_s: float


@dataclass(slots=True)
class Blackout:
    """Nothing of these nodes could be renewed from here to there; of all, if none is named."""

    nodes: frozenset[str]
    from_s: float
    to_s: float = float("inf")


@dataclass
class Member:
    """One process that was started, and what it has said."""

    node: str
    process: subprocess.Popen[bytes]
    log: Path
    lines: list[Line] = field(default_factory=list)
    held: dict[int, int] = field(default_factory=dict)
    """Partition and epoch, by its own lines."""

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def hear(self, given: Mapping[str, Any]) -> None:
        event, partition, epoch = given["event"], given.get("partition"), given.get("epoch")
        self.lines.append(Line(now_s(), event, partition, epoch, given))
        if event == "acquired":
            self.held[partition] = epoch
        elif event in {"released", "lost", "fenced"}:
            self.held.pop(partition, None)

    def told(self, *events: str, since_s: float = 0.0) -> list[Line]:
        """Its lines of these kinds."""
        return [line for line in self.lines if line.event in events and line.at_s >= since_s]


@dataclass(kw_only=True)
class Group:
    """One lease group. `url` is the Redis of the leases, `sink_url` another, healthy one (by
    default the same) for what handlers write."""

    directory: Path
    url: str
    sink_url: str = ""
    partitions: int = 8
    times: LeaseTimes = TIMES
    handler: str = "work"
    """A function of `lease_handlers_of_tests`."""
    pace_s: float = 0.05
    name: str = field(default_factory=lambda: f"g-{uuid.uuid4().hex[:12]}")
    members: dict[str, Member] = field(default_factory=dict)
    """The latest of each node."""
    former: list[Member] = field(default_factory=list)
    """Those whose node was started again."""
    blackouts: list[Blackout] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    """What was read of the diaries so far; see `read`."""

    def __post_init__(self) -> None:
        self.sink_url = self.sink_url or self.url
        self._offsets: dict[Path, int] = {}
        self._acted_s: dict[tuple[str, int], float] = {}
        self._frozen: dict[tuple[str, str], tuple[int, Blackout]] = {}
        self._selector = selectors.DefaultSelector()
        self._ended = threading.Event()
        self._reader = threading.Thread(target=self._read_lines, daemon=True)

    async def __aenter__(self) -> Self:
        for name in ("diaries", "orders"):
            (self.directory / name).mkdir(parents=True, exist_ok=True)
        self._reader.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.close)

    # --- processes ----------------------------------------------------------------------------

    def spawn(self, *nodes: str, url: str = "") -> list[Member]:
        """Start them, for the first time or again; `url`: their own way to the Redis of the
        leases."""
        return [self._spawn(node, url or self.url) for node in nodes]

    def _spawn(self, node: str, url: str) -> Member:
        # Without HTTP it starts sooner.
        command = [
            sys.executable,
            "-m",
            "spillover",
            "lease",
            "run",
            "--redis",
            url,
            "--bind",
            "off",
        ]
        command += ["--group", self.name, "--node", node, "--partitions", str(self.partitions)]
        command += ["--handler", f"{MODULE}:{self.handler}"]
        for name, value in asdict(self.times).items():
            command += [f"--{name.replace('_', '-')}", f"{value:g}"]
        given = {
            "directory": str(self.directory), "sink_url": self.sink_url, "sink": self.name,
            "node": node, "pace_s": self.pace_s,
        }  # fmt: skip
        log = self.directory / f"{node}.log"
        with log.open("ab") as errors:
            process = subprocess.Popen(
                command, cwd=HANDLERS,
                env=os.environ | {"SPILLOVER_TEST_LEASES": json.dumps(given)},
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, process_group=0,
            )  # fmt: skip
        member = Member(node, process, log)
        before = self.members.get(node)
        self.former += [before] if before is not None else []
        self.members[node] = member
        assert process.stdout is not None
        os.set_blocking(process.stdout.fileno(), False)
        self._selector.register(process.stdout, selectors.EVENT_READ, (member, bytearray()))
        return member

    def kill(self, *nodes: str) -> float:
        """SIGKILL; gone when this returns: when that was."""
        processes = [self.members[node].process for node in nodes]
        for process in processes:
            process.kill()
        for process in processes:
            process.wait(10)
        return now_s()

    def terminate(self, *nodes: str) -> None:
        """SIGTERM: they hand over and end."""
        for node in nodes:
            self.members[node].process.terminate()

    async def ended(self, node: str, limit_s: float = LIMIT_S) -> int:
        """Until the process has ended; its exit status."""
        process = self.members[node].process
        await self.until(lambda: process.poll() is not None, limit_s, f"end of {node}")
        return process.returncode

    def renewer(self, node: str) -> int | None:
        """The pid of the process that renews for it."""
        command = ["pgrep", "-P", str(self.members[node].process.pid), "-f", "leases.renewal"]
        found = subprocess.run(command, capture_output=True, text=True, check=False).stdout.split()
        return int(found[0]) if found else None

    def freeze(self, node: str, *parts: str) -> float:
        """SIGSTOP the member, its renewer, or both, by default the member; when it stood still."""
        parts = parts or (MEMBER,)
        pids = {part: self._pid(node, part) for part in parts}
        for pid in pids.values():
            os.kill(pid, signal.SIGSTOP)
        to_s = now_s() + 5.0
        while not all(map(is_stopped, pids.values())):
            assert now_s() < to_s, f"{parts} of {node} does not stop"
        blackout = Blackout(frozenset({node}), now_s())
        self.blackouts += [blackout] if MEMBER in parts else []
        self._frozen |= {(node, part): (pid, blackout) for part, pid in pids.items()}
        return blackout.from_s

    def thaw(self, node: str) -> float:
        """SIGCONT to whatever of it stands still; when that was."""
        at_s = now_s()
        for (frozen, part), (pid, blackout) in list(self._frozen.items()):
            if frozen == node:
                blackout.to_s = at_s
                del self._frozen[frozen, part]
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)
        return at_s

    def black_out(self, from_s: float, to_s: float, *nodes: str) -> None:
        """Have the reckoning know that nothing could be renewed meanwhile."""
        self.blackouts.append(Blackout(frozenset(nodes), from_s, to_s))

    def order_stop(self, node: str, partition: int) -> None:
        """The handler of that partition is to stop its process, once, between asking its lease and
        acting on the answer."""
        (self.directory / "orders" / f"{node}-{partition}").touch()

    def close(self, limit_s: float = 10.0) -> dict[str, int]:
        """End all as an operator does, and by force what does not end; the exit statuses."""
        for node, _ in list(self._frozen):
            self.thaw(node)
        processes = {m.process for m in [*self.members.values(), *self.former]}
        try:
            for process in processes:
                process.terminate()
            to_s = now_s() + limit_s
            for process in processes:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(max(0.0, to_s - now_s()))
        finally:
            for process in processes:
                process.kill()
                process.wait(10)
            self._ended.set()
            self._reader.join()
            for process in processes:
                process.stdout.close()
            self._selector.close()
        return {node: member.process.returncode for node, member in self.members.items()}

    def _pid(self, node: str, part: str) -> int:
        pid = self.members[node].process.pid if part == MEMBER else self.renewer(node)
        assert pid is not None, f"{node} has no {part}"
        return pid

    # --- what they say ------------------------------------------------------------------------

    def _read_lines(self) -> None:
        while not self._ended.is_set():
            if not self._selector.get_map():
                self._ended.wait(LOOK_S)
            for key, _ in self._selector.select(LOOK_S):
                member, unread = key.data
                data = os.read(key.fd, 65_536)
                if not data:
                    self._selector.unregister(key.fileobj)
                unread += data
                *lines, rest = unread.split(b"\n")
                unread[:] = rest
                for given in map(json.loads, lines):
                    member.hear(given)
                    with (self.directory / "lines").open("a") as file:  # to look at afterwards
                        print(json.dumps(given | {"heard_s": now_s()}), file=file)

    @property
    def living(self) -> dict[str, Member]:
        return {node: member for node, member in self.members.items() if member.alive}

    def held(self, node: str) -> dict[int, int]:
        """Partition and epoch, by the member's own lines."""
        return dict(self.members[node].held)

    def holders(self) -> dict[int, list[str]]:
        """Who of the living says that it holds it, by partition."""
        found: dict[int, list[str]] = {partition: [] for partition in range(self.partitions)}
        for node, member in self.living.items():
            for partition in list(member.held):
                found[partition].append(node)
        return found

    def counts(self) -> dict[str, int]:
        return {node: len(member.held) for node, member in self.living.items()}

    def is_even(self) -> bool:
        """Each partition has one holder among the living, and none has two more than another."""
        counts = self.counts().values()
        once = all(len(nodes) == 1 for nodes in self.holders().values())
        return once and bool(counts) and max(counts) - min(counts) <= 1

    # --- what their handlers do ---------------------------------------------------------------

    def read(self) -> list[Note]:
        """All notes so far."""
        for path in (self.directory / "diaries").iterdir():
            with path.open("rb") as file:
                file.seek(self._offsets.get(path, 0))
                for line in file:
                    if not line.endswith(b"\n"):
                        break
                    self._offsets[path] = self._offsets.get(path, 0) + len(line)
                    note = Note(**json.loads(line))
                    self.notes.append(note)
                    if note.what == "act":
                        key = note.node, note.partition  # of whichever of its lives
                        self._acted_s[key] = max(note.at_s, self._acted_s.get(key, 0.0))
        return self.notes

    def served(self, since_s: float, node: str = "") -> set[int]:
        """Which partitions were worked on since then, by that node if it is given."""
        self.read()
        acted = self._acted_s.items()
        return {p for (by, p), at_s in acted if at_s >= since_s and node in ("", by)}

    def records(self) -> list[Record]:
        """What the sink took, in its order."""
        from redis import Redis

        kinds = (int, int, str, int, int, float, float)
        names = Record.__slots__
        with closing(Redis.from_url(self.sink_url, decode_responses=True)) as client:
            rows = [row for _, row in client.xrange(f"{{{self.name}}}:records")]
        return [Record(*(k(row[n]) for k, n in zip(kinds, names, strict=True))) for row in rows]

    # --- waiting ------------------------------------------------------------------------------

    async def until(self, condition: Callable[[], object], limit_s: float, what: str) -> float:
        """How long it took until that was so."""
        began_s = now_s()
        await until(condition, limit_s, lambda: f"{what}; {self.standing}", every_s=LOOK_S)
        return now_s() - began_s

    async def until_even(self, limit_s: float = LIMIT_S) -> float:
        return await self.until(self.is_even, limit_s, "even")

    async def until_served(
        self, partitions: Iterable[int] = (), *, since_s: float, limit_s: float = LIMIT_S
    ) -> float:
        """Until each (of these) was worked on after that instant; how long after it the last of
        them was, by the handlers' own notes."""
        wanted = set(partitions) or set(range(self.partitions))
        what = f"work on {sorted(wanted)}"
        await self.until(lambda: wanted <= self.served(since_s), limit_s, what)
        firsts: dict[int, float] = {}
        for note in self.read():
            if note.what == "act" and note.at_s >= since_s and note.partition in wanted:
                firsts[note.partition] = min(note.at_s, firsts.get(note.partition, note.at_s))
        return max(firsts.values()) - since_s

    async def until_served_by(
        self, node: str, partitions: Iterable[int], *, since_s: float, limit_s: float = LIMIT_S
    ) -> float:
        """Until that node has worked on all of these after that instant."""
        wanted = set(partitions)
        what = f"work on {sorted(wanted)} by {node}"
        return await self.until(lambda: wanted <= self.served(since_s, node), limit_s, what)

    @property
    def standing(self) -> str:
        """For people, when something did not happen."""
        said = {
            node: (one.process.poll(), [(line.event, line.partition) for line in one.lines[-5:]])
            for node, one in self.members.items()
        }
        return f"holders {self.holders()}, statuses and last lines {said}"
