"""The scripts of a lease group, which lie in lua/. What each does is said there."""

from __future__ import annotations

from functools import partial

from spillover.live.redis.connection import Script

load_script = partial(Script.load, "spillover.live.leases")
"""Scripts of these names as one."""
