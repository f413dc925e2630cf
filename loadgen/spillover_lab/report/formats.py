"""How pages and terminals tell numbers; a dash where there is none."""

from __future__ import annotations

MISSING = "\N{EN DASH}"


def milliseconds(value: float | None) -> str:
    """Returns a duration with about three digits, or a dash."""
    if value is None:
        return MISSING
    decimals = 0 if value >= 100 else 1 if value >= 10 else 2
    return f"{value:.{decimals}f}"


def duration(length_ms: float | None) -> str:
    """Returns a duration with its unit: whole milliseconds below a second, or a dash."""
    if length_ms is None:
        return MISSING
    return f"{length_ms:.0f} ms" if length_ms < 1000.0 else f"{length_ms / 1000.0:.2f} s"


def factor(value: float | None) -> str:
    """Returns a speed-up with one decimal, or a dash."""
    return MISSING if value is None else f"{value:.1f}\N{MULTIPLICATION SIGN}"
