"""The settings of a producer of the distributed queue."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerSettings:
    """The limits and times of one producer. The shell checks what users give."""

    id: str
    buffers: int
    """f of the paper: the number of places for objects that nobody has been granted."""
    visibility_s: float
    """A grant ends so long after it was made, or after its object has been sent whole, unless it
    is acknowledged or extended before."""
    probe_expiry_s: float = 5.0
    """A parked probe expires after this time, and its call sends another one."""
    deliveries_max: int = 10
    """An object that was granted so often in vain goes to the dead ones."""
    retry_s: float = 0.0
    """An object that its consumer gave back as not handled rests for so long before it is granted
    again, twice as long each further time, up to `retry_s_max`; 0: it returns at once."""
    retry_s_max: float = 60.0
    dead_limit: int = 1000
    """The largest number of dead objects. With so many no other dies: it returns to its buffer
    again and again."""
    unacked_limit: int = 1000
    """The largest number of grants open and objects resting. With so many the producer is as good
    as empty."""
    held_limit_bytes: float = math.inf
    """The size of objects in memory at which offers wait."""
    waiting_limit: int = 1000
    """How many offers may wait for a place, calls for an object, and probes for either."""
