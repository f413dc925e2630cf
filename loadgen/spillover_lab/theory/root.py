"""The bracketed root that the models of the distributed queue are solved with.

It needs signs at both ends, no derivative and no start, and cannot diverge.
"""

from __future__ import annotations

import math
from collections.abc import Callable

STEPS = 200
WIDTH = 4.0 * 2.0**-52
"""The width of the last bracket, relative to its place; near 0, absolute."""


def rising_root(function: Callable[[float], float], low: float, high: float) -> float:
    """Returns where a function goes from negative to positive, to the last digits.

    Chandrupatla's method (1997): inverse quadratic interpolation where three points promise that
    it helps, bisection otherwise. Without a change of sign, the end that is nearer to one.
    """
    a, b = low, high
    f_a, f_b = function(a), function(b)
    if f_a >= 0.0:
        return a
    if f_b <= 0.0:
        return b
    share = 0.5
    for _ in range(STEPS):
        x = a + share * (b - a)
        f_x = function(x)
        if (f_x < 0.0) == (f_a < 0.0):
            c, f_c = a, f_a
        else:
            c, f_c = b, f_b
            b, f_b = a, f_a
        a, f_a = x, f_x
        best = a if abs(f_a) < abs(f_b) else b
        tolerance = WIDTH * max(abs(best), 1.0) / abs(b - a)
        if f_x == 0.0 or tolerance >= 0.5:
            return x if f_x == 0.0 else best
        share = min(max(_share(a, b, c, (f_a, f_b, f_c)), tolerance), 1.0 - tolerance)
    return best


def _share(a: float, b: float, c: float, values: tuple[float, float, float]) -> float:
    """How far to go from a to b: 0.5, or where the parabola through three points has its root."""
    f_a, f_b, f_c = values
    if not all(map(math.isfinite, values)) or f_c == f_b:
        return 0.5
    xi = (a - b) / (c - b)
    phi = (f_a - f_b) / (f_c - f_b)
    if not 1.0 - math.sqrt(1.0 - xi) < phi < math.sqrt(xi):
        return 0.5
    first = f_a / (f_b - f_a) * f_c / (f_b - f_c)
    return first + (c - a) / (b - a) * f_a / (f_c - f_a) * f_b / (f_c - f_b)
