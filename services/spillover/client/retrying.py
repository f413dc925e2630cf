"""The rules of when a request is sent again, and to which node; when it is not, and why. There is
no I/O here: time and draws are arguments. `wire` knows the meaning of errors, and `calls` sends
requests.

* What surely did not run goes to the next node at once. When all have been asked a round is over,
  and the next one begins after a wait: what they asked for by Retry-After, or longer each time.
* What may have run goes on at once at another node that is known to be of the same cluster, since
  names belong to that; with none it goes to the same node alone, as any other one would run it a
  second time. If none of them answers within `comeback_s` the outcome is unknown.
* Anything else is an answer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from random import Random

from spillover.client.nodes import Nodes
from spillover.model.arguments import checked_count, checked_number
from spillover.model.errors import (
    NotDelivered,
    OutcomeUnknown,
    PeerError,
    Refused,
    Unreachable,
)

FIRST_WAIT_S = 0.1
LONGEST_WAIT_S = 5.0
LONGEST_HOME_WAIT_S = 1.0
"""The longest pause, in seconds, before a node that may have run the request is asked again: it
forgets the answer in minutes, and a caller waits."""
TOKENS_MAX = 100.0

PAUSED_BY = frozenset({"draining", "no_servers", "not_ready", "reconnect_limit"})
"""The reasons of refusals that the next request to that node would get as well. A full queue is not
among them: it has room again soon."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retries:
    """The rules of how often a client may send requests again."""

    share: float = 0.2
    """The number of retries for each request, in the long run."""
    floor_per_s: float = 10.0
    """The number of retries per second on top of that, for clients that ask seldom."""
    rounds: int = 5
    """The largest number of times that all nodes are asked. With 1 the client waits for nothing."""
    comeback_s: float = 10.0
    """The seconds for which the cluster that may have run a request may be gone before the outcome
    is unknown."""

    def __post_init__(self) -> None:
        """Raise InputError for values that make no sense."""
        for name in ("share", "floor_per_s", "comeback_s"):
            checked_number(name, getattr(self, name), source="retries")
        checked_count("rounds", self.rounds, source="retries")


class RetryBudget:
    """Tokens, one for each retry of a request that a node has seen: each request brings a share of
    one, and time brings the floor."""

    def __init__(self, retries: Retries, now_s: float) -> None:
        self._share = retries.share
        self._floor_per_s = retries.floor_per_s
        self._tokens = retries.floor_per_s
        self._seen_s = now_s

    def earn(self) -> None:
        """Count a request that is sent for the first time."""
        if self._tokens < TOKENS_MAX:
            self._tokens += self._share

    def spend(self, now_s: float) -> bool:
        """Returns whether there is a token for a retry, and takes it."""
        elapsed_s, self._seen_s = now_s - self._seen_s, now_s
        self._tokens = min(self._tokens + elapsed_s * self._floor_per_s, TOKENS_MAX)
        if self._tokens < 1.0:
            return False
        self._tokens -= 1.0
        return True


class RequestAttempts:
    """The attempts at one request after its first has failed: `failed` takes an error, and `choose`
    returns where the next attempt goes."""

    def __init__(
        self,
        nodes: Nodes,
        budget: RetryBudget,
        retries: Retries,
        rng: Random,
        *,
        until_s: float,
        repeatable: bool,
    ) -> None:
        self._nodes = nodes
        self._budget = budget
        self._retries = retries
        self._rng = rng
        self._until_s = until_s
        self._repeatable = repeatable
        self._asked: dict[str, PeerError] = {}
        """The nodes asked in this round, and their errors; after an unknown outcome the nodes of
        its cluster."""
        self._waits = 0
        self._rounds = 0
        self._error: PeerError = Unreachable("")
        self._costs_token = False
        self._earliest_s = 0.0
        self._comeback_until_s = math.inf
        self.home: str | None = None
        """The node that may have run the request, or may yet."""
        self._cluster = b""
        """The cluster of `home`; empty if it is not known."""

    def failed(self, url: str, error: PeerError, now_s: float, *, answered: bool) -> None:
        """Note that an attempt at that node has failed, with an answer or without one. Raises the
        error if it ends the request."""
        if not isinstance(error, (NotDelivered, OutcomeUnknown)):
            raise error
        refused = error if isinstance(error, Refused) else None
        retry_after_s = (refused and refused.retry_after_s) or 0.0
        if not answered or (refused is not None and refused.reason in PAUSED_BY):
            self._nodes.failed(url, now_s, retry_after_s)
        self._costs_token = answered or isinstance(error, OutcomeUnknown)
        if isinstance(error, OutcomeUnknown):
            if not self._repeatable:
                raise error
            if self.home is None:
                self.home, self._comeback_until_s = url, now_s + self._retries.comeback_s
                self._asked.clear()
        if self.home is not None:
            self._cluster = self._cluster or self._nodes.cluster_of(self.home)
            self._failed_at_home(url, error, now_s, retry_after_s)
            return
        self._asked[url] = self._error = error
        if self._asked.keys() >= set(self._nodes.urls):
            self._end_round(now_s)

    def choose(self, now_s: float) -> str | float:
        """Returns the node to ask now, or for how many seconds to wait before asking this again.
        Raises the last error if there is no time left for that."""
        if now_s < self._earliest_s:
            return self._earliest_s - now_s
        if self._costs_token and not self._budget.spend(now_s):
            wait_s = self._jittered_s()
            self._check_time(now_s + wait_s)
            return wait_s
        self._costs_token = False
        if self.home is not None:
            return self._nodes.choose_of(self._cluster, now_s, self._asked) or self.home
        node = self._nodes.choose(now_s, self._asked)
        if node is None:  # the list has changed meanwhile
            self._asked.clear()
            node = self._nodes.choose(now_s)
        return node or self._nodes.current

    def _failed_at_home(
        self, url: str, error: PeerError, now_s: float, retry_after_s: float
    ) -> None:
        if isinstance(error, OutcomeUnknown):
            self._error = error
        self._asked[url] = error
        if not self._nodes.are_all_asked(self._cluster, self._asked):
            if now_s >= self._until_s:
                raise self._error
            return
        self._asked.clear()
        self._earliest_s = now_s + retry_after_s + self._jittered_s(LONGEST_HOME_WAIT_S)
        self._check_time(self._earliest_s)

    def _end_round(self, now_s: float) -> None:
        """Begin another round after a wait. Raises the nodes' error if this was the last one."""
        self._rounds += 1
        self._error = _of_round(self._asked)
        if self._rounds >= self._retries.rounds:
            raise self._error
        told = [e.retry_after_s for e in self._asked.values() if isinstance(e, Refused)]
        # A little more than they ask for, so that not all clients come at that instant.
        asked_for_s = min((s for s in told if s), default=0.0)
        self._earliest_s = now_s + asked_for_s + self._jittered_s()
        self._asked.clear()
        self._check_time(self._earliest_s)

    def _check_time(self, next_s: float) -> None:
        """Raise the last error where the next attempt would come too late."""
        if next_s >= min(self._until_s, self._comeback_until_s):
            raise self._error

    def _jittered_s(self, longest_s: float = LONGEST_WAIT_S) -> float:
        """Returns a wait with full jitter: evenly from nothing to a bound that doubles."""
        bound_s = min(FIRST_WAIT_S * 2.0**self._waits, longest_s)
        self._waits += 1
        return float(bound_s * self._rng.random())


def _of_round(asked: dict[str, PeerError]) -> PeerError:
    """Returns one error for all of a round: that of a node that refused, which could at least be
    reached, before others."""
    refused = [error for error in asked.values() if isinstance(error, Refused)]
    if refused:
        return min(refused, key=lambda error: error.retry_after_s or math.inf)
    if len(asked) == 1:
        return next(iter(asked.values()))
    reasons = "; ".join(str(error) for error in asked.values())
    return Unreachable(f"none of {len(asked)} nodes can be reached: {reasons}")
