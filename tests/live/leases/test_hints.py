"""The two channels over real connections: what is lost, late, twice or nonsense; broken ways."""

import asyncio
import socket
from contextlib import asynccontextmanager, suppress
from random import Random

import pytest

from spillover.live.leases.hints import Hints
from spillover.live.leases.store import RedisLeaseStore
from spillover.model.errors import InputError, StoreUnreachable
from spillover.model.lease_times import LeaseTimes
from support.scripted_redis import bulk, rows, scripted_redis

PING_S = 0.1


class Heard:
    """A running subscription, and all that it said."""

    def __init__(self, url, group, ping_period_s):
        self.challenges = []
        self.allocated = []
        self.resyncs = 0
        self.lost = []
        self.hints = Hints(
            url,
            group,
            on_challenge=self.challenges.append,
            on_allocated=self.allocated.append,
            on_resync=self.on_resync,
            on_lost=self.lost.append,
            random=Random(1),
            ping_period_s=ping_period_s,
        )

    def on_resync(self):
        self.resyncs += 1


@asynccontextmanager
async def listening(url, group, ping_period_s=10.0):
    heard = Heard(url, group, ping_period_s)
    task = asyncio.create_task(heard.hints.run())
    try:
        yield heard
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
    assert not heard.hints.is_subscribed


@asynccontextmanager
async def way_to(server, redis_servers, group, ping_period_s=PING_S):
    async with (
        redis_servers.Way(server.port) as way,
        listening(way.url, group, ping_period_s) as heard,
    ):
        yield way, heard


@pytest.fixture
def group(redis_servers):
    return redis_servers.new_name()


async def test_challenges_and_allocations_arrive_as_sent(redis_server, redis_servers, group):
    store = RedisLeaseStore(redis_server.url, group, 9, LeaseTimes())
    async with (
        listening(redis_server.url, group) as one,
        listening(redis_server.url, group) as two,
    ):
        await redis_servers.until(lambda: one.resyncs and two.resyncs)
        await store.publish_challenge(3, 1, 1)
        await store.publish_allocated(8)
        await store.publish_challenge()
        await store.publish_challenge(0)
        for heard in (one, two):
            await redis_servers.until(lambda heard=heard: heard.challenges[-1:] == [0])
            assert heard.challenges == [3, 1, 1, 0]
            assert heard.allocated == [8]
            assert (heard.resyncs, heard.lost) == (1, [])
    await store.close()


async def test_nonsense_and_other_groups_are_not_heard(redis_server, redis_servers, group):
    """Anyone can publish anything."""
    async with listening(redis_server.url, group) as heard:
        await redis_servers.until(lambda: heard.hints.is_subscribed)
        tag = f"{{spillover:{group}}}"
        for data in ("", "x", "-1", "1.5", b"\xff", "1|2", "9" * 10, "9" * 5000):
            redis_server.client.publish(f"{tag}:grab-lease", data)
        redis_server.client.publish("{spillover:other}:grab-lease", 1)
        redis_server.client.publish(f"{tag}:grab-lease", "9" * 9)
        redis_server.client.publish(f"{tag}:grab-lease", 4)
        await redis_servers.until(lambda: 4 in heard.challenges)
        assert heard.challenges == [999_999_999, 4]
        assert heard.lost == []


async def test_a_quiet_channel_is_asked_and_stays(redis_server, redis_servers, group):
    """Its answers to PING are signs of life: no new connection."""
    async with way_to(redis_server, redis_servers, group, 0.1) as (way, heard):
        await redis_servers.until(lambda: heard.resyncs)
        asked = calls_of_ping(redis_server)
        await redis_servers.until(lambda: calls_of_ping(redis_server) >= asked + 3)
        assert (way.accepted, heard.resyncs, heard.lost) == (1, 1, [])


def calls_of_ping(server):
    return server.client.info("commandstats").get("cmdstat_ping", {"calls": 0})["calls"]


async def test_a_half_open_connection_is_rebuilt(redis_server, redis_servers, group):
    """Nothing comes and nothing says so: two periods of silence, and a new subscription that says
    so, because messages were lost."""
    async with way_to(redis_server, redis_servers, group) as (way, heard):
        await redis_servers.until(lambda: heard.resyncs == 1)
        way.freeze()
        redis_server.client.publish(f"{{spillover:{group}}}:grab-lease", 1)
        await redis_servers.until(lambda: heard.lost)
        assert isinstance(heard.lost[0], StoreUnreachable)
        way.cut()
        way.thaw()
        await redis_servers.until(lambda: heard.resyncs == 2)
        redis_server.client.publish(f"{{spillover:{group}}}:grab-lease", 2)
        await redis_servers.until(lambda: heard.challenges)
        assert heard.challenges == [2]


@pytest.mark.parametrize("broken", ["cut", "killed by the server", "server restarted"])
async def test_each_new_subscription_says_so(redis_servers, tmp_path, group, broken):
    with redis_servers.running(tmp_path) as server:
        async with way_to(server, redis_servers, group) as (way, heard):
            for count in (1, 2, 3):
                await redis_servers.until(lambda count=count: heard.resyncs == count)
                if broken == "cut":
                    way.cut()
                elif broken == "killed by the server":
                    server.client.client_kill_filter(_type="pubsub")
                else:
                    server.restart()
            await redis_servers.until(lambda: len(heard.lost) >= 3 and heard.resyncs == 4)


async def test_a_bad_address_ends_it(group):
    with pytest.raises(InputError, match="redis: url"):
        await Heard("nowhere", group, PING_S).hints.run()


CHANNELS = ("{spillover:g}:grab-lease", "{spillover:g}:allocated-lease")
PONG = rows(bulk("pong"), bulk(""))


def confirmed(count):
    """What Redis says to a subscription: one answer for each channel."""
    return rows(bulk("subscribe"), bulk(CHANNELS[count - 1]), b":%d\r\n" % count)


async def test_a_subscription_is_none_before_both_channels_are_confirmed(redis_servers):
    """What was sent to the second one meanwhile is lost: only then are the hashes to be read."""
    before = []

    def answer(words):
        if words[0] == "SUBSCRIBE":
            return confirmed(1)
        if not before:  # it has heard the first one, and then nothing for a period
            before.append((heard_now[0].resyncs, heard_now[0].hints.is_subscribed))
            return confirmed(2) + PONG
        return PONG

    heard_now = []
    with scripted_redis(answer) as server:
        async with listening(server.url, "g", 1.0) as heard:
            heard_now.append(heard)
            await redis_servers.until(lambda: heard.resyncs)
            assert before == [(0, False)]
            assert (heard.resyncs, heard.lost) == (1, [])
            assert heard.hints.is_subscribed
        await redis_servers.until(lambda: server.open == 0)
        assert server.asked[0] == ["SUBSCRIBE", *CHANNELS]
        assert server.accepted == 1


async def test_it_waits_longer_each_time_in_vain_and_begins_anew_once_it_was_heard(redis_servers):
    refusal = b"-NOPERM no\r\n"
    answers = iter([refusal] * 3 + [confirmed(1) + confirmed(2)])
    failures = []

    def answer(_):
        said, line = next(answers, refusal), server._lines[-1]
        line.sendall(said)
        if said != refusal:
            line.shutdown(socket.SHUT_RDWR)

    with scripted_redis(answer) as server:
        async with listening(server.url, "g", 20.0) as heard:
            heard.hints._on_lost = lambda _: failures.append(heard.hints._failures)
            await redis_servers.until(lambda: len(failures) >= 5)
    assert failures[:5] == [0, 1, 2, 0, 1]
