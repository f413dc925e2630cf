"""What the demo does and when: its sizes, its lease times, and the schedule of disturbances.

All instants are seconds after the members have shared the partitions out for the first time. They
are drawn from the seed and scale with the maximum lease. Nothing is carried out here.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from spillover.model.errors import InputError
from spillover.model.lease_times import RENEWALS_PER_LEASE_MIN, LeaseTimes

KILLED, FROZEN, RESUMED, JOINED = "killed", "frozen", "resumed", "joined"

MEMBERS_MIN, MEMBERS_MAX = 3, 64
STREAMS_MAX = 512
RECORDS_MAX = 50_000_000
"""About 2 GB in Redis."""

SHUTDOWN_MS_MIN = 500.0
HELD_DELAY_MS = 20.0

FED_SHARE = 0.5
"""This share of the records comes in while the members run: so no stream is ever at its end before
the last disturbance, however fast the members are. The rest is there before they start."""

FREEZE_LEASES = 2.0
"""A frozen member stands still for so many maximum leases."""

KILL_LEASES = (0.4, 0.9)
"""The kill comes within these, drawn; the same for the next two, each after the one before."""
FREEZE_AFTER_LEASES = (2.2, 2.6)
JOIN_AFTER_LEASES = (1.5, 1.9)
LAST_LEASES = 3.8
"""So long the newcomer is watched."""


@dataclass(frozen=True, slots=True)
class Disturbance:
    """One thing that is done to a member."""

    at_s: float
    kind: str
    node: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LeasePlan:
    """What to run. Raises InputError."""

    records: int
    streams: int
    members: int
    max_lease_ms: float
    seed: int
    redis: str | None
    """The URL of a Redis that runs already; None: one of the demo's own."""
    keep: bool
    """Leave the data in the Redis that was given."""
    limit_s: float
    """For everything from the start of the members to the last record."""

    def __post_init__(self) -> None:
        _expect("--members", self.members, MEMBERS_MIN, MEMBERS_MAX, WHY_MEMBERS)
        _expect("--streams", self.streams, 1, STREAMS_MAX)
        _expect("--records", self.records, self.streams, RECORDS_MAX, "one for each stream")
        if self.keep and self.redis is None:
            raise InputError("--keep", "", "expected together with --redis: one's own Redis ends")
        _ = self.times

    @property
    def times(self) -> LeaseTimes:
        """Returns three renewals a lease, as the rules ask for at least."""
        normal_ms = self.max_lease_ms / RENEWALS_PER_LEASE_MIN
        shutdown_ms = max(SHUTDOWN_MS_MIN, normal_ms)
        least_ms = 2.0 * SHUTDOWN_MS_MIN
        if self.max_lease_ms < least_ms:
            expected = f"expected at least {least_ms:g}, got {self.max_lease_ms:g}"
            raise InputError("--max-lease-ms", "", expected)
        return LeaseTimes(
            normal_lease_ms=normal_ms,
            max_lease_ms=self.max_lease_ms,
            max_shutdown_ms=shutdown_ms,
            min_grab_ms=normal_ms / 2.0,
            held_delay_ms=HELD_DELAY_MS,
        )

    @property
    def nodes(self) -> list[str]:
        """Returns those that begin: m1, m2, ..."""
        return [f"m{number + 1}" for number in range(self.members)]

    @property
    def newcomer(self) -> str:
        return f"m{self.members + 1}"

    @property
    def fed(self) -> int:
        """Returns how many records come in while the members run."""
        return min(self.records - self.streams, round(self.records * FED_SHARE))

    @property
    def schedule(self) -> list[Disturbance]:
        """Returns the disturbances in order of time."""
        random = Random(f"{self.seed}/lease demo")
        killed, frozen = random.sample(self.nodes, 2)
        lease_s = self.max_lease_ms / 1000.0
        kill_s = lease_s * random.uniform(*KILL_LEASES)
        freeze_s = kill_s + lease_s * random.uniform(*FREEZE_AFTER_LEASES)
        resume_s = freeze_s + lease_s * FREEZE_LEASES
        join_s = resume_s + lease_s * random.uniform(*JOIN_AFTER_LEASES)
        return [
            Disturbance(kill_s, KILLED, killed),
            Disturbance(freeze_s, FROZEN, frozen),
            Disturbance(resume_s, RESUMED, frozen),
            Disturbance(join_s, JOINED, self.newcomer),
        ]

    @property
    def scheduled_s(self) -> float:
        """Returns how long it is from the first sharing out until nothing more is done."""
        return self.schedule[-1].at_s + LAST_LEASES * self.max_lease_ms / 1000.0


WHY_MEMBERS = "one is killed, one frozen, and somebody has to go on"


def _expect(option: str, value: int, least: int, most: int, why: str = "") -> None:
    if not least <= value <= most:
        reason = f": {why}" if why and value < least else ""
        raise InputError(option, "", f"expected {least} to {most}, got {value}{reason}")
