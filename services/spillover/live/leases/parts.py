"""What a lease member is made of, by its rule: the machine, the store's operations for its asks,
and what keeps its leases. `shell` joins them, and knows nothing of rules.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any, Protocol

from spillover.core.leases import events as ev
from spillover.core.leases.agenda import MemberSettings
from spillover.core.leases.machine import LeaseMember, Phase
from spillover.live.leases.blog import BlogMachine, UnwatchedLeases, blog_asks
from spillover.live.leases.blog_store import RedisBlogStore
from spillover.live.leases.renewal.lease import Lease
from spillover.live.leases.renewal.memory import THREAD
from spillover.live.leases.renewal.renewer import LeaseRenewer
from spillover.live.leases.renewal.settings import make_plan
from spillover.live.leases.store import RedisLeaseStore

Operation = Callable[[Any], Awaitable[Any]]


class Machine(Protocol):
    """A member's machine, and what is told of it."""

    @property
    def state(self) -> Phase: ...

    @property
    def is_down(self) -> bool: ...

    @property
    def problem(self) -> str | None: ...

    def handle(self, event: Any, now_s: float) -> list[Any]: ...

    def next_deadline(self) -> float: ...


class Leases(Protocol):
    """What keeps the leases of a member; see `renewal.renewer`."""

    @property
    def kind(self) -> str: ...

    def begin(self) -> None: ...

    def end(self) -> None: ...

    def grant(self, partition: int, epoch: int, to_s: float, runtime: int = THREAD) -> Lease: ...

    def stop(self, partition: int, epoch: int, by_s: float) -> None: ...

    def fence(self, partition: int, epoch: int) -> None: ...

    def drop(self, partition: int, epoch: int) -> None: ...

    def deadline_s(self, partition: int, epoch: int) -> float: ...

    def work(self) -> list[tuple[int, int, float | None]]: ...

    def beat_on(self, loop: Any) -> None: ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Parts:
    """Of one member. `make_leases(on_event, on_lag)` is called once, at its start; `held` gives the
    epochs by partition, from any thread."""

    machine: Machine
    store: RedisLeaseStore
    asks: Mapping[type, Operation]
    make_leases: Callable[[Callable[[Any], None], Callable[[float], None]], Leases]
    held: Callable[[], dict[int, int]]
    close: Callable[[], Awaitable[None]]


def make_parts(
    url: str,
    group: str,
    settings: MemberSettings,
    *,
    rule: str,
    incarnation: str,
    random: Random,
    max_progress_ms: float | None,
    renewer: str,
) -> Parts:
    """`renewer`: auto, process or thread. Raises InputError."""
    times, partitions = settings.times, settings.partitions
    balance = settings.balance
    store = RedisLeaseStore(url, group, partitions, times, rule=rule, balance=balance)
    if rule == "blog":
        return _blog_parts(url, group, settings, store, incarnation, random)
    plan = make_plan(
        url,
        group,
        partitions,
        times,
        node=settings.node,
        incarnation=incarnation,
        rule=rule,
        balance=balance,
        max_progress_ms=max_progress_ms,
    )
    machine = LeaseMember(settings, random)
    held = machine.holdings.held
    return Parts(
        machine=machine,
        store=store,
        asks=guarded_asks(store, settings.node, incarnation),
        make_leases=lambda on_event, on_lag: LeaseRenewer(
            plan, on_event, on_lag=on_lag, mode=renewer
        ),
        held=lambda: {one.partition: one.epoch for one in list(held.values())},
        close=store.close,
    )


def _blog_parts(
    url: str,
    group: str,
    settings: MemberSettings,
    store: RedisLeaseStore,
    incarnation: str,
    random: Random,
) -> Parts:
    hashes = RedisBlogStore(url, group)
    machine = BlogMachine(settings, random)

    async def close() -> None:
        await store.close()
        await hashes.close()

    return Parts(
        machine=machine,
        store=store,
        asks=blog_asks(store, hashes, settings.node, incarnation),
        make_leases=lambda _, __: UnwatchedLeases(settings.partitions),
        held=machine.held,
        close=close,
    )


def guarded_asks(store: RedisLeaseStore, node: str, incarnation: str) -> dict[type, Operation]:
    """Returns the store's operation for each ask of `core.leases.machine`."""
    return {
        ev.AskJoin: lambda _: store.join(node, incarnation),
        ev.AskLeave: lambda _: store.leave(node, incarnation),
        ev.AskSurvey: lambda a: store.survey(node, a.loads),
        ev.AskGrab: lambda a: store.grab(a.partition, node, a.free_for_ms),
        ev.AskActivate: lambda a: store.activate(a.partition, node),
        ev.AskWanted: lambda a: store.is_wanted(a.partition, node, a.epoch),
        ev.AskDrain: lambda a: store.drain(a.partition, node, a.epoch),
        ev.AskRelease: lambda a: store.release(a.partition, node, a.epoch),
    }
