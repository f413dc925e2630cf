"""What a lease store does where loads count, on real Redis and in memory alike."""

from functools import partial
from importlib import resources
from random import Random

import pytest

from spillover.model.lease_times import LeaseTimes
from spillover.policy.leases import LOAD_STALE_LEASES, fair_load

TIMES = LeaseTimes()
T = 1_000_000
PERIOD = TIMES.normal_lease_ms


@pytest.fixture
def tell_loads(tell):
    return partial(tell, balance="load")


def loads_of(held, *amounts):
    """In units, as they are told."""
    return [(p, epoch, 1000 * load) for (p, epoch), load in zip(held, amounts, strict=True)]


async def grabs(member, now, partitions):
    return [p for p in partitions if await member.grab(now, p)]


async def test_only_the_holder_tells_a_load(tell_loads):
    """Owner and epoch are compared; what was told stands until the next."""
    async with tell_loads(3) as (group, a, b, _):
        held = await a.start(T, 0, 1)
        await b.join(T)
        told = await a.survey(T, *loads_of(held, 5, 7))
        assert told.loads.known == {0: 5000, 1: 7000}
        stale = [(0, held[0][1] - 1, 9000)]
        for member, loads in ((a, stale), (b, loads_of(held, 9, 9)), (a, [(2, T, 9000)])):
            assert (await member.survey(T, *loads)).loads.known == {0: 5000, 1: 7000}
        await a.release(T + 1, *held[0])
        assert (await a.survey(T + 1, *loads_of(held, 9, 9))).loads.known == {0: 5000, 1: 9000}
        stored = (await group.snapshot(T + 1)).loads
        assert (stored[0].at_ms, stored[1].at_ms) == (T, T + 1)


async def test_unknown_loads_count_for_the_mean_and_for_one_at_first(tell_loads):
    """What nobody has told for two maximum leases is unknown."""
    async with tell_loads(4) as (group, a, b, _):
        assert (await a.survey(T)).loads.of == [1000] * 4
        held = await a.start(T, 0, 1)
        await b.join(T)
        standing = (await a.survey(T, *loads_of(held, 2, 10))).loads
        assert standing.of == [2000, 10_000, 6000, 6000]
        assert (standing.held, standing.mean, standing.band) == (
            {"a": 12_000, "b": 0},
            12_000.0,
            1200.0,
        )
        stale = T + LOAD_STALE_LEASES * TIMES.max_lease_ms
        assert (await a.survey(stale - 1)).loads.known == {0: 2000, 1: 10_000}
        assert (await a.survey(stale)).loads.known == {}
        await group.lose_all()
        assert (await a.survey(T + 1)).loads.known == {}


async def test_what_is_free_goes_to_whoever_has_least(tell_loads):
    """Or to whom it leaves within the band; to anyone after a while."""
    async with tell_loads(4) as (_group, a, b, c):
        held = await a.start(T, 0) + await b.start(T, 1)
        await c.join(T)
        await a.survey(T, *loads_of(held[:1], 20))
        await b.survey(T, *loads_of(held[1:], 8))
        # The others count for 14 each: 56 in all. One of 20 fills a member: 18 for each other one.
        assert not await a.grab(T, 2)
        assert not await b.grab(T, 2)
        assert await c.grab(T, 2)
        assert not await a.grab(T, 3, PERIOD - 1)
        assert await b.grab(T, 3)
        assert (await a.survey(T)).loads.held == {"a": 20_000, "b": 22_000, "c": 14_000}


async def test_a_held_partition_moves_if_that_lessens_the_imbalance(tell_loads):
    """Not out of the band, not the heavy one, not twice in a period, not before its residency."""
    async with tell_loads(5) as (_group, a, b, _):
        held = await a.start(T, *range(5))
        now = T + PERIOD
        await b.join(now)
        await a.renew(now, *held)
        await a.survey(now, *loads_of(held, 40, 6, 5, 1, 1))
        # One of 40 fills a member, and is more than 0.7 of the gap: 13 for the other.
        assert not await b.grab(now, 0)
        assert await b.grab(now, 1)
        assert await grabs(b, now, range(5)) == []
        assert await a.release(now, *held[1])
        epoch = (await b.activate(now, 1)).epoch
        assert (await b.survey(now)).loads.held == {"a": 47_000, "b": 6000}
        now += PERIOD
        await a.renew(now, *(held[p] for p in (0, 2, 3, 4)))
        await b.renew(now, (1, epoch))
        assert not await a.grab(now, 1)
        assert await b.grab(now, 2)
        await a.release(now, *held[2])
        await b.activate(now, 2)
        now += PERIOD
        await a.renew(now, *(held[p] for p in (0, 3, 4)))
        await b.renew(now, (1, epoch), (2, now - PERIOD))
        # The budget is one in a period.
        assert await grabs(b, now, range(5)) == [3]


async def test_who_releases_keeps_nobody_away_by_its_own_mark(tell):
    """Won, started, released at once: the mark of the win goes with it; another's stays."""
    async with tell(2) as (group, a, b, _):
        ((_, epoch),) = await a.start(T, 0)
        await b.join(T)
        assert list((await group.snapshot(T)).grabs) == [0]
        assert await a.release(T + 1, 0, epoch)
        assert (await group.snapshot(T + 1)).grabs == {}
        assert (await a.survey(T + 1)).mine == []
        assert (await b.survey(T + 1)).free == [0, 1]
        assert await b.grab(T + 1, 0)
        assert not await a.release(T + 1, 0, epoch)
        assert list((await group.snapshot(T + 1)).grabs) == [0]


def test_the_script_reckons_a_fair_load_as_policy_does(redis_server):
    """To the last bit, whatever is known, and also where what is unknown fills nodes."""
    text = (resources.files("spillover.live.leases") / "lua" / "by_loads.lua").read_text("utf-8")
    function = text[text.index("local function fair_load") : text.index("local function add_all")]
    script = f"""
        local nodes, usual, partitions = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
        local known, total = {{}}, 0
        for i = 4, #ARGV do
          known[i] = tonumber(ARGV[i])
          total = total + known[i]
        end
        {function}
        return string.format('%.17g', fair_load(total, #ARGV - 3))"""
    random, filled = Random(5), 0
    for _ in range(500):
        known = [
            random.randint(1000, 10 ** random.randint(4, 12)) for _ in range(random.randint(1, 8))
        ]
        unknown, nodes = random.randint(0, 6), random.randint(1, 9)
        usual = sum(known) // len(known)
        fair = fair_load(known + [usual] * unknown, nodes)
        partitions = len(known) + unknown
        told = redis_server.client.eval(script, 0, nodes, usual, partitions, *known)
        assert float(told) == fair, (known, unknown, nodes)
        filled += unknown > 0 and usual > fair
    assert filled > 50
