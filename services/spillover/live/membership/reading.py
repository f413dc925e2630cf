"""Reads configurations beside the loop: one at a time, since threads that compute take turns with
it, and a text that comes again only once.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import Callable
from hashlib import blake2b
from typing import TypeVar

from spillover.inputs.topology_file import read_told
from spillover.live.membership.wire import decode_configuration
from spillover.live.process.logs import Message, OncePerPeriod
from spillover.model.configuration import Configuration
from spillover.model.errors import InputError
from spillover.model.topology import Topology

KNOWN_MAX = 4
"""Texts of which it is remembered what they are. The largest one takes some 20 MB."""

_log = logging.getLogger(__name__)
_log.addFilter(OncePerPeriod())

T = TypeVar("T")

TURN_S = 0.0005
"""The longest time for which a thread that reads keeps others waiting, the loop among them. Why: a
request needs Python's lock several times, and each time it would wait 5 ms."""


def _in_short_turns(work: Callable[[], T]) -> T:
    usual_s = sys.getswitchinterval()
    if usual_s <= TURN_S:  # as another thread has it for now, or whoever runs this
        return work()
    sys.setswitchinterval(TURN_S)
    try:
        return work()
    finally:
        sys.setswitchinterval(usual_s)


class TopologyReader:
    """The reader of one federation's configuration, whose name a topology without one gets."""

    def __init__(self, federation: str) -> None:
        self._federation = federation
        self._turn = asyncio.Lock()
        self._known: dict[tuple[str, bytes], Topology | InputError] = {}
        """What was read, by who said it and the digest of the text; the oldest first."""

    async def beside(self, work: Callable[[], T]) -> T:
        """Returns what `work` does, which runs in a thread when its turn comes."""
        async with self._turn:
            return await asyncio.to_thread(_in_short_turns, work)

    async def read(
        self, said: bytes | str, source: str
    ) -> tuple[Configuration | InputError, float]:
        """Returns the configuration that was said, or why it is none, and how long a processor
        was busy with it, in seconds."""
        return await self.beside(lambda: self._timed(said, source))

    def _timed(self, said: bytes | str, source: str) -> tuple[Configuration | InputError, float]:
        began_s = time.thread_time()
        found: Configuration | InputError
        try:
            found = decode_configuration(said, source, self._federation, self._topology)
        except InputError as error:
            found = error
        except Exception:  # noqa: BLE001 - what others say ends nobody (decision 0046)
            _log.exception(Message("bug: a configuration cannot be read", source=source))
            found = InputError(source, "", "it could not be read, by a bug")
        return found, time.thread_time() - began_s

    def _topology(self, text: str, source: str, name: str) -> Topology:
        key = source, blake2b(text.encode()).digest()
        found = self._known.get(key)
        if found is None:
            try:
                found = read_told(text, source, name)
            except InputError as error:
                # Anew, without the traceback: that would keep all that was read.
                found = InputError(error.source, error.field, error.expected)
            if len(self._known) >= KNOWN_MAX:
                del self._known[next(iter(self._known))]
            self._known[key] = found
        if isinstance(found, InputError):
            raise InputError(found.source, found.field, found.expected)
        return found
