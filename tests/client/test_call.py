"""One request of a client: its name, and what has come of it so far."""

import asyncio

import pytest

from spillover.client.call import Call, may_go_on
from spillover.live.http1.outgoing import Response
from spillover.model.errors import Cancelled, NotDelivered, OutcomeUnknown, Unreachable

HEADER = (b"x", b"y")


def test_a_request_has_the_name_that_it_was_given_or_one_of_its_own():
    given = Call(b"1", (HEADER,), "order 7", 9.0)
    assert (given.name, given.ours, given.repeatable) == ("order 7", False, True)
    assert given.headers == (HEADER, (b"idempotency-key", b"order 7"))
    made_up = [Call(b"1", (HEADER,), None, 9.0) for _ in range(100)]
    assert len({call.name for call in made_up}) == 100
    for call in made_up:
        assert (len(call.name), call.ours, call.repeatable) == (24, True, True)
        assert call.headers == (HEADER, (b"idempotency-key", call.name.encode()))
        assert not call.may_have_run


def test_what_is_sent_once_has_none():
    call = Call(b"1", (HEADER,), None, 9.0, at_most_once=True)
    assert (call.name, call.ours, call.repeatable, call.headers) == ("", False, False, (HEADER,))


def response(status):
    return Response(status, {}, b"", 0.0, 0.0)


async def test_what_it_comes_to_is_of_the_last_attempt():
    call = Call(b"1", (), "k", 9.0)
    call.begin("http://a", None)
    call.settle(response(503))
    assert call.came_to.status == 503
    future = asyncio.get_running_loop().create_future()
    call.begin("http://b", future)
    assert (call.came_to, call.url) == (None, "http://b")
    for status in (200, 202):
        call.settle(response(status))
    assert (future.result().status, call.came_to.status) == (200, 202)


@pytest.mark.parametrize("once", [False, True])
def test_where_its_client_is_closed_it_is_cancelled_there(once):
    call = Call(b"1", (), None, 9.0, at_most_once=once)
    call.begin("http://a", None)
    error = call.closed_under()
    assert isinstance(error, Cancelled)
    assert (error.node, error.id) == ("http://a", None if once else call.name)


@pytest.mark.parametrize(
    ("came_to", "goes_on"),
    [
        (None, False),
        (response(200), False),
        (response(202), True),
        (response(503), False),
        (OutcomeUnknown("x"), True),
        (NotDelivered("x"), False),
        (Unreachable("x"), False),
    ],
)
def test_what_a_node_may_have_goes_on_there(came_to, goes_on):
    assert may_go_on(came_to) is goes_on
