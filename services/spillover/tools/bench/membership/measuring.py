"""The experiment: nodes, connected clients, and four reconfigurations by `PUT /admin/config`, rule
after rule on the same nodes.

All nodes stay up throughout: one that is removed drains, tells its clients and waits to be added
again, as a site does that somebody takes out of a federation.
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from spillover.inputs.topology_file import dump_topology
from spillover.live.http.client import HttpClient
from spillover.model.errors import RunError
from spillover.model.topology import Topology
from spillover.sim.membership.rebalancing import reconfigurations
from spillover.testbed.supervisor import Testbed
from spillover.tools.bench.load_process import JSON_HEADER
from spillover.tools.bench.membership.crowd import CrowdProcess
from spillover.tools.bench.membership.report import report_page
from spillover.tools.bench.membership.rules import RULES, Rule, simulate
from spillover.tools.bench.membership.steps import EVENTS, Look, Run, Step
from spillover.tools.bench.model import BenchPlan, Row, Stage
from spillover.tools.bench.nodes import cluster, topology_of
from spillover.tools.bench.session import Session
from spillover.tools.report.page import write_report
from spillover_loadgen.clients_driver import ClientsLoad, client_name

SERVERS, CLIENTS, WAIT_S, SIMULATED = (9, 5), (1000, 60), (5.0, 0.5), (8, 10)
"""In full and quick."""
RATE_PER_S = 20.0
SERVICE_MS = 5.0
CONNECT_OVER_S = 3.0, 1.0
"""So that no node puts any of them off, and the start is as the rule has it."""
DONE_AFTER_S = 2.0
"""Beyond the wait: what a change may take."""
QUIET_S = 1.0
"""Without a move: then what was begun is over."""
CONNECTED_WITHIN_S = 60.0
QUIET_WITHIN_S = 20.0
ANSWER_WITHIN_S = 10.0
FOREVER_S = 86_400.0

FIGURES = (
    ("fullest server", "x mean"),
    ("emptiest server", "x mean"),
    ("clients moved", "in all"),
    ("requests failed", "in all"),
    ("connects put off", "in all"),
    ("until done", "s"),
)


def _cases(rule: Rule) -> tuple[str, ...]:
    return tuple(f"{rule.label}: {what}" for what, _ in FIGURES)


@dataclass(slots=True)
class _Federation:
    """The nodes, whichever of them are in the configuration."""

    topology: Topology
    asked: str
    """The url of one that is always in it."""

    async def go_by(self, servers: Sequence[str]) -> None:
        """Have the configuration be these. Raises RunError if the node will not."""
        topology = replace(
            self.topology,
            clusters=tuple(one for one in self.topology.clusters if one.id in servers),
            links=tuple(one for one in self.topology.links if set(one.between) <= set(servers)),
        )
        client = HttpClient(self.asked)
        try:
            now = await client.request("GET", "/admin/config", timeout_s=ANSWER_WITHIN_S)
            asked = {
                "if_version": json.loads(now.body)["version"],
                "topology": dump_topology(replace(topology, version=0)),
            }
            answer = await client.request(
                "PUT",
                "/admin/config",
                headers=[JSON_HEADER],
                body=json.dumps(asked).encode(),
                timeout_s=ANSWER_WITHIN_S,
            )
        finally:
            await client.close()
        if answer.status != 200:
            said = answer.body[:200].decode("utf-8", "replace")
            raise RunError(f"expected the configuration to be taken, got {answer.status}: {said}")


class _Watch:
    """Looks at the clients of one run, on one clock."""

    def __init__(self, crowd: CrowdProcess, run: Run) -> None:
        self._crowd = crowd
        self._run = run
        self._began_s = time.monotonic()
        self.last = Look(0.0, {}, 0, 0, 0)
        self.moved_s = 0.0
        """When it was last seen that somebody is elsewhere."""

    @property
    def now_s(self) -> float:
        return time.monotonic() - self._began_s

    @property
    def is_quiet(self) -> bool:
        return self.now_s - self.moved_s >= QUIET_S

    async def until(
        self, servers: Sequence[str], is_over: Callable[[], bool], within_s: float
    ) -> bool:
        """Look until it is over; returns whether it was in time. These servers count."""
        limit_s = self.now_s + within_s
        while not is_over():
            if self.now_s > limit_s:
                return False
            look = Look.of(await self._crowd.look(), self.now_s)
            if not look.is_as(self.last):
                self.moved_s = look.at_s
            self.last = look
            self._run.over_time.append(look.spread(servers))
        return True


async def _measure(session: Session) -> None:
    plan = session.plan
    rules = [rule for rule in RULES if session.wants(*_cases(rule))]
    count, clients = int(plan.of(*SERVERS)), int(plan.of(*CLIENTS))
    runs: dict[Rule, list[Run]] = {rule: [] for rule in rules}
    for number in range(plan.runs):
        seed = plan.seed + number
        # Names carry the seed, so that another seed is another circle.
        names = [f"s{place}-{seed}" for place in range(1, count + 1)]
        lists = reconfigurations(names, seed)
        mesh = topology_of(
            [cluster(name, servers=1, queue_limit=1000) for name in names],
            itertools.combinations(names, 2),
        )
        session.say(f"{count} nodes start: run {number + 1} of {plan.runs}")
        async with Testbed(mesh, seed=seed, drain_timeout_s=0.0) as bed:
            urls = {str(name): url for name, url in bed.urls.items()}
            # The last of the first list is in all of them.
            federation = _Federation(bed.topology, urls[lists[0][-1]])
            for rule in rules:
                simulated = simulate(rule, clients, lists, int(plan.of(*SIMULATED)))
                run = Run(rule, seed, simulated)
                load = load_of(rule, plan, seed, clients, urls)
                await _one_run(session, federation, run, load, lists)
                runs[rule].append(run)
    for rule in rules:
        _add_rows(session, rule, runs[rule])
    everything = [run for rule in rules for run in runs[rule]]
    session.details = [run.as_dict() for run in everything]
    session.note(
        f"{clients} clients on {count} nodes, all in one mesh; they wait up to "
        f"{plan.of(*WAIT_S):g} s; a removed node's process stays up"
    )
    session.note("fullest and emptiest: over the mean, the worst of the states after the 4 changes")
    if plan.report is not None:
        write_report(report_page(everything, plan, clients, count, plan.of(*WAIT_S)), plan.report)
        session.note(f"the report is in {plan.report}")


def load_of(
    rule: Rule, plan: BenchPlan, seed: int, clients: int, urls: dict[str, str]
) -> ClientsLoad:
    """Returns so many clients that begin where the rule has them, until they are told to end."""
    run_id = f"bench-{seed}"
    names = [client_name(run_id, number) for number in range(clients)]
    return ClientsLoad(
        nodes=tuple(urls.values()),
        clients=clients,
        rule=rule.rule,
        virtual_nodes=rule.virtual_nodes,
        duration_s=FOREVER_S,
        change_wait_s=plan.of(*WAIT_S),
        rate_per_s=RATE_PER_S,
        service_ms=SERVICE_MS,
        seed=seed,
        run_id=run_id,
        starts=tuple(urls[server] for server in rule.starts(names, list(urls))),
        connect_over_s=plan.of(*CONNECT_OVER_S),
    )


async def _one_run(
    session: Session,
    federation: _Federation,
    run: Run,
    load: ClientsLoad,
    lists: Sequence[Sequence[str]],
) -> None:
    """Have the clients come, change the configuration four times, and have them leave."""
    session.say(f"{run.rule.label}: {load.clients} clients connect")
    with CrowdProcess(load) as crowd:
        watch = _Watch(crowd, run)

        def all_there() -> bool:
            there = sum(watch.last.clients.values())
            return there == load.clients and watch.last.unconnected == 0 and watch.is_quiet

        if not await watch.until(lists[0], all_there, CONNECTED_WITHIN_S):
            there = sum(watch.last.clients.values())
            raise RunError(f"{there} of {load.clients} clients were connected in time")
        window_s = load.change_wait_s + DONE_AFTER_S
        for event, servers in zip(EVENTS, lists[1:], strict=True):
            session.say(f"{run.rule.label}: {event}")
            before, begun_s = watch.last, watch.now_s
            await federation.go_by(servers)

            def is_over(begun_s: float = begun_s) -> bool:
                return watch.now_s - begun_s >= window_s and watch.is_quiet

            await watch.until(servers, is_over, window_s + QUIET_WITHIN_S)
            done_s = max(0.0, watch.moved_s - begun_s)
            run.steps.append(Step(tuple(servers), before, watch.last, begun_s, done_s))
        run.requests = (await crowd.finish())["requests"]


def _add_rows(session: Session, rule: Rule, runs: Sequence[Run]) -> None:
    """A row for each figure and peer."""
    simulated, limit_s = runs[0].simulated, session.plan.of(*WAIT_S) + DONE_AFTER_S
    least = [run.moved_min for run in runs]
    found: list[tuple[list[float], dict[str, Sequence[float]]]] = [
        ([run.max_over_mean for run in runs], {"simulated": simulated.fullest_of_all}),
        ([run.min_over_mean for run in runs], {"simulated": simulated.emptiest_of_all}),
        (
            [run.moved for run in runs],
            {"simulated": simulated.moved_in_all, "least possible": least},
        ),
        ([run.failed for run in runs], {}),
        ([run.put_off for run in runs], {}),
        ([run.done_s for run in runs], {"wait + 2 s": [limit_s]}),
    ]
    for case, (_, unit), (values, peers) in zip(_cases(rule), FIGURES, found, strict=True):
        if not session.wants(case):
            continue
        ours = Row(case=case, unit=unit, values=tuple(map(float, values)))
        if not peers:
            session.add(ours)
        for peer, others in peers.items():
            session.add(replace(ours, peer=peer, peer_values=tuple(map(float, others))))


STAGES = (Stage(tuple(case for rule in RULES for case in _cases(rule)), _measure),)
