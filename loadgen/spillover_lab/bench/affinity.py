"""`spillover bench affinity`: a node in front of several inference engines that keep what they have
read, by affinity and by the least busy, beside the simulator on the same conversations.

The engines are mocks (`mock_engine`): the times are the model's, what is measured is what the node
makes of it. All times are of the model: it is played `SPEED` times as fast.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Sequence
from dataclasses import replace
from urllib.parse import urlsplit

from spillover.model.errors import RunError
from spillover.model.ids import ClusterId
from spillover.model.prompt import BLOCK_TOKENS, Prompt
from spillover.model.statistics import percentile
from spillover.model.topology import Cluster
from spillover.sim.affinity.engine import EngineKind
from spillover.sim.affinity.federation import AffinitySetting, Federation, play
from spillover.sim.affinity.run import RULES, capacity_per_s
from spillover.testbed.supervisor import Testbed
from spillover_lab.bench.mock_engine import PATH, serve_engines, text_of
from spillover_lab.bench.nodes import topology_of
from spillover_lab.bench.servers import HOST, READY_WITHIN_S
from spillover_lab.bench.session import Session, Stage, together
from spillover_lab.processes.child import Child
from spillover_lab.rivals.rules import RIVALS

ENGINES = 4
SPEED = 4.0
LOAD = 0.8
SESSIONS, SESSIONS_QUICK = 120, 16
TURNS = 5
TURN_TOKENS = 2_000
TURN_S = 30.0
"""The mean time between the turns of a conversation."""
ANSWER_TOKENS = 20
KIND = EngineKind(cache_tokens=200_000)
SETTING = AffinitySetting(sites=1, engines=ENGINES, kind=KIND)
SERVERS = 1_000
"""More than are ever under way: requests wait at the engines."""
ANSWER_WITHIN_S = 120.0

FIRST, FOUND = "time to the first token", "prompt tokens found"
AFFINITY, BUSY = "affinity", "least busy"
SIMULATED = {AFFINITY: RULES["urls"], BUSY: RIVALS["least"]}
CASES = tuple(
    f"{what}, {by}" for by in SIMULATED for what in (f"{FIRST}, mean", f"{FIRST}, p95", FOUND)
)


def conversations(count: int, seed: int) -> list[Prompt]:
    """Returns the turns of conversations, each a few thousand tokens longer than the one before,
    in order of time, at the load."""
    draws, prompts = random.Random(seed), []
    for session in range(1, count + 1):
        time_s, tokens = draws.uniform(0.0, count * 5.0), 0
        for _ in range(TURNS):
            time_s += draws.expovariate(1.0 / TURN_S)
            tokens += round(draws.uniform(0.5, 1.5) * TURN_TOKENS)
            blocks = tuple(session * 1_000 + n for n in range(tokens // BLOCK_TOKENS))
            prompts.append(Prompt(time_s, tokens, ANSWER_TOKENS, blocks, session))
    prompts.sort()
    first_s, length_s = prompts[0].time_s, prompts[-1].time_s - prompts[0].time_s
    scale = len(prompts) / (LOAD * capacity_per_s(prompts, SETTING)) / length_s
    return [one._replace(time_s=(one.time_s - first_s) * scale) for one in prompts]


async def _measure(session: Session) -> None:
    taken: dict[str, dict[str, list[float]]] = {case: {"": [], "simulated": []} for case in CASES}
    for seed in session.seeds(FIRST):
        prompts = conversations(int(session.plan.of(SESSIONS, SESSIONS_QUICK)), seed)
        for by in SIMULATED:
            sides = {"": await _live(prompts, by, seed), "simulated": _simulated(prompts, by, seed)}
            for side, figures in sides.items():
                for case, value in zip(
                    [one for one in CASES if one.endswith(by)], figures, strict=True
                ):
                    taken[case][side].append(value)
    for case, values in taken.items():
        session.add_beside(case, "share" if case.startswith(FOUND) else "s", values, paired=True)


def _simulated(prompts: Sequence[Prompt], by: str, seed: int) -> tuple[float, float, float]:
    federation = Federation(SETTING)
    answers = play(prompts, [0] * len(prompts), federation, SIMULATED[by](federation, seed))
    asked = sum(one.tokens for one in prompts)
    found = sum(one.reading.found_tokens for one in answers)
    return _figures([one.first_token_s for one in answers], found / asked)


async def _live(prompts: Sequence[Prompt], by: str, seed: int) -> tuple[float, float, float]:
    with Child("the engines", serve_engines, ENGINES, KIND, SPEED) as engines:
        ports = await engines.receive(READY_WITHIN_S)
        urls = ",".join(f"http://{HOST}:{port}" for port in ports)
        cluster = Cluster(id=ClusterId("a"), servers=SERVERS, handler=f"proxy:{urls}")
        if by == AFFINITY:
            cluster = replace(cluster, affinity="header:X-Session")
        async with Testbed(topology_of([cluster]), seed=seed, drain_timeout_s=0.0) as bed:
            url = bed.topology.clusters[0].proxy_url or ""
            began_s = time.monotonic()
            times_s = await together(_ask(url, one, began_s) for one in prompts)
        engines.send(None)
        asked, found = await engines.receive(READY_WITHIN_S)
    return _figures(times_s, found / asked)


def _figures(times_s: Sequence[float], found: float) -> tuple[float, float, float]:
    ordered = sorted(times_s)
    return sum(ordered) / len(ordered), percentile(ordered, 0.95), found


async def _ask(url: str, prompt: Prompt, began_s: float) -> float:
    """Asks when the prompt is due, on a connection of its own; returns how long its first token
    took, counted from then, in seconds of the model."""
    messages = [{"role": "user", "content": text_of(prompt)}]
    body = json.dumps({"messages": messages, "max_tokens": prompt.answer_tokens}).encode()
    head = f"POST {PATH} HTTP/1.1\r\nHost: bench\r\nX-Session: {prompt.session}\r\n"
    due_s = began_s + prompt.time_s / SPEED
    await asyncio.sleep(due_s - time.monotonic())
    place = urlsplit(url)
    reader, writer = await asyncio.open_connection(place.hostname, place.port)
    try:
        writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        async with asyncio.timeout(ANSWER_WITHIN_S):
            status = await reader.readline()
            if b" 200 " not in status:
                raise RunError(f"expected a stream, got {status[:100]!r}")
            await reader.readuntil(b"data: ")
            took_s = time.monotonic() - due_s
            await reader.readuntil(b"[DONE]")
    finally:
        writer.close()
    return took_s * SPEED


STAGES = (Stage(CASES, _measure),)
