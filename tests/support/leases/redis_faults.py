"""Lease groups whose Redis is harmed: members, a redis-server of their own for the leases, a
way to it that may be broken, and another, healthy server for what the handlers write.

    def test_it(endure): endure({"paused": story, ...})

Each story is an async function of a `World`, and all of one test run at once. What must hold in all
of them is asked here and in `support.leases.reckoning`; what breaks is in the tests. No rule of
leases here.
"""

from __future__ import annotations

import asyncio
import os
import random
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from support.leases import members as lease_members
from support.leases import reckoning as lease_reckoning
from support.waiting import slack

now_s = lease_members.now_s

NODES = ("a", "b")
THREE = {"nodes": ("a", "b", "c"), "partitions": 6}
"""For stories in which more is to happen: what `given` takes."""

PARTITIONS = 4
SEED = int(os.environ.get("SPILLOVER_TEST_SEED", "1"))

SLACK_S = 2.5
"""More than the product's own bound, and in proportion where more is to be run than there are
cores: see `slack_s`."""

EVEN_S = 20.0
"""For counts to become even again, which takes a few periods of one move each."""

TOLD_MAX = 3
"""So often may one outage be told: a call that is late for other reasons is one, too."""

MOVES = ("acquired", "releasing", "released", "lost", "fenced")


@dataclass
class World:
    """One story's group. `server` is the Redis of the leases, `way` what members reach it by."""

    name: str
    servers: Any
    """The module of the fixture `redis_servers`."""
    server: Any
    way: Any
    group: Any
    random: random.Random
    directory: Path
    took_s: dict[str, float] = field(default_factory=dict)
    """How long after each fault the last partition was worked on again."""
    overlap_max_s: float = 0.0
    """How long two may work at once, each believing in its lease; a sink takes only the later."""
    nodes: tuple[str, ...] = NODES

    @property
    def lease_s(self) -> float:
        return self.group.times.max_lease_ms / 1000.0

    @property
    def period_s(self) -> float:
        return self.group.times.normal_lease_ms / 1000.0

    @property
    def renewal_limit_s(self) -> float:
        """How long a renewal waits for its answer."""
        return 0.25 * self.lease_s

    @property
    def bound_s(self) -> float:
        """Once Redis answers, nothing stands still for longer: what ran out in the store, or the
        grace after a loss, ends within a lease; then one period until the next look, and the wait
        before a claim."""
        return self.lease_s + 1.1 * self.period_s + self.group.times.longest_wait_ms / 1000.0

    async def begins(self) -> None:
        """All run, and have shared everything out."""
        group = self.group

        def has_begun() -> bool:
            return bool(group.is_even()) or len(group.living) < len(self.nodes)

        await group.until(has_begun, 60.0, "even")
        ended = [one.log.read_text() for one in group.members.values() if not one.alive]
        assert not ended, ended
        await group.until_served(since_s=now_s())

    # --- what members say and do --------------------------------------------------------------

    @property
    def all_members(self) -> list[Any]:
        """All processes that there were."""
        return [*self.group.members.values(), *self.group.former]

    def epochs(self) -> dict[int, int]:
        """Of all partitions, by the lines of the living."""
        found: dict[int, int] = {}
        for node in self.group.living:
            found |= self.group.held(node)
        return found

    def moves(self, since_s: float) -> list[Any]:
        members = self.group.members.values()
        return [line for one in members for line in one.told(*MOVES, since_s=since_s)]

    def stored(self, server: Any = None) -> dict[int, tuple[str, int]]:
        """Holder and epoch of each partition, as the Redis of the leases has it, or another one."""
        client = (server or self.server).client
        values = client.hgetall(f"{{spillover:{self.group.name}}}:allocation")
        return {int(p): (v.split("|")[0], int(v.split("|")[1])) for p, v in values.items()}

    def outages(self, since_s: float = 0.0) -> dict[str, list[str]]:
        """`redis_down` and `redis_up`, as the living told them."""
        return {
            node: [line.event for line in one.told("redis_down", "redis_up", since_s=since_s)]
            for node, one in self.group.living.items()
        }

    async def sees_outage(self) -> None:
        """Each says that Redis is down."""
        await self.group.until(lambda: self._all_say("redis_down"), 30.0, "redis_down of all")

    async def is_over(self, since_s: float) -> None:
        """Each says that it is up again, and has not told of it again and again."""
        await self.group.until(lambda: self._all_say("redis_up"), 30.0, "redis_up of all")
        for node, said in self.outages(since_s).items():
            assert said.count("redis_down") <= TOLD_MAX * slack(), (node, said)

    def is_quiet(self, since_s: float) -> bool:
        """Nobody has said that Redis is down, but for an answer that was late here and now."""
        told = [one.told("redis_down", since_s=since_s) for one in self.group.living.values()]
        problems = [line.given["problem"] for lines in told for line in lines]
        return all(problem.endswith("in time") for problem in problems)

    def _all_say(self, event: str) -> bool:
        return all(said[-1:] == [event] for said in self.outages().values())

    async def recovers(self, what: str, since_s: float, *, more_s: float = 0.0) -> None:
        """All is worked on again within the bound, and is even after a while."""
        limit_s = self.bound_s + more_s + slack_s()
        self.took_s[what] = await self.group.until_served(since_s=since_s, limit_s=limit_s)
        await self.group.until_even(EVEN_S)

    async def stays(self, for_s: float, since_s: float) -> None:
        """For so long, nothing moves and everything is worked on."""
        until_s = now_s() + for_s
        await asyncio.sleep(for_s)
        moves = [(line.given["node"], line.event, line.partition) for line in self.moves(since_s)]
        assert not moves, moves
        await self.group.until_served(since_s=until_s, limit_s=slack_s())

    async def survives_a_death(self, what: str) -> None:
        """The last node is killed: the others have its partitions within the bound; it comes back
        and gets its share."""
        node, before = self.nodes[-1], self.epochs()
        mine = list(self.group.held(node))
        killed_s = self.group.kill(node)
        if mine:
            limit_s = self.bound_s + slack_s()
            took_s = await self.group.until_served(mine, since_s=killed_s, limit_s=limit_s)
            self.took_s[what] = took_s
        self.group.spawn(node)
        await self.group.until(lambda: self.group.held(node), EVEN_S, f"share of {node}")
        await self.group.until_even(EVEN_S)
        after = self.epochs()
        assert all(after[p] > before[p] for p in mine), (before, after)

    def wrongs(self, statuses: dict[str, int]) -> list[str]:
        found = list(lease_reckoning.wrongs_of(self.group))
        if self.overlap_max_s:
            found = [wrong for wrong in found if " beside " not in wrong]
            tenures = list(lease_reckoning.tenures(self.group.read()).values())
            found += [
                f"{over_s:.3f} s beside a later one: {tenure}"
                for over_s, tenure in overlaps(tenures)
                if over_s > self.overlap_max_s
            ]
        return found + [f"{n} ended with {status}" for n, status in statuses.items() if status]


def slack_s() -> float:
    """More than the product's own bound, now."""
    return SLACK_S * slack()


def overlaps(tenures: list[Any]) -> Iterable[tuple[float, Any]]:
    """For how long a tenure was let act after one with a later epoch had begun to."""
    for one in tenures:
        later = [t for t in tenures if t.partition == one.partition and t.epoch > one.epoch]
        firsts = [min(t.valid_s) for t in later if t.valid_s]
        if firsts and one.valid_s:
            yield max(one.valid_s) - min(firsts), one


Story = Callable[[World], Awaitable[None]]


@asynccontextmanager
async def world_of(
    name: str, servers: Any, directory: Path, sink_url: str, **given: Any
) -> AsyncIterator[World]:
    """A world whose members are starting. `given`: `options` of the redis-server,
    `same_sink`, `nodes`, and whatever a group takes."""
    nodes = given.pop("nodes", NODES)
    options = given.pop("options", ())
    same_sink = given.pop("same_sink", False)
    async with AsyncExitStack() as stack:
        server = stack.enter_context(servers.running(directory, *options))
        way = await stack.enter_async_context(servers.WayAside(server.port))
        group = lease_members.Group(
            directory=directory,
            url=way.url,
            sink_url=server.url if same_sink else sink_url,
            **{"partitions": PARTITIONS} | given,
        )
        await stack.enter_async_context(group)
        group.spawn(*nodes)
        drawn = random.Random(f"{SEED}/{name}")
        yield World(name, servers, server, way, group, drawn, directory, nodes=nodes)


async def _endured(
    name: str,
    story: Story,
    servers: Any,
    directory: Path,
    sink_url: str,
    all_ready: asyncio.Barrier,
) -> tuple[World, list[str]]:
    """The story's world, and whatever was wrong. It begins when all others can, too: processes that
    start keep a small machine busy."""
    settings = getattr(story, "settings", {})
    async with world_of(name, servers, directory, sink_url, **settings) as world:
        try:
            try:
                await world.begins()
            finally:
                await all_ready.wait()
            await story(world)
            statuses = await asyncio.to_thread(world.group.close)
            wrongs = await asyncio.to_thread(world.wrongs, statuses)
        except Exception as error:  # noqa: BLE001 - the other stories are to be told, too
            where = traceback.extract_tb(error.__traceback__)[1:3]
            wrongs = [f"{error!r} at {[(frame.name, frame.lineno) for frame in where]}"]
    if wrongs:
        lines = [line for one in world.all_members for line in one.lines]
        told = [f"{line.at_s:.3f} {line.given}" for line in sorted(lines, key=lambda one: one.at_s)]
        (directory / "lines").write_text("\n".join(told))
    return world, [f"{name} (seed {SEED}): {wrong}" for wrong in wrongs]


def endure_all(
    stories: dict[str, Story], servers: Any, directory: Path, sink_url: str
) -> dict[str, World]:
    """All at once, each in a world of its own; the worlds by name. Fails if anything is wrong."""
    folders = [directory / name.replace(" ", "_") for name in stories]
    for folder in folders:
        folder.mkdir()

    async def at_once() -> list[tuple[World, list[str]]]:
        all_ready = asyncio.Barrier(len(stories))
        calls = [
            _endured(name, story, servers, folder, sink_url, all_ready)
            for (name, story), folder in zip(stories.items(), folders, strict=True)
        ]
        return await asyncio.gather(*calls)

    found = asyncio.run(at_once())
    for world, _ in found:
        print(world.name, {what: round(s, 2) for what, s in world.took_s.items()})  # noqa: T201
    wrongs = [wrong for _, some in found for wrong in some]
    assert not wrongs, f"{len(wrongs)} wrongs, such as\n" + "\n".join(wrongs[:10])
    return {world.name: world for world, _ in found}


@pytest.fixture
def endure(redis_servers, redis_server, tmp_path):
    """`endure({name: story, ...})`: see `endure_all`. Handlers write to the server of all tests."""
    return lambda stories: endure_all(stories, redis_servers, tmp_path, redis_server.url)


def given(**settings: Any) -> Callable[[Story], Story]:
    """What the world of a story is to have: see `world_of`."""

    def mark(story: Any) -> Story:
        story.settings = settings
        return story

    return mark


# --- what passes by the channels ------------------------------------------------------------------


class Jumble:
    """Of the messages to a subscriber some are lost, some come twice, some after the next one."""

    def __init__(self, drawn: random.Random) -> None:
        self._random = drawn
        self._late: list[bytes] = []
        self.counts = {"lost": 0, "repeated": 0, "late": 0}

    def __call__(self, message: bytes) -> list[bytes]:
        draw = self._random.random()
        if draw < 0.3:
            self.counts["lost"] += 1
            return []
        if draw < 0.5:
            self.counts["late"] += 1
            self._late.append(message)
            return []
        passed = [message]
        if draw < 0.7:
            self.counts["repeated"] += 1
            passed *= 3
        late, self._late = self._late, []
        return passed + late


RUBBISH = (
    b"", b"x", b"-1", b"1.5", b"NaN", b"1|2", b"\xff\xfe0\x00", b"\x00", b"0 ", b"0\r\n1",
    "\u0663".encode(), "\u00b2".encode(), "\uff11".encode("utf-16"), b"9" * 25, b"9" * 5_000,
    b"1e3", b"0x1", b"*3\r\n$7\r\nmessage\r\n", b"z" * 100_000,
)  # fmt: skip
"""Numbers of other scripts and sizes, other encodings, what looks like Redis's own protocol."""


async def forge(
    server: Any, group: str, drawn: random.Random, for_s: float, rate: float, least: int = 0
) -> None:
    """Publish what nobody meant, true partitions among it, for so long and so many at least."""
    from redis.asyncio import Redis

    count = 0
    until_s = asyncio.get_running_loop().time() + for_s
    async with Redis(port=server.port) as client:
        while count < least or asyncio.get_running_loop().time() < until_s:
            channel = drawn.choice(("grab-lease", "allocated-lease"))
            true = drawn.random() < 0.5
            data = b"%d" % drawn.randrange(THREE["partitions"]) if true else drawn.choice(RUBBISH)
            await client.publish(f"{{spillover:{group}}}:{channel}", data)
            count += 1
            await asyncio.sleep(1.0 / rate)


def subscribers(server: Any, group: str) -> int:
    channel = f"{{spillover:{group}}}:grab-lease"
    return dict(server.client.pubsub_numsub(channel)).get(channel, 0)
