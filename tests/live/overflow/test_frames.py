"""Both ends of a shared connection, without a socket: frames however they are cut, and a dumb twin
that remembers what was said, beside which a story of requests, answers and ends is told."""

import math
from collections import Counter
from itertools import pairwise
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from spillover.live.overflow.frames import callee as callees
from spillover.live.overflow.frames import caller as callers
from spillover.live.overflow.frames.callee import Callee
from spillover.live.overflow.frames.caller import (
    ASKS_MISSED_MAX,
    WIDENED_MAX,
    WINDOW_MAX_BYTES,
    Caller,
)
from spillover.live.overflow.frames.frame import (
    ANSWER,
    BEGIN,
    BROKEN,
    CANCEL,
    CHUNK_BYTES,
    DROP,
    END,
    FORWARD,
    FRAME,
    HELD,
    HOLD,
    LEAVING,
    LENGTH,
    LENGTHS,
    MESSAGE,
    MORE,
    NUMBER_MAX,
    PASS,
    REFUSED,
    WHOLE,
    WINDOW,
    FrameReader,
)
from spillover.live.overflow.frames.outgoing import WINDOW_BYTES

LIMIT_BYTES = 400_000
LIMITS = {FORWARD: LIMIT_BYTES, PASS: LIMIT_BYTES}
SIZES = st.sampled_from([0, 1, 30, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, 200_000])
ENDS = (ANSWER, WHOLE, REFUSED, BROKEN, END)
ROOM_BYTES = 131_072


def flow_of(flows, number):
    flows[number] = []
    return flows[number].append


def joined(parts):
    return b"".join(map(bytes, parts))


def cut(data, places):
    """The same bytes in parts."""
    at = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[begin:end] for begin, end in pairwise(at)]


def frame(kind, number, told=b""):
    return FRAME.pack(len(told), number, kind) + told


def message(kind, number, told, size_bytes=None):
    size_bytes = len(told) if size_bytes is None else size_bytes
    return MESSAGE.pack(len(told) + 4, number, kind, size_bytes) + told


def count_windows(may_come, frames):
    """How much of each body may come, beyond what may at first, once these frames have: those of
    one end that have left, and those that have come of the other."""
    for kind, number, told in frames:
        if kind in (WINDOW, HELD):
            (size_bytes,) = LENGTH.unpack(told)
            may_come[number] += size_bytes if kind == WINDOW else -size_bytes
        elif kind == MORE:
            may_come[number] -= len(told)
        elif kind in ENDS:
            may_come.pop(number, None)


def met(limit_bytes=LIMIT_BYTES):
    return Caller(limit_bytes), Callee(dict(LIMITS))


def told_to(callee, caller, now_s=0.0):
    return callee.receive(joined(caller.out.due(math.inf)), now_s)


def told_back(caller, callee):
    return caller.receive(joined(callee.out.due(math.inf)))


# --- bytes ------------------------------------------------------------------------------------

MIXED = [
    (FORWARD, 1, b"\0\0\0\5hello"),
    (CANCEL, 1, b""),
    (MORE, 2, b"x" * 3000),
    (WINDOW, 7, b"\0\1\0\0"),
    (HOLD, 7, b""),
    (HELD, 7, b"\0\1\0\0"),
    (BEGIN, NUMBER_MAX, b"head"),
    (LEAVING, 0, b""),
]


@given(places=st.lists(st.integers(0, 10_000), max_size=8))
def test_frames_are_the_same_however_they_are_cut(places):
    reader = FrameReader()
    found = [one for part in cut(b"".join(frame(*one) for one in MIXED), places)
             for one in reader.read(part)]  # fmt: skip
    assert found == MIXED
    assert reader.fault is None


@pytest.mark.parametrize(
    "bad",
    [
        pytest.param(frame(0, 1), id="a kind below all"),
        pytest.param(frame(16, 1), id="a kind above all"),
        pytest.param(FRAME.pack(0, NUMBER_MAX + 1, CANCEL), id="a number above all"),
        *(
            pytest.param(FRAME.pack(length, 1, kind), id=f"kind {kind} of {length} bytes")
            for kind, (shortest, longest) in LENGTHS.items()
            for length in (shortest - 1, longest + 1)
            if length >= 0
        ),
    ],
)
def test_what_is_no_frame_ends_the_reading(bad):
    """Before any of what it would tell has come; what came before it counts."""
    reader = FrameReader()
    assert reader.read(frame(CANCEL, 1) + bad) == [(CANCEL, 1, b"")]
    assert reader.fault is not None


@given(garbage=st.binary(max_size=200), places=st.lists(st.integers(0, 200), max_size=3))
def test_garbage_never_raises_and_takes_little(garbage, places):
    """At both ends, wherever it begins."""
    caller, callee = met()
    caller.call(FORWARD, (b"one",))
    events = told_to(callee, caller)
    assert events == [(FORWARD, 1, b"one")]
    for part in cut(garbage, places):
        callee.receive(part, 0.0)
        caller.receive(part)
    assert callee.held_bytes <= 200
    assert len(callee) <= 2


# --- what may not come ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "bad",
    [
        pytest.param(message(FORWARD, 3, b""), id="a request leaves one out"),
        pytest.param(message(FORWARD, 1, b""), id="a request twice"),
        pytest.param(message(FORWARD, 2, b"ab", 1), id="more than was told"),
        pytest.param(message(FORWARD, 2, b"a", 2) + frame(MORE, 2, b"bc"), id="more, later"),
        pytest.param(message(FORWARD, 2, b"a", 2) + frame(CANCEL, 2), id="a cancel of a half"),
        pytest.param(frame(MORE, 1, b"a"), id="more of what is whole"),
        pytest.param(frame(CANCEL, 2), id="a cancel of what never was"),
        pytest.param(frame(DROP, 0), id="number nothing"),
        pytest.param(frame(WINDOW, 1, b"\0\0\0\1"), id="a window of what has not begun"),
        pytest.param(frame(HOLD, 1), id="holding back what has not begun"),
        pytest.param(frame(HELD, 1, b"\0\0\0\1"), id="that it holds something back"),
        pytest.param(message(ANSWER, 1, b""), id="an answer"),
        pytest.param(frame(LEAVING, 1), id="that it leaves"),
    ],
)
def test_a_callee_is_told_what_may_not_come(bad):
    caller, callee = met()
    caller.call(FORWARD, (b"one",))
    told_to(callee, caller)
    callee.receive(bad, 0.0)
    assert callee.reader.fault is not None
    assert callee.receive(message(FORWARD, 2, b"later"), 0.0) == []


@pytest.mark.parametrize(
    "bad",
    [
        pytest.param(message(ANSWER, 2, b""), id="an answer to what never was"),
        pytest.param(frame(BEGIN, 1, b"h") + frame(BEGIN, 1, b"h"), id="two beginnings"),
        pytest.param(frame(BEGIN, 1, b"h") + message(WHOLE, 1, b"w"), id="two answers"),
        pytest.param(frame(BEGIN, 1, b"h") + frame(REFUSED, 1), id="a refusal of what has begun"),
        pytest.param(message(ANSWER, 1, b"a", 2) + frame(END, 1, b"e"), id="an end of a message"),
        pytest.param(message(ANSWER, 1, b"a", 2) + frame(MORE, 1, b"bc"), id="more than was told"),
        pytest.param(message(ANSWER, 1, b"ab", 1), id="more than was told, at once"),
        pytest.param(frame(MORE, 1, b"a"), id="a piece of nothing"),
        pytest.param(frame(END, 1, b"e"), id="an end of nothing"),
        pytest.param(frame(BEGIN, 1, b"h") + frame(HELD, 1, b"\0\1\0\0"), id="held back unasked"),
        pytest.param(frame(LEAVING, 2), id="leaves behind what never was"),
        pytest.param(frame(LEAVING, 1) + frame(LEAVING, 1), id="leaves twice"),
        pytest.param(frame(CANCEL, 1), id="a cancel"),
        pytest.param(
            frame(BEGIN, 1, b"h") + 3 * frame(MORE, 1, b"x" * CHUNK_BYTES),
            id="more than was asked for",
        ),
    ],
)
def test_a_caller_is_told_what_may_not_come(bad):
    """Nobody has looked after the window meanwhile: the reader is paused."""
    caller, _ = met()
    caller.call(PASS, (b"one",))
    caller.pause(1)
    caller.receive(bad)
    assert caller.reader.fault is not None
    assert not caller.call(FORWARD, (b"",))


def test_a_window_beyond_the_widest_ends_the_reading():
    caller, callee = met()
    caller.call(PASS, (b"one",))
    told_to(callee, caller)
    callee.begin(1, b"head", [].append)
    callee.receive(frame(WINDOW, 1, b"\xff\xff\xff\xff"), 0.0)
    assert callee.reader.fault is not None


def test_an_answer_before_all_of_a_request_has_come_is_no_answer():
    caller, _ = met()
    caller.call(FORWARD, (bytes(200_000),))
    caller.out.due(0)
    assert caller.receive(message(ANSWER, 1, b"{}")) == []
    assert caller.reader.fault is not None


# --- limits -----------------------------------------------------------------------------------


def test_a_request_that_is_too_long_is_refused_by_its_first_frame():
    caller, callee = met()
    caller.call(FORWARD, (bytes(LIMIT_BYTES + 1),))
    begun = joined(caller.out.due(0))
    assert callee.receive(begun, 0.0) == []
    ((kind, number, _),) = told_back(caller, callee)
    assert (kind, number) == (REFUSED, 1)
    assert (caller.out.unsent_bytes, len(caller), len(callee)) == (0, 0, 0)


def test_an_answer_that_is_too_long_is_dropped_by_its_first_frame():
    caller, callee = met(limit_bytes=100_000)
    caller.call(FORWARD, (b"one",))
    told_to(callee, caller)
    callee.answer(1, ANSWER, (bytes(100_001 + CHUNK_BYTES),))
    assert caller.receive(joined(callee.out.due(0))) == [(BROKEN, 1, b"")]
    assert told_to(callee, caller) == []
    assert told_back(caller, callee) == []
    assert callee.out.unsent_bytes == 0


def test_requests_under_way_are_bounded(monkeypatch):
    monkeypatch.setattr(callers, "STREAMS_MAX", 2)
    monkeypatch.setattr(callees, "STREAMS_MAX", 2)
    caller, callee = met()
    for _ in range(2):
        caller.call(FORWARD, (b"",))
    assert not caller.call(FORWARD, (b"",))
    told_to(callee, caller)
    callee.refuse(1)
    told_back(caller, callee)
    assert caller.call(FORWARD, (b"",))
    callee.receive(message(FORWARD, 3, b"") + message(FORWARD, 4, b""), 0.0)
    assert callee.reader.fault is not None


def test_what_has_not_left_is_bounded(monkeypatch):
    monkeypatch.setattr(callers, "UNSENT_MAX_BYTES", 100_000)
    caller, _ = met()
    caller.call(FORWARD, (bytes(200_000),))
    assert not caller.call(FORWARD, (b"",))
    while caller.out.unsent_bytes > 100_000:
        caller.out.due(1)
    assert caller.call(FORWARD, (b"",))


def test_requests_that_do_not_come_whole_are_found():
    caller, callee = met()
    caller.call(FORWARD, (bytes(200_000),))
    caller.call(FORWARD, (bytes(200_000),))
    data = joined(caller.out.due(0))
    callee.receive(data[: len(data) // 2], 1.0)
    callee.receive(data[len(data) // 2 :], 2.0)
    assert callee.begun_before(1.5) == [1]
    callee.refuse(1)
    assert list(callee.begun) == [2]
    caller.out.due(1)


def test_a_request_may_be_dropped_in_the_read_in_which_it_has_come():
    """Its client leaves as the upload ends: nothing is known of it any more."""
    caller, callee = met()
    number = caller.call(FORWARD, (bytes(50_000),))
    data = joined(caller.out.due(math.inf))
    caller.drop(number)
    kinds = [kind for kind, _, _ in callee.receive(data + joined(caller.out.due(math.inf)), 1.0)]
    assert kinds == [FORWARD, DROP]
    assert callee.begun_s(number) is None


@pytest.mark.parametrize("reader", ["reads", "has stopped", "stops for good"])
@pytest.mark.parametrize("trickle_bytes", [0, WINDOW_BYTES // ASKS_MISSED_MAX])
def test_who_needs_no_wide_window_any_more_leaves_it_to_others(reader, trickle_bytes):
    """Eight bodies had one each, and trickle from now on, or stand still; their readers may have
    stopped meanwhile. At no time more may come of more of them than at first."""
    caller, callee = met()
    eight, ninth = range(1, WIDENED_MAX + 1), WIDENED_MAX + 1
    may_come = Counter(dict.fromkeys([*eight, ninth], WINDOW_BYTES))
    for _ in may_come:
        caller.call(PASS, (b"",))
    callee.receive(joined(caller.out.due(math.inf)), 0.0)
    for number in may_come:
        callee.begin(number, b"head", lambda _: None)

    def comes(of, size_bytes):
        callee.piece(of, bytes(size_bytes))
        came = joined(callee.out.due(math.inf))
        caller.receive(came)
        count_windows(may_come, FrameReader().read(came))
        asked = joined(caller.out.due(math.inf))
        callee.receive(asked, 0.0)
        count_windows(may_come, FrameReader().read(asked))
        assert sum(size_bytes > WINDOW_BYTES for size_bytes in may_come.values()) <= WIDENED_MAX
        return may_come[of]

    for number in eight:
        assert comes(number, WINDOW_BYTES // 2) == 2 * WINDOW_BYTES
    for number in eight if reader != "reads" else ():
        caller.pause(number)
        comes(number, 1)
        if reader == "has stopped":
            caller.resume(number)
    most_bytes = []
    for _ in range(3 * ASKS_MISSED_MAX):
        most_bytes.append(comes(ninth, WINDOW_BYTES // 2))
        for number in eight:
            comes(number, trickle_bytes)
    assert caller.reader.fault is callee.reader.fault is None
    assert most_bytes[0] == (WINDOW_BYTES if reader == "reads" else 2 * WINDOW_BYTES)
    assert max(most_bytes) == WINDOW_MAX_BYTES


# --- stories ----------------------------------------------------------------------------------


def test_a_large_body_lets_others_pass():
    """Of what is large each has a chunk in turn, and what is small waits for one of them at
    most."""
    caller, _ = met()
    for _ in range(3):
        caller.call(FORWARD, (bytes(2 * CHUNK_BYTES),))
    caller.out.due(CHUNK_BYTES)
    caller.call(FORWARD, (b"small",))
    reader = FrameReader()
    frames = reader.read(joined(caller.out.due(math.inf)))
    assert [number for _, number, _ in frames] == [4, 2, 3, 1, 2, 3]


def test_a_cancel_of_what_has_not_left_tells_so():
    caller, callee = met()
    number = caller.call(FORWARD, (bytes(200_000),))
    caller.out.due(1)
    assert not caller.cancel(number)
    assert told_to(callee, caller) == []
    assert (len(caller), len(callee), callee.held_bytes) == (0, 0, 0)


def test_a_callee_that_leaves_answers_what_it_has_taken():
    caller, callee = met()
    caller.call(FORWARD, (b"one",))
    told_to(callee, caller)
    callee.leave()
    caller.call(FORWARD, (b"two",))
    caller.call(FORWARD, (bytes(200_000),))
    assert told_to(callee, caller) == []
    assert sorted(told_back(caller, callee)) == [(REFUSED, 2, b""), (REFUSED, 3, b"")]
    assert not caller.call(FORWARD, (b"",))
    callee.answer(1, ANSWER, (b"done",))
    assert told_back(caller, callee) == [(ANSWER, 1, b"done")]
    assert len(caller) == len(callee) == 0


@given(left=st.integers(0, 300_000))
def test_a_lost_connection_tells_what_had_left(left):
    """A request may run only if all of it has left."""
    caller, callee = met()
    for size_bytes in (10, 100_000, 20):
        caller.call(FORWARD, (bytes(size_bytes),))
    data = joined(caller.out.due(math.inf))
    here = {number for _, number, _ in callee.receive(data[:left], 0.0)}
    lost, undelivered = caller.lost(left)
    assert set(lost) == here
    assert set(undelivered) == {1, 2, 3} - here
    assert len(caller) == 0


def test_a_reader_who_stops_has_no_more_before_him_however_much_was_asked_for():
    """And once he reads on, all of it comes."""
    caller, callee = met()
    flows = {}
    caller.call(PASS, (b"",))
    told_to(callee, caller)
    callee.begin(1, b"head", flow_of(flows, 1))

    def read_bytes():
        told = told_back(caller, callee)
        told_to(callee, caller)
        return sum(len(data) for kind, _, data in told if kind == MORE)

    for _ in range(100):
        callee.piece(1, bytes(20_000))
        assert read_bytes() == 20_000
    callee.piece(1, bytes(20_000))
    caller.pause(1)
    told_to(callee, caller)
    assert read_bytes() == 20_000, "it was on its way"
    for _ in range(20):
        callee.piece(1, bytes(20_000))
        assert read_bytes() == 0
    assert flows[1] == [True]
    caller.pause(1)
    caller.resume(1)
    told_to(callee, caller)
    assert sum(read_bytes() for _ in range(20)) == 400_000
    assert flows[1] == [True, False]


class Story(RuleBasedStateMachine):
    """Both ends, and between them bytes that arrive in parts. The twin knows what was said. One
    body at a time may have a wide window, which others take from it soon."""

    numbers = Bundle("numbers")

    def __init__(self):
        super().__init__()
        self.limits = mock.patch.multiple(callers, WIDENED_MAX=1, ASKS_MISSED_MAX=1)
        self.limits.start()
        self.caller, self.callee = met()
        self.asking, self.coming = FrameReader(), FrameReader()
        self.may_come = Counter()
        self.there, self.back = bytearray(), bytearray()
        self.asked, self.taken, self.answers = {}, {}, {}
        self.begun, self.bodies, self.ended = set(), {}, set()
        """What the callee has begun, and what of it the caller has read."""
        self.is_behind = {}
        self.ends = Counter()
        self.heard = {}
        self.dropped = set()
        self.is_leaving = False

    @rule(target=numbers, size_bytes=SIZES, kind=st.sampled_from([FORWARD, PASS]))
    def call(self, size_bytes, kind):
        body = bytes([len(self.asked) % 251]) * size_bytes
        parts = (body[: size_bytes // 2], body[size_bytes // 2 :])
        number = self.caller.call(kind, parts)
        if number:
            self.asked[number] = kind, body
        return number

    @rule(number=numbers)
    def cancel(self, number):
        if not self.caller.cancel(number):
            self.dropped.add(number)

    @rule(number=consumes(numbers))
    def drop(self, number):
        self.caller.drop(number)
        if number not in self.ends:
            self.dropped.add(number)

    @rule(number=numbers)
    def pause(self, number):
        self.caller.pause(number)

    @rule(number=numbers)
    def resume(self, number):
        self.caller.resume(number)

    @rule(number=numbers, times=st.integers(1, 2), there=st.floats(0.0, 1.0))
    def stop_and_read_on(self, number, times, there):
        """Before it is known how much of a wide window is held back."""
        self.come_begin_and_be_read(number)
        for _ in range(times):
            self.pause(number)
            self.write(ROOM_BYTES)
            self.arrive_there(there)
            self.resume(number)

    def under_way(self, number):
        return number in self.taken and number not in self.answers

    @rule(number=numbers, size_bytes=SIZES, kind=st.sampled_from([ANSWER, WHOLE]))
    def answer(self, number, size_bytes, kind):
        if self.under_way(number) and number not in self.begun:
            self.answers[number] = kind, bytes(size_bytes)
            self.callee.answer(number, *((kind, (bytes(size_bytes),))))

    @rule(number=numbers)
    def refuse(self, number):
        if self.under_way(number) and number not in self.begun:
            self.answers[number] = REFUSED, b"why"
            self.callee.refuse(number, b"why")

    @rule(number=numbers)
    def break_off(self, number):
        if self.under_way(number):
            self.answers[number] = BROKEN, b"why"
            self.callee.break_off(number, b"why")

    @rule(number=numbers)
    def begin(self, number):
        if self.under_way(number) and number not in self.begun:
            self.begun.add(number)
            self.bodies[number] = bytearray()
            self.is_behind[number] = False

            def flow(is_behind):
                assert self.is_behind[number] is not is_behind
                self.is_behind[number] = is_behind

            self.callee.begin(number, b"head", flow)

    @rule(number=numbers, size_bytes=SIZES)
    def piece(self, number, size_bytes):
        if self.under_way(number) and number in self.begun:
            data = bytes([len(self.bodies[number]) % 251]) * size_bytes
            self.bodies[number] += data
            self.callee.piece(number, data)

    @rule(number=numbers, size_bytes=SIZES)
    def come_and_begin(self, number, size_bytes):
        self.write(ROOM_BYTES)
        self.arrive_there(1.0)
        self.begin(number)
        self.piece(number, size_bytes)

    @rule(number=numbers)
    def come_begin_and_be_read(self, number):
        self.come_and_begin(number, 200_000)
        self.write(ROOM_BYTES)
        self.arrive_back(1.0)
        self.write(ROOM_BYTES)

    @rule(number=numbers)
    def end(self, number):
        if self.under_way(number) and number in self.begun:
            self.answers[number] = END, b"end"
            self.callee.end(number, b"end")

    @rule()
    def leave(self):
        if len(self.asked) > 5:
            self.callee.leave()
            self.is_leaving = True

    @rule(room_bytes=st.sampled_from([0, 1, CHUNK_BYTES, ROOM_BYTES]))
    def write(self, room_bytes):
        asked = joined(self.caller.out.due(room_bytes))
        count_windows(self.may_come, self.asking.read(asked))
        self.there += asked
        self.back += joined(self.callee.out.due(room_bytes))

    @rule(is_blocked=st.booleans())
    def block(self, is_blocked):
        self.callee.out.is_blocked = is_blocked

    @rule(share=st.floats(0.0, 1.0))
    def arrive_there(self, share):
        upto = round(share * len(self.there))
        data, self.there = bytes(self.there[:upto]), self.there[upto:]
        for kind, number, told in self.callee.receive(data, 0.0):
            if kind in (FORWARD, PASS):
                assert (kind, told) == self.asked[number]
                assert number not in self.taken
                self.taken[number] = told
            elif kind == DROP:
                assert number in self.dropped
                self.answers.setdefault(number, (DROP, b""))
            else:
                assert kind == CANCEL
                assert number in self.taken

    @rule(share=st.floats(0.0, 1.0))
    def arrive_back(self, share):
        upto = round(share * len(self.back))
        data, self.back = bytes(self.back[:upto]), self.back[upto:]
        count_windows(self.may_come, self.coming.read(data))
        for kind, number, told in self.caller.receive(data):
            assert number not in self.dropped
            assert not self.ends[number]
            heard = self.heard.setdefault(number, bytearray())
            if kind == MORE:
                heard += told
                assert self.bodies[number].startswith(heard)
            elif kind in ENDS:
                self.ends[number] += 1
                if (kind, told) == (REFUSED, b""):
                    assert self.is_leaving
                    assert number not in self.taken
                else:
                    assert (kind, told) == self.answers[number]
                if kind == END:
                    assert heard == self.bodies[number]

    @invariant()
    def nobody_is_at_fault(self):
        assert self.caller.reader.fault is None
        assert self.callee.reader.fault is None

    @invariant()
    def what_is_under_way_is_bounded(self):
        assert len(self.caller) <= len(self.asked) - sum(self.ends.values())
        assert len(self.callee) <= len(self.asked)
        for number in self.begun - set(self.answers):
            waits = len(self.bodies[number]) - len(self.heard.get(number, b""))
            assert self.is_behind[number] or waits <= callers.WINDOW_MAX_BYTES

    @invariant()
    def few_may_have_much_come(self):
        """Beyond the window at first, which is not counted. What has ended may have been asked for
        more in the same read."""
        wide = {n for n, size_bytes in self.may_come.items() if size_bytes > 0}
        assert len(wide - self.dropped - set(self.ends)) <= callers.WIDENED_MAX

    def teardown(self):
        """All that can end does: none starves, and each that was not dropped ends once."""
        try:
            self._end_all()
        finally:
            self.limits.stop()

    def _end_all(self):
        self.callee.out.is_blocked = False
        for number in self.asked:
            self.caller.resume(number)
        for _ in range(3):
            self._settle()
            assert not any(self.is_behind[n] for n in self.begun - self.dropped - set(self.answers))
            for number in list(self.taken):
                if number in self.begun:
                    self.end(number)
                else:
                    self.refuse(number)
        self._settle()
        assert set(self.ends) == set(self.asked) - self.dropped
        assert set(self.ends.values()) <= {1}
        assert len(self.caller) == len(self.callee) == self.callee.held_bytes == 0
        assert self.caller.out.unsent_bytes == self.callee.out.unsent_bytes == 0

    def _settle(self):
        for _ in range(200):
            self.write(ROOM_BYTES)
            if not (self.there or self.back):
                return
            self.arrive_there(1.0)
            self.arrive_back(1.0)
        raise AssertionError("it does not come to rest")


TestStory = Story.TestCase
TestStory.settings = settings(stateful_step_count=30)
