"""One process a cluster: started together, watched, ended together, never left behind. One that
ends without being asked to can be started again, at its own address.

A node ends with its standard input, which this process holds open: even a supervisor that is
killed leaves nothing running. What nodes say goes to a log file each, in a directory that is
removed at the end, unless a node failed by itself; where there is no end, by the next testbed. When
a crashed node is started again is reckoned in `revival`.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Self

from spillover.inputs.topology_file import dump_topology
from spillover.live.process.memory_limit import default_held_limit_bytes
from spillover.model.errors import InputError, RunError
from spillover.model.ids import ClusterId
from spillover.model.topology import Cluster, Topology
from spillover.testbed.certified import Certified, Certify
from spillover.testbed.node_process import NodeProcess
from spillover.testbed.own_token import make_own_token
from spillover.testbed.owned_directory import OwnedDirectory, remove_leftovers
from spillover.testbed.ports import FIRST_PORT, start_lock, with_addresses
from spillover.testbed.revival import Revival

READY_WITHIN_S = 60.0
READY_POLL_S = 0.05
BACK_POLL_S = 0.2
ENDING_POLL_S = 0.5
TOPOLOGY_FILE = "topology.yaml"
REDIS_VARIABLE = "SPILLOVER_REDIS_URL"
"""Where `spillover node` looks for an address, which may hold a password."""
EXIT_USAGE = 2


class Testbed:
    """All clusters of a topology as processes. As a context manager: ready on entry, all ended on
    exit. Raises InputError where a node found the input wrong, RunError where one did not start.

    `on_death` is told of a node that ends while the testbed is up; the others go on. If `restart`
    is true, another one takes its place after a while, at the same address, unless an operator had
    drained it; `on_return` is told once that answers. `on_ending` is told what nodes say that they
    wait for when the testbed stops, and what they have lost. `source` is what errors call the
    topology: its file, if it has one. `topology`, and with it `urls`, gets its addresses at the
    start, from `first_port` up. With `certify` they are https; with `otel` nodes trace requests.
    """

    def __init__(
        self,
        topology: Topology,
        *,
        source: str | None = None,
        seed: int | None = None,
        drain_timeout_s: float = 30.0,
        results_timeout_s: float = 5.0,
        allowed_origins: Sequence[str] = (),
        on_death: Callable[[NodeProcess], None] | None = None,
        on_ending: Callable[[NodeProcess, str], None] | None = None,
        restart: bool = False,
        on_return: Callable[[NodeProcess], None] | None = None,
        first_port: int = FIRST_PORT,
        config_redis: str | Path | None = None,
        certify: Certify | None = None,
        tokens: Sequence[str] = (),
        otel: bool = False,
    ) -> None:
        self.topology = topology
        self.directory: Path | None = None
        """Where the nodes' logs are, from the start to the end."""
        self._owned: OwnedDirectory | None = None
        self.keeps_logs = False
        """True where the logs outlive the testbed: a node has ended by itself."""
        self.nodes: dict[ClusterId, NodeProcess] = {}
        self._source, self._seed = topology.name if source is None else source, seed
        self.drain_timeout_s = drain_timeout_s
        self._results_timeout_s = results_timeout_s
        self._allowed_origins = allowed_origins
        self._on_death = on_death
        self._on_ending = on_ending
        self._told: dict[ClusterId, str] = {}
        """The words that `on_ending` got last for each node."""
        self.restarts = restart
        """True where a node that ends unasked is started again."""
        self._on_return, self._first_port = on_return, first_port
        self._config_redis, self._otel = config_redis, otel
        self.certified = Certified(certify)
        self._tokens, self.shown = tokens, dict[str, str]()  # the latter is told to nodes
        self._numbers: dict[ClusterId, int] = {}
        """Numbers of log files, by cluster."""
        self._let_go: set[ClusterId] = set()
        """Their nodes end for good."""
        self._wanted: dict[ClusterId, asyncio.Event] = {}
        """Set where somebody wants a dead node back at once."""
        self._left_dead: set[ClusterId] = set()
        """Nobody starts their nodes again, unless asked."""
        self._watching: list[asyncio.Task[None]] = []
        self._stopping, self._all_dead = False, asyncio.Event()

    @property
    def urls(self) -> dict[ClusterId, str]:
        """Returns the addresses of all nodes, by their names: that of the cluster, or, where it has
        several, with the number behind a slash."""
        each = [
            (name_of(c, number), c.at(number).url)
            for c in self.topology.clusters
            for number in range(1, c.node_count + 1)
        ]
        return {name: url for name, url in each if url is not None}

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            await self.stop(grace_s=0.5)
            raise
        return self

    async def __aexit__(self, kind: object, error: object, trace: object) -> None:
        await self.stop(grace_s=self.drain_timeout_s if error is None else 1.0)

    async def start(self) -> None:
        """Start all nodes, and return when each is ready and has heard from its neighbors."""
        async with start_lock(READY_WITHIN_S):
            self.topology = with_addresses(
                self.topology, self._source, self._first_port, is_secure=self.certified.is_wanted
            )
            remove_leftovers()
            self._owned = OwnedDirectory()
            self.directory = self._owned.path
            self.certified.keep_in(self.directory)
            file = self.directory / TOPOLOGY_FILE
            self.use(self.topology)
            if self._tokens:
                own = make_own_token(self.directory)
                self._tokens, self.shown = [*self._tokens, str(own.file)], own.shown
            for name in self.urls:
                self.nodes[name] = await self._spawn(name, file)
            await self._all_ready()
        self._wanted = {cluster: asyncio.Event() for cluster in self.nodes}
        self._watching = [
            asyncio.create_task(self._watch(cluster, file), name=f"watch {cluster}")
            for cluster in self.nodes
        ]

    def is_part(self, name: ClusterId) -> bool:
        own, number = node_of(name)
        known = self.topology
        return own in known.cluster_ids and number <= known.cluster(own).node_count

    async def add(self, cluster: ClusterId) -> None:
        """Start the node of this name, which `use` has told of."""
        assert self.directory is not None  # noqa: S101 - it is up
        file = self.directory / TOPOLOGY_FILE
        self._let_go.discard(cluster)
        self.nodes[cluster] = await self._spawn(cluster, file)
        self._wanted[cluster] = asyncio.Event()
        self._watching.append(asyncio.create_task(self._watch(cluster, file)))

    async def let_go(self, cluster: ClusterId) -> None:
        """End the node of a cluster for good, as `stop` does, and forget it."""
        self._let_go.add(cluster)
        node = self.nodes[cluster]
        if cluster in self._wanted:
            self._wanted[cluster].set()
        _signal(node, signal.SIGTERM)
        try:
            await asyncio.wait_for(node.process.wait(), self.drain_timeout_s + 3.0)
        except TimeoutError:
            _signal(node, signal.SIGKILL)
            await node.process.wait()
        self.nodes.pop(cluster, None)
        self._wanted.pop(cluster, None)
        self._left_dead.discard(cluster)

    def use(self, topology: Topology) -> None:
        """Nodes that are started from now on read this one."""
        assert self.directory is not None  # noqa: S101 - it is up
        self.topology = topology
        new = self.directory / f"{TOPOLOGY_FILE}.new"
        new.write_text(dump_topology(_sharing_memory(topology)), encoding="utf-8")
        new.replace(self.directory / TOPOLOGY_FILE)  # in one step: a node may be reading it

    async def all_dead(self) -> None:
        """Return when no node is left, and none will be started again."""
        await self._all_dead.wait()

    def revive(self) -> list[ClusterId]:
        """Start again at once those nodes that are dead, whatever they died of; which they are."""
        dead = [c for c, node in self.nodes.items() if node.process.returncode is not None]
        for cluster in dead:
            if cluster in self._wanted:
                self._wanted[cluster].set()
        return dead

    async def stop(self, grace_s: float) -> None:
        """End every node: SIGTERM, and SIGKILL for those still there after `grace_s`."""
        self._stopping = True
        # First, so that nobody starts another one.
        for task in self._watching:
            task.cancel()
        await asyncio.gather(*self._watching, return_exceptions=True)
        for node in self.nodes.values():
            _signal(node, signal.SIGTERM)
        waits = [asyncio.create_task(node.process.wait()) for node in self.nodes.values()]
        if waits:
            try:
                await self._all_ended(waits, grace_s + 3.0)
            finally:
                self.kill()
                await asyncio.wait(waits)
        if self._owned is not None:
            end = self._owned.keep if self.keeps_logs else self._owned.remove
            end()

    async def _all_ended(self, waits: Collection[asyncio.Task[int]], timeout_s: float) -> None:
        until_s = time.monotonic() + timeout_s
        while waits and (rest_s := until_s - time.monotonic()) > 0:
            _, waits = await asyncio.wait(waits, timeout=min(rest_s, ENDING_POLL_S))
            for node in self.nodes.values():
                self._tell_ending(node)

    def _tell_ending(self, node: NodeProcess) -> None:
        if self._on_ending is None:
            return
        words = node.words_on_ending()
        if words is not None and words != self._told.get(node.cluster):
            self._told[node.cluster] = words
            self._on_ending(node, words)

    def reread(self) -> None:
        """Have the nodes read their certificates and API tokens again. While they are being started
        they do so anyway."""
        if self._watching:
            for node in self.nodes.values():
                if not node.is_returning:
                    _signal(node, signal.SIGHUP)

    def kill(self) -> None:
        """End every node at once."""
        for node in self.nodes.values():
            _signal(node, signal.SIGKILL)

    async def _spawn(self, cluster: ClusterId, file: Path) -> NodeProcess:
        # Numbered, since there are file systems that take a and A for the same.
        number = self._numbers.setdefault(cluster, len(self._numbers))
        log = file.parent / f"{number}-{cluster.replace('/', '-')}.log"
        command = [sys.executable, "-m", "spillover", "node", "--topology", str(file)]
        own, node = node_of(cluster)
        command += ["--cluster", own]
        if isinstance(self.topology.cluster(own).nodes, tuple):
            command += ["--node", str(node)]
        command += ["--testbed", "--end-with-stdin"]
        command += ["--drain-timeout-s", str(self.drain_timeout_s)]
        command += ["--results-timeout-s", str(self._results_timeout_s)]
        environment = self.certified.environment(self.topology, ClusterId(own))
        if isinstance(self._config_redis, Path):
            command += ["--redis-url-file", str(self._config_redis)]
        elif self._config_redis is not None:
            command += ["--config-redis"]
            environment[REDIS_VARIABLE] = self._config_redis  # `ps` shows options
        for tokens in self._tokens:
            command += ["--tokens", tokens]
        for origin in self._allowed_origins:
            command += ["--allow-origin", origin]
        if self._otel:
            command += ["--otel"]
        if self._seed is not None:
            command += ["--seed", str(self._seed)]
        with log.open("ab") as output:
            log_began_at = output.tell()
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.PIPE,
                stdout=output,
                stderr=output,
                env=environment,
                start_new_session=True,  # Ctrl-C is for the supervisor, which then ends the nodes
            )
        url = self.topology.cluster(own).at(node).url
        assert url is not None  # noqa: S101 - all have addresses
        return NodeProcess(cluster, url, process, log, log_began_at, time.monotonic())

    async def _all_ready(self) -> None:
        limit_s = time.monotonic() + READY_WITHIN_S
        waiting = dict(self.nodes)
        async with self.certified.asking(self.shown) as asking:
            while waiting:
                for node in self.nodes.values():
                    self._check_alive(node)
                for node in list(waiting.values()):
                    if not await asking.is_up(node.url):
                        break  # the others later: nodes that start have enough to do
                    del waiting[node.cluster]
                if waiting and time.monotonic() > limit_s:
                    late = [c for c, one in waiting.items() if not await asking.is_up(one.url)]
                    names = ", ".join(late or waiting)
                    self.keeps_logs = True
                    where = f"cluster {names}; logs in {self.directory}"
                    raise RunError(f"not ready within {READY_WITHIN_S:.0f} s: {where}")
                await asyncio.sleep(READY_POLL_S)

    def _check_alive(self, node: NodeProcess) -> None:
        if node.process.returncode is None:
            return
        words = node.last_words().removeprefix("spillover: ")
        if node.process.returncode == EXIT_USAGE:
            # The node names its file and itself too, if at all; the user's names come first.
            words = words.removeprefix(f"{self.directory}/{TOPOLOGY_FILE}: ")
            words = words.removeprefix(f"cluster {node.cluster}: ")
            raise InputError(self._source, f"cluster {node.cluster}", words)
        self.keeps_logs = True
        how = f"did not start ({node.end_of_life()}, log {node.log})"
        raise RunError(f"cluster {node.cluster} {how}: {words}")

    async def _watch(self, cluster: ClusterId, file: Path) -> None:
        """The node of a cluster, and each that takes its place, until the testbed ends."""
        revival = Revival()
        node = self.nodes[cluster]
        while True:
            await node.process.wait()
            if self._stopping or cluster in self._let_go or not self.is_part(cluster):
                return
            # Who was killed died as somebody meant it to; the others have a story to tell.
            self.keeps_logs |= not node.was_killed
            # Nobody here has asked it to end. Users' code may have, with whatever exit status.
            if self.restarts and not node.was_drained:
                node.starts_again_in_s = revival.delay_s(time.monotonic() - node.started_s)
            if self._on_death is not None:
                self._on_death(node)
            if node.starts_again_in_s is None:
                self._left_dead.add(cluster)
                if self._left_dead == set(self.nodes):
                    self._all_dead.set()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._wanted[cluster].wait(), node.starts_again_in_s)
                revival.forget()
            if cluster in self._let_go:
                return
            self._left_dead.discard(cluster)
            self._wanted[cluster].clear()
            node = await self._replace(node, file)

    async def _replace(self, dead: NodeProcess, file: Path) -> NodeProcess:
        """The node that runs in its place; the dead one again if none can be started."""
        try:
            node = await self._spawn(dead.cluster, file)
        except OSError as error:
            dead.problem, dead.started_s = error.strerror or str(error), time.monotonic()
            return dead
        self.nodes[dead.cluster] = node
        node.is_returning = True
        await self._tell_return(node)
        node.is_returning = False
        return node

    async def _tell_return(self, node: NodeProcess) -> None:
        """Once it answers; not if it ends before."""
        async with self.certified.asking(self.shown) as asking:
            while node.process.returncode is None:
                if await asking.answers(node.url, node.cluster.partition("/")[0]):
                    if self._on_return is not None:
                        self._on_return(node)
                    return
                await asyncio.sleep(BACK_POLL_S)


def name_of(cluster: Cluster, number: int) -> ClusterId:
    """Returns what a node is called: as its cluster, where that has one."""
    return ClusterId(f"{cluster.id}/{number}") if cluster.node_count > 1 else cluster.id


def node_of(name: ClusterId) -> tuple[ClusterId, int]:
    """Returns the cluster and the number of a node: it has that behind a slash where there were
    several when it was started."""
    own, _, number = name.partition("/")
    return ClusterId(own), int(number or 1)


def _signal(node: NodeProcess, number: signal.Signals) -> None:
    if node.process.returncode is None:
        node.process.send_signal(number)


def _sharing_memory(topology: Topology) -> Topology:
    """Each node's own default would be for a machine that it has for itself."""
    share_bytes = default_held_limit_bytes(sum(c.node_count for c in topology.clusters))
    clusters = (
        replace(c, held_limit_bytes=c.held_limit_bytes or share_bytes * c.node_count)
        for c in topology.clusters
    )
    return replace(topology, clusters=tuple(clusters))
