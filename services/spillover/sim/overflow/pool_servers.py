"""The servers of a pool of unlike ones, in virtual time: what one runs shares its speed evenly.

How many jobs a server runs at a time is the machine's business: under `fcfs` it is one. They may
stand still, run slowly, fail, and be down, all of them or one. How long a service took is told by
the cluster's clock. The nodes of one cluster send to the same servers, each by a `PoolDoor`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from spillover.core.overflow import events as ev
from spillover.core.tokens.sharing import SharedServer
from spillover.model.faults import ClusterFault
from spillover.model.request import Outcome
from spillover.model.unlike_servers import UnlikeServers
from spillover.sim.engine.clock import Clock
from spillover.sim.engine.world import World
from spillover.sim.overflow.trouble import Trouble, end_of


@dataclass(slots=True)
class JobOnServer:
    """One request on a server, since `began_s` by the clock of the node that has sent it."""

    door: PoolDoor
    ref: int
    server: int
    began_s: float
    failure: ClusterFault | None
    """How it fails; None if it succeeds."""

    def took_s(self) -> float:
        """Returns how long it has run until now."""
        return max(0.0, self.door.clock.now_s() - self.began_s)


class PoolServers:
    """The servers of one cluster of so many nodes. `service_s` is the work of requests that do not
    bring their own, `random` draws which fail."""

    def __init__(
        self, world: World, random: Random, pool: UnlikeServers, service_s: float, nodes: int = 1
    ) -> None:
        self._world = world
        self._service_s = service_s
        self.nodes = nodes
        self.jobs: dict[int, JobOnServer] = {}
        """What runs, by its number: the refs of several nodes may be the same."""
        self._rates = [each.rate for each in pool.servers]
        self._servers = [SharedServer(rate) for rate in self._rates]
        self._alarms = [0] * len(self._servers)
        """The number of the one alarm that counts, for each server."""
        self._stood_s = 0.0
        """The time for which all have stood still: their clocks show that much less than the
        world's."""
        self._paused_s: float | None = None
        """The instant since which they stand still now; None while they do not."""
        self.number = {each.id: place for place, each in enumerate(pool.servers)}
        self._all = Trouble(random)
        self._each = [Trouble(random) for _ in pool.servers]
        self.down: set[int] = set()
        """Numbers of servers that cannot run anything."""
        self.out: set[str] = set()
        """Ids of those that an operator has taken out."""

    @property
    def sound(self) -> bool:
        """Returns whether services take as long as usual, and none fails."""
        return not self.down and self._all.is_none and all(one.is_none for one in self._each)

    def trouble(self, server: str | None = None) -> Trouble:
        return self._all if server is None else self._each[self.number[server]]

    def start(self, door: PoolDoor, command: ev.Start) -> None:
        ref, number = command.ref, command.server
        if number in self.down:
            # The cluster stood still when it was told, and hears of it only now.
            door.tell(ev.ServersDown(number))
            door.tell(ev.NotStarted(ref, "the server is down"))
            return
        work_s = command.request.work
        if work_s is None:
            work_s = self._service_s
        work_s, failure = self._troubled(number, work_s)
        job = door.job(ref)
        self.jobs[job] = JobOnServer(door, ref, number, command.at_s, failure)
        self._servers[number].add(job, self._local_s(), work_s)
        self._arm(number)

    def _troubled(self, number: int, work_s: float) -> tuple[float, ClusterFault | None]:
        """Returns the time that the work takes, and its failure; troubles of all come first."""
        if self._all.is_none and self._each[number].is_none:
            return work_s, None
        rate = self._rates[number]
        alone_s, failure = self._all.begin(work_s / rate)
        if failure is None:
            alone_s, failure = self._each[number].begin(alone_s)
        return alone_s * rate, failure

    def stop(self, job: int) -> bool:
        """End a service without a word; whether it ran."""
        known = self.jobs.pop(job, None)
        if known is None:
            return False
        self._servers[known.server].remove(job, self._local_s())
        self._arm(known.server)
        return True

    def pause(self) -> None:
        self._paused_s = self._world.now_s

    def resume(self) -> None:
        if self._paused_s is not None:
            self._stood_s += self._world.now_s - self._paused_s
            self._paused_s = None
            for number in range(len(self._servers)):
                self._arm(number)

    def _local_s(self) -> float:
        now_s = self._world.now_s if self._paused_s is None else self._paused_s
        return now_s - self._stood_s

    def _arm(self, number: int) -> None:
        """Ring when the next job of a server ends, if nothing comes in between."""
        self._alarms[number] += 1
        if (end := self._servers[number].next_end()) is not None:
            end_s, job = end
            at_s = max(self._world.now_s, end_s + self._stood_s)
            self._world.at(at_s, self._ended, job, number, self._alarms[number])

    def _ended(self, job: int, number: int, alarm: int) -> None:
        if alarm != self._alarms[number] or self._paused_s is not None:
            return
        known = self.jobs[job]
        self.stop(job)
        known.door.tell(end_of(known.ref, known.failure, known.took_s()))


class PoolDoor:
    """The servers, as one node of the cluster sends to them; `tell` hears how each of its services
    ended, unless it was stopped before."""

    def __init__(
        self, servers: PoolServers, clock: Clock, tell: Callable[[Any], None], node: int = 1
    ) -> None:
        self.servers = servers
        self.clock = clock
        self._tell = tell
        self._node = node
        self._unheard: list[Any] | None = None
        """What the node has not heard, since it stands still; None while it does not."""

    def job(self, ref: int) -> int:
        """Returns the number of the job that is this one to the node."""
        return ref * self.servers.nodes + self._node - 1

    @property
    def _own(self) -> list[JobOnServer]:
        return [job for job in self.servers.jobs.values() if job.door is self]

    @property
    def running(self) -> int:
        """Returns how many services run for the node."""
        return len(self._own)

    @property
    def sound(self) -> bool:
        """Returns whether services take as long as usual, and none fails."""
        return self.servers.sound

    def trouble(self, server: str | None = None) -> Trouble:
        return self.servers.trouble(server)

    def tell(self, event: Any) -> None:
        """Have the node hear this, once it does not stand still."""
        if self._unheard is None:
            self._tell(event)
        else:
            self._unheard.append(event)

    def start(self, command: ev.Start) -> None:
        self.servers.start(self, command)

    def stop(self, ref: int) -> bool:
        """End a service without a word; whether it ran."""
        return self.servers.stop(self.job(ref))

    def lose(self, number: int) -> None:
        """Fail whatever runs on a server for the node: it is down."""
        for job in self._own:
            if job.server == number:
                self.stop(job.ref)
                ended = ev.ServiceEnded(job.ref, Outcome.FAILED, job.took_s())
                ended.problem = "the server is down"
                self.tell(ended)

    def pause(self) -> None:
        """Stand still; the servers do, too, if no other node sends to them."""
        if self.servers.nodes == 1:
            self.servers.pause()
        else:
            self._unheard = []

    def resume(self) -> None:
        if self.servers.nodes == 1:
            self.servers.resume()
        unheard, self._unheard = self._unheard or [], None
        for event in unheard:
            self._tell(event)

    def clock_was_set(self) -> None:
        """Do nothing: how long a service took is always measured by the clock."""

    def clear(self) -> None:
        for job in self._own:
            self.stop(job.ref)
        self._unheard = None
        if self.servers.nodes == 1:
            self.servers.resume()
