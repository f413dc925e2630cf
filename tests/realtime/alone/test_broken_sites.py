"""Two broken sites and a well one, in front of real services: what clients of a broken one notice,
what operators see, and how soon it is used again (issue 44, item 2). In virtual time, with more
seeds: `tests/sim/overflow/test_broken_together.py`.

Each trio is a1, a2 and b: two servers of 100 ms each; all clients come to a1. The service of a1 and
a2 answers 500 at once. In a *chain*, a1 has a way to b over a2 only; *asked* has a `probe:`; of
*down*, the service of a1 is gone, and b answers 500 to a part of what it gets. `make soak` plays
it under both policies.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections import Counter
from random import Random

import pytest

from spillover.live.http1.client import HttpClient
from support import SERVICES
from support.ports import free_ports

BACKEND = SERVICES / "failing_backend.py"
SPILLOVER = (sys.executable, "-m", "spillover")
LINKS = {
    "mesh": ("a1 a2", "a2 b", "a1 b"),
    "chain": ("a1 a2", "a2 b"),
    "asked": ("a1 a2", "a2 b", "a1 b"),
    "down": ("a1 b",),
}
RATE = 11.0
FAILS_S, FOUND_S, HEALS_S, BACK_S, ENDS_S = 2.0, 7.0, 14.0, 20.0, 22.0
B_FAILS = 0.1
POLICIES = ["paper", "adaptive"] if "SPILLOVER_SOAK_S" in os.environ else ["paper"]


def topology_of(port: int, dead_port: int, policy: str) -> str:
    rows, links = [], []
    for trio, joined in LINKS.items():
        for site in sorted({site for pair in joined for site in pair.split()}):
            used = dead_port if (trio, site) == ("down", "a1") else port
            path = site if (trio, site) == ("down", "b") else "b" if site == "b" else "a"
            handler = f'"http:http://127.0.0.1:{used}/{trio}-{path}"'
            asks = f', probe: "GET /{trio}-a"' if trio == "asked" else ""
            rows.append(
                f"  - {{id: {trio}-{site}, servers: 2, service_ms: 100, handler: {handler}{asks}}}"
            )
        for pair in joined:
            one, other = pair.split()
            links.append(f"{{between: [{trio}-{one}, {trio}-{other}], delay_ms: 5}}")
    shown = chr(10).join(rows)
    return f"policy: {policy}\nclusters:\n{shown}\nlinks: [{', '.join(links)}]\n"


class Story:
    """The load on each a1, and what came of it: (when it was sent, status, reason, path)."""

    def __init__(self, urls: dict[str, str], backend: str) -> None:
        self.urls = urls
        self.backend = HttpClient(backend)
        self.clients = {trio: HttpClient(urls[f"{trio}-a1"]) for trio in LINKS}
        self.ends: dict[str, list] = {trio: [] for trio in LINKS}

    async def play(self, look) -> None:
        self.start_s = time.monotonic()
        await asyncio.gather(self._tell_all(look), *(self._send(trio) for trio in LINKS))
        for client in (*self.clients.values(), self.backend):
            await client.close()

    async def _tell_all(self, look) -> None:
        await self._tell("down-b", {"status": 500, "share": B_FAILS})
        await self._at(FAILS_S)
        for trio in LINKS:
            await self._tell(f"{trio}-a", {"status": 500})
        await self._at(FOUND_S)
        self.seen = await asyncio.to_thread(look)
        await self._at(HEALS_S)
        for trio in LINKS:
            await self._tell(f"{trio}-a", {})

    async def _tell(self, path: str, how: dict) -> None:
        body = json.dumps(how).encode()
        await self.backend.request("POST", f"/told/{path}", body=body, timeout_s=10)

    async def _send(self, trio: str) -> None:
        draw, at_s, tasks = Random(f"1 {trio}"), 0.5, []
        while (at_s := at_s + draw.expovariate(RATE)) < ENDS_S:
            await self._at(at_s)
            tasks.append(asyncio.create_task(self._ask(trio, at_s)))
        await asyncio.gather(*tasks)

    async def _ask(self, trio: str, at_s: float) -> None:
        body = b'{"payload":1}'
        response = await self.clients[trio].request("POST", "/requests", body=body, timeout_s=60)
        told = json.loads(response.body)
        path = told.get("path", ())
        self.ends[trio].append((at_s, response.status, told.get("reason"), path))

    async def _at(self, at_s: float) -> None:
        ahead_s = self.start_s + at_s - time.monotonic()
        if ahead_s > 0:
            await asyncio.sleep(ahead_s)

    def of(self, trio: str, from_s: float, until_s: float) -> list:
        return [end for end in self.ends[trio] if from_s <= end[0] < until_s]


@pytest.fixture(scope="module", params=POLICIES)
def story(request, tmp_path_factory, module_start, until):
    directory = tmp_path_factory.mktemp("broken")
    backend = module_start(sys.executable, str(BACKEND))
    until(lambda: backend.stdout.endswith("\n"))
    (dead_port,) = free_ports(1)
    file = directory / "sites.yaml"
    file.write_text(topology_of(int(backend.stdout), dead_port, request.param))
    bed = module_start(*SPILLOVER, "up", "sites.yaml", "--json", "--seed", "1", cwd=directory)
    story = Story(bed.ready(), f"http://127.0.0.1:{int(backend.stdout)}")

    def look() -> dict[str, str]:
        asked = {trio: module_start(*SPILLOVER, "status", story.urls[f"{trio}-a1"])
                 for trio in ("mesh", "chain")}  # fmt: skip
        assert all(one.process.wait(30) == 0 for one in asked.values())
        return {trio: one.stdout for trio, one in asked.items()}

    asyncio.run(story.play(look))
    for trio, ends in story.ends.items():
        told = [
            f"{at_s:.2f} {status} {reason}" for at_s, status, reason, _ in ends if status != 200
        ]
        print(f"\n{trio}: {len(told)} of {len(ends)}: {told}")  # noqa: T201 - for pytest -s
    yield story
    assert "Traceback" not in bed.stderr
    assert bed.end() == 0


@pytest.mark.parametrize("trio", ["mesh", "chain", "asked"])
def test_few_clients_notice_where_a_reachable_site_is_well(story, trio):
    """At most 5 % from five seconds on, and none where the service can be asked."""
    late = story.of(trio, FOUND_S, HEALS_S)
    failed = sum(status != 200 for _, status, _, _ in late)
    assert failed <= (0 if trio == "asked" else 0.05 * len(late))
    by_place = Counter(path[-1] for _, status, _, path in late if status == 200)
    assert set(by_place) == {f"{trio}-b"}


@pytest.mark.parametrize("trio", ["mesh", "chain", "asked"])
def test_the_site_is_used_again_once_it_is_healed(story, trio):
    """Its own clients' requests are done there, as before."""
    ends = story.of(trio, BACK_S, ENDS_S)
    assert all(status == 200 for _, status, _, _ in ends)
    assert sum(path[-1] == f"{trio}-a1" for _, _, _, path in ends) > len(ends) / 2


def test_nobody_is_refused_for_want_of_servers_where_a_neighbor_does_most_of_the_work(story):
    """What fails is what the neighbor's service fails, and no more."""
    ends = story.of("down", 1.0, ENDS_S)
    told = Counter((status, reason) for _, status, reason, _ in ends)
    assert set(told) <= {(200, None), (502, "handler_failed")}, told
    assert told[502, "handler_failed"] <= 3 * B_FAILS * len(ends)


@pytest.mark.parametrize("trio", ["mesh", "chain"])
def test_operators_see_who_is_broken(story, trio):
    rows = {row.split()[0]: row for row in story.seen[trio].splitlines() if row.startswith(trio)}
    assert "degraded" in rows[f"{trio}-a1"]
    assert "well" not in rows[f"{trio}-a1"]
    assert "well" in rows[f"{trio}-b"]
