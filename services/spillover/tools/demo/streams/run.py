"""The story of the streams: three sites with a service each, users that overflow from one to the
others, a site that dies with all it has, and users who come afterwards.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import combinations

import httpx

from spillover.model.errors import RunError
from spillover.model.ids import ClusterId
from spillover.model.topology import Cluster, Link, Topology
from spillover.testbed.supervisor import Testbed
from spillover.tools.demo.sampling import Sampler
from spillover.tools.demo.streams import service
from spillover.tools.demo.streams.model import End, Stream, StreamsResult
from spillover.tools.processes.child import Child

SITES = ("paris", "tokyo", "oslo")
DEAD = "tokyo"
SERVERS = 6
BEFORE = {"paris": 12, "tokyo": 3, "oslo": 3}
"""Streams by the site where they come in: as many in all as there are servers."""
AFTER = {"paris": 3, "oslo": 3}

STREAM_S = 2.0
"""How long a service takes for a stream: 40 events, one each 50 ms."""
APART_S = 0.04
"""From one stream to the next."""
DIES_S = 1.2
BEGUN_WITHIN_S = 10.0
"""On a busy machine it dies later: what has not begun there is refused, which is another story."""
COMES_S = 0.3
"""From its end until new users come."""

READY_WITHIN_S = 30.0
QUIET_WITHIN_S = 5.0
SILENCE_S = 20.0
"""After which a user gives up: longer than anything here takes."""


async def run_streams_demo(seed: int, say: Callable[[str], None]) -> StreamsResult:
    """Runs it all in real time. Raises RunError if something does not start, or dies unasked."""
    with ExitStack() as stack:
        services = {
            site: stack.enter_context(Child(f"the service of {site}", service.serve))
            for site in SITES
        }
        ports = {site: await child.receive(READY_WITHIN_S) for site, child in services.items()}
        say(f"starting three sites, each with {SERVERS} servers of a service that streams ...")
        deaths: list[str] = []
        async with Testbed(
            _topology(ports),
            seed=seed,
            drain_timeout_s=1.0,
            on_death=lambda node: deaths.append(node.cluster),
        ) as bed:
            doors = {str(c.id): c.proxy_url or "" for c in bed.topology.clusters}
            show = _Show(doors, say)
            await show.play(bed, services[DEAD])
            balanced = await _balanced(bed)
        if set(deaths) - {DEAD}:
            raise RunError(f"clusters died that nobody killed: {', '.join(deaths)}")
    return StreamsResult(
        sites=SITES,
        dead=DEAD,
        died_s=show.died_s,
        streams=show.streams,
        ledgers_balanced=balanced,
    )


def _topology(ports: dict[str, int]) -> Topology:
    return Topology(
        name="streams",
        policy="adaptive",
        clusters=tuple(
            Cluster(
                id=ClusterId(site),
                servers=SERVERS,
                service_ms=STREAM_S * 1e3,
                handler=f"proxy:http://127.0.0.1:{port}",
            )
            for site, port in ports.items()
        ),
        links=tuple(
            Link(between=(ClusterId(one), ClusterId(other)), delay_ms=5.0)
            for one, other in combinations(SITES, 2)
        ),
    )


@dataclass(slots=True)
class _Show:
    """The users, and the end of a site."""

    doors: dict[str, str]
    say: Callable[[str], None]
    streams: list[Stream] = field(default_factory=list)
    died_s: float = 0.0
    start_s: float = 0.0

    async def play(self, bed: Testbed, dying: Child) -> None:
        self.start_s = time.monotonic()
        limits = httpx.Limits(max_connections=None)
        async with (
            httpx.AsyncClient(trust_env=False, timeout=SILENCE_S, limits=limits) as client,
            asyncio.TaskGroup() as users,
        ):
            await self._come(client, users, BEFORE)
            self.say(f"{len(self.streams)} streams run; {BEFORE['paris']} came in at paris")
            await asyncio.sleep(DIES_S - self._now_s())
            await self._all_begun()
            self.died_s = self._now_s()
            for pid in (bed.nodes[ClusterId(DEAD)].process.pid, dying.pid):
                os.kill(pid, signal.SIGKILL)
            self.say(f"{DEAD} is killed, with its service")
            await asyncio.sleep(COMES_S)
            await self._come(client, users, AFTER)
            self.say(f"{sum(AFTER.values())} more streams come in elsewhere")

    async def _all_begun(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(BEGUN_WITHIN_S):
                while True:
                    if all(stream.end or stream.first_s is not None for stream in self.streams):
                        return
                    await asyncio.sleep(0.02)

    def _now_s(self) -> float:
        return time.monotonic() - self.start_s

    async def _come(
        self, client: httpx.AsyncClient, users: asyncio.TaskGroup, where: dict[str, int]
    ) -> None:
        for home, count in where.items():
            for _ in range(count):
                stream = Stream(home, self._now_s())
                self.streams.append(stream)
                users.create_task(self._watch(client, stream))
                await asyncio.sleep(APART_S)

    async def _watch(self, client: httpx.AsyncClient, stream: Stream) -> None:
        """What a user of an ordinary library sees."""
        last = ""
        try:
            async with client.stream("GET", f"{self.doors[stream.home]}/stream") as answer:
                stream.ran = answer.headers.get("spillover-path", "").rpartition(",")[2]
                async for line in answer.aiter_lines():
                    if line:
                        stream.first_s = stream.first_s or self._now_s()
                        stream.events += 1
                        last = line
            if answer.status_code != httpx.codes.OK:
                stream.end = End.REFUSED
            else:
                stream.end = End.WHOLE if last == service.LAST else End.SHORT
        except httpx.HTTPError:
            stream.end = End.ERROR
        stream.ended_s = self._now_s()


async def _balanced(bed: Testbed) -> bool:
    """Returns whether the ledgers of the sites that live balance, and hold nothing any more."""
    sampler = Sampler({cluster: url for cluster, url in bed.urls.items() if cluster != DEAD})
    try:
        async with asyncio.timeout(QUIET_WITHIN_S):
            while True:
                await sampler.look()
                homes = [state["ledger"]["home"] for state in sampler.states.values()]
                if not any(home["queued"] + home["running"] + home["away"] for home in homes):
                    return sampler.imbalances == 0
                await asyncio.sleep(0.05)
    except TimeoutError:
        return False
    finally:
        await sampler.close()
