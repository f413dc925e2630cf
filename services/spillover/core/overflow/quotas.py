"""The use that each tenant makes of its home, and whether it may use more: a table that is asked
before admission, and told how requests go on. It knows no clock.

A request is queued until it leaves the queue for the first time: started here, or handed to a
neighbor. From then on it is running until it has ended, even if it comes back to the queue because
it could not be started after all. So each is one of the two, and what is counted at home never
depends on what a neighbor tells.

A home of several nodes is one: each tells the others what it has let in, and counts what they tell
as its own. What they let in at one instant, before they have told, may be too much by then; the
excess over a rate is paid back (decision 0049).
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import NamedTuple

from spillover.model.access import NO_QUOTA, Quota
from spillover.model.ranges import Whole

MAX_QUEUED, MAX_RUNNING, REQUESTS_PER_S = "max_queued", "max_running", "requests_per_s"
MAX_SESSIONS = "max_sessions"
LIMITS = (MAX_QUEUED, MAX_RUNNING, REQUESTS_PER_S, MAX_SESSIONS)

RETRY_S = 1.0
"""The `retry_after_s`, in seconds, of a request that has to wait until another one ends: nobody
knows when that is."""


class Use(NamedTuple):
    """The use that a tenant makes of one node of its home, as that node tells."""

    requests: Whole
    """The number of requests that were let through since the node's start."""
    queued: Whole
    running: Whole
    sessions: Whole


class Excess(NamedTuple):
    """The limit that a request would exceed, and when to try again."""

    limit: str
    retry_after_s: float


class TenantUse:
    """The use of one tenant: what it uses now, and what it has asked for."""

    def __init__(self, quota: Quota, now_s: float) -> None:
        self.quota = quota
        self.queued = 0
        self.running = 0
        self.sessions = 0
        self.requests = 0
        """The number of requests that were let through."""
        self.limited = dict.fromkeys(LIMITS, 0)
        """The number of requests that each limit kept out."""
        self.others: dict[int, Use] = {}
        """The uses at the other nodes, by their numbers."""
        self._allowed = self.burst
        """The number of requests that it may make at once; below 0 where nodes let in too many at
        one instant."""
        self._allowed_at_s = now_s

    @property
    def burst(self) -> float:
        """Returns how many requests it may make at once after a rest: those of a second."""
        return max(1.0, self.quota.requests_per_s or 0.0)

    def go_by(self, quota: Quota) -> None:
        self.quota = quota
        self._bound()

    @property
    def here(self) -> Use:
        return Use(self.requests, self.queued, self.running, self.sessions)

    def hear(self, node: int, use: Use, now_s: float) -> None:
        """Take in what another node tells of the tenant's use there. Its first message only sets
        the start: what was let in before that was on its own account."""
        before = self.others.get(node)
        self.others[node] = use
        if before is not None and use.requests > before.requests:
            self._gain(now_s)
            self._allowed -= use.requests - before.requests
            self._bound()

    def lose(self, node: int) -> None:
        """Forget another node, which is not heard any more."""
        if self.others.pop(node, None) is not None:
            self._bound()

    def _bound(self) -> None:
        """Bound what may be let in. A node is heard every second, and has let in no more than it
        may at once and in that time."""
        most = 2.0 * self.burst * len(self.others)
        self._allowed = min(self.burst, max(-most, self._allowed))

    def ask(self, now_s: float) -> Excess | None:
        """Returns why one more request is too many; None if it is not, and then it counts."""
        excess = self._excess(now_s)
        if excess is None:
            self.requests += 1
        else:
            self.limited[excess.limit] += 1
        return excess

    def begin_session(self, *, in_place: bool) -> Excess | None:
        """Returns why one more session is too many; None if it is not, and then it counts."""
        most = self.quota.max_sessions
        sessions = self.sessions + sum(one.sessions for one in self.others.values())
        if most is not None and sessions >= most and not in_place:
            self.limited[MAX_SESSIONS] += 1
            return Excess(MAX_SESSIONS, RETRY_S)
        self.sessions += 1
        return None

    def _excess(self, now_s: float) -> Excess | None:
        quota, queued, running = self.quota, self.queued, self.running
        for other in self.others.values():
            queued, running = queued + other.queued, running + other.running
        if quota.max_queued is not None and queued >= quota.max_queued:
            return Excess(MAX_QUEUED, RETRY_S)
        # A queued request will run: without a limit of its own it counts as if it ran.
        running += queued if quota.max_queued is None else 0
        if quota.max_running is not None and running >= quota.max_running:
            return Excess(MAX_RUNNING, RETRY_S)
        rate = quota.requests_per_s
        if rate is None:
            return None
        self._gain(now_s)
        if self._allowed < 1.0:
            return Excess(REQUESTS_PER_S, (1.0 - self._allowed) / rate)
        self._allowed -= 1.0
        return None

    def _gain(self, now_s: float) -> None:
        gained = max(0.0, now_s - self._allowed_at_s) * (self.quota.requests_per_s or 0.0)
        self._allowed = min(self.burst, self._allowed + gained)
        self._allowed_at_s = now_s

    def check(self) -> None:
        """Raise AssertionError if the state contradicts itself."""
        assert self.sessions >= 0
        assert -2.0 * self.burst * len(self.others) <= self._allowed <= self.burst


class Quotas:
    """All tenants of one home."""

    def __init__(self) -> None:
        self._told: dict[str, Use | None] = {}
        """The uses that other nodes were told, in the order in which they were; None for a use that
        not all of them have got."""
        self.uses: dict[str, TenantUse] = {}
        """The uses of all tenants. Those that are not configured any more stay: what was counted
        stays counted."""
        self._queued: dict[int, TenantUse] = {}
        self._running: dict[int, TenantUse] = {}
        """The tenants' uses by the refs of requests under way."""

    def go_by(self, quotas: Mapping[str, Quota], now_s: float) -> None:
        """Use these configured tenants from now on."""
        for tenant, use in list(self.uses.items()):
            if tenant not in quotas:
                use.go_by(NO_QUOTA)
        for tenant, quota in quotas.items():
            known = self.uses.get(tenant)
            if known is None:
                self.uses[tenant] = TenantUse(quota, now_s)
            else:
                known.go_by(quota)

    def ask(self, tenant: str, now_s: float) -> Excess | None:
        """Returns why one more request of this tenant is too many; None where it is not."""
        return self._use(tenant, now_s).ask(now_s)

    def begin_session(self, tenant: str, now_s: float, *, in_place: bool) -> Excess | None:
        """Returns why one more session of this tenant is too many; None if it is not, and then
        `end_session` has to follow. A session that comes `in_place` of another is let in."""
        return self._use(tenant, now_s).begin_session(in_place=in_place)

    def end_session(self, tenant: str) -> None:
        self.uses[tenant].sessions -= 1

    def _use(self, tenant: str, now_s: float) -> TenantUse:
        use = self.uses.get(tenant)
        if use is None:  # it was configured when its request came in
            use = self.uses[tenant] = TenantUse(NO_QUOTA, now_s)
        return use

    # --- other nodes of the home --------------------------------------------------------------

    def news(self, at_most: int) -> dict[str, Use]:
        """Returns the news for other nodes: the changed uses of so many tenants with a quota, those
        first that have waited longest. They count as told from then on."""
        in_turn = [tenant for tenant in self.uses if tenant not in self._told]
        changed = (
            (tenant, use.here)
            for tenant in [*in_turn, *self._told]
            if (use := self.uses[tenant]).quota != NO_QUOTA and use.here != self._told.get(tenant)
        )
        news = dict(islice(changed, at_most))
        self._told_last(news)
        return news

    def not_told(self, news: Mapping[str, Use]) -> None:
        """Note that not all nodes have got these news: they come again in their turn."""
        self._told_last(dict.fromkeys(news))

    def _told_last(self, told: Mapping[str, Use | None]) -> None:
        for tenant in told:
            self._told.pop(tenant, None)
        self._told |= told

    def tell_all(self) -> None:
        """Have all be news, since another node knows nothing of this one yet."""
        self._told.clear()

    def hear(self, node: int, news: Mapping[str, Use], now_s: float) -> None:
        """Take in what another node has told, of tenants that are known here, too, as a rule."""
        for tenant, told in news.items():
            if (use := self.uses.get(tenant)) is not None:
                use.hear(node, told, now_s)

    def lost(self, node: int) -> None:
        """Note that another node is not heard: what it had let in is lost with it, or counts there
        alone."""
        for use in self.uses.values():
            use.lose(node)

    # --- what becomes of requests -------------------------------------------------------------

    def take(self, ref: int, tenant: str) -> None:
        """Count a request that was let through and comes in."""
        use = self._queued[ref] = self.uses[tenant]
        use.queued += 1

    def leave_queue(self, ref: int) -> None:
        """Count a request as started, or handed on. Requests of other nodes are not known here."""
        use = self._queued.pop(ref, None)
        if use is not None:
            use.queued -= 1
            use.running += 1
            self._running[ref] = use

    def end(self, ref: int) -> None:
        use = self._queued.pop(ref, None)
        if use is not None:
            use.queued -= 1
            return
        use = self._running.pop(ref, None)
        if use is not None:
            use.running -= 1

    def check(self) -> None:
        for use in self.uses.values():
            use.check()
            assert use.queued == sum(one is use for one in self._queued.values())
            assert use.running == sum(one is use for one in self._running.values())
        assert not self._queued.keys() & self._running.keys()
