"""What streams compute without Redis: partitions of keys, effects, how places are counted."""

from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillover.live.leases.streams.effects import EXACT, Effects
from spillover.live.leases.streams.keys import StreamKeys, check_partition, partition_of
from spillover.live.leases.streams.records import (
    Batch,
    Checkpoint,
    CheckpointMoved,
    Found,
    ReadPosition,
    Record,
    places,
)
from spillover.live.leases.streams.steps import Guard
from spillover.live.leases.streams.writing import Writing
from spillover.model.errors import InputError


@pytest.mark.parametrize(
    ("partition", "partitions", "expected"),
    [(-1, None, "at least 0"), (-1, 4, "0 to 3"), (4, 4, "0 to 3"), (9, None, None), (3, 4, None)],
)
def test_a_partition_is_one_of_those_there_are_if_that_is_known(partition, partitions, expected):
    if expected is None:
        check_partition(partition, partitions)
        return
    with pytest.raises(InputError, match=rf"expected {expected}, got {partition}$"):
        check_partition(partition, partitions)


def test_keys_have_their_partition_for_ever():
    """Another hash would send a key's next records to another partition, out of order."""
    known = {b"": 0, b"a": 0xE8B7BE43, b"123456789": 0xCBF43926}  # CRC-32, its check value last
    for key, crc in known.items():
        assert partition_of(key, 32) == crc % 32
        assert partition_of(key, 17) == crc % 17


@pytest.mark.parametrize(
    ("records", "size", "appended"),
    [(3, 1_000, 3), (100, 30, 3), (100, 31, 4), (1, 1, 1)],
)
def test_a_batch_is_sent_once_it_has_so_many_records_or_so_many_bytes(records, size, appended):
    """Each record here is ten bytes long, with its key."""
    guard = Guard(None, None, 1.0, Random(1))
    writing = Writing(
        StreamKeys.of("g"), 4, guard, batch_records=records, batch_bytes=size, max_length=None
    )
    while not writing.add("seventy", "key", None):
        pass
    assert writing.unsent == appended


@given(st.tuples(*[st.integers(0, EXACT)] * 5))
def test_checkpoints_are_read_as_they_are_written(numbers):
    epoch, ms, passed, skipped, aside = numbers
    checkpoint = Checkpoint(epoch, f"{ms}-0", passed, skipped, aside)
    assert Checkpoint.parse(str(checkpoint)) == checkpoint


def carried_out(effects):
    """The hashes as they are afterwards, by the dumbest way."""
    hashes = {}
    for command, name, given_ in effects:
        of = hashes.setdefault(name, {})
        match command:
            case "HSET":
                of[given_[0]] = given_[1]
            case "HDEL":
                of.pop(given_[0], None)
            case "HINCRBY":
                of[given_[0]] = b"%d" % (int(of.get(given_[0], b"0")) + int(given_[1]))
    return hashes


wishes = st.lists(
    st.tuples(
        st.sampled_from(["increment", "put", "remove"]),
        st.sampled_from(["x", "y"]),
        st.sampled_from(["f", b"f", "g"]),
        st.integers(-5, 5),
    ),
    max_size=12,
)


@given(wishes, wishes)
def test_added_up_increments_mean_the_same(first, second):
    one_by_one, effects = [], Effects()
    for part in (first, second):
        together = Effects()
        for wish, name, name_of_field, number in part:
            single = Effects()
            for into in (single, together):
                match wish:
                    case "increment":
                        into.increment(name, name_of_field, number)
                    case "put":
                        into.put(name, name_of_field, str(number))
                    case "remove":
                        into.remove(name, name_of_field)
            one_by_one += single
        effects.extend(together)
    assert carried_out(effects) == carried_out(one_by_one)
    assert len(effects) <= len(one_by_one)


def test_an_increment_that_would_be_too_large_begins_another():
    """Each by itself can be told exactly; a sum of 2^53 could not."""
    effects = Effects()
    for by in (EXACT - 1, 1, 1):
        effects.increment("n", "f", by)
    for by in (1 - EXACT, -1):
        effects.increment("n", "g", by)
    amounts = [(field, int(amount)) for _, _, (field, amount) in effects]
    assert amounts == [(b"f", 2**53 - 1), (b"f", 2), (b"g", 1 - 2**53), (b"g", -1)]
    effects.increment("n", "h")
    assert list(effects)[-1] == ("HINCRBY", "n", (b"h", b"1"))


@pytest.mark.parametrize(
    "wish",
    [
        lambda effects: effects.increment("x", "f", EXACT),
        lambda effects: effects.set_bit("x", -1),
        lambda effects: effects.set_bit("x", 2**32),
    ],
)
def test_effects_that_could_fail_are_refused_at_once(wish):
    effects = Effects()
    with pytest.raises(ValueError, match="expected"):
        wish(effects)
    assert not effects


class Stream:
    """Entries 1, 2, ... of which some are gone, and which of them a reader was given."""

    def __init__(self):
        self.added = 0
        self.left = []
        self.given = []

    def read(self, place, count):
        behind = [number for number in self.left if number > int(place.id.partition("-")[0])]
        records = [Record(f"{number}-0", {}) for number in behind[:count]]
        self.given += behind[:count]
        return Found(self.added, len(self.left), len(behind) <= count, records)


happenings = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 8)),
        st.tuples(st.just("trim"), st.integers(1, 8)),
        st.tuples(st.just("delete"), st.integers(0, 20)),
        st.tuples(st.just("read"), st.integers(1, 6)),
    ),
    max_size=40,
)


@given(happenings)
def test_places_add_up(happened):
    """Never more is counted as skipped than was lost, and at the end exactly that."""
    stream, place = Stream(), ReadPosition("0-0", 0, 0)

    def read(count):
        nonlocal place
        start, end = places(place, stream.read(place, count))
        assert place.passed <= start.passed <= end.passed <= stream.added
        assert place.skipped <= start.skipped <= end.skipped
        place = end
        assert place.passed - place.skipped == len(stream.given)
        lost = stream.added - len(stream.left) - len(set(stream.given) - set(stream.left))
        assert place.skipped <= lost
        return lost

    for what, number in happened:
        match what:
            case "append":
                stream.left += range(stream.added + 1, stream.added + 1 + number)
                stream.added += number
            case "trim":
                del stream.left[:number]
            case "delete":
                del stream.left[number : number + 1]
            case "read":
                read(number)
    lost = read(1000)
    assert place.skipped == lost
    assert place.passed == stream.added
    assert all(a < b for a, b in pairwise(stream.given))


def test_a_stream_begun_anew_is_noticed():
    with pytest.raises(CheckpointMoved, match="anew"):
        places(ReadPosition("7-0", 7, 0), Found(3, 3, is_end=True, records=[]))


def test_part_of_a_batch_ends_where_its_last_record_does():
    records = [Record(f"{number}-0", {}) for number in (4, 5, 9)]
    batch = Batch(0, 1, records, ReadPosition("3-0", 5, 2), ReadPosition("9-0", 10, 4))
    assert batch.upto(3) is batch
    assert batch.upto(2).end == ReadPosition("5-0", 7, 2)
    assert batch.upto(0).end == ReadPosition("3-0", 5, 2)
    assert batch.position == "9-0"
    rest = batch.after(2)
    assert (rest.start, rest.end) == (batch.upto(2).end, batch.end)
    assert list(rest.records) == records[2:]
