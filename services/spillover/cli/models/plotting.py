"""The common parts of plots: colors that everybody can tell apart, and ticks of logarithmic axes as
people read them (50, 100, 200, not powers of ten).

What is drawn is known to those who draw.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axis import Axis

OKABE_ITO = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00")
"""Colors of lines in pictures that no page styles."""

NARROW = 4.0
"""An axis whose end is less than so many times its beginning has ticks at equal distances."""
DECADES_WITH_STEPS = 2.5
"""An axis of up to so many powers of ten has ticks at 2 and 5 times each."""


def plain_ticks(axis: Axis, suffix: str = "") -> None:
    """Set ticks for all that has been drawn, or for the limits that were set; call this last."""
    from matplotlib.ticker import (
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
    """Returns a text such as 0.01, 200 or 10 000."""
    return f"{value:,.10g}".replace(",", "\N{THIN SPACE}")
