"""A handler that never returns, unless it is asked for its process."""

from __future__ import annotations

import os
import threading


def hang(payload):
    if payload == "pid":
        return os.getpid()
    return threading.Event().wait()
