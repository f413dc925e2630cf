"""Three sites in front of services that stream, one of which dies with its service: its streams end
with an error, never like whole ones, and the others go on.

The script: start services and sites (`run_streams_demo`), let users come (`Show`), say how each
stream ended for its user (`Result`).
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import httpx
from rich.console import Group
from rich.table import Table
from rich.text import Text

from spillover.commandline.terminal import table_of
from spillover.model.errors import RunError
from spillover.model.ids import ClusterId
from spillover.model.topology import Cluster, Link, Topology
from spillover.testbed.supervisor import Testbed
from spillover_lab.demo.sampling import Sampler
from spillover_lab.demo.streams import service
from spillover_lab.processes.child import Child

SITES = {"paris": "dodger_blue1", "tokyo": "dark_orange", "oslo": "green3"}
"""The sites, and their colors."""
DEAD = "tokyo"
SERVERS = 6
BEFORE, AFTER = {"paris": 12, "tokyo": 3, "oslo": 3}, {"paris": 3, "oslo": 3}
"""Streams by the site where they come in: as many as there are servers; and after its end."""
STREAM_S, APART_S, DIES_S, COMES_S = 2.0, 0.04, 1.2, 0.3
"""A stream takes so long: 40 events, one each 50 ms. The next one begins so long after it. The site
dies so long after the start, and new users come so long after its end."""
BEGUN_WITHIN_S, READY_WITHIN_S, QUIET_WITHIN_S, LOOK_S = 10.0, 30.0, 5.0, 0.02
SILENCE_S = 20.0
"""A user gives up after so long: longer than anything here takes."""
WHOLE, ERROR, REFUSED, SHORT = ENDS = ("whole", "error", "refused", "short")
"""How streams end. A short one ends as if it were whole: the lie that must never be told."""
GROUPS = {
    "dead_site": "came in there or ran there", "others": "all others", "after": "begun afterwards",
}  # fmt: skip
STRIP_WIDTH = 48


@dataclass(slots=True)
class Stream:
    """One stream as its user saw it, with times from the start of the show."""

    home: str
    begun_s: float
    ran: str = ""
    """The site whose service gave it; empty if nobody did."""
    first_s: float | None = None
    """When the first event came."""
    end: str = ""
    ended_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """How all streams ended."""

    died_s: float
    streams: Sequence[Stream]
    ledgers_balanced: bool

    def group(self, stream: Stream) -> str:
        """Returns which of GROUPS it belongs to: whether the dead site had to do with it."""
        if stream.begun_s > self.died_s:
            return "after"
        was_there = DEAD in {stream.home, stream.ran} and self.died_s < stream.ended_s
        return "dead_site" if was_there else "others"

    def counts(self) -> dict[str, dict[str, int]]:
        found = Counter((self.group(stream), stream.end) for stream in self.streams)
        return {group: {end: found[group, end] for end in ENDS} for group in GROUPS}

    def problems(self) -> list[str]:
        found = []
        for stream in self.streams:
            wanted = ERROR if self.group(stream) == "dead_site" else WHOLE
            if stream.end != wanted:
                where = f"at {stream.home}, run at {stream.ran or 'no site'}"
                found.append(
                    f"a stream that came in {where}, ended {stream.end}: expected {wanted}"
                )
        return found + ([] if self.ledgers_balanced else ["a ledger did not balance"])

    def as_json(self) -> dict[str, Any]:
        return {
            "sites": list(SITES),
            "dead": DEAD,
            "streams": len(self.streams),
            **self.counts(),
            "ran": dict(Counter(stream.ran for stream in self.streams if stream.ran)),
            "ledgers_balanced": self.ledgers_balanced,
            "problems": self.problems(),
        }

    def strips(self) -> Group:
        """Returns a strip of time for each stream in its site's color, and how they ended."""
        end_s = max(stream.ended_s for stream in self.streams)
        died = round(STRIP_WIDTH * self.died_s / end_s)
        table = Table("came in", "ran", f"{'':{died}}↓ {DEAD} dies", box=None)
        for one in sorted(self.streams, key=lambda one: (one.ran, one.home, one.begun_s)):
            times_s = (one.begun_s, one.first_s or one.ended_s, one.ended_s)
            begun, first, ended = (round(STRIP_WIDTH * at_s / end_s) for at_s in times_s)
            color = SITES.get(one.ran, "dim")
            strip = Text(" " * begun + "·" * (first - begun), "dim").append(
                "━" * (ended - first), color
            )
            strip.append("✓" if one.end == WHOLE else "✗", "green" if one.end == WHOLE else "red")
            table.add_row(one.home, Text(one.ran, color), strip)
        ends = table_of("", ENDS, title=f"Streams, when {DEAD} died", title_justify="left")
        for group, counts in self.counts().items():
            ends.add_row(GROUPS[group], *map(str, counts.values()))
        return Group(table, "", ends)


class Show:
    """The users, and the end of a site."""

    def __init__(self, doors: Mapping[str, str], say: Callable[[str], None]) -> None:
        self.streams: list[Stream] = []
        self.died_s = 0.0
        self._doors = doors
        self._say = say
        self._start_s = time.monotonic()

    def _now_s(self) -> float:
        return time.monotonic() - self._start_s

    async def play(self, kill: Callable[[], None]) -> None:
        """Lets users come, kills the site with all it has, and lets more users come."""
        limits = httpx.Limits(max_connections=None)
        async with (
            httpx.AsyncClient(trust_env=False, timeout=SILENCE_S, limits=limits) as client,
            asyncio.TaskGroup() as users,
        ):
            await self._come(client, users, BEFORE)
            self._say(f"{len(self.streams)} streams run; {BEFORE['paris']} came in at paris")
            await asyncio.sleep(DIES_S - self._now_s())
            # On a busy machine it dies later: what has not begun there is refused, another story.
            for _ in range(round(BEGUN_WITHIN_S / LOOK_S)):
                if all(one.first_s or one.end for one in self.streams):
                    break
                await asyncio.sleep(LOOK_S)
            self.died_s = self._now_s()
            kill()
            self._say(f"{DEAD} is killed, with its service")
            await asyncio.sleep(COMES_S)
            await self._come(client, users, AFTER)
            self._say(f"{sum(AFTER.values())} more streams come in elsewhere")

    async def _come(
        self, client: httpx.AsyncClient, users: asyncio.TaskGroup, where: Mapping[str, int]
    ) -> None:
        for home, count in where.items():
            for _ in range(count):
                self.streams.append(Stream(home, self._now_s()))
                users.create_task(self._watch(client, self.streams[-1]))
                await asyncio.sleep(APART_S)

    async def _watch(self, client: httpx.AsyncClient, stream: Stream) -> None:
        """What a user of an ordinary library sees."""
        last = ""
        try:
            async with client.stream("GET", f"{self._doors[stream.home]}/stream") as answer:
                stream.ran = answer.headers.get("spillover-path", "").rpartition(",")[2]
                async for line in answer.aiter_lines():
                    if line:
                        stream.first_s = stream.first_s or self._now_s()
                        last = line
            whole = WHOLE if last == service.LAST else SHORT
            stream.end = whole if answer.status_code == httpx.codes.OK else REFUSED
        except httpx.HTTPError:
            stream.end = ERROR
        stream.ended_s = self._now_s()


async def run_streams_demo(seed: int, say: Callable[[str], None]) -> Result:
    """Runs it all in real time. Raises RunError if something does not start, or dies unasked."""
    deaths: list[str] = []
    with ExitStack() as stack:
        services = {
            site: stack.enter_context(Child(f"the service of {site}", service.serve))
            for site in SITES
        }
        ports = {site: await child.receive(READY_WITHIN_S) for site, child in services.items()}
        say(f"starting three sites, each with {SERVERS} servers of a service that streams ...")
        async with Testbed(
            _topology(ports),
            seed=seed,
            drain_timeout_s=1.0,
            on_death=lambda node: deaths.append(node.cluster),
        ) as bed:

            def kill() -> None:
                for pid in (bed.nodes[ClusterId(DEAD)].process.pid, services[DEAD].pid):
                    os.kill(pid, signal.SIGKILL)

            show = Show({str(c.id): c.proxy_url or "" for c in bed.topology.clusters}, say)
            await show.play(kill)
            alive = {cluster: url for cluster, url in bed.urls.items() if cluster != DEAD}
            async with Sampler(alive) as sampler:
                balanced = (
                    await sampler.quiet(QUIET_WITHIN_S, ("home",)) and sampler.imbalances == 0
                )
        if set(deaths) - {DEAD}:
            raise RunError(f"clusters died that nobody killed: {', '.join(deaths)}")
    return Result(died_s=show.died_s, streams=show.streams, ledgers_balanced=balanced)


def _topology(ports: Mapping[str, int]) -> Topology:
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
