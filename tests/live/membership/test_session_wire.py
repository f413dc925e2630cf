"""The lines of a session: what may stand in them."""

import json

import pytest

from spillover.core.membership.session_events import SERVERS_MAX, Announcement, SessionServer
from spillover.live.membership.session_wire import (
    SIGN_OF_LIFE,
    SIGN_OF_LIFE_S,
    SILENCE_S,
    MalformedLine,
    decode_line,
    encode_announcement,
    encode_head,
    encode_parting,
)

LEAST = {"cluster": "a", "version": 1, "servers": []}
SERVER = {"id": "a", "url": "http://a:1"}


def line(**fields):
    return json.dumps(LEAST | fields).encode()


def test_what_is_said_is_heard():
    servers = [SessionServer("a", "http://a:1"), SessionServer("b", "https://b")]
    head = encode_head("a", 5, (3, "b", 7), servers)
    said = encode_announcement(head, 12, 4, 0.25)
    assert said.endswith(b"\n")
    assert decode_line(said[:-1]) == Announcement("a", 3, "b", 7, tuple(servers), 12, 4, 0.25)
    nobody = encode_announcement(encode_head("a", 5, (0, "", 0), []), 0, 0, 0.0)
    assert decode_line(nobody[:-1]) == Announcement("a", 0, "", 0, (), 0, 0, 0.0)
    assert decode_line(encode_parting(2.5)[:-1]) == 2.5
    assert decode_line(SIGN_OF_LIFE[:-1]) is None
    assert 2 * SIGN_OF_LIFE_S < SILENCE_S, "one that is lost does not end a session"


def test_what_is_not_said_is_none():
    assert decode_line(line()) == Announcement("a", 1, "", 0, (), 0, 0, 0.0)
    assert decode_line(line(more="of a later version")) == decode_line(line())


COUNTS = [0, 2**53], [-1, 2**53 + 1, 0.5, None, "1"]


@pytest.mark.parametrize(
    ("field", "good", "bad"),
    [
        ("cluster", ["a", "x" * 63], ["", "a b", 1]),
        ("version", *COUNTS),
        ("epoch", *COUNTS),
        ("by", ["a", None], [1]),
        ("by_epoch", *COUNTS),
        ("clients", *COUNTS),
        ("rank", *COUNTS),
        ("surplus", [0, 0.0, 1.0], [-0.1, 1.1]),
        (
            "servers",
            [[SERVER], [SERVER] * SERVERS_MAX],
            [
                [SERVER] * (SERVERS_MAX + 1),
                [SERVER | {"id": "a b"}],
                [SERVER | {"url": "nonsense"}],
                [{"id": "a"}],
                None,
            ],
        ),
    ],
)
def test_a_line_is_bounded_in_all_that_it_says(field, good, bad):
    for value in good:
        assert isinstance(decode_line(line(**{field: value})), Announcement)
    for value in bad:
        with pytest.raises(MalformedLine):
            decode_line(line(**{field: value}))


@pytest.mark.parametrize("within_s", [0.0, 0.25, 3600.0])
def test_a_node_parts_within_an_hour(within_s):
    assert decode_line(encode_parting(within_s)[:-1]) == within_s
    for bad in (-0.1, 3600.1, "1"):
        with pytest.raises(MalformedLine):
            decode_line(json.dumps({"within_s": bad}).encode())
