"""The field `Keep-Alive` says how long the other end keeps a connection. This reads it."""

from __future__ import annotations

NUMBER_DIGITS_MAX = 9


def read_keep_alive_s(value: bytes) -> float | None:
    """Returns how long a `Keep-Alive` field says that an idle connection is kept, 0 if it is not;
    None if it does not say."""
    told: float | None = None
    for one in value.split(b","):
        name, _, number = (part.strip() for part in one.partition(b"="))
        if not number.isdigit() or len(number) > NUMBER_DIGITS_MAX:
            continue
        if name.lower() == b"timeout":
            told = float(number) if told is None else min(told, float(number))
        elif name.lower() == b"max" and not int(number):
            return 0.0
    return told
