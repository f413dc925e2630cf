"""The store of partition leases on Redis: one script for each operation, one round trip each.

Rules are in `live/leases/lua` (and, for the counts, in `policy.leases`, whose twin grab.lua is);
the twin in memory with the same operations is `sim.leases.store_twin`, and one suite of tests,
tests/contract, holds for both. Hints over channels are in `live.leases.hints`, the blog's rule in
`live.leases.blog_store`.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

from spillover.core.leases.records import (
    Activation,
    Joined,
    Renewed,
    Snapshot,
    Survey,
    check_name,
    check_partitions,
    survey_of,
)
from spillover.live.leases.redis_values import GroupKeys, load_script, read_snapshot
from spillover.live.redis.connection import RedisLink, Script
from spillover.live.redis.rotation import RedisAddress, RedisUrl
from spillover.model.errors import InputError, StoreRefused
from spillover.model.lease_times import LEASE_BALANCES, LEASE_RULES, LeaseTimes
from spillover.policy.leases import LOAD_STALE_LEASES

TIMEOUT_S_MAX = 5.0


def load_scripts(balance: str = "count") -> dict[str, Script]:
    """Returns all scripts of a group, by operation; those for loads get one hash more."""
    files = {
        "join": ("group", "era", "join"),
        "leave": ("group", "leave"),
        "renew": ("group", "era", "renew"),
        "is_wanted": ("group", "is_wanted"),
        "grab": ("group", "era", "standing", f"by_{balance}s", "grab"),
        "drain": ("group", "drain"),
        "release": ("group", "release"),
        "activate": ("group", "activate"),
        "survey": ("group", "stored", "survey_loads" if balance == "load" else "survey"),
    }
    return {operation: load_script(*names) for operation, names in files.items()}


class RedisLeaseStore:
    """One group. Every operation raises StoreUnreachable if no answer came (what became of it is
    not known), StoreRefused if Redis will not, and InputError if the group in Redis has another
    number of partitions, another rule or another balance.

    It remembers the era that it saw last. One that comes back after data were lost lets the scripts
    know; see lua/era.lua. `timeout_s`: for each answer, else half a renewal period, 5 s at most.
    """

    def __init__(
        self,
        url: RedisUrl | RedisAddress,
        group: str,
        partitions: int,
        times: LeaseTimes,
        *,
        rule: str = "guarded",
        balance: str = "count",
        timeout_s: float | None = None,
    ) -> None:
        check_partitions("lease group", partitions)
        if rule not in LEASE_RULES:
            expected = f"expected one of {', '.join(LEASE_RULES)}, got {rule!r}"
            raise InputError("lease group", "rule", expected)
        if balance not in LEASE_BALANCES:
            expected = f"expected one of {', '.join(LEASE_BALANCES)}, got {balance!r}"
            raise InputError("lease group", "balance", expected)
        if rule == "blog" and balance == "load":
            expected = "expected count with the blog's rule, whose waits go by counts"
            raise InputError("lease group", "balance", expected)
        self._keys = GroupKeys.of(group)
        self._hashes = self._keys.hashes_with_load if balance == "load" else self._keys.hashes
        self._partitions = partitions
        self._times = times
        self._rule = rule
        self._balance = balance
        if timeout_s is None:
            timeout_s = min(times.renewal_period_ms / 2000.0, TIMEOUT_S_MAX)
        self._link = RedisLink(url, timeout_s)
        self._scripts = load_scripts(balance)
        self._era = ""

    @property
    def round_trips(self) -> int:
        return self._link.round_trips

    async def join(self, node: str, incarnation: str) -> Joined:
        """Become the member of that id, unless another process of it lives."""
        check_name("lease group", "node", node)
        check_name("lease group", "incarnation", incarnation)
        self._era = ""
        ok, other_alive_ms, era = await self._run(
            "join", *self._group_arguments(), node, incarnation, self._max_lease_ms
        )
        self._era = era
        return Joined(bool(ok), float(other_alive_ms), era)

    async def leave(self, node: str, incarnation: str) -> None:
        """Be no member any more, if it is still this process that is."""
        await self._run("leave", node, incarnation)

    async def renew(self, node: str, incarnation: str, held: Sequence[tuple[int, int]]) -> Renewed:
        """Sign of life of a member and of its (partition, epoch) pairs.

        Send only what is still held by the local deadline: after data were lost, this registers
        it anew, as long as the store knows of no later epoch.
        """
        pairs = [number for pair in held for number in pair]
        era, displaced, flags = await self._run(
            "renew",
            *self._group_arguments(),
            node,
            incarnation,
            self._max_lease_ms,
            *pairs,
        )
        self._era = era
        answers = [
            (partition, flag != "0", flag == "2")
            for (partition, _), flag in zip(held, flags, strict=True)
        ]
        return Renewed(era, answers, bool(displaced))

    async def is_wanted(self, partition: int, node: str, epoch: int) -> bool:
        """Returns whether another node has won what this one serves."""
        return bool(await self._run("is_wanted", partition, node, epoch))

    async def grab(self, partition: int, node: str, free_for_ms: float) -> bool:
        """Win the partition, if the counts allow it; `free_for_ms`: seen free for so long."""
        granted, era = await self._run(
            "grab",
            *self._group_arguments(),
            partition,
            node,
            int(free_for_ms),
            round(self._times.grab_limit_ms),
            round(self._times.normal_lease_ms),
            round(self._times.min_residency_ms),
            round(LOAD_STALE_LEASES * self._times.max_lease_ms),
        )
        self._era = era
        return bool(granted)

    async def drain(self, partition: int, node: str, epoch: int) -> bool:
        """Takes note that the holder begins to stop, and returns whether the lease was its own:
        from now on it has the maximum shutdown time.
        """
        limit_ms = round(self._times.max_shutdown_ms)
        return bool(await self._run("drain", partition, node, epoch, limit_ms))

    async def release(self, partition: int, node: str, epoch: int) -> bool:
        """Frees the partition, whose holder has stopped, and returns whether the lease was its own.
        A stale epoch changes nothing."""
        return bool(await self._run("release", partition, node, epoch))

    async def activate(self, partition: int, node: str) -> Activation:
        """Gives the winner what is free, and returns with which epoch, or in what time to ask
        again."""
        grab_ms = round(self._times.min_grab_ms)
        epoch, free_in_ms = await self._run(
            "activate", partition, node, self._max_lease_ms, grab_ms
        )
        return Activation(int(epoch) if epoch else None, float(free_in_ms))

    async def snapshot(self) -> Snapshot:
        """Returns all that is stored of the group, at one instant."""
        return read_snapshot(await self._run("survey"))

    async def survey(self, node: str, loads: Sequence[tuple[int, int, int]] = ()) -> Survey:
        """Both hashes and the members, sorted out for `node`. Where loads count, it tells on the
        same way what its own are: (partition, epoch, load in thousandths); one that it does not
        hold changes nothing."""
        told = [number for load in loads for number in load]
        reply = await self._run("survey", *([node, *told] if told else ()))
        return survey_of(read_snapshot(reply), self._partitions, self._times, node)

    async def publish_challenge(self, *partitions: int) -> None:
        """Publish one message for each partition on the channel grab-lease, to all, the sender
        included."""
        await self._publish(self._keys.grab_channel, partitions)

    async def publish_allocated(self, *partitions: int) -> None:
        await self._publish(self._keys.allocated_channel, partitions)

    async def close(self) -> None:
        await self._link.close()

    @property
    def _max_lease_ms(self) -> int:
        return round(self._times.max_lease_ms)

    def _group_arguments(self) -> tuple[str | float, ...]:
        """Returns the arguments of lua/era.lua; the fresh era is used only where there is none."""
        grace_ms = round(self._times.max_lease_ms)
        settings = self._partitions, self._rule, self._balance
        return self._era, uuid.uuid4().hex, *settings, grace_ms

    async def _publish(self, channel: str, partitions: Sequence[int]) -> None:
        if partitions:
            await self._link.calls(*(("PUBLISH", channel, p) for p in partitions))

    async def _run(self, operation: str, *arguments: str | float) -> Any:
        try:
            return await self._link.run(self._scripts[operation], self._hashes, *arguments)
        except StoreRefused as refused:
            self._check_group(str(refused))
            raise

    def _check_group(self, said: str) -> None:
        """Raise InputError if a script says that the group is another than was meant."""
        words = said.partition(" refused: ")[2].split()
        for word, name, given in (
            ("PARTITIONS", "partitions", self._partitions),
            ("RULE", "rule", self._rule),
            ("BALANCE", "balance", self._balance),
        ):
            if words[:1] == [word]:
                have = " ".join(words[1:]) or "nothing"
                expected = (
                    f"expected {have}, as the group has it, got {given}: take another group, "
                    f"or stop all its members and delete the key {self._keys.group}"
                )
                raise InputError("lease group", name, expected) from None
