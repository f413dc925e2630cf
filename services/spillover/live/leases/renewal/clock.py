"""The clock of leases: seconds, the same in every process of a machine, never set back.

It goes on while the machine sleeps, where the system has such a clock: CLOCK_BOOTTIME on Linux
(CLOCK_MONOTONIC stops there), CLOCK_MONOTONIC elsewhere. Only differences mean anything.
"""

from __future__ import annotations

import time

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def lease_now_s() -> float:
    """Instants of leases, deadlines and renewals are all of this clock."""
    return time.clock_gettime(_CLOCK)
