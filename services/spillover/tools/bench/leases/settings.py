"""What all cases have in common: the times of the leases, the sizes, and what is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spillover.model.lease_times import LeaseTimes
from spillover.tools.bench.display import number
from spillover.tools.bench.model import Row

if TYPE_CHECKING:
    from spillover.tools.bench.session import Session

TIMES = LeaseTimes(
    normal_lease_ms=1000.0,
    max_lease_ms=3000.0,
    max_shutdown_ms=1000.0,
    min_grab_ms=300.0,
    held_delay_ms=10.0,
)
"""A maximum lease of 3 s, renewed each second. The delay is so short that twenty partitions at a
node make its waits shorter than a period."""

GUARDED, BLOG = "guarded", "blog"
LIMIT = "limit"


def hold_against(session: Session, case: str, unit: str, values: list[float], most: float) -> None:
    """Notes a row beside what is asked for, and whether it is met."""
    row = Row(case=case, unit=unit, values=tuple(values), peer=LIMIT, peer_values=(most,))
    session.add(row)
    verdict = "met" if row.value <= most else "NOT met"
    session.note(f"{case}: at most {most:g} {unit} asked for, {number(row.value)} here: {verdict}")
