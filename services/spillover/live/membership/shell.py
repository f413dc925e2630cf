"""The configuration of one node as a running thing: its machine, whom it asks, and the store.

What a change means for the node is for `adopt` to see to; no rule is made here.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from spillover.core.driver import Driver, Timers
from spillover.core.membership import events as ev
from spillover.core.membership.configuration import ConfigurationMachine
from spillover.core.membership.events import Reason
from spillover.live.membership.metrics import ConfigurationMetrics
from spillover.live.membership.reading import TopologyReader
from spillover.live.membership.store import ConfigurationStore
from spillover.live.process.logs import Message, OncePerPeriod
from spillover.model.configuration import Configuration, Stamp
from spillover.model.errors import InputError, PeerError, SpilloverError
from spillover.model.ids import ClusterId
from spillover.model.topology import Topology

AskNode = Callable[[str], Awaitable[bytes]]
"""Asks the node of a cluster for what it goes by. Raises PeerError."""

REASON_MAX = 500
"""Characters of what is told why a neighbor's configuration is none."""

_log = logging.getLogger(__name__)
_log.addFilter(OncePerPeriod())


class NotTaken(SpilloverError):
    """A configuration that was proposed is not taken."""

    def __init__(self, refused: ev.Refused) -> None:
        self.refused = refused
        super().__init__(refused.detail)


class ConfigurationShell:
    """The shell of the configuration of this node of a cluster, in its life `epoch`, which goes by
    `configuration` at first. `adopt` gets each configuration that counts from now on,
    `tell_superseded` one that was taken here and lost. A failure of either goes to `fail`. It must
    be made inside a running loop."""

    def __init__(
        self,
        cluster: ClusterId,
        epoch: int,
        configuration: Configuration,
        timers: Timers,
        *,
        ask: AskNode,
        adopt: Callable[[Configuration], None],
        tell_superseded: Callable[[Stamp], None],
        fail: Callable[[BaseException], None],
        node: int = 1,
        store: ConfigurationStore | None = None,
    ) -> None:
        self.machine = ConfigurationMachine(
            cluster, epoch, configuration, node=node, with_store=store is not None
        )
        self.metrics = ConfigurationMetrics(cluster, self.machine)
        self.reading = TopologyReader(configuration.topology.name)
        self._ask_node = ask
        self._adopt_here = adopt
        self._tell_superseded = tell_superseded
        self._store = store
        self._fail = fail
        interpreters: dict[type[ev.Command], Callable[[Any], None]] = {
            ev.Adopt: self._adopt,
            ev.Ask: lambda command: self._begin(self._ask(command.neighbor)),
            ev.Store: lambda command: self._begin(self._put(command)),
            ev.Taken: self._taken,
            ev.Refused: self._refused,
            ev.Superseded: self._superseded,
        }
        self._driver = Driver[ev.Event, ev.Command](self.machine, timers, interpreters, fail)
        self._tasks: set[asyncio.Task[None]] = set()
        self._said: set[str] = set()
        """Neighbors of which was told that they gave none, until they do: they are asked again
        every second."""
        self._proposals = 0
        self._answers: dict[int, asyncio.Future[Stamp]] = {}
        if store is not None:
            self._begin(store.listen(lambda kept: self._driver.feed(ev.Received(kept))))

    def heard(self, cluster: str, stamp: Stamp) -> None:
        """The node of a cluster goes by a higher one than this."""
        self._driver.feed(ev.StampHeard(cluster, stamp))

    async def propose(self, if_version: int, topology: Topology, text: str) -> Stamp:
        """Have this be the configuration, in place of the one of this version; its stamp. Raises
        NotTaken."""
        self._proposals += 1
        ref = self._proposals
        answer: asyncio.Future[Stamp] = asyncio.get_running_loop().create_future()
        self._answers[ref] = answer
        self._driver.feed(ev.Proposed(ref, if_version, topology, text))
        return await answer

    def close(self) -> None:
        """Ask nobody any more."""
        self._driver.close()
        for task in self._tasks:
            task.cancel()
        if self._store is not None:
            # The loop outlives the node for its last words.
            closing = asyncio.ensure_future(self._store.close())
            self._tasks.add(closing)
            closing.add_done_callback(self._tasks.discard)

    # --- commands -----------------------------------------------------------------------------

    def _adopt(self, command: ev.Adopt) -> None:
        self.metrics.changes += 1
        self._adopt_here(command.configuration)

    def _superseded(self, command: ev.Superseded) -> None:
        self.metrics.superseded += 1
        told = {"version": command.lost.stamp.version, "by": str(command.by)}
        _log.warning(Message("configuration superseded", **told))
        self._tell_superseded(command.lost.stamp)

    def _taken(self, command: ev.Taken) -> None:
        if self._store is None:
            how = "config get at all sites' files, or --config-redis"
            _log.warning(Message("only running nodes remember the configuration", keep_it_by=how))
        answer = self._answers.pop(command.ref)
        if not answer.done():
            answer.set_result(command.stamp)

    def _refused(self, command: ev.Refused) -> None:
        answer = self._answers.pop(command.ref)
        if not answer.done():
            answer.set_exception(NotTaken(command))

    # --- what is under way --------------------------------------------------------------------

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fail(error)

    async def _ask(self, neighbor: str) -> None:
        cost_s = 0.0
        there: Configuration | SpilloverError
        try:
            said = await self._ask_node(neighbor)
            there, cost_s = await self.reading.read(said, f"cluster {neighbor}")
        except PeerError as error:
            there = error
        except Exception:  # noqa: BLE001 - whatever it says ends no node (decision 0046)
            _log.exception(Message("bug: a neighbor's configuration", neighbor=neighbor))
            there = InputError(f"cluster {neighbor}", "", "it could not be asked, by a bug")
        if isinstance(there, Configuration):
            self._said.discard(neighbor)
            self._driver.feed(ev.Received(there, neighbor, cost_s))
            return
        self.metrics.refused += isinstance(there, InputError)
        told = {"neighbor": neighbor, "reason": str(there)[:REASON_MAX]}
        level = logging.DEBUG if neighbor in self._said else logging.INFO
        self._said.add(neighbor)
        _log.log(level, Message("no configuration", **told))
        self._driver.feed(ev.NotReceived(neighbor, cost_s))

    async def _put(self, command: ev.Store) -> None:
        assert self._store is not None  # noqa: S101 - the machine stores nothing else
        ref, reason = command.ref, Reason.VERSION_CONFLICT
        try:
            other = await self._store.put(command.configuration, command.expected)
        except PeerError as error:
            _log.warning(Message("the configuration is not stored", reason=str(error)))
            other, reason = None, Reason.STORE_UNREACHABLE
        else:
            if other is None:
                self._driver.feed(ev.Stored(ref))
                return
        if other is not None:
            self._driver.feed(ev.Received(other))
        self._driver.feed(ev.StoreRefused(ref, reason))
