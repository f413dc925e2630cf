"""Keeps a testbed as its federation's configuration says, which may change while nodes run: those
of clusters that are added are started, those of removed ones ended once they have drained. How a
configuration spreads is the nodes' business. Tells also where nothing answers behind a node.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any

from spillover.inputs.topology_file import read_topology
from spillover.model.errors import InputError
from spillover.model.ids import ClusterId
from spillover.model.topology import Cluster, Topology
from spillover.testbed.asking import Asking
from spillover.testbed.node_process import NodeProcess
from spillover.testbed.supervisor import Testbed, name_of, node_of

LOOK_S = 0.5
"""How often one of the nodes is asked, each in its turn."""

DRAINED_POLL_S = 0.2

Seen = tuple[int, str]


class ConfigurationFollower:
    """This keeps the nodes of a running testbed as the configuration has them. `say` gets a
    line for each event."""

    def __init__(self, bed: Testbed, say: Callable[[str], None]) -> None:
        self._bed = bed
        self._say = say
        self._seen: Seen = (bed.topology.version, "")
        """The highest configuration that a node told of."""
        self._turn = 0
        self._down: set[ClusterId] = set()
        """Where nothing runs requests."""
        self._ending: dict[ClusterId, asyncio.Task[None]] = {}
        """The tasks that end nodes which are no part any more, by the nodes' names. One that is a
        part again by then is started again by its task."""

    async def run(self) -> None:
        async with self._bed.certified.asking(self._bed.shown) as asking:
            try:
                while True:
                    await asyncio.sleep(LOOK_S)
                    await self._look(asking)
            finally:
                for task in self._ending.values():
                    task.cancel()

    async def _look(self, asking: Asking) -> None:
        running = [one for one in self._bed.nodes.values() if one.process.returncode is None]
        if not running:
            return
        self._turn += 1
        node = running[self._turn % len(running)]
        url = node.url
        state = await asking.told(url)
        if "down" in state:
            self._tell_down(node, is_down=bool(state["down"]))
        seen = _seen(state.get("configuration"))
        if seen is None or seen <= self._seen:
            return
        config = await asking.told(url, "/admin/config")
        try:
            text = config.get("topology")
            topology = read_topology(str(text), url, self._bed.topology.name)
        except InputError:
            return  # it has just ended, perhaps
        if _seen(config) != seen:
            return  # newer by now: next time
        self._seen = seen
        await self._follow(topology)

    def _tell_down(self, node: NodeProcess, *, is_down: bool) -> None:
        if is_down != (node.cluster in self._down):
            self._down ^= {node.cluster}
            does = "does not answer" if is_down else "answers again"
            self._say(f"the service behind cluster {node.cluster} {does} (log {node.log})")

    async def _follow(self, topology: Topology) -> None:
        bed = self._bed
        self._say(f"configuration {self._seen[0]} of cluster {self._seen[1]}")
        bed.use(topology)
        started = {node_of(name) for name in bed.nodes.keys() | self._ending.keys()}
        for cluster in topology.clusters:
            for number in range(1, cluster.node_count + 1):
                if (cluster.id, number) not in started:
                    self._say(await self._add(cluster, number))
        for name in bed.nodes.keys() - self._ending.keys():
            if not bed.is_part(name):
                self._ending[name] = asyncio.create_task(self._end(name), name=f"end of {name}")

    async def _add(self, cluster: Cluster, number: int) -> str:
        """How that went, in words."""
        url, name = cluster.at(number).url, name_of(cluster, number)
        if url is None:
            return f"cluster {name} is not started: the configuration has no url of it"
        try:
            await self._bed.add(name)
        except OSError as error:
            return f"cluster {name} cannot be started: {error.strerror}"
        return f"cluster {name} is added at {url}"

    async def _end(self, name: ClusterId) -> None:
        """End a node that was removed, and start it again where it was added meanwhile, until it
        is as the last configuration has it."""
        bed = self._bed
        try:
            while name in bed.nodes and not bed.is_part(name):
                await self._leave(name)
        finally:
            del self._ending[name]

    async def _leave(self, name: ClusterId) -> None:
        """End it once it has drained and its clients have gone, each in its own time; at the latest
        when it would be ended anyway."""
        bed = self._bed
        node = bed.nodes[name]
        until_s = time.monotonic() + bed.drain_timeout_s
        async with bed.certified.asking(bed.shown) as asking:
            while node.process.returncode is None and time.monotonic() < until_s:
                state = await asking.told(node.url)
                if _is_left(state):
                    break
                if bed.is_part(name):
                    return  # it is wanted again
                await asyncio.sleep(DRAINED_POLL_S)
        await bed.let_go(name)
        self._say(f"cluster {name} is removed")
        if bed.is_part(name):  # it was added again, meanwhile
            own, number = node_of(name)
            self._say(await self._add(bed.topology.cluster(own), number))


def _is_left(state: Mapping[str, Any]) -> bool:
    """Returns whether no client or neighbor uses this node any more."""
    clients = state.get("clients") or {}
    return bool(state.get("drained")) and not (state.get("neighbors") or clients.get("connected"))


def _seen(config: object) -> Seen | None:
    if not isinstance(config, dict):
        return None
    version, by = config.get("version"), config.get("by")
    if not isinstance(version, int):
        return None
    return version, by if isinstance(by, str) else ""
