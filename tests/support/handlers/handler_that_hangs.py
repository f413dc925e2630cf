"""A handler that never returns, unless it is asked for its process."""

import os
import threading


def hang(payload):
    if payload == "pid":
        return os.getpid()
    return threading.Event().wait()
