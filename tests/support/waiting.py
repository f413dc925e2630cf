"""Waiting for a condition, under a time limit, and how far limits are to bear a busy machine. In an
event loop it is `support.loop` that waits.
"""

import inspect
import os
import threading
import time
from contextlib import suppress
from pathlib import Path

LIMIT_S = 30.0
LOOK_S = 0.01
SLACK_MAX = 8.0
LOOP_S = 0.002
"""What `_loop_s` may be without slack: it is 1.1 ms on a good machine."""


def until(condition, limit_s=LIMIT_S, what="", *, every_s=LOOK_S):
    """Return what `condition()` gives once that is true; fail after `limit_s`, by `slack()` later
    on a busy machine, and say what was awaited: `what`, or the source of the condition."""
    began_s = time.monotonic()
    end_s = began_s + limit_s
    pause = threading.Event()
    while not (answer := condition()):
        if time.monotonic() >= end_s:
            end_s = began_s + limit_s * slack()
            assert time.monotonic() < end_s, missed(condition, answer, limit_s, what)
        pause.wait(every_s)
    return answer


def slack():
    """Return how many times longer the product may take than it promises: more is to be run than
    there are cores, in the last minute or right now, or their processors are slow, or others have
    them. SLACK_MAX is the most."""
    wanted = os.getloadavg()[0]
    with suppress(OSError):  # macOS has no such file
        wanted = max(wanted, int(Path("/proc/loadavg").read_text("ascii").split()[3].split("/")[0]))
    crowd = wanted / (os.cpu_count() or 1)
    slowness = max(1.0, min(_loop_s() for _ in range(5)) / LOOP_S)
    return min(SLACK_MAX, max(1.0, crowd) * slowness)


def _loop_s():
    """Return how long a loop takes on this processor, now."""
    began_s = time.perf_counter()
    for _ in range(100_000):
        pass
    return time.perf_counter() - began_s


def missed(condition, answer, limit_s, what):
    """Say what did not come; `what` may be a function that tells it now."""
    told = (what() if callable(what) else what) or _source_of(condition)
    return f"not within {limit_s:g} s: {told}; the last answer was {answer!r:.1000}"


def _source_of(condition):
    try:
        return " ".join(inspect.getsource(condition).split())
    except (OSError, TypeError):  # no function, or its source is nowhere
        return repr(condition)
