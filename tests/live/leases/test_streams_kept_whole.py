"""What would harm a stream or its reader without a word: effects refused that could be done, half
a batch, an alarm that stays silent."""

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from spillover.live.leases.renewal.lease import Fenced
from spillover.live.leases.streams.effects import Effects
from spillover.live.leases.streams.keys import StreamKeys
from spillover.live.leases.streams.lags import read_lags
from spillover.live.leases.streams.reader import StreamReader
from spillover.live.leases.streams.records import CheckpointMoved
from spillover.live.leases.streams.writer import AsyncStreamWriter, StreamWriter
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


@pytest.mark.parametrize("ends", ["flush", "close", "with"])
def test_what_a_writer_could_not_send_stays_in_it(redis_server, name, ends):
    keys = StreamKeys.of(name)
    redis_server.client.set(keys.stream(0), "no stream")
    writer = StreamWriter(redis_server.url, name, 2)
    writer.append("first", partition=0)
    writer.append("second", partition=0)

    def end():
        if ends == "with":
            with writer:
                return
        getattr(writer, ends)()

    for _ in range(2):
        with pytest.raises(StoreRefused, match=r"WRONGTYPE.*; records left in the writer: 2"):
            end()
        assert (writer.unsent, writer.appended) == (2, 0)
    redis_server.client.delete(keys.stream(0))
    writer.close()
    writer.close()
    assert (writer.unsent, writer.appended) == (0, 2)
    assert redis_server.client.xlen(keys.stream(0)) == 2


async def test_closing_a_writer_that_awaits_sends_the_rest(redis_server, name):
    """And one that never wrote anything asks for nothing, so that it needs no Redis."""
    keys = StreamKeys.of(name)

    writer = AsyncStreamWriter(redis_server.url, name, 2)
    await writer.append("first", partition=0)
    assert redis_server.client.exists(keys.stream(0)) == 0
    await writer.close()
    assert (writer.unsent, redis_server.client.xlen(keys.stream(0))) == (0, 1)
    redis_server.client.set(keys.stream(1), "no stream")
    await writer.append("second", partition=1)
    for _ in range(2):
        with pytest.raises(StoreRefused, match="left in the writer: 1"):
            await writer.close()
    redis_server.client.delete(keys.stream(1))
    await writer.close()
    assert redis_server.client.xlen(keys.stream(1)) == 1
    await AsyncStreamWriter("redis://127.0.0.1:1/0", name, 2).close()


def test_a_full_batch_leaves_before_anybody_flushes(redis_server, name):
    stream = StreamKeys.of(name).stream(0)

    def there(writer):
        return redis_server.client.xlen(stream), writer.unsent, writer.appended

    with StreamWriter(redis_server.url, name, 2, batch_records=3) as writer:
        counts = []
        for _ in range(4):
            writer.append("x", partition=0)
            counts.append(there(writer))
        assert counts == [(0, 1, 0), (0, 2, 0), (3, 0, 3), (3, 1, 3)]
    assert there(writer) == (4, 0, 4)


def test_what_is_left_by_an_error_is_not_sent(redis_server, name):
    """Of the block: whoever raised it knows."""
    writer = StreamWriter(redis_server.url, name, 2)

    def fill_half():
        with writer:
            writer.append("first", partition=0)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fill_half()
    assert (writer.unsent, redis_server.client.exists(StreamKeys.of(name).stream(0))) == (1, 0)


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


@pytest.mark.usefixtures("redis_7")
def test_what_a_stream_begun_anew_had_lost_before_was_not_lost_behind_the_checkpoint(
    redis_server, name
):
    """A reader that is to fail where records were trimmed under its eyes goes on."""
    stream = StreamKeys.of(name).stream(0)
    fill(redis_server, name, 10)
    with StreamReader(redis_server.url, name, 0, 1) as reader:
        reader.commit(reader.read(0.0))
    redis_server.client.delete(stream)
    for number in (75, 76, 77):
        redis_server.client.xadd(stream, {"value": str(number)})
    redis_server.client.xtrim(stream, maxlen=1, approximate=False)
    with StreamReader(redis_server.url, name, 0, 2, on_trimmed="fail") as reader:
        batch = reader.read(0.0)
        assert [record.value for record in batch.records] == [b"77"]
        reader.commit(batch)
        assert reader.checkpoint.skipped == 0


def test_what_was_applied_is_not_applied_again_from_a_copy_of_the_stream(redis_server, name):
    """Of a Redis that did not count, or made by a tool: it had fewer entries than were passed."""
    keys = StreamKeys.of(name)
    redis = redis_server.client
    fill(redis_server, name, 20)
    with StreamReader(redis_server.url, name, 0, 1, batch_records=15, read_ahead=False) as reader:
        reader.commit(reader.read(0.0))
    entries = redis.xrange(keys.stream(0))[10:]
    redis.delete(keys.stream(0))
    for id_, fields in entries:
        redis.xadd(keys.stream(0), fields, id=id_)
    with StreamReader(redis_server.url, name, 0, 2) as reader:
        batch = reader.read(0.0)
        assert [record.id for record in batch.records] == [id_ for id_, _ in entries[5:]]
        reader.commit(batch)
        assert reader.read(0.0) is None


def test_a_checkpoint_goes_back_for_no_client(redis_server, name):
    """Whatever it says that it has read: what lies behind would be applied twice."""
    fill(redis_server, name, 10)
    options = {"batch_records": 5, "read_ahead": False}
    with StreamReader(redis_server.url, name, 0, 1, **options) as reader:
        first = reader.read(0.0)
        reader.commit(first)
        second = reader.read(0.0)
        with pytest.raises(CheckpointMoved):
            reader.commit(replace(second, end=replace(second.end, id="0-1")))
        assert read_lags(redis_server.url, name, 1)[0].checkpoint.id == first.position


def test_what_a_read_ahead_is_told_counts_once_it_is_taken(redis_server, name):
    """It comes back while its reader does something else: that it was fenced meanwhile is no other
    reason than the one that the commit itself is refused for."""
    fill(redis_server, name, 3)
    begun = threading.Event()
    with (
        StreamReader(redis_server.url, name, 0, 3) as old,
        StreamReader(redis_server.url, name, 0, 5) as holder,
    ):
        old._client._beside = beside = ThreadPoolExecutor(1)  # what is begun waits its turn
        beside.submit(begun.wait, 20.0)
        batch = old.read(0.0)
        holder.claim()
        begun.set()
        beside.submit(int).result(20.0)  # it has been told by now
        with pytest.raises(Fenced):
            old.commit(batch)
        with pytest.raises(CheckpointMoved, match="has lost its claim"):
            old.commit(batch)


def test_a_fence_that_a_read_ahead_met_ends_the_claim(redis_server, name):
    fill(redis_server, name, 3)
    with (
        StreamReader(redis_server.url, name, 0, 3, batch_records=2) as old,
        StreamReader(redis_server.url, name, 0, 5) as holder,
    ):
        begun = threading.Event()
        old._client._beside = beside = ThreadPoolExecutor(1)
        beside.submit(begun.wait, 20.0)
        old.read(0.0)
        holder.claim()
        begun.set()
        with pytest.raises(Fenced):
            old.read(0.0)
        assert old.checkpoint is None
