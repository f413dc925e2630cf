"""Readers and writers of streams on a real Redis: order, checkpoints, fences, what goes missing."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from spillover.live.leases.renewal.lease import Fenced
from spillover.live.leases.store import RedisLeaseStore
from spillover.live.leases.streams.effects import Effects
from spillover.live.leases.streams.keys import StreamKeys, partition_of
from spillover.live.leases.streams.lags import read_lags
from spillover.live.leases.streams.reader import StreamReader
from spillover.live.leases.streams.records import CheckpointMoved, RecordsTrimmed
from spillover.live.leases.streams.writer import StreamWriter
from spillover.model.errors import InputError, StoreRefused, StoreUnreachable
from spillover.model.lease_times import LeaseTimes


class Group:
    """One group of its own on the shared server; it knows its readers and closes them."""

    def __init__(self, server, name):
        self.server, self.name, self.keys = server, name, StreamKeys.of(name)
        self.redis = server.client
        self._readers = []

    def reader(self, epoch, partition=0, **options):
        reader = StreamReader(self.server.url, self.name, partition, epoch, **options)
        self._readers.append(reader)
        return reader

    def fill(self, count, partition=0, partitions=4, **options):
        with StreamWriter(self.server.url, self.name, partitions, **options) as writer:
            for number in range(count):
                writer.append(str(number), partition=partition)

    def lag(self, partition=0):
        return read_lags(self.server.url, self.name, partition + 1)[partition]

    def sink(self, name):
        return self.redis.hgetall(self.keys.sink(name))

    def close(self):
        for reader in self._readers:
            reader.close()


@pytest.fixture
def group(redis_server, redis_servers):
    made = Group(redis_server, redis_servers.new_name())
    yield made
    made.close()


def numbers(batch):
    return [int(record.value) for record in batch.records]


def read_all(reader):
    found = []
    while (batch := reader.read(0.0)) is not None:
        found += numbers(batch)
        reader.commit(batch)
    return found


def test_records_of_one_key_stay_together(group):
    with StreamWriter(group.server.url, group.name, 4, batch_records=7) as writer:
        for number in range(200):
            writer.append(str(number), key=f"k{number % 10}")
    for partition in range(4):
        of_key = {}
        batch = group.reader(1, partition).read(0.0)
        for record in batch.records if batch else ():
            assert partition_of(record.key, 4) == partition
            of_key.setdefault(record.key, []).append(int(record.value))
        for key, found in of_key.items():
            assert found == list(range(int(key[1:]), 200, 10))


def test_a_checkpoint_that_cannot_be_read_is_not_begun_anew(group):
    """Everything would be applied again; whoever wrote there is to blame, and is told of."""
    group.fill(10)
    reader = group.reader(1)
    reader.commit(reader.read(0.0))
    for value in ("", "x", "2|0-0|1", "2|0-0|1|0|0|"):
        group.redis.hset(group.keys.checkpoints, "0", value)
        with pytest.raises(StoreRefused, match="CHECKPOINT of partition 0 cannot be read"):
            group.reader(2).read(0.0)
        assert group.redis.hget(group.keys.checkpoints, "0") == value


def test_an_earlier_holder_is_fenced_from_the_claim_on(group):
    group.fill(10)
    stale = group.reader(1, read_ahead=False)
    batch = stale.read(0.0)
    group.reader(2).claim()
    before = group.redis.hgetall(group.keys.checkpoints)
    effects = Effects()
    effects.increment("n", "x")
    for act in (
        lambda: stale.apply(batch, effects),
        stale.claim,
        lambda: stale.read(0.0),
    ):
        with pytest.raises(Fenced, match="partition 0, epoch 1: epoch 2 has been seen"):
            act()
    with pytest.raises(Fenced):
        group.reader(1).read(0.0)
    assert group.redis.hgetall(group.keys.checkpoints) == before
    assert group.sink("n") == {}


async def grant(store, node):
    """Take partition 0 as a member would."""
    await store.join(node, node)
    assert await store.grab(0, node, 1e9)
    return (await store.activate(0, node)).epoch


def test_the_lease_itself_fences_where_it_lies_in_the_same_redis(group):
    """Even before the new holder claims; and what the group's streams are is the leases' word."""

    async def granted():
        store = RedisLeaseStore(group.server.url, group.name, 1, LeaseTimes())
        epoch = await grant(store, "a")
        await store.close()
        return epoch

    epoch = asyncio.run(granted())
    with pytest.raises(Fenced, match=f"epoch {epoch} has been seen"):
        group.reader(epoch - 1).claim()
    assert group.reader(epoch).claim().passed == 0
    with pytest.raises(InputError, match="partitions: expected 1, as the group has them, got 4"):
        group.fill(1)


def test_the_checkpoint_never_moves_backward(group):
    group.fill(20)
    reader = group.reader(1, batch_records=10)
    first, second = reader.read(0.0), reader.read(0.0)
    with pytest.raises(ValueError, match="expected the batch that follows"):
        reader.apply(second, Effects())
    reader.commit(second)
    reader.commit(second)
    with pytest.raises(ValueError, match="never moves backward"):
        reader.commit(first)
    elsewhere = group.reader(1, partition=1)
    elsewhere.claim()
    with pytest.raises(ValueError, match="another reader"):
        elsewhere.commit(first)
    assert group.lag().checkpoint.passed == 20


def test_two_readers_of_one_epoch_do_not_apply_twice(group):
    """A member of the same epoch that was taken for dead: the checkpoint is swapped, not set."""
    group.fill(10)
    one, other = group.reader(1), group.reader(1)
    batches = [(reader, reader.read(0.0)) for reader in (one, other)]
    effects = Effects()
    effects.increment("n", "applied", 10)
    one.apply(batches[0][1], effects)
    again = Effects()
    again.increment("n", "applied", 9)
    part = batches[1][1].upto(9)
    with pytest.raises(CheckpointMoved):
        other.apply(part, again)
    assert group.sink("n") == {"applied": "10"}
    assert other.claim().passed == 10


def test_a_commit_whose_answer_was_lost_is_made_again(group):
    """The same call, made twice, has happened once."""
    group.fill(10)
    reader = group.reader(1)
    batch = reader.read(0.0)
    effects = Effects()
    effects.increment("n", "applied", 10)
    before = reader.checkpoint
    reader.apply(batch, effects)
    reader._reading.checkpoint = before  # as if no answer had come
    reader.apply(batch, effects)
    assert group.sink("n") == {"applied": "10"}


def test_batches_are_bounded_by_count_and_bytes(group):
    with StreamWriter(group.server.url, group.name, 1) as writer:
        for size in (10, 10, 10, 5_000, 10, 300, 300, 300):
            writer.append(b"x" * size, partition=0)
    reader = group.reader(1, batch_records=3, batch_bytes=700)
    sizes = []
    while (batch := reader.read(0.0)) is not None:
        sizes.append([len(record.value) for record in batch.records])
    assert sizes == [[10, 10, 10], [5_000], [10, 300, 300], [300]]


def test_waiting_ends_with_a_record_or_a_stop(group):
    """Not with its limit, which would be longer than the test may take."""
    stop = threading.Event()
    reader = group.reader(1, stop=stop, timeout_s=60.0)
    reader.claim()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(reader.read, 29.0)
        while not _blocked(group):
            pass
        group.fill(1)
        assert numbers(waiting.result(10.0)) == [0]
    stop.set()
    assert reader.read(29.0) is None


def _blocked(group):
    return group.redis.info("clients")["blocked_clients"] > 0


@pytest.mark.usefixtures("redis_7")
def test_what_was_trimmed_is_skipped_and_counted(group, caplog):
    group.fill(100)
    reader = group.reader(1, batch_records=10, read_ahead=False)
    reader.commit(first := reader.read(0.0))
    group.redis.xtrim(group.keys.stream(0), maxlen=60, approximate=False)
    assert (group.lag().records, group.lag().trimmed) == (60, 30)
    batch = reader.read(0.0)
    assert (numbers(batch), reader.lag) == (list(range(40, 50)), 60)
    reader.commit(batch)
    assert (reader.checkpoint.skipped, reader.checkpoint.handled) == (30, 20)
    assert (group.lag().records, group.lag().trimmed) == (50, 0)
    assert group.reader(2).claim().skipped == 30
    (told,) = (one.msg.fields for one in caplog.records if "trim" in str(one.msg))
    assert told == {"partition": 0, "records": 30, "after": first.position}


@pytest.mark.usefixtures("redis_7")
def test_what_was_trimmed_can_be_an_error(group):
    group.fill(100)
    reader = group.reader(1, on_trimmed="fail")
    group.redis.xtrim(group.keys.stream(0), maxlen=60, approximate=False)
    with pytest.raises(RecordsTrimmed, match="partition 0: 40 records after 0-0 were trimmed"):
        reader.read(0.0)
    assert group.lag().checkpoint.passed == 0


@pytest.mark.usefixtures("redis_7")
def test_a_record_deleted_by_hand_is_counted_at_the_end(group):
    group.fill(10)
    (_, third) = (entry[0] for entry in group.redis.xrange(group.keys.stream(0), count=3)[1:])
    group.redis.xdel(group.keys.stream(0), third)
    reader = group.reader(1)
    assert read_all(reader) == [0, 1, 3, 4, 5, 6, 7, 8, 9]
    assert reader.checkpoint.skipped == 1
    assert group.lag().records == 0


def test_a_stream_begun_anew_is_read_from_its_beginning(group):
    group.fill(10)
    reader = group.reader(1)
    read_all(reader)
    group.redis.delete(group.keys.stream(0))
    group.redis.xadd(group.keys.stream(0), {"value": "77"}, id="5-1")  # an id from long ago
    assert group.lag().length == 1
    with pytest.raises(CheckpointMoved):
        reader.read(0.0)
    assert read_all(reader) == [77]


def test_an_old_holder_that_claims_after_the_loss_makes_no_way_for_others(redis_servers, tmp_path):
    """The highest epoch is lost with the data: the holder has to claim anew, and then fences it."""
    with redis_servers.running(tmp_path) as server:
        group = Group(server, "g")
        group.fill(10)
        holder, old = group.reader(5), group.reader(3)
        batch = holder.read(0.0)
        server.client.flushall()
        group.fill(3)
        late = old.read(0.0)
        with pytest.raises(CheckpointMoved):
            holder.commit(batch)
        assert holder.claim().passed == 0
        with pytest.raises(Fenced):
            old.commit(late)
        assert read_all(holder) == [0, 1, 2]
        group.close()


def test_effects_happen_all_or_none(group):
    """One that cannot be is told before anything is changed, wherever it stands."""
    group.fill(1)
    reader = group.reader(1)
    batch = reader.read(0.0)
    group.redis.hset(group.keys.sink("h"), "text", "07")
    group.redis.rpush(group.keys.sink("list"), "x")

    def wishes(last):
        effects = Effects()
        effects.increment("h", "n")
        effects.set_bit("b", 3)
        last(effects)
        return effects

    for last, told in (
        (lambda effects: effects.increment("h", "text"), "cannot HINCRBY .*text: no integer"),
        (lambda effects: effects.increment("list", "n"), "cannot HINCRBY .*, which is a list"),
        (lambda effects: effects.add_member("h", "m"), "cannot SADD .*, which is a hash"),
        (lambda effects: effects.add_member("b", "m"), "which other effects use otherwise"),
    ):
        with pytest.raises(StoreRefused, match=told):
            reader.apply(batch, wishes(last))
    assert group.sink("h") == {"text": "07"}
    assert not group.redis.exists(group.keys.sink("b"))
    assert group.lag().records == 1

    def all_kinds(effects):
        effects.put("h", "text", "41")
        effects.increment("h", "text")
        effects.add_member("s", b"m")
        effects.add_member("s", "n")
        effects.remove_member("s", "n")
        effects.put("h", "gone", "1")
        effects.remove("h", "gone")

    reader.apply(batch, wishes(all_kinds))
    assert group.sink("h") == {"text": "42", "n": "1"}
    assert group.redis.smembers(group.keys.sink("s")) == {"m"}
    assert group.redis.getbit(group.keys.sink("b"), 3) == 1


def test_a_batch_sent_twice_is_appended_once(group):
    writer = StreamWriter(group.server.url, group.name, 1)
    writer.append("0", partition=0)
    steps = writer._writing.flush()
    answer = None
    run = steps.send(None)
    while run.script is not writer._writing._append_script:
        answer = writer._client._do(run)
        run = steps.send(answer)
    writer._client._do(run)
    with pytest.raises(StoreUnreachable):
        steps.throw(_stopping(writer))
    writer.flush()
    writer.append("1", partition=0)
    writer.flush()
    writer.close()
    assert writer.appended == 2
    assert read_all(group.reader(1)) == [0, 1]


def _stopping(writer):
    """The error after which a writer that was told to stop does not try again."""
    writer._writing._guard.stop.set()
    return StoreUnreachable("gone")


def test_lags_tell_how_old_the_oldest_is(group):
    group.fill(10, partition=1)
    none, some = read_lags(group.server.url, group.name, 2)
    assert (none.records, none.age_ms, none.checkpoint) == (0, 0, None)
    assert (some.records, some.length) == (10, 10)
    now = group.redis.time()
    first = int(group.redis.xrange(group.keys.stream(1), count=1)[0][0].split("-")[0])
    assert 0 <= some.age_ms <= now[0] * 1000 + now[1] // 1000 - first
    group.redis.xadd(group.keys.stream(0), {"value": "0"}, id="5-1")  # of long ago
    read_all(group.reader(1))
    assert (group.lag().records, group.lag().age_ms, group.lag().length) == (0, 0, 1)


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda url: StreamReader(url, "g", -1, 1), "partition: expected at least 0"),
        (lambda url: StreamReader(url, "g", 0, 1, batch_records=0), "batch_records: expected"),
        (lambda url: StreamReader(url, "g", 0, 1, on_trimmed="x"), "on_trimmed: expected skip"),
        (lambda url: StreamReader(url, "g", 0, 1, retry_s=0), "retry_s: expected seconds"),
        (lambda url: StreamReader(url[5:], "g", 0, 1), "url: expected redis://"),
        (lambda url: StreamWriter(url, "g", 0), "partitions: expected at least 1"),
        (lambda url: StreamWriter(url, "g", 1, max_length=0), "max_length: expected at least 1"),
        (lambda url: StreamWriter(url, "g", 2).append("x"), "key: expected a key or a partition"),
        (lambda url: StreamWriter(url, "g", 2).append("x", partition=2), "expected 0 to 1, got 2"),
        (lambda url: read_lags(url, "g", 0), "partitions: expected at least 1"),
    ],
)
def test_bad_input_is_told_in_one_line(group, make, told):
    with pytest.raises(InputError, match=told):
        make(group.server.url)
