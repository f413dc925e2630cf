"""A federation that has too little CPU time from its first moment on: `ring5` as processes beside
busy ones, started again every 20 000 requests, every other time without Python's bytecode, under
load from the moment it is ready. Nothing is broken here, so every request must end with 200.

Starved means late, not lost: all that waits is bounded by the deadline alone, which is far beyond
what 64 clients can queue. What ends otherwise is kept whole: its answer, when it was sent and how
long it took, what each cluster knows of it, and the last words in their logs.

SPILLOVER_STARVED_REQUESTS is how many (default: what SPILLOVER_SOAK_S allows for), and
SPILLOVER_STARVED_FIRST the first life's number and seed, to go on where another soak ended.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pytest
import uvloop

from spillover.live.http1.client import HttpClient
from spillover.model.errors import PeerError

PER_SECOND = 400
"""What is surely reached, starts included."""
LIFE_REQUESTS = 20_000
BUSY, BUSY_S = 6, 600
"""Processes that only spin, and for how long if nobody ends them."""
SPIN = f"import time\nend = time.monotonic() + {BUSY_S}\nwhile time.monotonic() < end: pass"
READY_S = 300.0
"""For a start, which is not what is looked at here."""
CLIENTS = 64
HOT_S, HOT_SHARE = (0.5, 8.0), 0.75
"""One home in turn gets most of the load for so long, another time in each life: more than it can
do at once, so that links which have been idle are wanted all at once, at any age. At 10 s they once
were not to be relied on."""
DEADLINE_MS, CLIENT_S = 60_000, 90.0
SERVICE_MS = (1.0, 6.0)
IDLE_S_MAX = 4.0
CONNECT_TIMEOUT_S = 5.0
"""As the load generator's."""
TOLD_IN_FULL_MAX = 50
LOG_LINES = 30


@dataclass
class Soak:
    """What became of all requests of all lives."""

    ends: Counter[str] = field(default_factory=Counter)
    hops: Counter[int] = field(default_factory=Counter)
    slowest_s: float = 0.0
    wrong: list[dict[str, object]] = field(default_factory=list)


@dataclass
class Life:
    """The clients of one federation, from when it is ready. Closed loop: as fast as it answers."""

    number: int
    urls: dict[str, str]
    logs: dict[str, str]
    requests: int
    soak: Soak
    is_cold: bool

    async def run(self) -> None:
        self.draw = Random(self.number)
        self.hot_s = self.draw.uniform(*HOT_S)
        self.clients = {
            home: HttpClient(url, idle_s_max=IDLE_S_MAX, connect_timeout_s=CONNECT_TIMEOUT_S)
            for home, url in self.urls.items()
        }
        self.began_s = time.monotonic()
        self.sent = 0
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(CLIENTS):
                    group.create_task(self._client())
        finally:
            for client in self.clients.values():
                await client.close()

    async def _client(self) -> None:
        while self.sent < self.requests:
            index = self.sent
            self.sent += 1
            await self._one(index)

    async def _one(self, index: int) -> None:
        """Every other request has a name: without one, none is ever sent twice."""
        draw, at_s = self.draw, time.monotonic() - self.began_s
        homes = list(self.urls)
        is_hot = draw.random() < HOT_SHARE
        home = homes[int(at_s / self.hot_s) % len(homes)] if is_hot else draw.choice(homes)
        name = f"starved-{self.number}-{index}" if index % 2 else None
        headers = [(b"Spillover-Deadline-Ms", b"%d" % DEADLINE_MS)]
        if name:
            headers.append((b"Idempotency-Key", name.encode()))
        body = b'{"payload":{"service_ms":%.2f}}' % draw.uniform(*SERVICE_MS)
        told: dict[str, object] = {"home": home, "name": name, "life": self.number}
        told |= {"cold": self.is_cold, "sent_after_ready_s": at_s}
        try:
            response = await self.clients[home].request(
                "POST", "/requests", headers=headers, body=body, timeout_s=CLIENT_S
            )
        except PeerError as error:
            end = type(error).__name__
            told |= {"detail": str(error)}
        else:
            answer = json.loads(response.body)
            end = str(response.status)
            if response.status == 200:
                self.soak.hops[answer["hops"]] += 1
            else:
                end += f" {answer['reason']}"
                told |= {"answer": answer}
        took_s = time.monotonic() - self.began_s - at_s
        self.soak.slowest_s = max(self.soak.slowest_s, took_s)
        self.soak.ends[end] += 1
        if end != "200":
            told |= {"end": end, "took_s": took_s}
            await self._keep(told)

    async def _keep(self, told: dict[str, object]) -> None:
        self.soak.wrong.append(told)
        if len(self.soak.wrong) > TOLD_IN_FULL_MAX:
            return
        told["logs"] = {c: _last_lines(Path(log)) for c, log in self.logs.items()}
        answer = told.get("answer")
        request_id = told["name"] or (answer.get("id") if isinstance(answer, dict) else None)
        if request_id is None:
            return
        told["explained"] = explained = {}
        for cluster, client in self.clients.items():
            try:
                response = await client.request("GET", f"/explain/{request_id}", timeout_s=CLIENT_S)
                explained[cluster] = json.loads(response.body)
            except PeerError as error:
                explained[cluster] = str(error)


def _last_lines(log: Path) -> list[str]:
    return log.read_text(errors="replace").splitlines()[-LOG_LINES:]


@pytest.fixture
def requests(soak_s) -> int:
    return int(os.environ.get("SPILLOVER_STARVED_REQUESTS") or soak_s * PER_SECOND)


@pytest.mark.timeout(0)
def test_starved_of_cpu(tmp_path, monkeypatch, start, up, ask, until, held, is_balanced, requests):
    """All requests are done, and all ledgers balance, however late everything is."""
    soak = Soak()
    kept = tmp_path / "not_200.jsonl"
    lives = -(-requests // LIFE_REQUESTS)
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    first = int(os.environ.get("SPILLOVER_STARVED_FIRST", "0"))
    for number in range(first, first + lives):
        is_cold = number % 2 == 0
        bytecode = tmp_path / f"bytecode-{number // 2}"  # written by the first of two
        monkeypatch.setenv("PYTHONPYCACHEPREFIX", str(bytecode))
        busy = [start(sys.executable, "-c", SPIN) for _ in range(BUSY)]
        began_s = time.monotonic()
        bed, urls = up("ring5", "--seed", str(number), "--no-restart", within_s=READY_S)
        ready_s = time.monotonic() - began_s
        logs = json.loads(bed.stdout)["logs"]
        count = min(LIFE_REQUESTS, requests - (number - first) * LIFE_REQUESTS)
        life = Life(number, urls, logs, count, soak, is_cold)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(life.run())
        took_s = time.monotonic() - life.began_s
        for url in urls.values():
            until(lambda url=url: not held(ask(f"{url}/state")[1]), 30.0, "nothing held")
            assert is_balanced(ask(f"{url}/state")[1])
        for one in busy:
            one.process.kill()
            one.process.wait()
        kept.write_text("".join(json.dumps(told) + "\n" for told in soak.wrong))
        how = "cold" if is_cold else "warm"
        print(  # noqa: T201
            f"life {number} ({how}): ready after {ready_s:.1f} s, {count / took_s:.0f} requests/s,"
            f" slowest so far {soak.slowest_s:.2f} s; {dict(soak.ends)}",
            flush=True,
        )
        assert bed.end(within_s=60.0) == 0
        if is_cold:
            assert any(bytecode.rglob("*.pyc")), "else the next one is as cold"
        else:
            shutil.rmtree(bytecode)
    print(f"hops: {dict(sorted(soak.hops.items()))}")  # noqa: T201
    for end, how_many in soak.ends.most_common():
        print(f"{how_many:>9}  {end}")  # noqa: T201
    assert sum(soak.ends.values()) == requests
    assert sum(count for hops, count in soak.hops.items() if hops) > requests / 100
    told = [{k: v for k, v in one.items() if k not in ("logs", "explained")} for one in soak.wrong]
    assert set(soak.ends) == {"200"}, f"all of it is in {kept}: {told[:5]}"
