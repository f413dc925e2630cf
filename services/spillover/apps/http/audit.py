"""The audit log, `spillover.audit`: who operated a service, and who was turned away at its doors.

One line for each act of an operator (INFO). Of those who are turned away (WARNING) only so many a
second: whoever knocks a thousand times must not fill a disk. No secret is ever in a line.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from spillover.live.process.logs import Message
from spillover.model.access import ApiToken

AUDIT_LOGGER = "spillover.audit"

FAILED_PER_S = 10
"""Lines about those who were turned away; how many more there were is told in the next one."""

DOOR_LENGTH_MAX = 200

_log = logging.getLogger(AUDIT_LOGGER)


class Audit:
    """The audit log of one service; `now_s` is its clock."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._second = 0
        self._told = 0
        """The number of lines that were written in this second."""
        self._held_back = 0

    def acted(self, token: ApiToken, door: str, outcome: int | None, address: str | None) -> None:
        """An operator did this; `outcome` is the status of the answer, None if there was none."""
        said = "nobody waited" if outcome is None else str(outcome)
        _log.info(_line("operator acts", token, door, said, address))

    def turned_away(
        self, token: ApiToken | None, door: str, outcome: str, address: str | None
    ) -> None:
        """Somebody was not let in, for this reason."""
        second = int(self._now_s())
        if second != self._second:
            self._second, self._told = second, 0
        if self._told >= FAILED_PER_S:
            self._held_back += 1
            return
        self._told += 1
        held_back, self._held_back = self._held_back, 0
        _log.warning(_line("turned away", token, door, outcome, address, held_back or None))


def _line(
    words: str,
    token: ApiToken | None,
    door: str,
    outcome: str,
    address: str | None,
    held_back: int | None = None,
) -> Message:
    return Message(
        words,
        api_token=None if token is None else token.name,
        tenant=None if token is None else token.tenant or None,
        door=door[:DOOR_LENGTH_MAX],
        outcome=outcome,
        address=address,
        held_back=held_back,
    )
