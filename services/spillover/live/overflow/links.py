"""The links of a node to its neighbors, which come and go while it runs: what is emulated on each,
its sending side, and the tasks that listen on it. All by the neighbors' handles.

When one is to be opened or closed the machine says.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random

from spillover.live.engine.timers import Timers
from spillover.live.overflow.emulated_link import EmulatedLink
from spillover.live.overflow.peer_link import PeerLink
from spillover.model.topology import Neighbor


class Links:
    """`make` makes the sending side of one, over its emulated link, whose faults `random` draws."""

    def __init__(
        self,
        timers: Timers,
        random: Random,
        make: Callable[[int, Neighbor, EmulatedLink], PeerLink],
    ) -> None:
        self._timers = timers
        self._random = random
        self._make = make
        self.by_handle: dict[int, PeerLink] = {}
        self.emulated: dict[int, EmulatedLink] = {}
        self._speaking: dict[int, tuple[asyncio.Task[None], ...]] = {}
        self._group: asyncio.TaskGroup | None = None
        self._ended: list[PeerLink] = []
        """Those that ended while nothing listened: they close with the node."""

    def open(self, handle: int, neighbor: Neighbor) -> None:
        """Have a link to this neighbor, and speak over it if the others do."""
        emulated_link = EmulatedLink(self._timers, self._random, neighbor.delay_ms / 1e3)
        self.by_handle[handle] = self._make(handle, neighbor, emulated_link)
        self.emulated[handle] = emulated_link
        if self._group is not None:
            self._speak(self._group, handle)

    def start(self, group: asyncio.TaskGroup) -> None:
        """Listen over all of them, in this group of tasks, and connect ahead of need."""
        self._group = group
        for handle in self.by_handle:
            self._speak(group, handle)

    def stop(self) -> None:
        """Begin nothing more: the group of tasks ends, and takes no others."""
        self._group = None

    def _speak(self, group: asyncio.TaskGroup, handle: int) -> None:
        link = self.by_handle[handle]
        self._speaking[handle] = (
            group.create_task(link.listen(), name=f"reports of {link.cluster}"),
            group.create_task(link.warm(), name=f"connections to {link.cluster}"),
        )

    def end(self, handle: int) -> PeerLink:
        """Give up what is away over this one, and forget it."""
        link = self.by_handle.pop(handle)
        link.disconnect()
        del self.emulated[handle]
        for task in self._speaking.pop(handle, ()):
            task.cancel()
        if self._group is not None:
            self._group.create_task(link.close(), name=f"end of the link to {link.cluster}")
        else:
            self._ended.append(link)
        return link

    async def close(self) -> None:
        """Close all of them: the node ends."""
        for link in (*self.by_handle.values(), *self._ended):
            await link.close()
