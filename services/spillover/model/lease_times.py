"""The five times of the partition leases and what must hold between them.

The times, with their defaults, are those of the source document (Henrik's algorithm of 2015); what
is derived from them for the guarded rule is here too. Who waits how long and who may take a
partition is decided in `policy.leases`.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from spillover.model.arguments import is_number, wrong
from spillover.model.errors import InputError

LEASE_RULES = ("guarded", "blog")
"""The rules of leases: `blog` is steps 1-6 as written, where the fastest answer wins; `guarded`
goes by the stored counts."""

LEASE_BALANCES = ("count", "load")
"""Nodes are evened out by one of these: by how many partitions they serve, or by how much work
these are."""

RENEWALS_PER_LEASE_MIN = 3
"""A maximum lease must outlast this many renewals, so that one or two late ones cost nothing."""

TIME_MS_MAX = 1e9
"""No time is longer than eleven days: instants further away are wider than numbers in Redis."""

TIME_MS_MINS = {
    "normal_lease_ms": (10.0, "members would ask Redis faster than it answers"),
    "max_lease_ms": (50.0, "a lease would be over before its renewal is answered"),
}
"""The shortest times that idle members on loopback can just hold, and why not less; for the
simulator alike, which has no others to try."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseTimes:
    """The five times, all in ms. Raises InputError, which says what would go wrong otherwise."""

    normal_lease_ms: float = 60_000.0
    """How long a partition is generally not challenged: the period of challenges and renewals.

    Why: the source document's value. A shorter time moves partitions sooner and asks Redis more
    often."""
    max_lease_ms: float = 180_000.0
    """How long a lease lasts that is not renewed: after this its holder counts as dead.

    Why: the source document's value. It is three renewals, so that two late ones cost nothing; a
    dead member's partitions stand still for so long."""
    max_shutdown_ms: float = 10_000.0
    """How long a handler may take to stop once its partition has been won by another node.

    Why: the source document's value. It is enough to finish a batch of a few seconds."""
    min_grab_ms: float = 5_000.0
    """How long the mark of a won challenge stays after the winner has started.

    Why: the source document's value. It covers a member that is seconds late to see who has won."""
    held_delay_ms: float = 100.0
    """Waited before answering a challenge, times the number of partitions held (step 2).

    Why: the source document's value. It is longer than a call to Redis, so that members with fewer
    partitions answer first."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not is_number(value) or not 0 < value <= TIME_MS_MAX:
                expected = f"ms above 0, {TIME_MS_MAX:.0f} at most"
                raise wrong(field.name, expected, value, source="lease times")
        for name, (least_ms, consequence) in TIME_MS_MINS.items():
            if getattr(self, name) < least_ms:
                self._refuse(name, f"at least {least_ms:g}", consequence)
        renewals_ms = RENEWALS_PER_LEASE_MIN * self.renewal_period_ms
        if self.max_lease_ms < renewals_ms:
            self._refuse(
                "max_lease_ms",
                f"at least three renewals, one each normal_lease_ms: {renewals_ms:g}",
                "a node that is a little late would lose partitions that it serves",
            )
        if self.min_grab_ms >= self.normal_lease_ms:
            self._refuse(
                "min_grab_ms",
                f"less than normal_lease_ms {self.normal_lease_ms:g}",
                "a partition would still be marked as taken when its next challenge is due",
            )
        if self.held_delay_ms >= self.min_grab_ms:
            self._refuse(
                "held_delay_ms",
                f"less than min_grab_ms {self.min_grab_ms:g}",
                "the slower of two nodes would answer after the mark of the winner is gone",
            )
        if self.max_shutdown_ms >= self.max_lease_ms:
            self._refuse(
                "max_shutdown_ms",
                f"less than max_lease_ms {self.max_lease_ms:g}",
                "a node that hands over in time would be taken for dead",
            )

    def _refuse(self, field: str, limit: str, consequence: str) -> None:
        got = f"{getattr(self, field):g}"
        raise InputError("lease times", field, f"expected {limit}, got {got}: {consequence}")

    @property
    def renewal_period_ms(self) -> float:
        """Returns how often a holder renews: once in each normal lease time."""
        return self.normal_lease_ms

    @property
    def fence_margin_ms(self) -> float:
        """Returns how much earlier a holder counts its own lease as over than the store does."""
        return self.max_lease_ms / 10.0

    @property
    def min_residency_ms(self) -> float:
        """Returns how long a partition that has just moved stays where it is, unless its holder
        dies."""
        return self.normal_lease_ms / 2.0

    @property
    def grab_limit_ms(self) -> float:
        """Returns how long a won challenge blocks a partition if the winner never starts: long
        enough for a holder that missed the message to see it at its next renewal, and to stop."""
        return min(2.0 * self.normal_lease_ms + self.max_shutdown_ms, self.max_lease_ms)

    @property
    def longest_wait_ms(self) -> float:
        """Returns the guarded rule's limit on the wait of step 2, whose only purpose there is to
        spread."""
        return self.normal_lease_ms / 2.0

    @property
    def race_size_max(self) -> int:
        """Returns how many partitions a node may hold under the blog's rule: a holder of more looks
        who has won only after an idle winner has stopped waiting for it, and both serve at once."""
        return int(self.max_shutdown_ms / self.held_delay_ms)
