"""The plan of a group's renewal, made from the settings of its member."""

from __future__ import annotations

import uuid

from spillover.core.leases.records import check_name
from spillover.live.leases.redis_values import GroupKeys, load_script
from spillover.live.leases.renewal.plan import RenewalPlan
from spillover.live.redis.rotation import RedisAddress, RedisUrl
from spillover.model.arguments import is_number, wrong
from spillover.model.lease_times import LeaseTimes

TIMEOUT_S_MAX = 5.0
TIMEOUT_SHARE = 0.25
"""The time limit of an answer, as a share of a lease: below a third, so that one connection that
went silent does not cost the lease."""


def make_plan(
    url: RedisUrl | RedisAddress,
    group: str,
    partitions: int,
    times: LeaseTimes,
    *,
    node: str,
    incarnation: str,
    rule: str = "guarded",
    balance: str = "count",
    max_progress_ms: float | None = None,
) -> RenewalPlan:
    """`max_progress_ms`: how long a handler that reports progress may be silent; None: for ever.
    Raises InputError."""
    check_name("lease member", "node", node)
    check_name("lease member", "incarnation", incarnation)
    is_time = is_number(max_progress_ms) and max_progress_ms > 0
    if max_progress_ms is not None and not is_time:
        expected = "ms above 0, or nothing"
        raise wrong("max_progress_ms", expected, max_progress_ms, source="lease member")
    lease_s = times.max_lease_ms / 1000.0
    script = load_script("group", "era", "renew")
    given = (
        uuid.uuid4().hex,
        partitions,
        rule,
        balance,
        round(times.max_lease_ms),
        node,
        incarnation,
        round(times.max_lease_ms),
    )
    return RenewalPlan(
        address=RedisAddress.of(url).parts,
        keys=list(GroupKeys.of(group).hashes),
        script=script.text,
        digest=script.digest,
        arguments=[str(one) for one in given],
        era="",
        partitions=partitions,
        period_s=times.renewal_period_ms / 1000.0,
        lease_s=lease_s,
        margin_s=times.fence_margin_ms / 1000.0,
        timeout_s=min(TIMEOUT_S_MAX, TIMEOUT_SHARE * lease_s),
        max_progress_s=None if max_progress_ms is None else max_progress_ms / 1000.0,
    )
