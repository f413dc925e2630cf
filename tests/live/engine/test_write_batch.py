"""What is written in one turn of a loop leaves at its end, and in as few calls as it is worth."""

import asyncio

import pytest

from spillover.live.engine.write_batch import JOIN_LIMIT_BYTES, WriteBatch
from support.loop import turn


class Wire(asyncio.Transport):
    """Stands for a socket: notes each call."""

    def __init__(self, *, is_secure=False):
        super().__init__({"ssl_object": object()} if is_secure else {})
        self.calls = []
        self.closing = False

    def write(self, data):
        assert not self.closing
        self.calls.append(bytes(data))

    def writelines(self, list_of_data):
        assert not self.closing
        self.calls.append([bytes(part) for part in list_of_data])

    def is_closing(self):
        return self.closing


async def test_all_of_one_turn_leaves_at_its_end_in_order():
    batch = WriteBatch(asyncio.get_running_loop())
    one, other = Wire(), Wire()
    batch.write(one, b"1")
    batch.write(other, b"2")
    batch.write(one, b"3")
    assert one.calls == other.calls == []
    await turn(0)
    assert (one.calls, other.calls) == ([b"1", b"3"], [b"2"])
    batch.write(one, b"4")
    await turn(0)
    await turn(0)
    assert one.calls == [b"1", b"3", b"4"]


async def test_it_is_known_whether_something_has_not_left_yet():
    batch = WriteBatch(asyncio.get_running_loop())
    one, other = Wire(), Wire()
    assert not batch.holds(one)
    batch.write(other, b"1")
    batch.write(one, b"2")
    assert batch.holds(one)
    assert batch.holds(other)
    assert not batch.holds(Wire())
    batch.flush()
    assert not batch.holds(one)
    assert one.calls == [b"2"]
    batch.flush()
    await turn(0)
    assert one.calls == [b"2"]


async def test_a_connection_that_closes_meanwhile_takes_nothing_with_it():
    batch = WriteBatch(asyncio.get_running_loop())
    closing, other = Wire(), Wire()
    batch.write(closing, b"1")
    batch.write(other, b"2")
    closing.closing = True
    await turn(0)
    assert (closing.calls, other.calls) == ([], [b"2"])


LONG = b"x" * (JOIN_LIMIT_BYTES + 1)
RECORD = 16_384


@pytest.mark.parametrize(
    ("parts", "plain", "secure"),
    [
        ((b"all",), b"all", b"all"),
        ((b"head", b"body"), b"headbody", b"headbody"),
        ((b"head", LONG[1:]), b"head" + LONG[1:], b"head" + LONG[1:]),
        (
            (b"head", LONG),
            [b"head", LONG],
            [b"head" + LONG[: RECORD - 4], LONG[RECORD - 4 :]],
        ),
        ((b"a", b"b", b"c"), [b"a", b"b", b"c"], [b"abc"]),
    ],
    ids=["one", "short", "as long as is joined", "longer", "three"],
)
async def test_parts_are_joined_where_that_costs_less(parts, plain, secure):
    """Over TLS each part would be encrypted by itself."""
    batch = WriteBatch(asyncio.get_running_loop())
    wires = [Wire(), Wire(is_secure=True)]
    for wire in wires:
        batch.write(wire, *parts)
    await turn(0)
    assert [wire.calls for wire in wires] == [[plain], [secure]]
