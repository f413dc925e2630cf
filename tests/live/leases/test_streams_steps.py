"""The steps of readers and writers, carried out by hand: what is asked of Redis and of handlers, in
which order, how often and with which pauses. No Redis, and no clock but the test's."""

import threading
from random import Random

import pytest

from spillover.live.leases.renewal.lease import Fenced
from spillover.live.leases.streams import consuming as consuming_module
from spillover.live.leases.streams import reading as reading_module
from spillover.live.leases.streams import steps as steps_module
from spillover.live.leases.streams.consuming import Attempts, Consuming
from spillover.live.leases.streams.keys import StreamKeys
from spillover.live.leases.streams.reading import ReadLimits, StreamReading
from spillover.live.leases.streams.records import CheckpointMoved, ReadPosition
from spillover.live.leases.streams.steps import Call, Guard, Pause, Run, Wait
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
    return StreamReading(KEYS, 3, 7, guard or guarded(), ReadLimits(**limits), on_trimmed)


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
    lease = Lease()
    ask = Wait("s", "0-0", 1.0)
    asked, answer = carried_out(guarded(lease).patiently(ask), [GONE, None] * 8 + [b"there"])
    assert answer == b"there"
    assert asked[::2] == [ask] * 9
    assert [one.for_s for one in asked[1::2]] == pytest.approx(
        [0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.0, 1.0]
    )
    assert lease.asked == ["check"] * 9


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


# --- reading ----------------------------------------------------------------------------------


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
    assert (reading.lag, batch.end) == (lag, ReadPosition("99-0", end, 0))
    assert [one.message for one in caplog.records] == [reading_module.UNCOUNTED]


def read_ahead():
    """One that has read a record, and begun to read ahead."""
    reading = reading_of()
    answers = [claimed(), found(2, 2, 1, is_end=False), "ticket"]
    carried_out(reading.read(0.0, read_ahead=True), answers)
    return reading


@pytest.mark.parametrize("came_to", [GONE, found(2, 2)])
def test_what_was_read_ahead_in_vain_is_read_anew(came_to):
    asked, batch = carried_out(read_ahead().read(0.0, read_ahead=False), [came_to, found(2, 2, 2)])
    assert kinds(asked) == ["Take", "read"]
    assert batch.position == "2-0"


def test_who_finds_nothing_waits_and_looks_once_more():
    for came_to in (None, GONE):
        reading = reading_of()
        asked, batch = carried_out(
            reading.read(1.5, read_ahead=True), [claimed(), found(0, 0), came_to, found(0, 0)]
        )
        assert (kinds(asked), batch) == (["claim", "read", "Wait", "read"], None)
        assert asked[2] == Wait(KEYS.stream(3), "0-0", 1.5)


def test_who_may_not_wait_or_is_told_to_stop_does_not():
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
    reading = reading_of(on_trimmed="fail")
    with pytest.raises(InputError, match=r"expected Redis 7 or later.*on_trimmed='fail'"):
        carried_out(reading.read(0.0, read_ahead=False), answers)
    assert reading.checkpoint is None


# --- committing -------------------------------------------------------------------------------


def test_a_batch_of_another_partition_or_epoch_is_refused():
    reading = reading_of()
    _, batch = carried_out(reading.read(0.0, read_ahead=False), [claimed(), found(1, 1, 1)])
    for other in (
        StreamReading(KEYS, 4, 7, guarded(), ReadLimits(), "skip"),
        StreamReading(KEYS, 3, 8, guarded(), ReadLimits(), "skip"),
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
