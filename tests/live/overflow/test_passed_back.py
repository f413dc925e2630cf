"""Answers that pass through, on their way back over one link: in what order frames leave, when the
source is paused, and what is said of the end. On clocks that the test moves.
"""

import asyncio
from random import Random
from types import SimpleNamespace

import pytest

from spillover.core.overflow.events import SoFar
from spillover.live.engine.timers import Timers
from spillover.live.http1.known_heads import Known
from spillover.live.overflow import passed_back
from spillover.live.overflow.emulated_link import EmulatedLink
from spillover.live.overflow.frames.frame import BROKEN as BROKEN_FRAME
from spillover.live.overflow.frames.frame import LENGTHS
from spillover.live.overflow.passed_back import (
    FRAMES_MAX,
    UNSENT_MAX_BYTES,
    UNSENT_RESUME_BYTES,
    PassedBack,
    WayBack,
)
from spillover.live.overflow.passed_wire import (
    FrameReader,
    decode_end,
    decode_head,
    decode_whole,
    piece_head,
)
from spillover.live.overflow.wire import BROKEN_PROBLEM_MAX, Stay, decode_broken, encode_broken
from spillover.model.causes import Cause
from spillover.model.passed import PassedHead
from spillover.model.request import DONE, FAILED, Answer

FAR_S = 1e9
"""Where clocks begin: beyond the real one, so that the loop itself rings nothing."""

HEAD = PassedHead(206, b"Partial", ((b"A", b"b"),))
SO_FAR = SoFar(("a", "b"), 0.5, 0.25, 0.125)
FIELDS = ((b"Checksum", b"7"),)
ANSWER = Answer(DONE, ("a", "b"), None, None, 0.5, 0.25, 3.0)
BROKEN = Answer(FAILED, ("a", "b"), None, "it broke", cause=Cause.CONNECTION)


class Back:
    """The way back of one answer. `told` has all that leaves or is said of it, in order; it is also
    the connection, the flow, and what reads the frames."""

    def __init__(self, clock, *, emulated=True, is_whole=False, delay_s=0.0):
        self.clock, self.told, self.is_whole = clock, [], is_whole
        self.loop = asyncio.new_event_loop()
        self.timers = Timers(self.loop)
        self.link = EmulatedLink(
            self.timers, Random(1), delay_s, given_up_after_s=5.0, clock=clock.monotonic
        )
        said = [lambda what=what: self.told.append(what) for what in ("began", "left", "broke")]
        self.sink = PassedBack(self, WayBack(self.link if emulated else None, self.settle, *said))
        self.frames = FrameReader(SimpleNamespace(begin=self._head, end=self._end))

    def advance(self, seconds):
        for _ in range(seconds):
            self.clock.now_s += 1.0
            self.timers.run_due(self.clock.now_s)

    def take(self):
        """What has been told since this was last asked."""
        told, self.told = self.told, []
        return told

    def close(self):
        self.timers.close()
        self.loop.close()

    def settle(self, told):
        self.told.append(("settled", told))

    # --- a connection ---------------------------------------------------------------------------

    def _head(self, message):
        self.told.append(("head", *decode_head(message, Known())))
        return self._piece

    def _piece(self, data):
        self.told.append(data)

    def _end(self, message):
        self.told.append(("end", *decode_end(message)))

    def begin(self, frame, on_flow):
        self.on_flow = on_flow
        self.frames.feed(frame)

    def write(self, data):
        self.frames.feed(piece_head(len(data)) + data)

    def end(self, frame):
        self.frames.feed(frame)

    def whole(self, message):
        self.told.append(("whole", *decode_whole(message, Known())))

    def break_off(self, why):
        self.told.append("broken")
        self.why = decode_broken(why)

    def stay(self, now_s, waited_s):
        return Stay(now_s - FAR_S, 0.0, waited_s)

    # --- a flow ---------------------------------------------------------------------------------

    def pause(self):
        self.told.append("pause")

    def resume(self):
        self.told.append("resume")


@pytest.fixture
def back(monkeypatch):
    """Makes ways back."""
    clock = SimpleNamespace(now_s=FAR_S)
    clock.monotonic = lambda: clock.now_s
    monkeypatch.setattr(passed_back, "time", clock)
    made = []

    def make(**how):
        made.append(Back(clock, **how))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.mark.parametrize("emulated", [False, True])
def test_where_nothing_is_emulated_all_leaves_as_it_comes(back, emulated):
    way = back(emulated=emulated)
    way.sink.begin(HEAD, SO_FAR, way)
    assert way.take() == [("head", HEAD, SO_FAR, Stay(0.0, 0.0, 0.0)), "began"]
    way.sink.piece(b"one")
    way.sink.piece(b"two")
    assert way.take() == [b"one", b"two"]
    way.sink.end(FIELDS, ANSWER)
    assert way.take() == [("end", FIELDS, ANSWER), "left"]


def test_over_a_link_all_leaves_in_order_and_late_and_that_is_told(back):
    """How long the head waited counts as way, not as stay."""
    way = back(delay_s=2.0)
    way.sink.begin(HEAD, SO_FAR, way)
    way.sink.piece(b"one")
    way.advance(1)
    way.sink.end(FIELDS, ANSWER)
    assert way.take() == []
    way.advance(1)
    assert way.take() == [("head", HEAD, SO_FAR, Stay(2.0, 0.0, 2.0)), "began", b"one", "resume"]
    way.advance(1)
    assert way.take() == [("end", FIELDS, ANSWER), "left"]
    way.sink.break_off(None)
    assert way.take() == [], "it is whole"


@pytest.mark.parametrize("delay_s", [0.0, 2.0])
def test_what_is_there_at_once_leaves_as_one_message(back, delay_s):
    way = back(is_whole=True, delay_s=delay_s)
    way.sink.begin(HEAD, SO_FAR, way)
    way.sink.piece(b"one")
    way.sink.piece(b"two")
    way.sink.end(FIELDS, ANSWER)
    way.advance(int(delay_s))
    stay = Stay(delay_s, 0.0, delay_s)
    assert way.take() == [("whole", HEAD, b"onetwo", FIELDS, ANSWER, stay), "left"]
    way.sink.break_off(None)
    assert way.take() == []


def test_what_has_not_begun_settles(back):
    way = back(delay_s=2.0)
    way.sink.settle(BROKEN)
    assert way.take() == [("settled", BROKEN)]


def test_no_more_than_so_many_bytes_wait_on_a_link(back):
    """The source is paused above, and goes on once there are few."""
    way = back(delay_s=3.0)
    way.sink.begin(HEAD, SO_FAR, way)
    little, most = b"x" * (UNSENT_RESUME_BYTES - 1), b"x" * UNSENT_MAX_BYTES
    way.sink.piece(most[len(little) :])
    way.advance(1)
    way.sink.piece(little)
    assert way.take() == []
    way.sink.piece(b"y")
    assert way.take() == ["pause"]
    way.advance(2)
    assert way.take()[1:] == ["began", most[len(little) :]]
    way.sink.piece(b"z")
    way.advance(1)
    assert way.take() == [little, "resume", b"y", "resume"]


def test_no_more_than_so_many_frames_wait_on_a_link(back):
    """However small they are."""
    way = back(delay_s=3.0)
    way.sink.begin(HEAD, SO_FAR, way)
    for _ in range(FRAMES_MAX - 1):
        way.sink.piece(b"x")
    assert way.take() == []
    way.sink.piece(b"x")
    assert way.take() == ["pause"]
    way.advance(3)
    told = way.take()
    pieces = told[: told.index("resume")].count(b"x")
    assert pieces == FRAMES_MAX - FRAMES_MAX // 2 + 1, "fewer than half of them are left"
    assert told.count(b"x") == FRAMES_MAX


def test_a_neighbor_that_does_not_read_holds_the_source_up(back):
    """What is still on the link leaves, and does not have it go on."""
    way = back(delay_s=1.0)
    way.sink.begin(HEAD, SO_FAR, way)
    way.advance(1)
    way.take()
    way.on_flow(True)
    way.sink.piece(b"one")
    way.advance(1)
    assert way.take() == ["pause", b"one"]
    way.sink.piece(b"x" * UNSENT_RESUME_BYTES)
    way.on_flow(False)
    assert way.take() == []
    way.advance(1)
    assert way.take() == [b"x" * UNSENT_RESUME_BYTES, "resume"]
    way.on_flow(True)
    way.on_flow(False)
    assert way.take() == ["pause", "resume"]


def test_what_breaks_off_does_so_behind_what_has_come_unless_the_node_ends(back):
    way = back(delay_s=2.0)
    way.sink.begin(HEAD, SO_FAR, way)
    way.sink.piece(b"one")
    way.sink.break_off(BROKEN)
    way.sink.piece(b"late")
    way.advance(2)
    assert way.take()[1:] == ["began", b"one", "resume", "broken", "broke"]
    assert way.why == (Cause.CONNECTION, "it broke")
    way = back(delay_s=2.0)
    way.sink.begin(HEAD, SO_FAR, way)
    way.sink.piece(b"one")
    way.sink.break_off(None)
    assert way.take() == ["broken", "broke"]
    assert way.why == (Cause.NODE, "the node ended")
    way.sink.break_off(None)
    way.advance(2)
    assert way.take() == []


def test_long_words_for_why_an_answer_broke_off_are_cut(back):
    """They fit their frame whatever is in them."""
    way = back()
    way.sink.begin(HEAD, SO_FAR, way)
    way.sink.break_off(Answer(FAILED, ("a", "b"), None, "\0" * 100_000))
    assert way.why == (Cause.WORKER, "\0" * BROKEN_PROBLEM_MAX)
    _, longest_bytes = LENGTHS[BROKEN_FRAME]
    assert len(encode_broken(*way.why)) <= longest_bytes


def test_words_that_are_no_text_break_an_answer_off_as_others_do(back):
    """As in the names of files that handlers tell of."""
    way = back()
    way.sink.begin(HEAD, SO_FAR, way)
    way.sink.break_off(Answer(FAILED, ("a", "b"), None, "no file \udcff"))
    assert way.why == (Cause.WORKER, "no file ?")


def test_a_frame_that_is_lost_breaks_the_answer_off_once(back):
    """What comes behind it means nothing, nor does its end."""
    way = back(delay_s=2.0)
    way.sink.begin(HEAD, SO_FAR, way)
    way.advance(2)
    way.take()
    way.link.set_faults(loss=1.0)
    way.sink.piece(b"lost")
    way.sink.piece(b"lost, too")
    way.advance(2)
    assert way.take() == ["broken", "broke"]
    way.link.set_faults(loss=0.0)
    way.sink.piece(b"late")
    way.sink.end(FIELDS, ANSWER)
    way.advance(2)
    assert way.take() == []


def test_an_answer_that_is_there_at_once_is_lost_as_one(back):
    way = back(is_whole=True)
    way.link.set_faults(loss=1.0)
    way.sink.begin(HEAD, SO_FAR, way)
    way.sink.piece(b"one")
    assert way.take() == []
    way.sink.end(FIELDS, ANSWER)
    assert way.take() == ["broken", "broke"]
