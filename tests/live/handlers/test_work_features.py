"""What requests say of their size, and what of it counts."""

import json

import msgspec
import pytest

from spillover.live.handlers.work_features import LOOKED_AT_BYTES, WorkFeatures
from spillover.model.ids import ClusterId, RequestId
from spillover.model.passed import PassedRequest
from spillover.model.request import Request
from spillover.model.routes import Route
from spillover.model.topology import Cluster
from spillover.model.work_source import WorkSource

BODY = json.dumps({"max_tokens": 40, "prompt": "abcdef", "n": -1, "name": "x"}).encode()
HUGE = b'{"max_tokens": 40, "prompt": "%b"}' % (b"x" * LOOKED_AT_BYTES)


def cluster(source, *routes):
    proxy = "proxy:http://127.0.0.1:9"
    return Cluster(id=ClusterId("a"), servers=1, handler=proxy, work=source, routes=routes)


def passed(body=BODY, *fields, target=b"/v1/chat"):
    return PassedRequest("POST", target, fields, body)


def read(reads, work):
    request = Request(RequestId("r"), True, work)
    reads.note(request)
    return request.features


def features(source, work):
    return read(WorkFeatures(cluster(source)), work)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (WorkSource(bytes=True), (float(len(BODY)),)),
        (WorkSource(json="max_tokens"), (40.0,)),
        (WorkSource(prompt="prompt"), (8.0,)),
        (WorkSource(json="max_tokens", prompt="prompt"), (40.0, 8.0)),
    ],
)
def test_clients_and_neighbors_requests_say_the_same(source, expected):
    assert features(source, passed()) == expected
    assert features(source, passed().encode()) == expected
    assert features(source, memoryview(passed().encode())) == expected
    assert features(source, msgspec.Raw(BODY)) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b"12.5", (12.5,)),
        (b"0", (0.0,)),
        (b"-1", None),
        (b"nan", None),
        (b"inf", None),
        (b"1e30", None),
        (b"many", None),
        (b"", None),
        (b"1" * 100, None),
    ],
)
def test_a_header_that_is_no_size_says_nothing(value, expected):
    source = WorkSource(header="X-Work")
    assert features(source, passed(BODY, (b"x-work", value))) == expected
    assert features(source, passed(BODY, (b"X-Work", value)).encode()) == expected


@pytest.mark.parametrize(
    ("source", "body"),
    [
        (WorkSource(header="X-Work"), BODY),
        (WorkSource(json="n"), BODY),
        (WorkSource(json="name"), BODY),
        (WorkSource(json="missing"), BODY),
        (WorkSource(json="max_tokens", prompt="missing"), BODY),
        (WorkSource(json="max_tokens"), b"no JSON"),
        (WorkSource(json="max_tokens"), b'[{"max_tokens": 1}]'),
        (WorkSource(json="max_tokens"), b"\xff\xfe"),
        (WorkSource(json="max_tokens"), b"[" * 100_000),
        (WorkSource(json="max_tokens"), HUGE),
        (WorkSource(json="max_tokens"), b""),
    ],
)
def test_what_cannot_be_read_says_nothing(source, body):
    assert features(source, passed(body)) is None
    assert features(source, passed(body).encode()) is None


def test_two_headers_say_nothing():
    """Which of them counts nobody knows."""
    fields = (b"X-Work", b"1"), (b"x-work", b"2")
    assert features(WorkSource(header="X-Work"), passed(BODY, *fields)) is None


def test_bytes_from_a_neighbor_that_are_no_request_say_nothing():
    assert features(WorkSource(header="X-Work"), b"\x00\x01") is None


def test_a_route_has_its_own_source():
    route = Route(path="/v1/embeddings", work=WorkSource(json="max_tokens"))
    reads = WorkFeatures(cluster(WorkSource(bytes=True), route))
    for target, expected in ((b"/v1/embeddings", 40.0), (b"/v1/chat", float(len(BODY)))):
        for work in (passed(target=target), passed(target=target).encode()):
            assert read(reads, work) == (expected,)


def test_a_route_whose_requests_count_alike_says_nothing():
    route = Route(path="/v1/embeddings", work=WorkSource(counted=True))
    reads = WorkFeatures(cluster(WorkSource(bytes=True), route))
    for target, expected in ((b"/v1/embeddings", ()), (b"/v1/chat", (float(len(BODY)),))):
        for work in (passed(target=target), passed(target=target).encode()):
            assert read(reads, work) == expected


def test_what_is_read_by_unlike_sources_is_of_unlike_measures():
    """Seconds for a byte are not those for a token, though both are one number of one type."""
    routes = (
        Route(path="/v1/embeddings", work=WorkSource(bytes=True)),
        Route(path="/v1/batches", work=WorkSource(bytes=True)),
    )
    reads, found = WorkFeatures(cluster(WorkSource(json="max_tokens"), *routes)), []
    for target in (b"/v1/chat", b"/v1/embeddings", b"/v1/batches"):
        request = Request(RequestId("r"), True, passed(target=target))
        reads.note(request)
        found.append(request.measure)
    assert found == [0, 1, 1]
