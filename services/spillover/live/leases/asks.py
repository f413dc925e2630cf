"""The calls of a lease member to its store that are under way: asks, whose answers are awaited, and
hints, which nobody waits for."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, TypeAlias

from spillover.core.leases import events as ev
from spillover.live.process.logs import Message
from spillover.model.errors import InputError, PeerError

CLOSE_S = 2.0
"""The time that asks under way have at the very end."""

Operations: TypeAlias = Mapping[type[ev.Ask], Callable[[Any], Awaitable[Any]]]
"""The store's operation for each kind of ask."""

_log = logging.getLogger(__name__)


class Asks:
    """The asks of one member, on its loop. `on_answer(ask, answer)` or `on_failure(ask, error)` is
    called once for each; a failed one is not tried again here."""

    def __init__(
        self,
        operations: Operations,
        on_answer: Callable[[ev.Ask, Any], None],
        on_failure: Callable[[ev.Ask, Exception], None],
    ) -> None:
        self._operations = operations
        self._on_answer = on_answer
        self._on_failure = on_failure
        self._tasks: set[asyncio.Task[None]] = set()

    def ask(self, ask: ev.Ask) -> None:
        self._begin(self._ask(ask))

    def publish(self, publishing: Coroutine[Any, Any, None]) -> None:
        self._begin(_publish(publishing))

    async def close(self) -> None:
        """Let what is under way come to its end, if that is soon."""
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=CLOSE_S)
            for task in late:
                task.cancel()

    def _begin(self, call: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(call)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _ask(self, ask: ev.Ask) -> None:
        try:
            answer = await self._operations[type(ask)](ask)
        except Exception as error:  # noqa: BLE001 - told, whatever it is
            if not isinstance(error, PeerError | InputError):  # a bug, or a library's
                _log.exception(Message("ask failed", ask=type(ask).__name__))
            self._on_failure(ask, error)
        else:
            self._on_answer(ask, answer)


async def _publish(publishing: Coroutine[Any, Any, None]) -> None:
    try:
        await publishing
    except PeerError as error:
        _log.debug(Message("hint was not sent", reason=str(error)))
