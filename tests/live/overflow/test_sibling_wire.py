"""What the nodes of a site tell each other, as lines."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillover.core.overflow.sibling_messages import (
    Frozen,
    Give,
    Installed,
    Limits,
    LineLoad,
    Prepare,
    SiblingLoad,
)
from spillover.live.overflow.sibling_wire import Operated, decode, encode
from spillover.live.overflow.wire import MalformedMessage

WHOLE = st.integers(0, 2**53)
AMOUNTS = st.floats(0.0, 1e9)
VIEWS = st.tuples(WHOLE, st.integers(1, 16))
NODES = st.lists(st.integers(1, 16), max_size=16).map(tuple)
OWNERS = st.lists(st.integers(1, 16), min_size=1, max_size=16).map(tuple)

COUNTS = st.lists(WHOLE, max_size=4).map(tuple)
LINES = st.lists(st.builds(LineLoad, WHOLE, WHOLE, AMOUNTS), max_size=4).map(tuple)
PARTS = COUNTS, st.none() | st.builds(Limits, VIEWS, COUNTS, COUNTS)
LOAD = NODES, VIEWS, WHOLE, WHOLE, WHOLE, AMOUNTS, AMOUNTS, st.booleans()

MESSAGES = st.one_of(
    st.builds(SiblingLoad, *LOAD, LINES, COUNTS, COUNTS),
    st.builds(Prepare, VIEWS),
    st.builds(Frozen, VIEWS, WHOLE, st.booleans(), AMOUNTS, st.booleans(), *PARTS),
    st.builds(Installed, VIEWS, NODES, OWNERS, WHOLE, *PARTS),
    st.builds(Give, VIEWS, WHOLE, WHOLE),
    st.builds(Operated, WHOLE, st.booleans(), st.just("paper"), st.sampled_from((None, "paper"))),
)


@given(MESSAGES)
def test_what_is_written_is_read(message):
    line = encode(message)
    assert line.endswith(b"\n")
    assert b"\n" not in line[:-1]
    assert decode(line[:-1]) == message


def give(servers, view=(1, 1)):
    return json.dumps({"give": {"view": view, "servers": servers}}).encode()


def load(**other):
    fields = {"hears": [2], "view": [1, 1], "waiting": 1, "foreign": 0, "idle": 0}
    return json.dumps({"load": {**fields, "age_s": 0.0, "load": 0.0, **other}}).encode()


@pytest.mark.parametrize(
    "line",
    [
        b"", b"{", b"[]", b'{"give":1}', b'{"give":{"view":[1,1]}}', give(-1), give(1.5),
        give(2**53 + 1), give(1, [1, 17]), give(1, [-1, 1]), give(1, [1]), load(hears=[0]),
        load(lines=[[1, 0]]), load(lines=[[1, 0, -1.0]]), load(idle_of=[-1]),
        load(age_s=-1.0), load(load=float("inf")), load(waiting=-1), load(view=[1, 1, 1]),
        b'{"installed":{"view":[1,1],"members":[1],"owners":[],"share":1}}',
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused(line):
    with pytest.raises(MalformedMessage):
        decode(line)


def test_what_a_later_version_says_besides_is_left_out():
    assert decode(b'{"later":[1]}') is None
    assert decode(b'{"give":{"view":[1,1],"servers":2,"more":3}}') == Give((1, 1), 2)
    assert decode(load()) == SiblingLoad((2,), (1, 1), 1, 0, 0, 0.0, 0.0)
