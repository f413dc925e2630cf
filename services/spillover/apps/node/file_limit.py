"""The number of files and connections that the process may have open (`ulimit -n`): it is raised as
far as it goes, and logged only where it can bite.

The rule: at the start it is logged if fewer than FILES_MIN are allowed, and the queue could ever
need more; later if NEAR_SHARE of what is allowed is in use, and again only after it has fallen
below CLEAR_SHARE.
"""

from __future__ import annotations

import contextlib
import logging
import resource
from collections.abc import Callable

from spillover.core.overflow.settings import NodeSettings
from spillover.live.engine.timers import Timers
from spillover.live.process.logs import Message

FILES_SPARE = 1024
"""The number of files for all else than requests: streams of reports, warm connections, those that
close."""

FILES_MIN = 4096
"""The number of files with which a node serves any load that is not overload for minutes. A burst
uses up fewer: every waiting request holds a connection."""

NEAR_SHARE = 0.8
CLEAR_SHARE = 0.6

LOOK_S = 1.0

_log = logging.getLogger(__name__)


def files_wanted(settings: NodeSettings) -> int:
    """Returns how many files a cluster may need. Every waiting request holds a connection, and
    every one that is away holds two: the one it came on and the one it went on."""
    return settings.queue_limit + 2 * settings.away_limit + FILES_SPARE


def raise_file_limit(settings: NodeSettings) -> int | None:
    """Raises the limit as far as may be needed. Returns how many files are allowed then; None if
    there are enough for all."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = files_wanted(settings)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return None
    if soft < FILES_MIN:
        _log.warning(Message("few files may be open (ulimit -n)", allowed=soft, wanted=wanted))
    return soft


class FileWatch:
    """A look, once in a while, at how many of the `allowed` files are in use; it is logged when
    that comes near. `count` returns how many connections there are."""

    def __init__(self, allowed: int, count: Callable[[], int]) -> None:
        self._allowed = allowed
        self._count = count
        self._is_near = False

    def begin(self, timers: Timers, now: Callable[[], float]) -> None:
        """Look regularly from now on, until the timers end; `now` is their clock."""

        def again(_: float) -> None:
            self.look()
            self.begin(timers, now)

        timers.at(now() + LOOK_S, again)

    def look(self) -> None:
        in_use = self._count()
        if self._is_near:
            self._is_near = in_use >= CLEAR_SHARE * self._allowed
        elif in_use >= NEAR_SHARE * self._allowed:
            self._is_near = True
            _log.warning(
                Message(
                    "open connections come near what is allowed (ulimit -n)",
                    connections=in_use,
                    allowed=self._allowed,
                )
            )
