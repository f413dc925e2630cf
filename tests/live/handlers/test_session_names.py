"""Which session a request belongs to, and what belongs to none."""

import json
import tracemalloc

import msgspec
import pytest

from spillover.live.handlers.session_names import NONE, SessionNames
from spillover.model.session_source import SessionSource


def names(text):
    return SessionNames(SessionSource.of(text))


def chat(*messages):
    told = [{"role": role, "content": text} for role, text in messages]
    return json.dumps({"model": "m", "messages": told}).encode()


def test_a_header_or_a_cookie_names_the_session_whatever_its_case_or_place():
    by_header, by_cookie = names("header:X-Session"), names("cookie:sid")
    one = by_header.of(((b"Host", b"h"), (b"x-session", b"17")), b"")
    assert one == by_header.of(((b"X-SESSION", b"17"),), b"other") != NONE
    assert one != by_header.of(((b"X-Session", b"18"),), b"")
    told = by_cookie.of(((b"Cookie", b"a=b; sid=17"),), b"")
    assert told == by_cookie.of(((b"cookie", b"x=sid"), (b"Cookie", b"sid=17;c=d")), b"") != NONE
    assert by_header.of(((b"Host", b"h"), (b"X-Session", b"")), b"") == NONE
    assert by_cookie.of(((b"Cookie", b"sidecar=17; =; ;"),), b"") == NONE
    assert 0 < one < 2**64


def test_a_field_of_the_body_names_the_session():
    user = names("json:user")
    assert user.of((), b'{"user": "u1"}') == user.of((), b'{"x": [1], "user": "u1"}') != NONE
    assert user.of((), msgspec.Raw(b'{"user": "u1"}')) == user.of((), b'{"user": "u1"}')
    assert user.of((), memoryview(b'{"user": 7}')) not in (NONE, user.of((), b'{"user": 8}'))


def test_a_conversation_is_named_by_its_messages_up_to_the_first_of_the_user():
    prefix = names("prefix")
    begin = (("system", "be brief"), ("user", "hello"))
    one = prefix.of((), chat(*begin))
    assert one == prefix.of((), chat(*begin, ("assistant", "hi"), ("user", "and?"))) != NONE
    assert one != prefix.of((), chat(("system", "be brief"), ("user", "bye")))
    long = json.dumps({"prompt": "x" * 2_000}).encode()
    assert (
        prefix.of((), long) == prefix.of((), json.dumps({"prompt": "x" * 3_000}).encode()) != NONE
    )


@pytest.mark.parametrize("source", ["json:user", "prefix"])
@pytest.mark.parametrize(
    "body",
    [
        b"", b"{", b"[]", b"null", b"{}", b'{"user": null}', b'{"messages": 1}', b"\xff\xfe",
        b'{"messages": [1]}', b'{"messages": []}', b'{"prompt": ""', b"[" * 100_000,
        b'{"user": "", "prompt": ""}', b'{"user": null, "prompt": null}', b'{"prompt": ""}',
        b'{"x": ' + b"[" * 100_000, b'{"messages": [{"role": 1}]}',
    ],
)  # fmt: skip
def test_what_cannot_be_read_belongs_to_no_session(source, body):
    assert names(source).of((), body) == NONE


@pytest.mark.parametrize("told", [b"", b'""', b"null"])
def test_a_header_or_a_cookie_of_nobody_is_no_session(told):
    assert names("header:X-Session").of(((b"X-Session", told),), b"") == NONE
    assert names("cookie:sid").of(((b"Cookie", b"sid=" + told),), b"") == NONE


def test_a_conversation_is_read_no_further_than_sixty_four_messages():
    """Millions of them in one body take no longer than some, and no memory."""
    prefix = names("prefix")
    many = [("system", "x")] * 64
    one = prefix.of((), chat(*many, ("user", "a")))
    assert one == prefix.of((), chat(*many, ("user", "b"))) != NONE
    assert prefix.of((), chat(*many[1:], ("user", "a"))) != prefix.of(
        (), chat(*many[1:], ("user", "b"))
    )
    tracemalloc.start()
    body = b'{"messages": [' + b"{}," * 300_000 + b"{}]}"
    before, _ = tracemalloc.get_traced_memory()
    assert prefix.of((), body) != NONE
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most - before < 2 * len(body)


def test_brackets_and_quotes_in_a_message_do_not_end_it():
    prefix = names("prefix")
    one = prefix.of((), chat(("system", '}]"\\"{['), ("user", "a")))
    assert one == prefix.of((), chat(("system", '}]"\\"{['), ("user", "a"), ("user", "c")))
    assert one != prefix.of((), chat(("system", '}]"\\"{['), ("user", "b")))


def test_nobody_can_choose_numbers():
    """Two processes give the same session other numbers."""
    fields = ((b"X-Session", b"17"),)
    assert names("header:X-Session").of(fields, b"") != names("header:X-Session").of(fields, b"")


@pytest.mark.parametrize(
    "text",
    [
        "", "header", "header:", "header:a b", "cookie:a;b", "json:", "prefix:x", "body", "JSON:x",
        'json:a"b',
    ],
)  # fmt: skip
def test_a_source_that_is_none_is_refused(text):
    with pytest.raises(ValueError, match="expected header:NAME"):
        SessionSource.of(text)
