"""A neighbor that says whatever can be written costs other clients of its node little, for as long
as SPILLOVER_SOAK_S: the node is a process of its own here, and so are its clients."""

import asyncio
import json
import os
import statistics
import subprocess
import sys

from support.loop import turn
from support.malformed import BATCH
from support.rogue_node import RogueNode

SEED = int(os.environ.get("SPILLOVER_SEED", "1"))
PER_S, PARTS = 100, 5
LOOK_S_MAX = 60.0
TIMES_MAX, NOISE_MS = 2.0, 20.0
"""What the p99 of others may be, of what it was, and beyond: of a machine with other work."""
CALLS_PER_S, PAUSE_S = 500, 0.05
"""So slowly that those who say it all leave the node a core."""
CLIENTS = f"""
import asyncio, json, sys, time
from spillover.live.http1.client import HttpClient

async def main(url, for_s):
    client, took_ms, bad = HttpClient(url), [], 0
    async def ask():
        nonlocal bad
        began_s = time.monotonic()
        answer = await client.request(
            "POST", "/requests", body=b'{{"payload":{{"service_ms":1}}}}', timeout_s=60
        )
        took_ms.append((time.monotonic() - began_s) * 1e3)
        bad += answer.status != 200
    asked, end_s = [], time.monotonic() + for_s
    while time.monotonic() < end_s:
        asked.append(asyncio.create_task(ask()))
        await asyncio.sleep({1 / PER_S})
    await asyncio.gather(*asked)
    await client.close()
    print(json.dumps([bad, took_ms]))

asyncio.run(main(sys.argv[1], float(sys.argv[2])))
"""


async def p99_ms(url, for_s):
    """Of clients at this node, in most parts of the time: in one the machine may have had other
    work; and the share of those who were not told what they wanted."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", CLIENTS, url, str(for_s)), stdout=subprocess.PIPE
    )
    told, _ = await process.communicate()
    assert process.returncode == 0
    bad, took_ms = json.loads(told)
    size = len(took_ms) // PARTS
    parts = [sorted(took_ms[at : at + size]) for at in range(0, PARTS * size, size)]
    return statistics.median(part[int(0.99 * size)] for part in parts), bad / len(took_ms)


def test_other_clients_are_served_as_before(tmp_path, spillover, free_ports, until, ask, soak_s):
    urls = dict(zip("ax", (f"http://127.0.0.1:{port}" for port in free_ports(2)), strict=True))
    clusters = [{"id": c, "servers": 4, "service_ms": 1, "url": url} for c, url in urls.items()]
    topology = {"name": "test", "clusters": clusters, "links": [{"between": ["a", "x"]}]}
    (tmp_path / "pair.yaml").write_text(json.dumps(topology))
    spillover("node", "--topology", str(tmp_path / "pair.yaml"), "--cluster", "a")

    def is_ready():
        try:
            return ask(f"{urls['a']}/healthz")[0] == 200
        except OSError:
            return False

    until(is_ready, 60.0, "a node")
    look_s = min(soak_s / 3, LOOK_S_MAX)

    async def main():
        before_ms, _ = await p99_ms(urls["a"], look_s)
        async with RogueNode("x", urls["x"], "a", urls["a"], SEED) as rogue:
            rogue.state, rogue.configuration = ask(f"{urls['a']}/state")[1], {}
            rogue.pause_s, over = PAUSE_S, asyncio.Event()

            async def call():
                while not over.is_set():
                    await rogue.call(BATCH)
                    await turn(BATCH / CALLS_PER_S)

            calling = asyncio.create_task(call())
            last_ms, bad = await p99_ms(urls["a"], max(look_s, soak_s - look_s))
            over.set()
            await calling
        print(f"p99 {before_ms:.1f} ms, then {last_ms:.1f} ms; {bad:.2%}; {dict(rogue.said)}")  # noqa: T201
        assert last_ms <= TIMES_MAX * before_ms + NOISE_MS
        assert bad <= 0.02

    asyncio.run(main())
    assert is_ready()
