"""The answers of a lease member's routes, as pydantic models: they describe it in the OpenAPI."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, Field

from spillover import __version__
from spillover.live.leases.report import GroupReport, Seen

Milliseconds = Annotated[float, Field(ge=0.0, allow_inf_nan=False)]


class MemberView(BaseModel):
    """A living member; null where the rule does not know for how long it counts as alive."""

    node: str
    alive_for_ms: Milliseconds | None
    held: int


class AllocationView(BaseModel):
    """A partition that was ever served, and by whom at last. `since_ms` is an instant of Redis's
    clock. Nobody serves it if `lease_ms_left` is 0; null: the rule does not know."""

    partition: int
    node: str
    epoch: int
    since_ms: float | None
    lease_ms_left: Milliseconds | None
    stopping: bool
    load: float | None
    """Units of work per normal lease time, as last told, where loads are what is evened out."""


class GrabView(BaseModel):
    """A challenge that was won, and for how long its mark stays."""

    partition: int
    node: str
    since_ms: float | None
    ms_left: Milliseconds | None


class RedisView(BaseModel):
    """The state of Redis: whether it answers, and the problem if not."""

    up: bool
    problem: str | None


class RenewalView(BaseModel):
    """The renewal of leases: by a process, a thread, or none; and how late the latest of the last
    hundred renewals was sent."""

    kind: str
    lag_ms_max: Milliseconds


class LeaseState(BaseModel):
    """The whole group as Redis has it, and this member of it."""

    group: str
    node: str
    state: str
    """The state in words: joining, waiting for another member of the same id, member, leaving,
    finished."""
    rule: str
    balance: str
    version: str
    draining: bool
    partitions: int
    held: dict[int, int]
    """Epochs of what this member holds, by partition."""
    members: list[MemberView]
    allocation: list[AllocationView]
    grabs: list[GrabView]
    redis: RedisView
    as_of_s: float | None
    """How old members, allocation and grabs are; null if Redis could never be read."""
    redis_now_ms: float | None
    """Redis's clock at that time."""
    renewal: RenewalView
    loop_lag_ms: Milliseconds
    """The time by which the member's event loop is late at this instant."""


class MemberState(BaseModel):
    """This member alone."""

    group: str
    node: str
    state: str
    draining: bool
    held: dict[int, int]


def member_state(report: GroupReport) -> MemberState:
    """Returns the member at this instant."""
    member = report.member
    return MemberState(
        group=member.group,
        node=member.node,
        state=member.state,
        draining=member.draining,
        held=member.held,
    )


def lease_state(report: GroupReport, seen: Seen) -> LeaseState:
    """`/state`: what was seen of the group, and the member at this instant."""
    member, stored = report.member, seen.stored
    return LeaseState.model_validate(
        {
            **member_state(report).model_dump(),
            "rule": member.rule,
            "balance": member.settings.balance,
            "version": __version__,
            "partitions": member.settings.partitions,
            "members": stored.members,
            "allocation": stored.allocation,
            "grabs": stored.grabs,
            "redis": {"up": seen.problem is None, "problem": seen.problem},
            "as_of_s": None if seen.as_of_s is None else round(seen.as_of_s, 3),
            "redis_now_ms": stored.now_ms,
            "renewal": {
                "kind": member.renewal,
                "lag_ms_max": round(member.events.renew_lag_s_max * 1e3, 3),
            },
            "loop_lag_ms": round(member.loop_lag.now_s() * 1e3, 3),
        },
        from_attributes=True,
    )
