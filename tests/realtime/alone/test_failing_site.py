"""Two sites in front of real services, one of them deployed badly: what clients of the healthy site
notice of it, what operators see, and how soon the other one is used again (issue 14, item 1).

Each pair is Paris and Tokyo, two servers of 100 ms or 20 requests/s each; Paris gets 28, Tokyo 10.
All kinds of failure are played at once, on pairs of their own. With SPILLOVER_SOAK_S set, for 20
seeds; `pytest -s` shows the figures. Backends that fail often, and several that fail together, are
in virtual time: `tests/sim/overflow/test_failing.py` and `test_broken_together.py`.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections import Counter
from dataclasses import dataclass
from random import Random

import pytest

from spillover.live.http1.client import HttpClient
from support import SERVICES

BACKEND = SERVICES / "failing_backend.py"
RETRY_AFTER_S = 2.0
HOW = {
    "paused": {"status": 503, "retry_after_s": int(RETRY_AFTER_S)},
    "unavailable": {"status": 503},
    "broken": {"status": 500},
}
"""How Tokyo's backend fails, by pair."""

RATES = {"paris": 28.0, "tokyo": 10.0}
SITE_RATE = 20.0
FAILS_S, LOOK_S, HEALS_S = 2.0, 7.0, 9.0
BACK_S = 5.0
"""Within this time after the backend is well its site is used in full."""

COUNTED_S = 2.0
ENDS_S = 23.0
"""So late that one in a hundred of the requests is more than the few which fail at first."""

SPILLOVER = (sys.executable, "-m", "spillover")
SEEDS = range(1, 21) if "SPILLOVER_SOAK_S" in os.environ else [1]


@dataclass(slots=True)
class Record:
    """One request: when it was answered, from the start of the load, and how."""

    home: str
    at_s: float
    status: int
    reason: str
    path: tuple[str, ...]


def topology_of(port: int, healthy_port: int) -> str:
    sites = [f"{pair}-{site}" for pair in HOW for site in RATES]
    rows = []
    for site in sites:
        used = port if site.endswith("tokyo") else healthy_port
        handler = f'"http:http://127.0.0.1:{used}/{site}"'
        rows.append(f"  - {{id: {site}, servers: 2, service_ms: 100, handler: {handler}}}")
    links = ", ".join(f"{{between: [{p}-paris, {p}-tokyo], delay_ms: 5}}" for p in HOW)
    return f"policy: paper\nclusters:\n{chr(10).join(rows)}\nlinks: [{links}]\n"


class Sites:
    """The load on all of them, and what comes of it."""

    def __init__(self, urls: dict[str, str], backend: str, seed: int) -> None:
        self.urls, self.seed = urls, seed
        self.records: list[Record] = []
        self.seen: dict[str, dict] = {}
        """Of each Tokyo while it fails: its state and readiness, metrics, and what Paris says."""
        self.backend = HttpClient(backend)
        self.clients = {site: HttpClient(url) for site, url in urls.items()}

    async def play(self, status) -> None:
        self.start_s = time.monotonic()
        sending = [self._send_all(site) for site in self.urls]
        await asyncio.gather(self._story(status), *sending)
        for client in (*self.clients.values(), self.backend):
            await client.close()

    async def _story(self, status) -> None:
        await self._at(FAILS_S)
        for pair, how in HOW.items():
            await self._tell(f"{pair}-tokyo", how)
        await self._at(LOOK_S)
        for pair in HOW:
            self.seen[pair] = await self._look(pair)
        self.status = await asyncio.to_thread(status, self.urls["broken-paris"])
        await self._at(HEALS_S)
        for pair in HOW:
            await self._tell(f"{pair}-tokyo", {})

    async def _look(self, pair: str) -> dict:
        paris, tokyo = (self.clients[f"{pair}-{site}"] for site in ("paris", "tokyo"))
        return {
            "state": await self._get(tokyo, "/state"),
            "ready": await self._get(tokyo, "/readyz"),
            "neighbor": (await self._get(paris, "/state"))["neighbors"][0],
            "metrics": (await tokyo.request("GET", "/metrics", timeout_s=10))
            .body.decode()
            .splitlines(),
        }

    @staticmethod
    async def _get(client: HttpClient, path: str):
        return json.loads((await client.request("GET", path, timeout_s=10)).body)

    async def _tell(self, site: str, how: dict) -> None:
        body = json.dumps(how).encode()
        await self.backend.request("POST", f"/told/{site}", body=body, timeout_s=10)

    async def _send_all(self, site: str) -> None:
        """Open loop."""
        draw = Random(f"{self.seed} {site}")
        at_s, tasks = 0.0, []
        while (at_s := at_s + draw.expovariate(RATES[site.rpartition("-")[2]])) < ENDS_S:
            await self._at(at_s)
            tasks.append(asyncio.create_task(self._ask(site)))
        await asyncio.gather(*tasks)

    async def _ask(self, site: str) -> None:
        client = self.clients[site]
        response = await client.request("POST", "/requests", body=b'{"payload":1}', timeout_s=60)
        told = json.loads(response.body)
        at_s = time.monotonic() - self.start_s
        path = tuple(told.get("path", ()))
        self.records.append(Record(site, at_s, response.status, told.get("reason", ""), path))

    async def _at(self, at_s: float) -> None:
        ahead_s = self.start_s + at_s - time.monotonic()
        if ahead_s > 0:
            await asyncio.sleep(ahead_s)

    def errors(self, site: str) -> list[Record]:
        return [r for r in self.records if r.home == site and r.status != 200]

    def used(self, site: str, from_s: float, until_s: float) -> float:
        """Requests per second that were done there."""
        done = [r.at_s for r in self.records if r.path and r.path[-1] == site]
        return sum(from_s <= at_s < until_s for at_s in done) / (until_s - from_s)


@pytest.fixture(scope="module", params=SEEDS)
def sites(request, tmp_path_factory, module_start, until):
    """All pairs, after the whole story."""
    directory = tmp_path_factory.mktemp("sites")
    backends = [module_start(sys.executable, str(BACKEND)) for _ in range(2)]
    until(lambda: all(backend.stdout.endswith("\n") for backend in backends))
    ports = [int(backend.stdout) for backend in backends]
    (directory / "sites.yaml").write_text(topology_of(*ports))
    bed = module_start(*SPILLOVER, "up", "sites.yaml", "--json", "--seed", "1", cwd=directory)
    urls = bed.ready()
    sites = Sites(urls, f"http://127.0.0.1:{ports[0]}", request.param)

    def status(url: str) -> str:
        asked = module_start(*SPILLOVER, "status", url)
        assert asked.process.wait(30) == 0, asked.stderr
        return asked.stdout

    asyncio.run(sites.play(status))
    sites.log = bed.stderr
    for site in urls:
        tell = [f"{r.at_s:.2f} {r.status} {r.reason}" for r in sites.errors(site)]
        rates = [sites.used(site, at, at + 2.0) for at in range(0, int(ENDS_S), 2)]
        print(f"\n{site}: {rates} {len(tell)} errors {tell[:8]}")  # noqa: T201 - for pytest -s
    yield sites
    assert bed.end() == 0


@pytest.mark.parametrize("pair", ["paused", "unavailable"])
def test_with_503_no_client_sees_an_error(sites, pair):
    """It surely was not run: it is decided again."""
    for site in RATES:
        assert sites.errors(f"{pair}-{site}") == []


def test_with_500_few_clients_of_the_healthy_site_do(sites):
    """At most 1 % of them, within a second of the first: it may have run."""
    errors = sites.errors("broken-paris")
    asked = sum(record.home == "broken-paris" for record in sites.records)
    assert len(errors) <= asked / 100
    assert {(r.status, r.reason) for r in errors} <= {(502, "handler_failed")}
    at_s = [record.at_s for record in errors]
    assert not at_s or max(at_s) - min(at_s) <= 1.0


@pytest.mark.parametrize("pair", HOW)
def test_nothing_is_done_there_meanwhile_and_all_of_it_soon_after(sites, pair):
    """Full use within five seconds of the backend's healing, and what it asked for before."""
    site = f"{pair}-tokyo"
    assert sites.used(site, FAILS_S + 0.5, HEALS_S) == 0.0
    back_s = HEALS_S + BACK_S + HOW[pair].get("retry_after_s", 0.0)
    assert sites.used(site, back_s, back_s + COUNTED_S) >= 0.75 * SITE_RATE


@pytest.mark.parametrize("pair", HOW)
def test_operators_see_it(sites, pair):
    """In `/state` of both sites, for whoever asks whether it is ready, and in the metrics."""
    seen = sites.seen[pair]
    state = seen["state"]
    assert state["degraded"] is True
    assert state["health"] in (("resting", "degraded") if pair == "paused" else ("degraded",))
    assert state["failed_share"] > 0.0
    assert state["accept_probability"] <= 0.1
    assert seen["ready"] == {"status": "ready", "health": state["health"]}
    assert seen["neighbor"]["degraded"] is True
    (gauge,) = [line for line in seen["metrics"] if line.startswith("spillover_degraded{")]
    assert float(gauge.split()[-1]) == 1.0


def test_the_command_says_so_too(sites):
    """Asked of the healthy site: a column of its own, and behind the neighbor's name."""
    (paris,) = [row for row in sites.status.splitlines() if row.startswith("broken-paris")]
    (tokyo,) = [row for row in sites.status.splitlines() if row.startswith("broken-tokyo")]
    assert "broken-tokyo(degraded)" in paris.replace("5 ms, ", "")
    assert "degraded" in tokyo
    assert "well" in paris


def test_every_request_has_one_answer(sites):
    asked = Counter(record.home for record in sites.records)
    assert set(asked) == set(sites.urls)
    assert {r.status for r in sites.records} <= {200, 502}
    assert "Traceback" not in sites.log
