"""How services go wrong: they take longer, or a share of them fails."""

from __future__ import annotations

from random import Random

from spillover.core.overflow import events as ev
from spillover.model.faults import ClusterFault
from spillover.model.request import Outcome


class Trouble:
    """The trouble of some servers. `random` draws which services fail."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._failing: ClusterFault | None = None
        self.slowness = 1.0

    @property
    def is_none(self) -> bool:
        """Returns whether services take as long as usual, and none fails."""
        return self.slowness == 1.0 and self._failing is None

    def fail(self, how: ClusterFault) -> None:
        """Have services fail so from now on, or not any more."""
        self._failing = how if how.share > 0.0 else None

    def begin(self, service_s: float) -> tuple[float, ClusterFault | None]:
        """Returns how long a service takes that would take `service_s`, and how it fails; None if
        it succeeds."""
        service_s *= self.slowness
        failure = self._failing
        if failure is None or self._random.random() >= failure.share:
            return service_s, None
        return min(service_s, failure.fail_ms / 1e3), failure


def end_of(
    ref: int, failure: ClusterFault | None, took_s: float
) -> ev.ServiceEnded | ev.NotStarted:
    """Returns what a cluster is told at the end of a service that took `took_s`."""
    if failure is None:
        return ev.ServiceEnded(ref, Outcome.DONE, took_s)
    if failure.not_run:
        retry_after_s = failure.retry_after_ms / 1e3 or None
        return ev.NotStarted(ref, "failing", True, took_s, retry_after_s)  # noqa: FBT003
    return ev.ServiceEnded(ref, Outcome.FAILED, took_s, problem="failing")
