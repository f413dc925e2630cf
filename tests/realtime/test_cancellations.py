"""Requests cancelled by DELETE, by disconnecting and by their deadline, wherever they are: queued,
running, or handed on. Nothing of them is left: no server, no place in a queue, no memory, no file.

3 000 of them on two linked nodes, 100 000 with SPILLOVER_SOAK_S in the environment.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import re
import urllib.request
from collections import Counter
from random import Random

import pytest
import uvloop

from spillover.live.http1.client import HttpClient

COUNT = 100_000 if "SPILLOVER_SOAK_S" in os.environ else 3_000
CLIENTS = 120
DELAY_S_MAX = 0.03
RSS_GROWTH_BYTES = 8 * 2**20
"""From half of the cancellations to the end of them."""
FILES_MORE = 2 * CLIENTS + 16
"""Idle connections to the neighbor, which live for half a minute, and some that end just now."""

ENDLESS = b'{"payload":{"service_ms":60000}}'
"""Nothing of this kind is ever done, so that admission goes on to believe in a millisecond."""

PAIR = """
policy: two-choice
result_limit: 1000
clusters:
  - {id: a, servers: 4, service_ms: 1}
  - {id: b, servers: 4, service_ms: 1}
links: [{between: [a, b], delay_ms: 1}]
"""


class Quitters:
    """Clients that want nothing of what they asked for. `told` counts what they were told."""

    def __init__(self, urls: dict[str, str]) -> None:
        self._urls = urls
        self._numbers = itertools.count()
        self.told: Counter[str] = Counter()

    async def run(self, upto: int) -> None:
        """Cancel requests until there have been so many."""
        self._clients = [HttpClient(url) for url in self._urls.values()]
        async with asyncio.TaskGroup() as group:
            for _ in range(CLIENTS):
                group.create_task(self._quit(upto))
        for client in self._clients:
            await client.close()

    async def _quit(self, upto: int) -> None:
        ways = (self._delete, self._disconnect, self._expire)
        while (number := next(self._numbers)) < upto:
            draw = Random(number)
            client = self._clients[draw.random() < 0.25]  # most at a, so that it hands on
            async with asyncio.timeout(20):
                await ways[number % 3](client, f"q-{number}", draw.random() * DELAY_S_MAX)

    async def _delete(self, client: HttpClient, name: str, after_s: float) -> None:
        waiting = self._post(client, [(b"Idempotency-Key", name.encode())])
        await asyncio.sleep(after_s)
        # It goes over another connection, and may overtake the request.
        deleted = await self._call(client, "DELETE", name)
        while deleted.status == 404:
            deleted = await self._call(client, "DELETE", name)
        self.told[f"DELETE {deleted.status}"] += 1
        answer = await waiting
        reason = json.loads(answer.body)["reason"]
        self.told[f"deleted: {answer.status} {reason}"] += 1

    async def _disconnect(self, client: HttpClient, _: str, after_s: float) -> None:
        waiting = self._post(client, [])
        await asyncio.sleep(after_s)
        self.told["disconnected"] += waiting.cancel()

    async def _expire(self, client: HttpClient, _: str, after_s: float) -> None:
        deadline = (b"Spillover-Deadline-Ms", b"%.1f" % (after_s * 1e3))
        answer = await self._post(client, [deadline])
        reason = json.loads(answer.body)["reason"]
        self.told[f"expired: {answer.status} {reason}"] += 1

    def _post(self, client: HttpClient, headers: list[tuple[bytes, bytes]]):
        return client.request("POST", "/requests", headers=headers, body=ENDLESS, timeout_s=20)

    def _call(self, client: HttpClient, method: str, name: str):
        return client.request(method, f"/requests/{name}", timeout_s=20)


def gauge(url: str, name: str) -> float:
    """Of /metrics."""
    with urllib.request.urlopen(f"{url}/metrics") as answer:  # noqa: S310 - loopback only
        found = re.search(rf"^{name}(?:{{.*}})? (\S+)$", answer.read().decode(), re.MULTILINE)
    assert found is not None, name
    return float(found[1])


@pytest.mark.timeout(300 + COUNT / 200)
def test_cancellations_leak_nothing(tmp_path, up, ask, until, held, is_balanced):
    """Both nodes are empty afterwards, and as large as they were half the way."""
    (tmp_path / "pair.yaml").write_text(PAIR)
    bed, urls = up("pair.yaml", "--seed", "1", cwd=tmp_path)
    quitters = Quitters(urls)
    rss_bytes = {cluster: [] for cluster in urls}
    files = {cluster: gauge(url, "process_open_fds") for cluster, url in urls.items()}
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        for upto in (COUNT // 2, COUNT):
            runner.run(quitters.run(upto))
            for cluster, url in urls.items():
                until(lambda url=url: not held(ask(f"{url}/state")[1]), what="nothing held")
                rss_bytes[cluster].append(gauge(url, "process_resident_memory_bytes"))
    states = {cluster: ask(f"{url}/state")[1] for cluster, url in urls.items()}
    print(dict(quitters.told), rss_bytes, [s["ledger"] for s in states.values()])  # noqa: T201
    assert set(quitters.told) <= {
        *("disconnected", "DELETE 200", "DELETE 202"),
        *("deleted: 409 cancelled", "expired: 504 deadline_exceeded"),
    }
    # 202: not yet known to be cancelled, for the neighbor had not said so; it was.
    deleted = quitters.told["DELETE 200"] + quitters.told["DELETE 202"]
    assert quitters.told["deleted: 409 cancelled"] == deleted > COUNT * 0.3
    assert quitters.told["expired: 504 deadline_exceeded"] > COUNT * 0.3
    # A busy machine hands on fewer: hundreds where it is quiet.
    assert states["b"]["ledger"]["foreign"]["cancelled"] > COUNT / 1000
    for cluster, state in states.items():
        assert is_balanced(state)
        assert (state["busy"], state["stuck"], state["queue_length"]) == (0, 0, 0)
        assert state["ledger"]["home"]["done"] == 0
        before, after = rss_bytes[cluster]
        assert after - before < RSS_GROWTH_BYTES, cluster
        more = gauge(urls[cluster], "process_open_fds") - files[cluster]
        assert more <= FILES_MORE, cluster
    assert bed.end() == 0
