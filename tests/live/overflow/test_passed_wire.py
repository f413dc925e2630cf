"""What nodes say to each other of requests that pass through, as bytes."""

import contextlib
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillover.core.overflow.events import SoFar
from spillover.live.engine.write_batch import JOIN_LIMIT_BYTES
from spillover.live.http1.known_heads import Known
from spillover.live.overflow.passed_wire import (
    END,
    FRAME,
    HEAD,
    MESSAGE_LIMIT_BYTES,
    FrameReader,
    decode_end,
    decode_head,
    decode_pass,
    decode_whole,
    encode_end,
    encode_head,
    encode_pass,
    encode_whole,
    piece_head,
)
from spillover.live.overflow.wire import MalformedMessage, Stay
from spillover.model.load import LoadNow
from spillover.model.passed import PassedHead, PassedRequest, encode_fields
from spillover.model.request import DONE, Answer, Request

PASSED_HEAD = PassedHead(206, b"Partial", ((b"ETag", b'"x"'), (b"etag", b"\xff")))
SO_FAR = SoFar(("a", "b"), 0.5, 0.25, 0.125)
STAY = Stay(2.0, 0.5, 0.25)
FIELDS = ((b"Checksum", b"7"),)
ANSWER = Answer(DONE, ("a", "b"), None, None, 0.5, 0.25, 3.0)


class Read:
    """What a reader of frames has told."""

    def __init__(self):
        self.told = []
        self.reader = FrameReader(self)

    def begin(self, message):
        self.told.append(("head", *decode_head(message, Known())))
        return self.told.append

    def end(self, message):
        self.told.append(("end", *decode_end(message)))

    def feed(self, whole, cuts=()):
        """All of it, cut into parts at these places."""
        begin = 0
        for end in [*sorted(cuts), len(whole)]:
            self.reader.feed(whole[begin:end])
            begin = end

    @property
    def body(self):
        return b"".join(one for one in self.told if isinstance(one, bytes))


def frame(piece):
    """With some of the body."""
    return piece_head(len(piece)) + piece


def answer_of(*pieces):
    """An answer in frames, whole."""
    frames = [encode_head(PASSED_HEAD, SO_FAR, STAY)]
    frames += [frame(piece) for piece in pieces]
    return b"".join([*frames, encode_end(FIELDS, ANSWER, STAY)])


@given(
    st.lists(st.binary(max_size=50), max_size=5),
    st.lists(st.integers(0, 600), max_size=20),
)
def test_frames_are_read_however_they_are_cut(pieces, cuts):
    whole, read = answer_of(*pieces), Read()
    read.feed(whole, [cut for cut in cuts if cut < len(whole)])
    assert read.told[0] == ("head", PASSED_HEAD, SO_FAR, STAY)
    assert read.body == b"".join(pieces)
    kind, fields, answer = read.told[-1]
    assert (kind, fields, answer) == ("end", FIELDS, ANSWER)


@given(st.binary(max_size=300), st.sampled_from([(), FIELDS]))
def test_an_answer_that_is_there_at_once_is_one_message(body, trailers):
    message, known = encode_whole(PASSED_HEAD, body, trailers, ANSWER, STAY), Known()
    for _ in range(2):  # the second time its head has come before
        assert decode_whole(message, known) == (PASSED_HEAD, body, trailers, ANSWER, STAY)
    assert list(known.meanings.values()) == [PASSED_HEAD]
    for length in range(len(message) - len(trailers and encode_fields(trailers))):
        with pytest.raises(MalformedMessage):
            decode_whole(message[:length], known)


@given(st.binary(max_size=100))
def test_any_bytes_are_a_whole_answer_or_refused(some):
    known = Known()
    with contextlib.suppress(MalformedMessage):
        decode_whole(some, known)
    assert not known.meanings


@pytest.mark.parametrize("name", [b"Set-Cookie", b"set-cookie", b"Authorization"])
def test_what_is_secret_in_the_head_of_an_answer_is_not_kept(name):
    head, known = PassedHead(200, b"OK", ((name, b"s"), (b"Content-Length", b""))), Known()
    message = encode_whole(head, b"{}", (), ANSWER, STAY)
    assert decode_whole(message, known).head == head
    assert not known.meanings


def test_no_part_of_an_answer_is_taken_for_all_of_it():
    """Cut off anywhere, it has no end; what has come of the body has been handed on."""
    whole, body = answer_of(b"one", b"", b"x" * 100), b"one" + b"x" * 100
    for length in range(len(whole)):
        read = Read()
        read.feed(whole[:length])
        assert not any(one[0] == "end" for one in read.told)
        assert body.startswith(read.body)


def test_what_a_head_does_not_say_took_no_time():
    told = b'{"path":["a"],"held_ms":2000.0}'
    _, _, fields = encode_head(PASSED_HEAD, SO_FAR, STAY).partition(b"}")
    message = struct.pack(">I", len(told)) + told + fields
    nothing_yet = SoFar(("a",), 0.0, 0.0, 0.0)
    assert decode_head(message, Known()) == (PASSED_HEAD, nothing_yet, Stay(2.0, 0.0, 0.0))


WHOLE_HEAD = encode_head(PASSED_HEAD, SO_FAR, STAY)
WHOLE_END = encode_end(FIELDS, ANSWER, STAY)


@pytest.mark.parametrize(
    "frames",
    [
        WHOLE_HEAD + b"X" + bytes(4),
        FRAME.pack(HEAD, MESSAGE_LIMIT_BYTES + 1),
        FRAME.pack(HEAD, 3) + b"abc",
        FRAME.pack(HEAD, 8) + struct.pack(">I", 5) + b"abcd",
        FRAME.pack(HEAD, 8) + struct.pack(">I", 4) + b"null",
    ],
)
def test_what_is_no_answer_is_refused(frames):
    read = Read()
    with pytest.raises(MalformedMessage):
        read.feed(frames + bytes(5))


@pytest.mark.parametrize(
    ("before", "frames"),
    [
        (b"", frame(b"")),
        (b"", frame(b"x")),
        (b"", WHOLE_END),
        (WHOLE_HEAD, WHOLE_HEAD),
        (WHOLE_HEAD + WHOLE_END, WHOLE_HEAD),
        (WHOLE_HEAD + WHOLE_END, frame(b"")),
        (WHOLE_HEAD + WHOLE_END, frame(b"x")),
        (WHOLE_HEAD + WHOLE_END, WHOLE_END),
    ],
)
def test_frames_out_of_turn_are_refused_as_they_begin(before, frames):
    """One answer has one head, and one end; nothing of what is refused is handed on."""
    read = Read()
    read.feed(before)
    told = list(read.told)
    with pytest.raises(MalformedMessage, match="another kind of frame"):
        read.feed(frames)
    assert read.told == told


@given(st.binary(max_size=300))
def test_any_bytes_are_read_or_refused(some):
    read = Read()
    try:
        read.feed(some)
    except MalformedMessage:
        return
    assert not any(isinstance(one, tuple) and one[0] == "end" for one in read.told)


@given(st.binary(max_size=200), st.booleans())
def test_a_request_comes_as_it_was(body, keyed):
    passed = PassedRequest("PATCH", b"/\xff?a=1", FIELDS, body)
    load = LoadNow(1, 2, -3, 0.5, True)
    path = ("a", "b")
    request = Request("r", keyed, passed.encode(), path, "llm", 3, None)
    whole = b"".join(encode_pass(request, 1.5, load, pulled=True))
    forwarded = decode_pass(whole)
    assert (forwarded.remaining_s, forwarded.load, forwarded.pulled) == (1.5, load, True)
    got = forwarded.request
    assert (got.id, got.keyed, got.path, got.type, got.priority) == ("r", keyed, path, "llm", 3)
    assert got.size_bytes == len(whole)
    assert PassedRequest.decode(got.work) == passed
    assert request.work == passed.encode()


@given(st.integers(0, 60))
def test_a_request_that_is_cut_off_is_refused(length):
    """Where what is JSON is not whole; the rest is for who passes it on to read."""
    request = Request("r", False, PassedRequest("GET", b"/", (), b"").encode(), ("a",))
    whole = b"".join(encode_pass(request, 1.5, None, pulled=False))
    told_bytes = len(whole) - len(request.work)
    with pytest.raises(MalformedMessage):
        decode_pass(whole[: min(length, told_bytes - 1)])
    assert decode_pass(whole[:told_bytes]).request.work == b""


def padded(told, size_bytes):
    """A message in JSON that is so long."""
    return told + b" " * (size_bytes - len(told))


def test_a_message_may_be_as_long_as_was_said_and_no_longer():
    """A frame, and what is told of a whole answer before its body; the body is as long as it is."""
    end, length = WHOLE_END[FRAME.size + 4 :], MESSAGE_LIMIT_BYTES - 4
    told = end[: end.rindex(b"}") + 1]
    trailers = end[len(told) :]
    told = padded(told, length - len(trailers))
    whole_end = struct.pack(">I", len(told)) + told + trailers
    read = Read()
    read.feed(WHOLE_HEAD + FRAME.pack(END, len(whole_end)) + whole_end)
    assert read.told[-1] == ("end", FIELDS, ANSWER)
    read = Read()
    read.feed(WHOLE_HEAD)
    with pytest.raises(MalformedMessage, match="4 to 262144 bytes, got 262145"):
        read.feed(FRAME.pack(END, MESSAGE_LIMIT_BYTES + 1))
    body = b"x" * (MESSAGE_LIMIT_BYTES + 1)
    message = encode_whole(PASSED_HEAD, body, (), ANSWER, STAY)
    told_bytes, head_bytes, _ = struct.unpack_from(">III", message)
    told, rest = message[12 : 12 + told_bytes], message[12 + told_bytes :]
    for size_bytes in (MESSAGE_LIMIT_BYTES, MESSAGE_LIMIT_BYTES + 1):
        lengths = struct.pack(">III", size_bytes, head_bytes, len(body))
        message = lengths + padded(told, size_bytes) + rest
        if size_bytes == MESSAGE_LIMIT_BYTES:
            assert decode_whole(message, Known()).body == body
        else:
            with pytest.raises(MalformedMessage):
                decode_whole(message, Known())
    head = PassedHead(200, b"", ((b"A", b"x" * MESSAGE_LIMIT_BYTES),))
    with pytest.raises(MalformedMessage):
        decode_whole(encode_whole(head, b"", (), ANSWER, STAY), Known())


@pytest.mark.parametrize("encoded", [False, True])
@pytest.mark.parametrize("over", [0, 1])
def test_a_request_that_is_large_is_handed_on_as_it_lies(encoded, over):
    """Read or not: its bytes are the same."""
    passed = PassedRequest("POST", b"/", (), b"x" * JOIN_LIMIT_BYTES)
    surplus = len(passed.encode()) - JOIN_LIMIT_BYTES
    passed = PassedRequest("POST", b"/", (), b"x" * (JOIN_LIMIT_BYTES - surplus + over))
    work = memoryview(passed.encode()) if encoded else passed
    parts = encode_pass(Request("r", False, work, ("a",)), 1.0, None, pulled=False)
    assert len(parts) == 1 + over
    if encoded and over:
        assert parts[1] is work
    assert PassedRequest.decode(decode_pass(b"".join(parts)).request.work) == passed
