"""Heads and bodies of passed requests and answers, without connections: what is refused, and what
the other end sees of the rest, in whatever pieces it comes."""

import pytest

from spillover.live.handlers.proxy.onward import (
    Ingress,
    check_tunnel,
    has_passed,
    onward,
    passed_head,
)
from spillover.live.handlers.proxy.sent_heads import OwnRequest, own_head, upstream_head
from spillover.live.http1.framing import HeadBytes
from spillover.live.http1.heads import read_answer, read_request
from spillover.live.http1.rules import Malformed
from spillover.model.passed import PassedRequest
from support.passed_requests import REFUSED, SEEN, without_way

WAY = Ingress("192.0.2.1", "http", "a-1.spillover")
BY_INTAKE = (413, 422)
"""Statuses of what is refused later than by a head."""


def read(raw, step):
    """The head and the body of what comes in pieces of this size."""
    head_bytes = HeadBytes()
    head, body, whole = None, None, b""
    raw = raw.lstrip(b"\r\n")
    for start in range(0, len(raw), step):
        data = raw[start : start + step]
        if head is None:
            found = head_bytes.feed(data)
            if found is None:
                continue
            head = read_request(found[0])
            check_tunnel(head)
            body, data = head.body(), found[1]
        if data:
            whole += body.feed(data)
    return head, body, whole


@pytest.mark.parametrize("step", [1_000_000, 7])
@pytest.mark.parametrize("name", [name for name in REFUSED if REFUSED[name][0] not in BY_INTAKE])
def test_what_is_refused(name, step):
    status, raw = REFUSED[name]
    with pytest.raises(Malformed) as caught:
        read(raw, step)
    assert caught.value.status == status


@pytest.mark.parametrize("step", [1_000_000, 1, 3])
@pytest.mark.parametrize("name", SEEN)
def test_what_a_service_sees(name, step):
    raw, start, lines, body = SEEN[name]
    head, reader, whole = read(raw, step)
    assert reader.done
    assert whole == body
    request = PassedRequest(head.method, head.target, onward(head, WAY, len(whole)), whole)
    sent = upstream_head(request, b"upstream:80", ())
    assert sent.endswith(b"\r\n\r\n")
    first, *others = sent[:-4].split(b"\r\n")
    assert first == start
    assert without_way(others) == lines


@pytest.mark.parametrize("name", SEEN)
def test_what_goes_as_it_is_is_what_a_neighbor_would_send(name):
    head, _, whole = read(SEEN[name][0], 1_000_000)
    own, added = OwnRequest(head, WAY, whole), ((b"A", b"b"),)
    over_a_hop = PassedRequest.decode(own.encode())
    assert own_head(own, b"upstream:80", added) == upstream_head(over_a_hop, b"upstream:80", added)
    assert own.size_bytes >= len(own.encode()) - len(WAY.lines) - 200


@pytest.mark.parametrize(
    ("via", "found"),
    [
        (b"1.1 a-1.spillover", True),
        (b"1.1 fred, 1.1 A-1.Spillover (x)", True),
        (b"1.1 a-2.spillover", False),
        (b"1.1 fred (1.1 a-1.spillover)", False),
    ],
)
def test_a_loop_is_found_by_the_name_of_the_door(via, found):
    for pseudonym in ("a-1.spillover", "A-1.spillover"):  # clusters may have capitals
        assert has_passed(((b"Via", via),), pseudonym) is found


@pytest.mark.parametrize(
    "request_",
    [
        PassedRequest("GET", b"/ HTTP/1.1\r\nA: b\r\nB:", ((b"Host", b"h"),), b""),
        PassedRequest("GET", b"/", ((b"Host", b"h"), (b"A", b"b\r\nC: d")), b""),
        PassedRequest("GET", b"/", ((b"Host", b"h"), (b"A: b\r\nC", b"d")), b""),
        PassedRequest("GET\r\n", b"/", ((b"Host", b"h"),), b""),
        PassedRequest("GET", b"/", ((b"Host", b"h"),), b"hello"),
        PassedRequest("GET", b"/", ((b"Host", b"h"), (b"Content-Length", b"4")), b"hello"),
        PassedRequest("GET", b"/", ((b"Host", b"h"), (b"Transfer-Encoding", b"chunked")), b""),
        PassedRequest("GET", b"/", ((b"Host", b"h"), (b"Transfer-Encoding", b" chunked")), b""),
        PassedRequest("GET", b"/", ((b"Host", b"h"), (b"", b"b")), b""),
        PassedRequest("GET", b"/", ((b"Host", b"h"), (b" A", b"b")), b""),
        PassedRequest("GET", b"/", ((b"Host", b"h"), (b"Content_Length", b"4")), b""),
        PassedRequest("GET", b"/", ((b"Host", b"h"), *(((b"A", b"b"),) * 256)), b""),
    ],
)
def test_what_a_neighbor_makes_up_is_not_sent(request_):
    with pytest.raises(ValueError, match=r"expected|its head"):
        upstream_head(request_, b"upstream", ())


# --- answers ------------------------------------------------------------------------------------


@pytest.mark.parametrize("ours", [b"Spillover-Path", b"spillover-request-id"])
def test_a_service_does_not_say_where_a_request_went(ours):
    """Nodes say that, also where nothing else of the head is to be changed."""
    head = b"HTTP/1.1 200 OK\r\n%b: z\r\nA: b\r\nContent-Length: 0\r\n" % ours
    passed = passed_head(read_answer(head, "GET"))
    assert ours not in dict(passed.headers)
    assert (b"A", b"b") in passed.headers


def test_no_length_is_told_of_an_answer_that_can_have_no_body():
    """Clients look for it, or take it for a fault."""
    head = b"HTTP/1.1 204 No Content\r\nA: b\r\nHost: h\r\ncontent-length: 3\r\n"
    assert passed_head(read_answer(head, "GET")).headers == ((b"A", b"b"), (b"Host", b"h"))
