"""What an upstream's answer becomes, one by one. Over connections: `test_http_handler`."""

import json

import pytest

from spillover.live.handlers.calls import RESULT_LIMIT_BYTES, SAID_LIMIT_BYTES
from spillover.live.handlers.http import upstream_answers
from spillover.live.handlers.http.upstream_answers import read_answer
from spillover.live.http1.client import Response

JSON = b"application/json"


def read(body, *, status=200, type_=JSON, coding=None):
    headers = {b"content-type": type_, b"content-encoding": coding}
    given = {name: value for name, value in headers.items() if value is not None}
    return read_answer("http://h/run", Response(status, given, body, 0.0, 0.0))


def test_json_passes_through_as_it_came():
    """Not decoded: what other readers of numbers would round stays whole."""
    body = b' {"a": [1, 2.50, 12345678901234567890.123]} '
    assert read(body).result == body


@pytest.mark.parametrize(
    "type_", [JSON, b"Application/JSON; charset=utf-8", b"application/vnd.x+json", b" text/x+json "]
)
@pytest.mark.parametrize("status", [200, 201, 299])
def test_what_is_json(type_, status):
    ended = read(b"\xef\xbb\xbf[]", status=status, type_=type_)
    assert (ended.result, ended.problem) == (b"[]", None)


@pytest.mark.parametrize("type_", [JSON, b"text/plain", None])
@pytest.mark.parametrize("status", [200, 204, 205])
def test_nothing_is_null(type_, status):
    assert read(b"", status=status, type_=type_).result == b"null"


@pytest.mark.parametrize("type_", [b"text/plain; charset=x", b"application/jsonx", b"x\xff", None])
def test_other_types_are_wrapped(type_):
    wrapped = json.loads(read(b"\0\xff", type_=type_).result)
    expected = b"application/octet-stream" if type_ is None else type_
    assert wrapped == {"content_type": expected.decode("latin-1"), "body_base64": "AP8="}


def test_a_coding_that_says_nothing_is_none():
    """`identity` is what was asked for."""
    assert read(b"1", coding=b" Identity").result == b"1"


PROBLEMS = {
    "choices": (lambda: read(b"", status=300), "answered 300"),
    "too early": (lambda: read(b"", status=199), "answered 199"),
    "redirect": (lambda: read(b"", status=302), "answered 302"),
    "not found": (lambda: read(b"{}", status=404), "answered 404"),
    "busy": (lambda: read(b"{}", status=503), "answered 503"),
    "cut off": (lambda: read(b'{"a":'), "not valid JSON"),
    "blank": (lambda: read(b" "), "not valid JSON"),
    "nan": (lambda: read(b"[NaN]"), "not valid JSON"),
    "two": (lambda: read(b"1 2"), "not valid JSON"),
    "not utf-8": (lambda: read(b'"\xff"'), "not valid JSON"),
    "too deep": (lambda: read(b"[" * 100_000), "not valid JSON"),
    "coded": (lambda: read(b"[]", coding=b"gzip"), "in the coding gzip"),
    "large": (lambda: read(b"x" * (RESULT_LIMIT_BYTES - 99), type_=b"a/b"), "takes more than"),
}


@pytest.mark.parametrize("case", PROBLEMS)
def test_what_is_a_problem(case):
    reading, says = PROBLEMS[case]
    ended = reading()
    assert ended.problem.startswith("upstream http://h/run ")
    assert says in ended.problem
    assert "\n" not in ended.problem


@pytest.mark.parametrize(
    ("status", "not_run_statuses", "is_rejected", "is_not_run"),
    [
        (300, (429, 503), False, False),
        (399, (429, 503), False, False),
        (400, (429, 503), True, False),
        (429, (429, 503), False, True),
        (429, (404,), True, False),
        (404, (404,), False, True),
        (499, (429, 503), True, False),
        (500, (429, 503), False, False),
        (503, (429, 503), False, True),
        (503, (404,), False, False),
    ],
)
def test_whose_fault_a_status_is(status, not_run_statuses, is_rejected, is_not_run):
    """The client's, nobody's where the work was surely not done, else the service's."""
    headers = {b"retry-after": b"7", b"content-type": JSON}
    response = Response(status, headers, b"[1]", 0.0, 0.0)
    ended = read_answer("http://h/run", response, not_run_statuses)
    assert (ended.rejected, ended.not_run) == (is_rejected, is_not_run)
    assert (ended.status, ended.body, ended.retry_after_s) == (status, b"[1]", 7.0)


@pytest.mark.parametrize(
    ("body", "type_", "said"),
    [
        (b"\xef\xbb\xbf[1]", JSON, b"[1]"),
        (b"[1]", b"text/plain", b'"[1]"'),
        (b"[1]", None, b'"[1]"'),
        (b"[1", JSON, b'"[1"'),
        (b'"\xff"', JSON, '"\\"\ufffd\\""'.encode()),
        ('"\u00e9"'.encode(), JSON, '"\u00e9"'.encode()),
    ],
)
def test_what_is_said_besides_is_json(body, type_, said):
    assert read(body, status=400, type_=type_).body == said


def test_what_a_service_says_of_its_error_is_for_the_log_alone():
    """It may tell what is nobody's business; short, in one line."""
    ended = read(b"secret \n \xff" + b"x" * 10_000, status=500)
    assert ended.problem == "upstream http://h/run answered 500"
    assert "500: secret \ufffdxxx" in ended.details
    assert len(ended.details) < 400
    assert ended.upstream_answered, "it is told in place of a traceback"


def test_what_is_wrapped_may_take_as_much_as_any_result(monkeypatch):
    wrapped = b'{"content_type":"a/b","body_base64":"AAAA"}'
    for limit in (len(wrapped), len(wrapped) - 1):
        monkeypatch.setattr(upstream_answers, "RESULT_LIMIT_BYTES", limit)
        ended = read(b"\0\0\0", type_=b"a/b")
        assert (ended.problem is None) is (limit == len(wrapped))


@pytest.mark.parametrize("size", [SAID_LIMIT_BYTES, SAID_LIMIT_BYTES + 1])
def test_of_what_an_upstream_says_besides_no_more_is_kept(size):
    body = b'"' + b"x" * (size - 2) + b'"'
    said = read(body, status=400).body
    assert len(said) <= SAID_LIMIT_BYTES
    assert (said == body) is (size == SAID_LIMIT_BYTES)
