"""Ticks of logarithmic axes as people read them: 50, 100, 200, not powers of ten.

What is drawn is known to those who draw.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axis import Axis

NARROW = 4.0
"""An axis that reaches from x to less than so many x has ticks at equal distances."""
DECADES_WITH_STEPS = 2.5
"""Up to so many powers of ten there are ticks at 2 and 5 times each."""


def plain_ticks(axis: Axis, suffix: str = "") -> None:
    """Sets ticks for what has been drawn, or for the limits that were set: last of all calls."""
    from matplotlib.ticker import (  # noqa: PLC0415 - only drawing needs it
        FuncFormatter,
        LogLocator,
        MaxNLocator,
        NullLocator,
    )

    low, high = sorted(axis.get_view_interval())
    if low <= 0 or high / low < NARROW:
        axis.set_major_locator(MaxNLocator(nbins=5, steps=[1, 2, 5, 10]))
    elif math.log10(high / low) <= DECADES_WITH_STEPS:
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    else:
        axis.set_major_locator(LogLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{_in_full(value)}{suffix}"))
    axis.set_minor_locator(NullLocator())


def _in_full(value: float) -> str:
    """Such as 0.01, 200 and 10 000."""
    return f"{value:,.10g}".replace(",", "\N{THIN SPACE}")
