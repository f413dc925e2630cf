"""The open grants of one producer: objects promised to consumers, and not yet acknowledged."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from random import Random

from spillover.core.agenda import Agenda

ACKNOWLEDGED_MAX = 4096
"""Grants that are remembered as acknowledged: the answer may be lost, and the consumer asks
again."""


class Grant:
    """One object for one take. It ends at `until_s` unless something comes before."""

    __slots__ = ("alarm", "id", "is_offer", "is_received", "is_sending", "number", "until_s")

    def __init__(self, grant_id: str, number: int, until_s: float) -> None:
        self.id = grant_id
        self.number = number
        self.until_s = until_s
        self.alarm = 0
        """The agenda's alarm that looks whether the grant is over."""
        self.is_offer = True
        """It is not known yet whether somebody still wants it."""
        self.is_received = False
        """Its consumer has asked for more time since it was sent."""
        self.is_sending = False
        """Its consumer has come for the object: that is sent once."""


class Grants:
    """The open grants, and the last ones that were acknowledged."""

    def __init__(self, random: Random, agenda: Agenda) -> None:
        self._random = random
        self._agenda = agenda
        self._open: dict[str, Grant] = {}
        self._acknowledged: OrderedDict[str, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[Grant]:
        return iter(self._open.values())

    def __contains__(self, grant_id: str) -> bool:
        return grant_id in self._open

    def get(self, grant_id: str) -> Grant | None:
        return self._open.get(grant_id)

    def make(self, number: int, until_s: float) -> Grant:
        """Grant an object; nobody guesses the name."""
        grant = Grant(f"{self._random.getrandbits(128):032x}", number, until_s)
        self._open[grant.id] = grant
        return grant

    def end(self, grant: Grant) -> None:
        del self._open[grant.id]
        self._agenda.drop(grant.alarm)

    def acknowledged(self, grant: Grant) -> None:
        """Its object has served its purpose."""
        self.end(grant)
        self._acknowledged[grant.id] = None
        if len(self._acknowledged) > ACKNOWLEDGED_MAX:
            self._acknowledged.popitem(last=False)

    def was_acknowledged(self, grant_id: str) -> bool:
        """Returns whether that is known of a grant that is not open any more."""
        return grant_id in self._acknowledged
