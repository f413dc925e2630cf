"""What passes through is decoded as it was encoded, and nothing else is."""

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from spillover.model.passed import (
    METHOD_LENGTH_MAX,
    MalformedPassed,
    PassedHead,
    PassedRequest,
    decode_fields,
    encode_fields,
)

FIELDS = st.lists(st.tuples(st.binary(max_size=9), st.binary(max_size=9)), max_size=4).map(tuple)
METHODS = st.sampled_from(["GET", "M" * METHOD_LENGTH_MAX, "\u00e9"])
REQUESTS = st.builds(PassedRequest, METHODS, st.binary(max_size=20), FIELDS, st.binary(max_size=20))
HEADS = st.builds(PassedHead, st.integers(200, 999), st.binary(), FIELDS)


@given(REQUESTS)
def test_a_request_comes_back_as_it_was(request):
    again = PassedRequest.decode(request.encode())
    assert again == request
    assert again.encode() == request.encode()


@given(HEADS, FIELDS)
def test_a_head_and_trailers_come_back_as_they_were(head, fields):
    assert PassedHead.decode(head.encode()) == head
    assert decode_fields(encode_fields(fields)) == fields


def test_a_body_is_not_copied():
    work = PassedRequest("PUT", b"/x", (), b"y" * 100).encode()
    body = PassedRequest.decode(work).body
    assert isinstance(body, memoryview)
    assert body.obj is work


@given(REQUESTS, st.data())
def test_what_is_cut_off_is_refused(request, data):
    work = request.encode()
    length = data.draw(st.integers(0, len(work) - 1))
    with pytest.raises(MalformedPassed):
        PassedRequest.decode(work[:length])


@given(st.binary())
@example(b"\x91" * 100_000)
@example(PassedHead(200, b"OK", ()).encode())
def test_nothing_else_comes_of_other_bytes(some):
    """They are decoded or refused, whatever they are."""
    for decode in (PassedRequest.decode, PassedHead.decode, decode_fields):
        try:
            decoded = decode(some)
        except MalformedPassed:
            continue
        assert isinstance(decoded, PassedRequest | PassedHead | tuple)


@pytest.mark.parametrize("status", [99, 100, 199, 1000])
def test_an_interim_status_is_no_head(status):
    with pytest.raises(MalformedPassed):
        PassedHead.decode(msgspec.msgpack.encode((status, b"", ())))


def test_fields_of_later_versions_are_not_read():
    head = PassedHead(204, b"No Content", ())
    assert PassedHead.decode(msgspec.msgpack.encode((204, b"No Content", (), 7))) == head
