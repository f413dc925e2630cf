"""The speed-up of Lai & Polak (section III): a statistic of the isolated run over the networked.

Only this ratio is here; the statistics come from `spillover.model.statistics`.
"""

from __future__ import annotations

from collections.abc import Mapping

SPEEDUP_FIELDS = ("mean", "max", "min", "std")


def speedups(
    isolated_summary: Mapping[str, float | None], networked_summary: Mapping[str, float | None]
) -> dict[str, float | None]:
    """Returns isolated over networked for each of `SPEEDUP_FIELDS`; above 1 the networked run is
    better.

    None where a value is missing (a population without requests) or the divisor is 0.
    """
    return {
        field: _ratio(isolated_summary.get(field), networked_summary.get(field))
        for field in SPEEDUP_FIELDS
    }


def _ratio(isolated: float | None, networked: float | None) -> float | None:
    return isolated / networked if isolated is not None and networked else None
