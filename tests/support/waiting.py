"""Waiting for a condition, under a time limit, and how far limits are to bear a busy machine. In an
event loop it is `support.loop` that waits.
"""

from __future__ import annotations

import inspect
import os
import threading
import time

LIMIT_S = 10.0
LOOK_S = 0.01


def until(condition, limit_s=LIMIT_S, what="", *, every_s=LOOK_S):
    """Return what `condition()` gives once that is true; fail after `limit_s`, and say what was
    awaited: `what`, or the source of the condition."""
    end_s = time.monotonic() + limit_s
    pause = threading.Event()
    while not (answer := condition()):
        assert time.monotonic() < end_s, missed(condition, answer, limit_s, what)
        pause.wait(every_s)
    return answer


def slack():
    """Above 1 where more is to be run than there are cores: by as much what the product promises
    of times takes longer, and no test says anything of that. What `tests/run.sh` has beside them at
    the lowest priority takes nothing from anybody."""
    beside = int(os.environ.get("SPILLOVER_MEANWHILE", "0"))
    return max(1.0, (os.getloadavg()[0] - beside) / (os.cpu_count() or 1))


def missed(condition, answer, limit_s, what):
    """Say what did not come; `what` may be a function that tells it now."""
    told = (what() if callable(what) else what) or _source_of(condition)
    return f"not within {limit_s:g} s: {told}; the last answer was {answer!r:.1000}"


def _source_of(condition):
    try:
        return " ".join(inspect.getsource(condition).split())
    except (OSError, TypeError):  # no function, or its source is nowhere
        return repr(condition)
