"""`spillover bench affinity`: a node in front of several inference engines that keep what they have
read, by affinity and by the least busy, and three sites of such nodes that hand work on, beside the
simulator on the same conversations.

The engines are mocks (`mock_engine`): the times are the model's, what is measured is what the node
makes of it. All times are of the model, which is played some times as fast. And, at several loads,
the same requests through what others put in front of engines (`engine_doors`).
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from functools import partial
from itertools import combinations
from typing import NamedTuple, TypeAlias
from urllib.parse import urlsplit

from spillover.model.errors import RunError
from spillover.model.ids import ClusterId
from spillover.model.prompt import BLOCK_TOKENS, Prompt
from spillover.model.statistics import percentile
from spillover.model.topology import Cluster, Link, Topology
from spillover.sim.affinity.engine import EngineKind
from spillover.sim.affinity.federation import AffinitySetting, Federation, play
from spillover.sim.affinity.run import RULES, capacity_per_s, homes_of
from spillover.testbed.supervisor import Testbed
from spillover_lab.bench.engine_doors import DOORS, SESSION_HEADER, Door, Engines, running_doors
from spillover_lab.bench.mock_engine import MODEL, PATH, serve_engines, text_of
from spillover_lab.bench.nodes import topology_of
from spillover_lab.bench.relays import find_program
from spillover_lab.bench.servers import HOST, READY_WITHIN_S
from spillover_lab.bench.session import Session, Stage, together
from spillover_lab.processes.child import Child
from spillover_lab.rivals.rules import RIVALS

ENGINES = 4
LOAD = 0.8
LOADS = (0.6, 0.8, 0.95, 1.1)
"""The loads at which others stand beside us."""
SESSIONS, SESSIONS_QUICK = 120, 16
TURNS = 5
TURN_TOKENS = 2_000
TURN_S = 30.0
"""The mean time between the turns of a conversation."""
ANSWER_TOKENS = 20
KIND = EngineKind(cache_tokens=200_000)
GOSSIP_S = 0.05
SERVERS = 1_000
"""More than are ever under way: requests wait at the engines."""
ANSWER_WITHIN_S = 120.0

FIRST, FOUND = "time to the first token", "prompt tokens found"
AFFINITY, BUSY, ENGINE = "affinity", "least busy", "an engine alone"
BETWEEN = "three sites"
"""Affinity between sites, too."""
SIMULATED = {
    AFFINITY: RULES["urls"],
    BUSY: RIVALS["least"],
    ENGINE: RIVALS["least"],
    BETWEEN: RULES["nodes"],
}


class Scene(NamedTuple):
    """Sites of engines, how many times as fast as real they are played, and by which rules."""

    setting: AffinitySetting
    speed: float
    rules: tuple[str, ...]

    @property
    def cases(self) -> tuple[str, ...]:
        figures = f"{FIRST}, mean", f"{FIRST}, p95", FOUND
        return tuple(f"{figure}, {by}" for by in self.rules for figure in figures)


BARE = Scene(AffinitySetting(sites=1, engines=1, kind=KIND), 4.0, (ENGINE,))
"""An engine without anything in front of it: what the mock adds to its model."""
ALONE = Scene(AffinitySetting(sites=1, engines=ENGINES, kind=KIND), 4.0, (AFFINITY, BUSY))
SITES = Scene(AffinitySetting(engines=2, kind=KIND, report_s=GOSSIP_S), 1.0, (BETWEEN,))
"""Three sites, as far apart as in the figures of decision 0051."""


def conversations(
    count: int, seed: int, setting: AffinitySetting = ALONE.setting, load: float = LOAD
) -> list[Prompt]:
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
    scale = len(prompts) / (load * capacity_per_s(prompts, setting)) / length_s
    return [one._replace(time_s=(one.time_s - first_s) * scale) for one in prompts]


async def _measure(scene: Scene, session: Session) -> None:
    setting, cases = scene.setting, scene.cases
    taken: dict[str, dict[str, list[float]]] = {case: {"": [], "simulated": []} for case in cases}
    for seed in session.seeds(FIRST):
        share = min(1.0, setting.sites * setting.engines / ENGINES)
        count = int(share * session.plan.of(SESSIONS, SESSIONS_QUICK))
        prompts = conversations(count, seed, setting)
        homes = homes_of(prompts, setting.sites, seed, skewed=True)
        for by in scene.rules:
            told = prompts, homes, by, seed
            front: Front = partial(_nodes, scene, by=by, seed=seed)
            if by == ENGINE:
                front = _nothing
            sides = {
                "": await _live(scene, prompts, homes, front),
                "simulated": _simulated(setting, *told),
            }
            for side, figures in sides.items():
                for case, value in zip(
                    [one for one in cases if one.endswith(by)], figures, strict=True
                ):
                    taken[case][side].append(value)
    for case, values in taken.items():
        session.add_beside(case, "share" if case.startswith(FOUND) else "s", values, paired=True)


def _simulated(
    setting: AffinitySetting, prompts: Sequence[Prompt], homes: Sequence[int], by: str, seed: int
) -> tuple[float, float, float]:
    federation = Federation(setting)
    answers = play(prompts, homes, federation, SIMULATED[by](federation, seed))
    asked = sum(one.tokens for one in prompts)
    found = sum(one.reading.found_tokens for one in answers)
    return _figures([one.first_token_s for one in answers], found / asked)


Front: TypeAlias = Callable[[Engines], AbstractAsyncContextManager[list[str]]]
"""Starts what stands before the engines of each site, by their ports; gives where clients ask."""


@asynccontextmanager
async def _nodes(scene: Scene, ports: Engines, *, by: str, seed: int) -> AsyncIterator[list[str]]:
    topology = _topology(scene, ports, by)
    async with Testbed(topology, seed=seed, drain_timeout_s=0.0) as bed:
        yield [one.proxy_url or "" for one in bed.topology.clusters]


@asynccontextmanager
async def _nothing(ports: Engines) -> AsyncIterator[list[str]]:
    yield [f"http://{HOST}:{own[0]}" for own in ports]


def _doors(scene: Scene, door: Door, ports: Engines) -> AbstractAsyncContextManager[list[str]]:
    return running_doors(door, ports, lambda a, b: scene.setting.rtt_s(a, b) / 2 / scene.speed)


async def _live(
    scene: Scene, prompts: Sequence[Prompt], homes: Sequence[int], front: Front
) -> tuple[float, float, float]:
    setting, speed = scene.setting, scene.speed
    count = setting.sites * setting.engines
    with Child("the engines", serve_engines, count, KIND, speed, ()) as engines:
        ports = await engines.receive(READY_WITHIN_S)
        of_sites = [ports[at : at + setting.engines] for at in range(0, count, setting.engines)]
        async with front(of_sites) as urls:
            began_s = time.monotonic()
            times_s = await together(
                _ask(urls[home], one, began_s, speed)
                for one, home in zip(prompts, homes, strict=True)
            )
        engines.send(None)
        asked, found = await engines.receive(READY_WITHIN_S)
    return _figures(times_s, found / asked)


def _cases_beside(scene: Scene) -> dict[tuple[float, str], str]:
    where = "one site" if scene.setting.sites == 1 else BETWEEN
    return {
        (load, figure): f"beside others, {where}, load {load:g}: {figure}"
        for load in LOADS
        for figure in (f"{FIRST}, mean", f"{FIRST}, p95", FOUND)
    }


async def _measure_beside(scene: Scene, session: Session) -> None:
    """Plays each seed's requests through ours and all others that are installed, in turn."""
    doors = []
    for door in DOORS:
        if find_program(door.program):
            doors.append(door)
        else:
            session.note(f"{door.name} is left out: there is no `{door.program}` on the PATH")
    cases = _cases_beside(scene)
    for load in (LOAD,) if session.plan.quick else LOADS:
        names = [case for (at, _), case in cases.items() if at == load]
        if session.wants(*names):
            await _at_load(scene, session, load, names, doors)


async def _at_load(
    scene: Scene, session: Session, load: float, cases: Sequence[str], doors: Sequence[Door]
) -> None:
    setting = scene.setting
    taken: dict[str, list[tuple[float, ...]]] = {}
    for run, seed in enumerate(session.seeds(f"{cases[0].rpartition(':')[0]}")):
        count = int(session.plan.of(SESSIONS, SESSIONS_QUICK))
        prompts = conversations(count, seed, setting, load)
        homes = homes_of(prompts, setting.sites, seed, skewed=True)
        fronts: dict[str, Front] = {"": partial(_nodes, scene, by=scene.rules[0], seed=seed)}
        fronts |= {door.name: partial(_doors, scene, door) for door in doors}
        taken = taken or {name: [] for name in fronts}
        # Turned round on every other one: who goes first may find it harder.
        for name in list(fronts)[:: -1 if run % 2 else 1]:
            taken[name].append(await _live(scene, prompts, homes, fronts[name]))
    for place, case in enumerate(cases):
        values = {name: [one[place] for one in runs] for name, runs in taken.items()}
        session.add_beside(case, "share" if FOUND in case else "s", values, paired=True)


def _topology(scene: Scene, ports: Engines, by: str) -> Topology:
    """Returns sites of so many of these engines each, whose links take a share of their time, as
    all else does."""
    setting = scene.setting
    clusters = [
        Cluster(
            id=ClusterId(name),
            servers=SERVERS,
            handler=f"proxy:{','.join(f'http://{HOST}:{port}' for port in own)}",
            affinity=None if by == BUSY else f"header:{SESSION_HEADER}",
        )
        for name, own in zip("abcdefgh", ports, strict=False)
    ]
    links = [
        Link(between=(a.id, b.id), delay_ms=setting.rtt_s(at, to) / 2 / scene.speed * 1e3)
        for (at, a), (to, b) in combinations(enumerate(clusters), 2)
    ]
    return replace(topology_of(clusters), links=tuple(links), gossip_period_ms=GOSSIP_S * 1e3)


def _figures(times_s: Sequence[float], found: float) -> tuple[float, float, float]:
    ordered = sorted(times_s)
    return sum(ordered) / len(ordered), percentile(ordered, 0.95), found


async def _ask(url: str, prompt: Prompt, began_s: float, speed: float) -> float:
    """Asks when the prompt is due, on a connection of its own; returns how long its first token
    took, counted from then, in seconds of the model."""
    messages = [{"role": "user", "content": text_of(prompt)}]
    asked = {"model": MODEL, "stream": True, "max_tokens": prompt.answer_tokens}
    body = json.dumps({**asked, "messages": messages}).encode()
    head = (
        f"POST {PATH} HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\n"
        f"{SESSION_HEADER}: {prompt.session}\r\n"
    )
    due_s = began_s + prompt.time_s / speed
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
    return took_s * speed


STAGES = (
    *(Stage(scene.cases, partial(_measure, scene)) for scene in (BARE, ALONE, SITES)),
    *(
        Stage(tuple(_cases_beside(scene).values()), partial(_measure_beside, scene))
        for scene in (ALONE, SITES)
    ),
)
