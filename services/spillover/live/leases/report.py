"""The report on a whole lease group for onlookers: all that Redis has of it, with its age, and the
activity of this member.

It reads Redis by connections of its own, on the loop of whoever asks, so that onlookers cost the
member nothing; what is read of the member may be read from any thread. Whether a member is ready
is said here, too.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from dataclasses import dataclass, field

from spillover.core.leases.blog import EPOCH
from spillover.core.leases.machine import Phase
from spillover.core.leases.records import Allocation, Snapshot
from spillover.live.leases.blog_store import RedisBlogStore
from spillover.live.leases.completion import FailedMachine
from spillover.live.leases.group import LeaseGroup
from spillover.live.leases.renewal.clock import lease_now_s
from spillover.live.leases.store import RedisLeaseStore
from spillover.model.errors import InputError, PeerError

SHARED_S = 0.2
"""So often at most the hashes are read, however many ask."""

TIMEOUT_S = 0.5
"""The longest wait for each answer of Redis: onlookers rather see what is known than wait."""


@dataclass(frozen=True, slots=True)
class AllocationRow:
    """A partition that was ever served. `since_ms` is an instant of Redis's clock; of a lease that
    is over nothing is left. The blog's rule knows neither. `load`: units of work per normal lease
    time, as last told; None where nobody has, or counts are what is evened out."""

    partition: int
    node: str
    epoch: int
    since_ms: float | None
    lease_ms_left: float | None
    stopping: bool
    load: float | None = None


@dataclass(frozen=True, slots=True)
class GrabRow:
    """A challenge that was won, and for how long its mark stays."""

    partition: int
    node: str
    since_ms: float | None
    ms_left: float | None


@dataclass(frozen=True, slots=True)
class MemberRow:
    """A living member, and how many partitions it serves; by the blog's rule whoever serves one."""

    node: str
    alive_for_ms: float | None
    held: int


@dataclass(frozen=True, slots=True)
class GroupState:
    """The state of a group in Redis, at the instant `now_ms` of its clock."""

    now_ms: float | None = None
    members: list[MemberRow] = field(default_factory=list)
    allocation: list[AllocationRow] = field(default_factory=list)
    grabs: list[GrabRow] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Seen:
    """The last that could be read, and how old that is (None: never yet); what was the matter at
    the last try, or None."""

    stored: GroupState
    as_of_s: float | None
    problem: str | None


class GroupReport:
    """One member's view of its group. `look` must always be called on the same loop."""

    def __init__(self, member: LeaseGroup) -> None:
        self.member = member
        partitions = member.settings.partitions
        self._blog = (
            RedisBlogStore(member.redis, member.group, timeout_s=TIMEOUT_S)
            if member.rule == "blog"
            else None
        )
        self._store = RedisLeaseStore(
            member.redis,
            member.group,
            partitions,
            member.times,
            rule=member.rule,
            balance=member.settings.balance,
            timeout_s=TIMEOUT_S,
        )
        self._stored = GroupState()
        self._read_s: float | None = None
        self._tried_s = -math.inf
        self._problem: str | None = None
        self._reading: asyncio.Task[None] | None = None

    async def look(self) -> Seen:
        """Look at what Redis has now, or had at most SHARED_S ago; without Redis within two
        seconds, at what it had last."""
        if self._reading is None and time.monotonic() - self._tried_s >= SHARED_S:
            self._reading = asyncio.get_running_loop().create_task(self._read())
        if self._reading is not None:
            await asyncio.shield(self._reading)
        age_s = None if self._read_s is None else time.monotonic() - self._read_s
        problem = self._problem or self.member.machine.problem
        return Seen(self._stored, age_s, problem)

    def not_ready(self) -> tuple[str, str] | None:
        """Returns why the member cannot serve anything: a reason and a sentence; None if it can."""
        member = self.member
        if (ended := self._how_ended()) is not None:
            return "not_ready", f"member {member.node} {ended}"
        if member.draining:
            return "draining", f"member {member.node} is handing over"
        if member.machine.state is Phase.WAITING:
            return "id_taken", f"member {member.node} waits for another one of its id"
        if member.machine.state is not Phase.MEMBER:
            problem = member.machine.problem or "it has not been let in yet"
            return "joining", f"member {member.node} is joining: {problem}"
        down_since_s = member.events.down_since_s
        if down_since_s is not None:
            away_s = lease_now_s() - down_since_s
            if away_s * 1000.0 >= member.times.max_lease_ms:
                said = member.machine.problem or "Redis is away"
                return "redis_down", f"for {away_s:.1f} s, longer than leases last: {said}"
        return None

    def _how_ended(self) -> str | None:
        """Returns how a member has ended that nobody has asked to leave."""
        machine = self.member.machine
        if isinstance(machine, FailedMachine):
            return f"has failed: {machine.problem}"
        if machine.state is Phase.FINISHED and not self.member.drain_wanted:
            return "has left the group; its log says why"
        return None

    async def close(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
        await self._store.close()
        if self._blog is not None:
            await self._blog.close()

    async def _read(self) -> None:
        try:
            self._stored = await self._read_stored()
        except (PeerError, InputError) as error:
            self._problem = str(error)
        else:
            self._problem = None
            self._read_s = time.monotonic()
        finally:
            self._tried_s = time.monotonic()
            self._reading = None

    async def _read_stored(self) -> GroupState:
        if self._blog is None:
            return stored_of(await self._store.snapshot())
        owners, winners = await self._blog.owners(), await self._blog.winners()
        counts = Counter(owners.values())
        return GroupState(
            members=[MemberRow(node, None, counts[node]) for node in sorted(counts)],
            allocation=[
                AllocationRow(p, node, EPOCH, None, None, stopping=False)
                for p, node in sorted(owners.items())
            ],
            grabs=[GrabRow(p, node, None, None) for p, node in sorted(winners.items())],
        )


def stored_of(snapshot: Snapshot) -> GroupState:
    """Returns the same with durations, sorted; what is over long ago is left out of members and
    grabs.
    """
    now_ms = snapshot.now_ms
    alive = {
        node: member.alive_to_ms - now_ms
        for node, member in snapshot.members.items()
        if member.alive_to_ms > now_ms
    }
    counts = Counter(one.owner for one in snapshot.allocations.values() if one.over_ms > now_ms)
    loads = {p: one.amount / 1000.0 for p, one in (snapshot.loads or {}).items()}
    return GroupState(
        now_ms,
        [MemberRow(node, alive[node], counts[node]) for node in sorted(alive)],
        [_row(p, one, now_ms, loads.get(p)) for p, one in sorted(snapshot.allocations.items())],
        [
            GrabRow(p, one.node, one.since_ms, one.to_ms - now_ms)
            for p, one in sorted(snapshot.grabs.items())
            if one.to_ms > now_ms
        ],
    )


def _row(partition: int, one: Allocation, now_ms: float, load: float | None) -> AllocationRow:
    left_ms = max(0.0, one.over_ms - now_ms)
    stopping = left_ms > 0.0 and one.stop_to_ms > 0.0
    return AllocationRow(partition, one.owner, one.epoch, one.since_ms, left_ms, stopping, load)
