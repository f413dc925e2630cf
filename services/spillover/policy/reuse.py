"""When a connection that has carried an answer may carry another request.

Many servers close after an answer without saying so: at once, after some milliseconds, or when a
time that they do not tell is over. A request that is written at that moment is lost. So a
connection is kept only where the same kind of answer has been seen to leave connections open; until
then each carries one request, and rests for a while to see whether the other end closes it.

Time is passed in, in seconds. What a connection is, is not known here.
"""

from __future__ import annotations

import math
from typing import NamedTuple

REST_S = 0.1
"""A connection has to stay open for so long after an answer to count as kept by the other end. A
busy machine can take some milliseconds between writing an answer and closing."""

REST_MAX_S = 0.5
"""The longest rest, in seconds, if the other end takes its time to close."""

KEPT_IN_A_ROW = 16
"""The number of connections in a row that have to stay open before any is used again, where none
was seen to be closed. It is four times as large once one was, and again each time that it soon
turns out that too few were asked for."""

KEPT_IN_A_ROW_MAX = 1024

SOON_S = 10.0
"""The time, in seconds, after the server became trusted within which a closing shows that too few
were asked for; later, the server may as well have been started again."""

RESTING_MAX = 64
"""The most connections that rest at the same time."""

AT_ONCE_S = 0.25
"""A server that closes sooner than this after an answer closes because of it; one that closes later
has a limit for idle connections."""

IDLE_KNOWN_S = 60.0
"""The time, in seconds, for which a limit for idle connections is believed that was seen and not
announced: a restart looks the same."""

MARGIN = 0.5
"""The part of a time limit of the other end that is used: it counts from an earlier moment, and
a request is on its way for a while."""

IDLE_S_MAX = 4.0
"""The longest idle time, in seconds. Common servers close idle connections after 5 s: the end that
closes first loses no request by it."""

AGE_S_MAX = 30.0
"""The longest age, in seconds. Names move, and balancers share out connections, not requests: a
connection that is used all the time would stay with the server that was there when it was opened. A
new one each half minute costs little, and is even seldom beside a handshake."""

USES_MAX = 10_000
"""The most requests on one connection, for servers that count them to go easy on what they leak."""

JITTER = 0.25
"""The largest share by which age and uses are drawn shorter or longer, so that connections that
were opened together do not end together."""


class Keeping(NamedTuple):
    """The rules for keeping connections to one server: each ends by its age and its uses, a quarter
    more or less. Unless the server `is_trusted` to keep them open, or once it did not, each carries
    one request until enough were seen to stay open."""

    age_s_max: float = AGE_S_MAX
    uses_max: int = USES_MAX
    is_trusted: bool = True


KEEPING = Keeping()
"""The rules that hold unless others are given."""


def spread(most: float, draw: float) -> float:
    """Returns how much of `most` a connection may have, by a draw from 0 to 1."""
    return most * (1.0 + JITTER * (2.0 * draw - 1.0))


class Reuse:
    """The closings of one server, after one kind of answer. `is_trusted` is True where connections
    may be used again before any was seen to stay open."""

    def __init__(self, *, is_trusted: bool) -> None:
        self.is_trusted = is_trusted
        self.rest_s = REST_S
        """The time for which a connection rests while the server is not trusted."""
        self.closings = 0
        """The number of connections that the other end has closed."""
        self._needed = KEPT_IN_A_ROW
        self._kept = 0
        self._trusted_s = -math.inf

    @property
    def wanted(self) -> int:
        """Returns how many connections are to rest at the same time."""
        return min(self._needed - self._kept, RESTING_MAX)

    def kept(self, closings: int, now_s: float) -> None:
        """Note a connection that is still open, and began to rest after `closings` closings.
        Connections that rested beside one that was closed prove nothing: the others of their row
        are gone."""
        if closings != self.closings:
            return
        self._kept += 1
        if self._kept == self._needed:
            self.is_trusted, self._trusted_s = True, now_s

    def closed(self, after_s: float, now_s: float) -> None:
        """Note that the other end has closed a connection `after_s` after an answer, or (0) has
        lost a request on one that was used again."""
        if self.is_trusted or not self.closings:
            is_soon = now_s - self._trusted_s < SOON_S
            needed = self._needed if is_soon else KEPT_IN_A_ROW
            self._needed = min(4 * needed, KEPT_IN_A_ROW_MAX)
            self.rest_s = REST_S
        self.is_trusted = False
        self.closings += 1
        self._kept = 0
        self.rest_s = max(self.rest_s, min(4.0 * after_s, REST_MAX_S))


class IdleLimit:
    """The time for which a connection may have been idle and be used: `most_s`, or less where the
    other end announces it, or was seen to close sooner."""

    def __init__(self, most_s: float) -> None:
        self._most_s = most_s
        self._seen_until_s = math.inf
        self.limit_s = most_s

    def said(self, timeout_s: float) -> None:
        """Note that the other end announces to close connections that are idle for so long."""
        self._most_s = min(self._most_s, timeout_s * MARGIN)
        self.limit_s = min(self.limit_s, self._most_s)

    def closed(self, idle_s: float, now_s: float) -> None:
        """Note that the other end has closed a connection that was idle for so long."""
        self.limit_s = min(self.limit_s, idle_s * MARGIN)
        self._seen_until_s = now_s + IDLE_KNOWN_S

    def look(self, now_s: float) -> None:
        """Forget what was seen long ago. This is to be called now and then."""
        if now_s >= self._seen_until_s:
            self.limit_s = self._most_s
            self._seen_until_s = math.inf
