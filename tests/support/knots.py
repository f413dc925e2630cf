"""Garbage that only the collector finds: whether somebody had it collected before what is timed."""

from __future__ import annotations

import gc
import weakref
from contextlib import contextmanager


class Knot:
    """Refers to itself."""

    def __init__(self):
        self.itself = self


@contextmanager
def left_over():
    """Gives what returns the garbage, or None once it was collected; the collector does not come of
    its own accord meanwhile."""
    gc.disable()
    try:
        yield weakref.ref(Knot())
    finally:
        gc.enable()
