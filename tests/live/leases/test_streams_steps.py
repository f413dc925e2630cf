"""The steps of readers and writers, carried out by hand: what is asked of Redis and of handlers, in
which order, how often and with which pauses. No Redis, and no clock but the test's."""

from __future__ import annotations

import threading
from random import Random

import pytest

from spillover.live.leases.renewal.lease import Fenced
from spillover.live.leases.streams import consuming as consuming_module
from spillover.live.leases.streams import reading as reading_module
from spillover.live.leases.streams import steps as steps_module
from spillover.live.leases.streams.consuming import Attempts, Consuming
from spillover.live.leases.streams.effects import Effects
from spillover.live.leases.streams.keys import StreamKeys
from spillover.live.leases.streams.lags import _lags
from spillover.live.leases.streams.reading import Limits, Reading, SetAside
from spillover.live.leases.streams.records import CheckpointMoved, Place, Record
from spillover.live.leases.streams.steps import Call, Guard, Pause, Run, Take, Wait
from spillover.model.errors import InputError, StoreRefused, StoreUnreachable

GONE = StoreUnreachable("gone")
KEYS = StreamKeys.of("g")
UNEXPECTED = object()


class Longest(Random):
    """Draws pauses of their full length."""

    def random(self):
        return 0.0


class Lease:
    """Counts what it is asked."""

    def __init__(self):
        self.asked = []

    def check(self):
        self.asked.append("check")

    def progress(self):
        self.asked.append("progress")

    def report_load(self, amount):
        self.asked.append(amount)


@pytest.fixture
def clock(monkeypatch):
    """`clock[0]` is the time, in seconds."""
    now_s = [100.0]
    for module in (steps_module, consuming_module):
        monkeypatch.setattr(module, "monotonic", lambda: now_s[0])
    return now_s


def guarded(lease=None, stop=None, retry_s=10.0):
    return Guard(lease, stop, retry_s, Longest())


def reading_of(guard=None, on_trimmed="skip", **limits):
    return Reading(KEYS, 3, 7, guard or guarded(), Limits(**limits), on_trimmed)


def carried_out(steps, answers):
    """What the steps ask for, each given the next answer, or raised it; and what they return.
    Handlers are called."""
    asked, answer = [], None
    left = iter(answers)
    try:
        while True:
            is_error = isinstance(answer, Exception)
            asked.append(steps.throw(answer) if is_error else steps.send(answer))
            is_call = isinstance(asked[-1], Call)
            answer = called(asked[-1]) if is_call else next(left, UNEXPECTED)
            assert answer is not UNEXPECTED, asked
    except StopIteration as ended:
        assert list(left) == [], "some are left"
        return asked, ended.value


def called(call):
    try:
        return call.function(*call.arguments)
    except ZeroDivisionError as error:
        return error


def found(added, length, *numbers, is_end=True):
    """A script's answer: these records, with numbers as their ids and values."""
    entries = [(b"%d-0" % number, [b"value", b"%d" % number]) for number in numbers]
    return [b"ok", added, length, int(is_end), entries]


def claimed(passed=0):
    return [b"ok", b"7|%d-0|%d|0|0" % (passed, passed), 1]


def kinds(asked):
    """In short: scripts by what they do, all else by its type."""
    names = {"claim": "claim", "read": "read", "apply": "apply"}
    made = reading_of()
    scripts = {getattr(made, f"_{name}_script").digest: name for name in names}
    return [scripts[one.script.digest] if isinstance(one, Run) else type(one).__name__
            for one in asked]  # fmt: skip


# --- until when steps go on -------------------------------------------------------------------


def test_what_is_not_answered_is_asked_again_after_longer_and_longer_pauses(clock):
    """Twice as long each time, up to a second; and the lease is asked before each."""
    lease = Lease()
    ask = Wait("s", "0-0", 1.0)
    asked, answer = carried_out(guarded(lease).patiently(ask), [GONE, None] * 8 + [b"there"])
    assert answer == b"there"
    assert asked[::2] == [ask] * 9
    assert [one.for_s for one in asked[1::2]] == pytest.approx(
        [0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.0, 1.0]
    )
    assert lease.asked == ["check"] * 9


def test_who_reports_tells_the_lease_of_its_progress(clock):
    lease = Lease()
    guard = guarded(lease)
    guard.reports = True
    carried_out(guard.patiently(Pause(1.0)), [None])
    guard.report_load(5)
    assert lease.asked == ["progress", 5]


def test_without_a_lease_it_is_asked_again_for_so_long_and_no_longer(clock):
    steps = guarded(retry_s=10.0).patiently(Pause(0.5))
    assert next(steps) == Pause(0.5)
    for time_s in (105.0, 110.0):
        clock[0] = time_s
        assert isinstance(steps.throw(GONE), Pause)
        assert next(steps) == Pause(0.5)
    clock[0] = 110.1
    with pytest.raises(StoreUnreachable):
        steps.throw(GONE)


def test_who_was_told_to_stop_asks_once(clock):
    stop = threading.Event()
    stop.set()
    steps = guarded(stop=stop).patiently(Pause(0.5))
    next(steps)
    with pytest.raises(StoreUnreachable):
        steps.throw(GONE)


# --- reading ----------------------------------------------------------------------------------


def test_reading_claims_first_and_reads_ahead_behind_what_it_hands_out():
    reading = reading_of()
    asked, batch = carried_out(
        reading.read(1.0, read_ahead=True), [claimed(5), found(9, 4, 6, 7, is_end=False), "ticket"]
    )
    assert kinds(asked) == ["claim", "read", "Begin"]
    assert asked[0].arguments == (3, 7)
    assert asked[1].arguments == (3, 7, "5-0", 500, 1 << 20)
    assert [record.id for record in batch.records] == ["6-0", "7-0"]
    (ahead,) = [next(asked[2].steps)]
    assert ahead.arguments == (3, 7, "7-0", 500, 1 << 20)
    assert reading.lag == 4
    asked, batch = carried_out(reading.read(1.0, read_ahead=False), [found(9, 4, 8, 9)])
    assert isinstance(asked[0], Take)
    assert asked[0].ticket == "ticket"
    assert batch.start == Place("7-0", 7, 0)
    assert batch.end == Place("9-0", 9, 0)


@pytest.mark.parametrize(
    ("passed", "added", "length", "lag"), [(5, 9, 8, 4), (5, 9, 3, 3), (9, 9, 9, 0)]
)
def test_a_readers_lag_is_what_lies_beyond_its_checkpoint_and_is_there(passed, added, length, lag):
    reading = reading_of()
    assert reading.lag is None
    answers = [claimed(passed), found(added, length, 9)]
    carried_out(reading.read(0.0, read_ahead=False), answers)
    assert reading.lag == lag


@pytest.mark.parametrize(
    ("passed", "length", "is_end", "lag", "end"),
    [(5, 8, True, 1, 6), (5, 8, False, 3, 6), (50, 8, False, 2, 51), (0, 8, False, 8, 1)],
)
def test_where_redis_does_not_count_nothing_is_skipped_and_a_lag_is_what_it_is_at_least(
    passed, length, is_end, lag, end, caplog
):
    reading_module._tell_uncounted.cache_clear()
    reading = reading_of()
    answers = [[*claimed(passed)[:2], 0], found(-1, length, 99, is_end=is_end)]
    _, batch = carried_out(reading.read(0.0, read_ahead=False), answers)
    assert (reading.lag, batch.end) == (lag, Place("99-0", end, 0))
    assert [one.message for one in caplog.records] == [reading_module.UNCOUNTED]


def read_ahead():
    """One that has read a record, and begun to read ahead."""
    reading = reading_of()
    answers = [claimed(), found(2, 2, 1, is_end=False), "ticket"]
    carried_out(reading.read(0.0, read_ahead=True), answers)
    return reading


@pytest.mark.parametrize("came_to", [GONE, found(2, 2)])
def test_what_was_read_ahead_in_vain_is_read_anew(came_to):
    """Nothing was there by then, or Redis did not answer."""
    asked, batch = carried_out(read_ahead().read(0.0, read_ahead=False), [came_to, found(2, 2, 2)])
    assert kinds(asked) == ["Take", "read"]
    assert batch.position == "2-0"


def test_what_was_read_ahead_of_elsewhere_is_not_looked_at():
    reading = read_ahead()
    reading.seek(Place("0-0", 0, 0))
    asked, batch = carried_out(reading.read(0.0, read_ahead=False), [found(2, 2, 1, 2)])
    assert kinds(asked) == ["read"]
    assert [record.id for record in batch.records] == ["1-0", "2-0"]


def test_who_finds_nothing_waits_and_looks_once_more():
    """Also where the wait itself came to nothing."""
    for came_to in (None, GONE):
        reading = reading_of()
        asked, batch = carried_out(
            reading.read(1.5, read_ahead=True), [claimed(), found(0, 0), came_to, found(0, 0)]
        )
        assert (kinds(asked), batch) == (["claim", "read", "Wait", "read"], None)
        assert asked[2] == Wait(KEYS.stream(3), "0-0", 1.5)


def test_who_may_not_wait_or_is_told_to_stop_does_not():
    """Nor does it read ahead what nobody will handle."""
    stop = threading.Event()
    for wait_s, stopped in ((0.0, False), (1.5, True)):
        if stopped:
            stop.set()
        reading = reading_of(guarded(stop=stop))
        asked, batch = carried_out(reading.read(wait_s, read_ahead=True), [claimed(), found(0, 0)])
        assert (kinds(asked), batch) == (["claim", "read"], None)
    reading = reading_of(guarded(stop=stop))
    asked, _ = carried_out(reading.read(1.5, read_ahead=True), [claimed(), found(1, 1, 1)])
    assert kinds(asked) == ["claim", "read"]


@pytest.mark.parametrize("ask", ["claim", "Wait", "Take"])
def test_a_lease_that_is_over_ends_it_before_each_of_its_steps(ask):
    """Whatever it was about to do."""

    class Ending(Lease):
        def check(self):
            super().check()
            if len(self.asked) > left:
                raise Fenced(3, 7, "the lease is over")

    left = {"claim": 0, "Wait": 2, "Take": 2}[ask]
    lease = Ending()
    reading = reading_of(guarded(lease))
    answers = [found(1, 1)] if ask == "Wait" else [found(2, 2, 1, is_end=False), "ticket"]
    with pytest.raises(Fenced):
        carried_out(_reading_twice(reading), [claimed(), *answers])
    assert len(lease.asked) == left + 1


def _reading_twice(reading):
    yield from reading.read(1.0, read_ahead=True)
    yield from reading.read(1.0, read_ahead=True)


@pytest.mark.parametrize(
    ("said", "error", "why"),
    [
        ([b"fenced", b"9"], Fenced, "epoch 9 has been seen here"),
        ([b"moved"], CheckpointMoved, "is not where this reader left it"),
        ([b"what"], StoreRefused, "unexpected answer of a script: b'what'"),
    ],
)
def test_what_a_script_says_instead_ends_the_claim(said, error, why):
    reading = reading_of()
    carried_out(reading.claim(), [claimed(5)])
    assert reading.checkpoint.passed == 5
    with pytest.raises(error, match=why):
        carried_out(reading.read(0.0, read_ahead=False), [said])
    assert reading.checkpoint is None


@pytest.mark.parametrize("answers", [[[*claimed(5)[:2], 0]], [claimed(5), found(-1, 8, 9)]])
def test_who_is_to_fail_at_what_was_trimmed_needs_a_redis_that_counts(answers):
    """Told at the claim, or by the first read if there was no stream yet."""
    reading = reading_of(on_trimmed="fail")
    with pytest.raises(InputError, match=r"expected Redis 7 or later.*on_trimmed='fail'"):
        carried_out(reading.read(0.0, read_ahead=False), answers)
    assert reading.checkpoint is None


# --- committing -------------------------------------------------------------------------------


def test_a_batch_without_records_asks_for_nothing_and_can_have_no_effects():
    reading = reading_of()
    _, batch = carried_out(reading.read(0.0, read_ahead=False), [claimed(), found(2, 2, 1, 2)])
    effects = Effects()
    effects.increment("n", "f")
    empty = batch.upto(0)
    assert carried_out(reading.commit(empty), []) == ([], None)
    for given in ({"effects": effects}, {"set_aside": [SetAside(batch.records[0], "no")]}):
        with pytest.raises(ValueError, match="no records that effects could belong to"):
            carried_out(reading.apply(empty, **given), [])
    asked, _ = carried_out(reading.apply(batch, effects), [[b"ok"]])
    assert kinds(asked) == ["apply"]
    assert asked[0].keys[-1] == KEYS.sink("n")
    assert asked[0].arguments == (
        *(3, 7, "0-0", "7|2-0|2|0|0", 10_000, 0),
        *("HINCRBY", 1, 2, 2, b"f", b"1"),
    )
    assert reading.checkpoint.passed == 2


def test_what_is_set_aside_is_told_with_its_own_fields():
    """The beginning of what its handler said, however long that is."""
    reading = reading_of(aside_records=50)
    _, batch = carried_out(reading.read(0.0, read_ahead=False), [claimed(), found(1, 1, 1)])
    aside = [SetAside(batch.records[0], "\ud800!" + "é" * 5_000)]
    asked, _ = carried_out(reading.apply(batch, set_aside=aside), [[b"ok"]])
    told = [b"record", b"1-0", b"epoch", b"7", b"error", b"?!" + "é".encode() * 499, b"value", b"1"]
    assert asked[0].arguments == (3, 7, "0-0", "7|1-0|1|0|1", 50, 1, 8, *told)
    assert KEYS.set_aside(3) in asked[0].keys


def test_a_batch_of_another_partition_or_epoch_is_refused():
    reading = reading_of()
    _, batch = carried_out(reading.read(0.0, read_ahead=False), [claimed(), found(1, 1, 1)])
    for other in (
        Reading(KEYS, 4, 7, guarded(), Limits(), "skip"),
        Reading(KEYS, 3, 8, guarded(), Limits(), "skip"),
    ):
        with pytest.raises(CheckpointMoved, match="has lost its claim, or never had one"):
            carried_out(other.commit(batch), [])
        carried_out(other.claim(), [claimed()])
        with pytest.raises(ValueError, match="was read by another reader"):
            carried_out(other.commit(batch), [])


# --- handlers ---------------------------------------------------------------------------------


def nothing(record, effects):
    """What a handler may do."""


def consuming_of(on_record, lease=None, stop=None, on_batch=lambda _: None, **attempts):
    reading = reading_of(guarded(lease, stop))
    return Consuming(reading, on_record, Attempts(**attempts), Longest(), on_batch)


def test_a_record_is_tried_so_often_with_longer_and_longer_pauses():
    tried = []

    def on_record(record, effects):
        tried.append(record.id)
        raise ZeroDivisionError

    for attempts, pauses_s in ((1, []), (4, [0.5, 1.0, 1.5])):
        tried.clear()
        consuming = consuming_of(
            on_record, attempts=attempts, pause_first_s=0.5, pause_longest_s=1.5
        )
        done = consuming_module._Done()
        steps = consuming._handle_record(Record("1-0", {}), done)
        asked, is_handled = carried_out(steps, [None] * len(pauses_s))
        assert is_handled
        assert [one.for_s for one in asked if isinstance(one, Pause)] == pytest.approx(pauses_s)
        assert tried == ["1-0"] * attempts
        assert [one.why for one in done.aside] == ["ZeroDivisionError: "]


def test_a_checkpoint_that_was_moved_is_claimed_again_after_a_pause():
    consuming = consuming_of(nothing)
    asked, consumed = carried_out(
        consuming.run(1.0, to_end=True),
        [claimed(), [b"moved"], None, claimed(4), found(4, 4)],
    )
    assert kinds(asked) == ["claim", "read", "Pause", "claim", "read"]
    assert asked[2].for_s == pytest.approx(0.1)
    assert consumed.reclaims == 1
    assert consumed.batches == 0


def test_a_batch_is_committed_in_parts_where_it_takes_long(clock):
    """What was handled counts as load, and is told, with each commit; and the lease hears of each
    record before it is handled."""
    lease, stop, told = Lease(), threading.Event(), []

    def on_record(record, effects):
        clock[0] += 0.5
        lease.asked.append(record.id)

    def on_batch(consumed):
        told.append((consumed.handled, consumed.batches))
        if consumed.handled == 5:
            stop.set()

    consuming = consuming_of(on_record, lease, stop, on_batch, commit_s=1.0)
    batch = found(9, 9, 1, 2, 3, 4, 5, is_end=False)
    asked, consumed = carried_out(
        consuming.run(1.0, to_end=False),
        [claimed(), batch, "ticket", [b"ok"], [b"ok"], [b"ok"]],
    )
    assert kinds(asked) == [
        *("claim", "read", "Begin"),
        *("Call", "Call", "apply", "Call", "Call", "apply", "Call", "apply"),
    ]
    assert told == [(2, 1), (4, 2), (5, 3)]
    assert [one for one in lease.asked if one != "progress"] == [
        *("1-0", "2-0", 2, "3-0", "4-0", 2, "5-0", 1)
    ]
    before = [lease.asked[lease.asked.index(f"{number}-0") - 1] for number in range(1, 6)]
    assert before == ["progress"] * 5
    assert (consumed.handled, consumed.batches) == (5, 3)


@pytest.mark.parametrize("to_end", [True, False])
def test_to_its_end_it_waits_for_nothing_and_else_for_as_long_as_it_was_told(to_end):
    stop = threading.Event()

    def answers():
        yield claimed()
        yield found(0, 0)
        if not to_end:
            yield None
            stop.set()
            yield found(0, 0)

    consuming = consuming_of(nothing, stop=stop)
    asked, consumed = carried_out(consuming.run(2.5, to_end=to_end), answers())
    assert kinds(asked) == ["claim", "read", "Wait", "read"][: 2 if to_end else None]
    assert to_end or asked[2].limit_s == 2.5
    assert consumed.batches == 0


# --- lags -------------------------------------------------------------------------------------


def test_lags_of_many_partitions_are_looked_at_by_slices(monkeypatch):
    """Each of them once, and each slice by the numbers of its own partitions."""
    monkeypatch.setattr("spillover.live.leases.streams.lags.SLICE", 3)
    one = [b"", 0, 0, b"", b""]
    asked, lags = carried_out(
        _lags(KEYS, 7, 1.0), [[b"1", one, one, one], [b"1", one, one, one], [b"1", one]]
    )
    assert [ask.arguments for ask in asked] == [(0,), (3,), (6,)]
    assert [ask.keys for ask in asked] == [
        (KEYS.checkpoints, *map(KEYS.stream, part)) for part in ((0, 1, 2), (3, 4, 5), (6,))
    ]
    assert [lag.partition for lag in lags] == list(range(7))


def test_a_lag_is_what_lies_beyond_the_checkpoint():
    """Of the oldest of it the age; of what was trimmed there how much; never more than is there."""
    answers = [
        b"60000",
        [b"7|5-0|20|0|0", 50, 30, b"59000-1", b""],
        [b"7|5-0|20|0|0", 50, 10, b"61000-1", b""],
        [b"7|5-0|20|0|0", 20, 20, b"", b""],
        [b"what is this", 9, 9, b"60000-0", b""],
        [b"7|5-0|20|0|0", 9, 4, b"1-0", b""],
        [b"7|5-0|20|0|0", 22, 20, b"", b""],
        [b"7|5-0|20|0|0", -1, 30, b"59000-1", b"59000-1"],
        [b"7|5-0|20|0|0", -1, 30, b"59000-1", b"4-0"],
        [b"7|5-0|20|0|0", -1, 10, b"59000-1", b"4-0"],
        [b"7|5-0|20|0|0", -1, 10, b"", b"4-0"],
    ]
    _, lags = carried_out(_lags(KEYS, 10, 1.0), [answers])
    assert [(lag.records, lag.age_ms, lag.trimmed, lag.length) for lag in lags] == [
        (30, 1_000, 0, 30),
        (10, 0, 20, 10),
        (0, 0, 0, 20),
        (9, 0, 0, 9),
        (4, 59_999, 0, 4),
        (0, 0, 0, 20),
        (30, 1_000, 0, 30),
        (10, 1_000, 0, 30),
        (1, 1_000, 0, 10),
        (0, 0, 0, 10),
    ]
    assert [number for number, lag in enumerate(lags) if lag.checkpoint is None] == [3]
