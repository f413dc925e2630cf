"""`spillover sim overflow --faults F`: a schedule through a federation in which things go wrong.

A client whose home is not there is told so at once (`unreachable`). One whose home dies with its
request, or says nothing until some seconds after the deadline, never knows (`unknown`): those are
the outcomes that the load generator counts of live runs.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from itertools import cycle

from spillover.core.overflow import events as ev
from spillover.model.faults import FaultSchedule
from spillover.model.ids import ClusterId
from spillover.model.request import Answer, Outcome
from spillover.model.schedule import Arrival, Schedule
from spillover.model.topology import Topology
from spillover.sim.engine.world import World, rare_collections
from spillover.sim.overflow.checkers import SETTLE_S, Checker, Client, is_used
from spillover.sim.overflow.faults import Faults, build_faulty_federation
from spillover.sim.overflow.faulty_cluster import FaultyCluster, nodes_of
from spillover.sim.overflow.federation import request_of
from spillover.sim.overflow.outcome import OverflowRun, new_run, sum_up
from spillover.sim.overflow.site_figures import SiteFigures

PATIENCE_S = 5.0
"""Beyond its deadline, a client waits that long for its answer; as in the load generator."""

UNREACHABLE = "unreachable"

SETTLE_WAYS = 20
"""How many times a link's delay comes on top of SETTLE_S: streams are opened anew in so many."""

LOOK_S = 0.25
"""How often it is looked whether all has settled."""


def run_faulty_overflow(
    topology: Topology,
    schedule: Schedule,
    seed: int,
    on_progress: Callable[[int], None] | None,
    *,
    faults: FaultSchedule,
    check: bool,
    keyed: bool,
    replay: str,
) -> OverflowRun:
    """Run a federation over a schedule with faults, as `run.run_overflow` does without."""
    faults.check(topology)
    started_s = time.perf_counter()
    checker = Checker(seed, topology.max_hops, replay=replay) if check else None
    run = new_run(topology, schedule, on_progress)
    history = _History(run, schedule, seed, faults, checker, keyed=keyed)
    with rare_collections():
        history.play()
    sum_up(run, history.world, history.clusters, time.perf_counter() - started_s)
    return run


class _History:
    """One run: the federation, its faults, its clients."""

    def __init__(
        self,
        run: OverflowRun,
        schedule: Schedule,
        seed: int,
        faults: FaultSchedule,
        checker: Checker | None,
        *,
        keyed: bool,
    ) -> None:
        topology = run.topology
        self.world = World()
        self._run = run
        self._schedule = schedule
        self._open: set[int] = set()
        """Places in the schedule of what has not come to an end."""
        self.clusters, channels = build_faulty_federation(topology, self.world, seed, checker)
        self._sites = SiteFigures(self.world, self.clusters)
        self._faults = Faults(faults, self.world, self.clusters, channels, self._sites.died)
        self._last_fault_s = faults.last_s
        self._deadline_s = topology.default_deadline_ms / 1e3
        self._checker = checker
        self._keyed = keyed
        self._longest_s = max(cluster.service_ms for cluster in topology.clusters) / 1e3
        """The longest service so far."""
        self._servers_min = min(cluster.server_count for cluster in topology.clusters)
        self._nodes = nodes_of(self.clusters)
        # A balancer in front of a site takes those of its nodes in turn that are there.
        self._doors = {name: cycle(one.faulty_nodes) for name, one in self.clusters.items()}

    def _submit(self, number: int) -> None:
        arrival = self._schedule[number]
        home = self._home_of(arrival.cluster)
        if home is None:
            self._run.came_to(arrival, UNREACHABLE)
            return
        work_s = None if arrival.service_ms is None else arrival.service_ms / 1e3
        self._longest_s = max(self._longest_s, work_s or 0.0)
        # Names of the run's own, since a trace may give one twice.
        request = request_of(number, None, work_s, arrival.type, keyed=self._keyed)
        client = None if self._checker is None else self._checker.submitted(request, home)
        self._open.add(number)
        home.submit(
            request,
            self.world.now_s + self._deadline_s,
            partial(self._answered, client, number),
            partial(self._refused, client, number),
            partial(self._lost, client, number, home),
        )

    def _home_of(self, cluster: ClusterId) -> FaultyCluster | None:
        """Returns the node that a client's request comes to: the next one that lives, and that does
        not drain if another one does not; None where none lives."""
        alive = [node for node in self.clusters[cluster].faulty_nodes if node.alive]
        takes = [node for node in alive if not node.is_draining] or alive
        return (
            next((node for node in self._doors[cluster] if node in takes), None) if takes else None
        )

    def play(self) -> None:
        """Let it all happen, until every request has come to an end."""
        times_s = [arrival.time_s for arrival in self._schedule]
        self.world.at_each(times_s, self._submit)
        calm_s = max([self._last_fault_s, *times_s])
        if self._checker is not None:
            self._until(calm_s, lambda: False)
            self._settle(self._checker, calm_s)
        patience_s = calm_s + self._deadline_s + PATIENCE_S
        self._until(patience_s, lambda: self._run.ended >= len(times_s))
        for number in sorted(self._open):
            self._run.came_to(self._over(number), Outcome.UNKNOWN)
        self._run.faults = self._faults.happened
        self._run.sites = self._sites.as_dict()

    def _settle(self, checker: Checker, calm_s: float) -> None:
        """What must hold some time after the last disturbance. How long that is depends on what
        is to be done yet, and nothing is done beyond its deadline."""
        backlog_s = self._deadline_s
        if self._faults.healed:
            left = checker.outstanding(self._nodes)
            backlog_s = min(backlog_s, 2.0 * left * self._longest_s / self._servers_min)
        slowest = min(1.0, *(cluster.clock.rate for cluster in self.clusters.values()))
        settle_s = SETTLE_S + SETTLE_WAYS * self._faults.longest_delay_s
        until_s = calm_s + (backlog_s + settle_s) / slowest
        while self.world.now_s < until_s and not self._calm(checker):
            self._until(min(until_s, self.world.now_s + LOOK_S), lambda: False)
        checker.settled(self.clusters, self.world.now_s, healed=self._faults.healed)

    def _calm(self, checker: Checker) -> bool:
        """Whether nothing is left that could need time."""
        if checker.waiting or checker.outstanding(self._nodes):
            return False
        machines = [node.machine for node in self._nodes]
        return not self._faults.healed or all(all(is_used(m)) for m in machines)

    def _until(self, until_s: float, done: Callable[[], bool]) -> None:
        """Let things happen up to this instant, or until `done`."""
        self.world.at(until_s, _nothing)
        self.world.run(lambda: self.world.now_s >= until_s or done())

    def _over(self, number: int) -> Arrival:
        self._open.remove(number)
        return self._schedule[number]

    def _answered(self, client: Client | None, number: int, answer: Answer) -> None:
        if self._checker is not None and client is not None:
            self._checker.answered(client, answer, self.world.now_s)
        self._run.answered(self._over(number), answer)

    def _refused(self, client: Client | None, number: int, refusal: ev.Refuse) -> None:
        if self._checker is not None and client is not None:
            self._checker.refused(client, self.world.now_s)
        self._run.refused(self._over(number), refusal)

    def _lost(self, client: Client | None, number: int, home: FaultyCluster) -> None:
        self._sites.lost(home)
        if self._checker is not None and client is not None:
            self._checker.lost(client, self.world.now_s)
        self._run.came_to(self._over(number), Outcome.UNKNOWN)


def _nothing() -> None:
    """Happens so that the time is reached."""
