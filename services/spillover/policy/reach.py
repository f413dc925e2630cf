"""The rule by which a server counts as down because no connection to it could be opened.

One attempt that gets no answer says little: a packet was lost, or more attempts came at once than
the server accepts at a time. A refusal says much, but not while the same server answers others:
then it is one of several behind an address, or is full for a moment. Times are arguments, in
seconds.
"""

from __future__ import annotations

import math

SILENT_S = 3.0
"""The time, in seconds, without a sign of life before an attempt without an answer counts: a lost
packet is sent again after a second, and may be lost again."""

LIVELY_S = 0.25
"""The age, in seconds, up to which a sign of life speaks against a refusal."""

REFUSING_S = 1.0
"""The longest time, in seconds, for which refusals in a row are borne: a server that ends answers
its requests, and refuses new ones."""


class Reach:
    """The signs of life of one server, and the refusals."""

    def __init__(self) -> None:
        self.alive_s = -math.inf
        """The time of the last sign of life: an answer, or a connection that was opened."""
        self._trouble_s: float | None = None
        self._refusing_s: float | None = None

    def not_in_time(self, began_s: float, now_s: float) -> bool:
        """Note that an attempt that began at `began_s` was not answered in time. Returns whether
        the server is down."""
        if self._trouble_s is None or self._trouble_s < self.alive_s:
            self._trouble_s = began_s
        return now_s - max(self._trouble_s, self.alive_s) >= SILENT_S

    def refused(self, opened_s: float, now_s: float, *, is_busy: bool) -> bool:
        """Note that an attempt was refused. A connection was last opened at `opened_s`, and if
        `is_busy`, some wait for answers. Returns whether the server is down."""
        if self._refusing_s is None or self._refusing_s < opened_s:
            self._refusing_s = now_s
        is_alive = is_busy or now_s - self.alive_s < LIVELY_S
        return not is_alive or now_s - self._refusing_s >= REFUSING_S

    def forget(self) -> None:
        """Let the server count as down from now on: attempts so far say nothing of those to
        come."""
        self._trouble_s = self._refusing_s = None
