"""The parts of a lease member, by its rule: the machine, the store's operations for its asks, and
the keeper of its leases. `shell` joins them, and knows nothing of rules."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Protocol, TypeAlias

from spillover.core.leases import events as ev
from spillover.core.leases.machine import LeaseMember, Phase
from spillover.core.leases.settings import MemberSettings
from spillover.core.machine import Machine
from spillover.live.leases.asks import Operations
from spillover.live.leases.blog import BlogMachine, UnwatchedLeases, blog_asks
from spillover.live.leases.blog_store import RedisBlogStore
from spillover.live.leases.hints import Hints
from spillover.live.leases.renewal.renewer import LeaseRenewer, Told
from spillover.live.leases.renewal.settings import make_plan
from spillover.live.leases.store import RedisLeaseStore
from spillover.live.redis.rotation import RedisAddress


class MachineState(Protocol):
    """The state of a member's machine."""

    @property
    def state(self) -> Phase: ...

    @property
    def is_down(self) -> bool: ...

    @property
    def problem(self) -> str | None: ...


class MemberMachine(Machine[ev.Event, ev.Command], MachineState, Protocol):
    """The machine of a member, of either rule."""


Leases: TypeAlias = LeaseRenewer | UnwatchedLeases
"""The keepers of a member's leases."""


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of one member. `make_leases(on_event, on_lag)` and `make_hints` are for its start;
    `held` gives the epochs by partition, from any thread."""

    machine: MemberMachine
    store: RedisLeaseStore
    operations: Operations
    make_hints: Callable[..., Hints]
    make_leases: Callable[[Callable[[Told], None], Callable[[float], None]], Leases]
    held: Callable[[], dict[int, int]]
    close: Callable[[], Awaitable[None]]


def make_parts(
    url: RedisAddress,
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
    make_hints = partial(Hints, url, group, random=Random(f"{incarnation}/hints"))
    if rule == "blog":
        hashes = RedisBlogStore(url, group)
        asks = blog_asks(store, hashes, settings.node, incarnation)
        return _blog_parts(settings, store, hashes, asks, make_hints, random)
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
        operations=guarded_asks(store, settings.node, incarnation),
        make_hints=make_hints,
        make_leases=lambda on_event, on_lag: LeaseRenewer(
            plan, on_event, on_lag=on_lag, mode=renewer
        ),
        held=lambda: {one.partition: one.epoch for one in list(held.values())},
        close=store.close,
    )


def _blog_parts(
    settings: MemberSettings,
    store: RedisLeaseStore,
    hashes: RedisBlogStore,
    operations: Operations,
    make_hints: Callable[..., Hints],
    random: Random,
) -> Parts:
    machine = BlogMachine(settings, random)

    async def close() -> None:
        await store.close()
        await hashes.close()

    return Parts(
        machine=machine,
        store=store,
        operations=operations,
        make_hints=make_hints,
        make_leases=lambda _, __: UnwatchedLeases(settings.partitions),
        held=machine.held,
        close=close,
    )


def guarded_asks(store: RedisLeaseStore, node: str, incarnation: str) -> Operations:
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
