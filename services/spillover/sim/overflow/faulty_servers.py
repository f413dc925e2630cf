"""The servers of a cluster that may stand still, run slowly, fail, or have a clock that goes wrong.

A service of a *paused* cluster goes on where it stood. A *slow* cluster takes a factor longer for
services that start from then on, and a *failing* one fails a share of them, soon. How long a
service took is told by the cluster's clock. Where answers begin before they end, one that fails may
have begun.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from spillover.core.overflow import events as ev
from spillover.model.faults import ClusterFault
from spillover.sim.engine.clock import Clock
from spillover.sim.engine.world import World
from spillover.sim.overflow.trouble import Trouble, end_of


@dataclass(slots=True)
class ServiceUnderWay:
    """One request on a server. `began_s` is by the cluster's clock, `end_s` and `left_s` (while
    paused) in true time; `known_s` is how long it takes, None if something came in between."""

    began_s: float
    end_s: float
    known_s: float | None
    left_s: float = 0.0
    failure: ClusterFault | None = None
    """How it fails; None if it succeeds."""
    head_s: float | None = None
    """When its answer begins, in true time; None if that has begun, or comes as a whole."""
    head_left_s: float = 0.0
    """What `left_s` is to the end of the answer, this is to its head."""


class FaultyServers:
    """The servers of one cluster; `tell` hears how each service ended, unless it was stopped
    before. `random` draws which ones fail, `heads` when their answers begin: None where they come
    as a whole."""

    def __init__(
        self,
        world: World,
        clock: Clock,
        random: Random,
        service_s: float,
        tell: Callable[[Any], None],
        heads: Random | None = None,
    ) -> None:
        self._heads = heads
        self._world = world
        self._clock = clock
        self._service_s = service_s
        self._tell = tell
        self._services: dict[int, ServiceUnderWay] = {}
        self._paused = False
        self._trouble = Trouble(random)

    @property
    def running(self) -> int:
        return len(self._services)

    @property
    def sound(self) -> bool:
        """Returns whether services take as long as usual, and none fails."""
        return self._trouble.is_none

    def trouble(self, _: str | None = None) -> Trouble:
        """Returns what goes wrong here: with all alike."""
        return self._trouble

    def start(self, command: ev.Start) -> None:
        service_s = command.request.work
        if service_s is None:
            service_s = self._service_s
        service_s, failure = self._trouble.begin(service_s)
        known_s = service_s if self._clock.is_true else None
        service = ServiceUnderWay(command.at_s, 0.0, known_s, failure=failure)
        self._services[command.ref] = service
        if self._heads is not None:
            head_s = self._clock.true_s(command.at_s) + self._heads.random() * service_s
            self._await_head(command.ref, service, head_s)
        self._run(command.ref, service, self._clock.true_s(command.at_s) + service_s)

    def stop(self, ref: int) -> bool:
        """End a service without a word; whether it ran."""
        return self._services.pop(ref, None) is not None

    def pause(self) -> None:
        self._paused = True
        for service in self._services.values():
            service.left_s = max(0.0, service.end_s - self._world.now_s)
            if service.head_s is not None:
                service.head_left_s = max(0.0, service.head_s - self._world.now_s)

    def resume(self) -> None:
        self._paused = False
        for ref, service in self._services.items():
            service.known_s = None
            if service.head_s is not None:
                self._await_head(ref, service, self._world.now_s + service.head_left_s)
            self._run(ref, service, self._world.now_s + service.left_s)

    def clock_was_set(self) -> None:
        """Measure by the clock, from now on, how long services took."""
        for service in self._services.values():
            service.known_s = None

    def clear(self) -> None:
        self._services.clear()
        self._paused = False

    def _run(self, ref: int, service: ServiceUnderWay, end_s: float) -> None:
        service.end_s = end_s
        self._world.at(end_s, self._end, ref, end_s)

    def _await_head(self, ref: int, service: ServiceUnderWay, head_s: float) -> None:
        service.head_s = head_s
        self._world.at(head_s, self._begin, ref, head_s)

    def _begin(self, ref: int, head_s: float) -> None:
        service = self._services.get(ref)
        if service is not None and service.head_s == head_s and not self._paused:
            service.head_s = None
            self._tell(ev.ResponseBegan(ref, max(0.0, self._clock.now_s() - service.began_s)))

    def _end(self, ref: int, end_s: float) -> None:
        service = self._services.get(ref)
        if service is None or service.end_s != end_s or self._paused:
            return
        del self._services[ref]
        took_s = service.known_s
        if took_s is None:
            took_s = max(0.0, self._clock.now_s() - service.began_s)
        self._tell(end_of(ref, service.failure, took_s))
