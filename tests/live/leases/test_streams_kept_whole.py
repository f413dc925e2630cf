"""What would harm a stream or its reader without a word: effects refused that could be done, half
a batch, an alarm that stays silent."""

from __future__ import annotations

import pytest

from spillover.live.leases.streams.effects import Effects
from spillover.live.leases.streams.keys import StreamKeys
from spillover.live.leases.streams.lags import read_lags
from spillover.live.leases.streams.reader import StreamReader
from spillover.live.leases.streams.writer import StreamWriter
from spillover.model.errors import StoreRefused


@pytest.fixture
def name(redis_servers):
    return redis_servers.new_name()


def fill(server, name, count):
    with StreamWriter(server.url, name, 2) as writer:
        for number in range(count):
            writer.append(str(number), partition=0)


def test_a_field_that_is_removed_counts_from_nothing_again(redis_server, name):
    """What stood there before, text perhaps, matters no more."""
    keys = StreamKeys.of(name)
    fill(redis_server, name, 1)
    redis_server.client.hset(keys.sink("h"), "n", "text")
    effects = Effects()
    effects.remove("h", "n")
    effects.increment("h", "n", 3)
    with StreamReader(redis_server.url, name, 0, 1) as reader:
        reader.apply(reader.read(0.0), effects)
    assert redis_server.client.hgetall(keys.sink("h")) == {"n": "3"}


def test_a_batch_that_cannot_be_appended_leaves_nothing(redis_server, name):
    """Half of it would be there, and a repeat be taken for one that was appended."""
    keys = StreamKeys.of(name)
    redis_server.client.set(keys.stream(1), "no stream")
    writer = StreamWriter(redis_server.url, name, 2)
    writer.append("first", partition=0)
    writer.append("second", partition=1)
    with pytest.raises(StoreRefused, match="WRONGTYPE"):
        writer.flush()
    assert redis_server.client.exists(keys.stream(0)) == 0
    redis_server.client.delete(keys.stream(1))
    writer.flush()
    writer.close()
    assert [redis_server.client.xlen(keys.stream(p)) for p in range(2)] == [1, 1]


def test_a_stream_that_was_begun_anew_lags_by_all_that_it_has(redis_server, name):
    """Fewer records than were passed: the checkpoint is of the stream before."""
    keys = StreamKeys.of(name)
    fill(redis_server, name, 20)
    with StreamReader(redis_server.url, name, 0, 1) as reader:
        reader.commit(reader.read(0.0))
    redis_server.client.delete(keys.stream(0))
    redis_server.client.xadd(keys.stream(0), {"value": "anew"})
    lag = read_lags(redis_server.url, name, 1)[0]
    assert (lag.records, lag.length, lag.trimmed) == (1, 1, 0)
    assert lag.checkpoint.passed == 20
