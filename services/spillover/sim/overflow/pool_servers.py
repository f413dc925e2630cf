"""The servers of a pool of unlike ones, in virtual time: what one runs shares its speed evenly.

How many jobs a server runs at a time is the machine's business: under `fcfs` it is one. They may
stand still, run slowly, fail, and be down, all of them or one. How long a service took is told by
the cluster's clock.
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
    """One request on a server, since `began_s` by the cluster's clock."""

    server: int
    began_s: float
    failure: ClusterFault | None
    """How it fails; None if it succeeds."""


class PoolServers:
    """The servers of one cluster; `tell` hears how each service ended, unless it was stopped
    before. `service_s` is the work of requests that do not bring their own, `random` draws which
    fail."""

    def __init__(
        self,
        world: World,
        clock: Clock,
        random: Random,
        pool: UnlikeServers,
        service_s: float,
        tell: Callable[[Any], None],
    ) -> None:
        self._world = world
        self._clock = clock
        self._service_s = service_s
        self._tell = tell
        self._jobs: dict[int, JobOnServer] = {}
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
        """The numbers of the servers, by id."""
        self._all = Trouble(random)
        self._each = [Trouble(random) for _ in pool.servers]
        self.down: set[int] = set()
        """Numbers of servers that cannot run anything."""

    @property
    def running(self) -> int:
        """Returns how many services run."""
        return len(self._jobs)

    @property
    def sound(self) -> bool:
        """Returns whether services take as long as usual, and none fails."""
        return not self.down and self._all.is_none and all(one.is_none for one in self._each)

    def trouble(self, server: str | None = None) -> Trouble:
        """Returns what goes wrong with one server, or with all."""
        return self._all if server is None else self._each[self.number[server]]

    def start(self, command: ev.Start) -> None:
        """Begin a service."""
        ref, number = command.ref, command.server
        if number in self.down:
            # The cluster stood still when it was told, and hears of it only now.
            self._tell(ev.ServersDown(number))
            self._tell(ev.NotStarted(ref, "the server is down"))
            return
        work_s = command.request.work
        if work_s is None:
            work_s = self._service_s
        work_s, failure = self._troubled(number, work_s)
        self._jobs[ref] = JobOnServer(number, command.at_s, failure)
        self._servers[number].add(ref, self._local_s(), work_s)
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

    def stop(self, ref: int) -> bool:
        """End a service without a word; whether it ran."""
        job = self._jobs.pop(ref, None)
        if job is None:
            return False
        self._servers[job.server].remove(ref, self._local_s())
        self._arm(job.server)
        return True

    def lose(self, number: int) -> None:
        """Fail whatever runs on a server: it is down."""
        for ref, job in [(ref, job) for ref, job in self._jobs.items() if job.server == number]:
            self.stop(ref)
            took_s = max(0.0, self._clock.now_s() - job.began_s)
            self._tell(ev.ServiceEnded(ref, Outcome.FAILED, took_s, problem="the server is down"))

    def pause(self) -> None:
        """Stand still."""
        self._paused_s = self._world.now_s

    def resume(self) -> None:
        """Go on where it stood."""
        if self._paused_s is not None:
            self._stood_s += self._world.now_s - self._paused_s
            self._paused_s = None
            for number in range(len(self._servers)):
                self._arm(number)

    def clock_was_set(self) -> None:
        """Do nothing: how long a service took is always measured by the clock."""

    def clear(self) -> None:
        """Lose all that runs."""
        for ref in list(self._jobs):
            self.stop(ref)
        self.resume()

    def _local_s(self) -> float:
        now_s = self._world.now_s if self._paused_s is None else self._paused_s
        return now_s - self._stood_s

    def _arm(self, number: int) -> None:
        """Ring when the next job of a server ends, if nothing comes in between."""
        self._alarms[number] += 1
        if (end := self._servers[number].next_end()) is not None:
            end_s, ref = end
            at_s = max(self._world.now_s, end_s + self._stood_s)
            self._world.at(at_s, self._ended, ref, number, self._alarms[number])

    def _ended(self, ref: int, number: int, alarm: int) -> None:
        if alarm != self._alarms[number] or self._paused_s is not None:
            return
        job = self._jobs[ref]
        self.stop(ref)
        self._tell(end_of(ref, job.failure, max(0.0, self._clock.now_s() - job.began_s)))
