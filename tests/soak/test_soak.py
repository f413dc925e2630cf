"""Five nodes in a ring under all that clients and networks do, for as long as SPILLOVER_SOAK_S.

Mixed load with bursts at one node after the other; links delayed, lossy and cut; one node killed
and started again. Looked at every two seconds: ledgers, memory, files, response times.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import math
import signal
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from random import Random

import pytest
import uvloop

from spillover.live.http1.client import HttpClient
from spillover.model.errors import PeerError
from spillover.model.statistics import percentile

RATE, BURST_RATE = 120.0, 250.0
"""Per second, over all homes; and at one of them in turn, for one second of three."""
LOOK_EVERY_S, FAULT_EVERY_S, FAULT_S = 2.0, 8.0, 1.5
KILLED = "e"
LONG_LIVED = "abcd"

SETTLED_SHARE = 0.4
"""Of the time, after which memory and files are to be flat."""
RSS_GROWTH_BYTES = 8 * 2**20
FILES_GROWTH = 60
"""Over the rest of the time, by the line fitted."""
P99_S_MAX = 2.0

ALLOWED = {
    *("200", "202", "404 unknown_request", "409 cancelled", "422 invalid", "429 queue_full"),
    *("502 outcome_unknown", "504 deadline_exceeded"),
}
UNREACHABLE = "unreachable"


@dataclass
class Traffic:
    """Clients of all kinds. `ends` counts what they were told, by home."""

    urls: dict[str, str]
    ends: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    times_s: list[tuple[float, float]] = field(default_factory=list)
    """When a plain request was answered with 200, and how long that took."""
    draw: Random = field(default_factory=lambda: Random(1))

    def __post_init__(self) -> None:
        self.clients = {c: HttpClient(url) for c, url in self.urls.items()}
        self._names = itertools.count()
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self, until_s: float) -> None:
        """Open loop until then, and until the last of them has ended."""
        began_s = at_s = time.monotonic()
        homes = list(self.urls)
        while at_s < until_s:
            second = int(at_s - began_s)
            burst = second % 3 == 0
            at_s += self.draw.expovariate(RATE + BURST_RATE * burst)
            hot = burst and self.draw.random() < BURST_RATE / (RATE + BURST_RATE)
            home = homes[second // 3 % len(homes)] if hot else self.draw.choice(homes)
            await asyncio.sleep(max(0.0, at_s - time.monotonic()))
            task = asyncio.create_task(self._one(home))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        await asyncio.gather(*self._tasks)
        for client in self.clients.values():
            await client.close()

    async def _one(self, home: str) -> None:
        kinds = {
            self._plain: 40, self._keyed: 20, self._fetched: 10, self._forgotten: 10,
            self._deleted: 8, self._left: 7, self._bad: 5,
        }  # fmt: skip
        (kind,) = self.draw.choices(list(kinds), list(kinds.values()))
        try:
            await kind(home, f"{home}-soak-{next(self._names)}")
        except PeerError:
            self.ends[home][UNREACHABLE] += 1

    async def _plain(self, home: str, _: str) -> None:
        began_s = time.monotonic()
        if await self._post(home) == 200:
            ended_s = time.monotonic()
            self.times_s.append((ended_s, ended_s - began_s))

    async def _keyed(self, home: str, name: str) -> None:
        """Sent twice, where it did not end at once."""
        await all_of(*(self._post(home, name) for _ in range(1 + (self.draw.random() < 0.3))))

    async def _fetched(self, home: str, name: str) -> None:
        if await self._post(home, name, (b"Prefer", b"respond-async")) != 202:
            return
        for _ in range(40):
            response = await self._call(home, "GET", name)
            if response.status != 200 or json.loads(response.body)["state"] not in (
                *("queued", "running", "forwarded"),
            ):
                return
            await asyncio.sleep(0.1)

    async def _forgotten(self, home: str, name: str) -> None:
        await self._post(home, name, (b"Prefer", b"respond-async"))

    async def _deleted(self, home: str, name: str) -> None:
        async def delete() -> None:
            await asyncio.sleep(self.draw.random() * 0.05)
            await self._call(home, "DELETE", name)

        await all_of(self._post(home, name), delete())

    async def _left(self, home: str, _: str) -> None:
        waiting = self.clients[home].request(
            "POST", "/requests", body=b'{"payload":null}', timeout_s=10
        )
        await asyncio.sleep(self.draw.random() * 0.05)
        waiting.cancel()

    async def _bad(self, home: str, _: str) -> None:
        body = self.draw.choice([b"", b"{", b'{"payload":\xff}', b"[]", b'{"payload":1,"id":""}'])
        self._count(home, await self._request(home, "POST", "/requests", body=body))

    async def _post(self, home: str, name: str = "", *more: tuple[bytes, bytes]) -> int:
        body = b'{"payload":{"service_ms":%.2f,"of":"%b"}}' % (
            Random(name).expovariate(1 / 20.0) if name else self.draw.expovariate(1 / 20.0),
            name.encode(),
        )
        headers = [(b"Spillover-Deadline-Ms", b"5000"), *more]
        if name:
            headers.append((b"Idempotency-Key", name.encode()))
        return self._count(
            home, await self._request(home, "POST", "/requests", headers=headers, body=body)
        )

    async def _call(self, home: str, method: str, name: str):
        response = await self._request(home, method, f"/requests/{name}")
        self._count(home, response)
        return response

    async def _request(self, home: str, method: str, path: str, **fields):
        return await self.clients[home].request(method, path, timeout_s=15, **fields)

    def _count(self, home: str, response) -> int:
        assert b"Traceback" not in response.body
        end = str(response.status)
        if response.status >= 400:
            end += f" {json.loads(response.body)['reason']}"
        self.ends[home][end] += 1
        return response.status


async def all_of(*calls) -> None:
    """Until all have ended; then the error of one, if there was any."""
    for result in await asyncio.gather(*calls, return_exceptions=True):
        if isinstance(result, BaseException):
            raise result


@dataclass
class Ring:
    """The nodes as processes of their own, which can be killed and started again."""

    spillover: object
    urls: dict[str, str]
    file: str
    running: dict[str, object] = field(default_factory=dict)

    def start(self, cluster: str) -> None:
        self.running[cluster] = self.spillover(
            "node", "--topology", self.file, "--cluster", cluster, "--testbed"
        )

    def kill(self, cluster: str) -> None:
        self.running[cluster].process.kill()
        self.running[cluster].process.wait()

    async def spoil(self, draw: Random, until_s: float) -> Counter[str]:
        """One fault after the other, with quiet times in between."""
        count: Counter[str] = Counter()
        clients = {c: HttpClient(url) for c, url in self.urls.items()}
        clusters = list(self.urls)
        while time.monotonic() < until_s - FAULT_EVERY_S:
            await asyncio.sleep(FAULT_EVERY_S - FAULT_S)
            kind = draw.choice(["cut", "cut one way", "delay", "loss", "kill"])
            count[kind] += 1
            if kind == "kill":
                self.kill(KILLED)
                await asyncio.sleep(FAULT_S)
                self.start(KILLED)
                continue
            at = draw.randrange(len(clusters) - 2)  # a-b, b-c, c-d
            ends = [(clusters[at], clusters[at + 1]), (clusters[at + 1], clusters[at])]
            ends = ends[: 1 + (kind != "cut one way")]
            change = {"delay": {"delay_ms": 60}, "loss": {"loss": 0.2}}.get(kind, {"cut": True})
            for change_now in (change, {"delay_ms": 5, "loss": 0, "cut": False}):
                for x, y in ends:
                    response = await clients[x].request(
                        "PUT",
                        f"/admin/links/{y}",
                        body=json.dumps(change_now).encode(),
                        timeout_s=5,
                    )
                    assert response.status == 200, response.body
                await asyncio.sleep(FAULT_S if change_now is change else 0)
        for client in clients.values():
            await client.close()
        return count


@pytest.fixture
def ring(tmp_path, spillover, free_ports, until, ask):
    clusters = "abcde"
    ports = dict(zip(clusters, free_ports(len(clusters)), strict=True))
    urls = {c: f"http://127.0.0.1:{port}" for c, port in ports.items()}
    rows = [f"  - {{id: {c}, servers: 5, service_ms: 20, url: '{urls[c]}'}}" for c in clusters]
    links = [
        f"  - {{between: [{c}, {clusters[i - 4]}], delay_ms: 5}}" for i, c in enumerate(clusters)
    ]
    lines = ["result_ttl_s: 30", "result_limit: 1000", "default_deadline_ms: 5000"]
    text = "\n".join([*lines, "clusters:", *rows, "links:", *links])
    (tmp_path / "ring.yaml").write_text(text)
    ring = Ring(spillover, urls, str(tmp_path / "ring.yaml"))
    for cluster in clusters:
        ring.start(cluster)

    def is_ready(url):
        try:
            return all(n["alive"] for n in ask(f"{url}/state")[1]["neighbors"])
        except OSError:
            return False

    until(lambda: all(map(is_ready, urls.values())), 30.0, "five nodes that hear each other")
    return ring


@dataclass
class Looks:
    """Memory and open files of the long-lived nodes, over time."""

    rss: dict[str, list[tuple[float, float]]] = field(default_factory=lambda: defaultdict(list))
    files: dict[str, list[tuple[float, float]]] = field(default_factory=lambda: defaultdict(list))

    async def run(self, look, until_s: float) -> None:
        while time.monotonic() < until_s:
            await asyncio.to_thread(look, self)
            await asyncio.sleep(LOOK_EVERY_S)


def growth(points: list[tuple[float, float]]) -> float:
    """By the line of least squares through the last SETTLED part, over that time."""
    points = points[int(len(points) * SETTLED_SHARE) :]
    count = len(points)
    middle_x = sum(x for x, _ in points) / count
    middle_y = sum(y for _, y in points) / count
    over = sum((x - middle_x) * (y - middle_y) for x, y in points)
    slope = over / math.fsum((x - middle_x) ** 2 for x, _ in points)
    return slope * (points[-1][0] - points[0][0])


@pytest.mark.timeout(0)
def test_a_ring_of_five_for_long(ring, soak_s, ask, gauge, until, held, is_balanced):
    """Flat memory and files, ledgers that balance at every look, no answer that must not be."""
    traffic, looks = Traffic(ring.urls), Looks()

    def look(into: Looks) -> None:
        for cluster in LONG_LIVED:
            url, at_s = ring.urls[cluster], time.monotonic()
            assert is_balanced(ask(f"{url}/state")[1]), cluster
            assert gauge(url, "spillover_ledger_imbalance") == 0
            into.rss[cluster].append((at_s, gauge(url, "process_resident_memory_bytes")))
            into.files[cluster].append((at_s, gauge(url, "process_open_fds")))

    async def main():
        until_s = time.monotonic() + soak_s
        return await asyncio.gather(
            ring.spoil(Random(2), until_s), traffic.run(until_s), looks.run(look, until_s)
        )

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        faults = runner.run(main())[0]
    quarters = quarters_p99_s(traffic.times_s)
    print(dict(faults), [round(p99_s, 3) for p99_s in quarters])  # noqa: T201
    for cluster in ring.urls:
        print(cluster, dict(traffic.ends[cluster]))  # noqa: T201
    for cluster in LONG_LIVED:
        rss, files = looks.rss[cluster], looks.files[cluster]
        print(  # noqa: T201
            f"{cluster}: RSS {rss[0][1] / 2**20:.1f} to {rss[-1][1] / 2**20:.1f} MiB, fitted growth"
            f" {growth(rss) / 2**20:.2f} MiB; files {files[0][1]:.0f} to {files[-1][1]:.0f}"
        )
        assert growth(rss) < RSS_GROWTH_BYTES, cluster
        assert growth(files) < FILES_GROWTH, cluster
        assert set(traffic.ends[cluster]) <= ALLOWED, cluster
        assert "Traceback" not in ring.running[cluster].stderr
    assert set(traffic.ends[KILLED]) <= {*ALLOWED, UNREACHABLE}
    assert quarters[-1] < P99_S_MAX
    assert quarters[-1] < 2 * sorted(quarters)[1] + 0.1
    for url in ring.urls.values():
        until(lambda url=url: not held(ask(f"{url}/state")[1]), 15.0, "nothing held")
        assert is_balanced(ask(f"{url}/state")[1])
    for node in ring.running.values():
        node.process.send_signal(signal.SIGTERM)
    assert [node.process.wait(40) for node in ring.running.values()] == [0] * 5


def quarters_p99_s(times_s: list[tuple[float, float]]) -> list[float]:
    """The 99th percentile of the response time in each quarter of the run."""
    times_s = sorted(times_s)
    size = len(times_s) // 4
    parts = [times_s[i * size : (i + 1) * size] for i in range(4)]
    return [percentile(sorted(took_s for _, took_s in part), 0.99) for part in parts]
