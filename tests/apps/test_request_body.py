"""Large bodies are read another way, and come to the same."""

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from spillover.apps.node import intake
from spillover.apps.node.intake import LARGE_BYTES, RequestBody, read_body
from support.few import examples

decode = msgspec.json.Decoder(RequestBody).decode

LONG = "x" * LARGE_BYTES
SPACE = st.text(" \t\n\r", max_size=2)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=5,
)


def twin(body):
    """What msgspec says of it, and whether it is UTF-8."""
    try:
        body.decode()
        return decode(body)
    except (ValueError, RecursionError) as error:
        return type(error)


def told(body):
    try:
        return read_body(body)
    except (ValueError, RecursionError) as error:
        return type(error)


@st.composite
def bodies(draw):
    """Large ones, most of them valid, with a few bytes put in, taken out or changed."""
    encode = msgspec.json.encode
    value = encode([LONG, draw(JSON)]) if draw(st.booleans()) else encode({"a": LONG})
    space = [draw(SPACE).encode() for _ in range(6)]
    again = [b',"payload":1', b',"p\\u0061yload":1', b',"payloa\\u0064":1', b',"pay\\/load":1']
    more = draw(st.sampled_from([b"", b',"id":"x"', b',"other":[]', b",", b"}", *again]))
    parts = [b"{", b'"payload"', b":", value, more, b"}"]
    body = b"".join(part for pair in zip(parts, space, strict=True) for part in pair)
    for _ in range(draw(st.integers(0, 2))):
        at = draw(
            st.integers(0, 40) | st.integers(0, len(body)) | st.integers(len(body) - 9, len(body))
        )
        cut = draw(st.integers(0, 2))
        new = draw(
            st.binary(max_size=2) | st.sampled_from([b"NaN", b"-", b"\\", b'"', b"\x00", b"1e999"])
        )
        body = body[:at] + new + body[at + cut :]
    return body


@settings(max_examples=examples(30))
@given(bodies())
@example(b'{"payload":["' + LONG.encode() + b'",NaN]}')
@example(b'{"payload":["' + LONG.encode() + b'",-Infinity]}')
@example(b'{"payload":["' + LONG.encode() + b'",01]}')
@example(b'{"payload":["' + LONG.encode() + b'\xff"]}')
@example(b'{"payload":["' + LONG.encode() + b'\xed\xa0\x80"]}')
@example(b'{"payload":["' + LONG.encode() + b'\n"]}')
@example(b'{"payload":["' + LONG.encode() + b'\\ud800"]}')
@example(b'{"payload":["' + LONG.encode() + b'\\x"]}')
@example(b'{"payload":"' + LONG.encode() + b'","payload":2}')
@example(b'{"payload":"' + LONG.encode() + b'", "\\u0070ayload" :2}')
@example(b'{"payload":"' + LONG.encode() + b'"} \n')
@example(b'{"payload":' + b" " * LARGE_BYTES + b"}")
@example(b'{"payload":' + b"[" * LARGE_BYTES + b"]" * LARGE_BYTES + b"}")
def test_both_ways_say_the_same(body):
    assert told(body) == twin(body)


@pytest.mark.parametrize("value", [LONG, {"image": LONG}, [LONG, "é" * LARGE_BYTES]])
def test_few_long_strings_are_read_the_short_way(value, monkeypatch):
    """As they came, byte for byte."""
    monkeypatch.setattr(intake, "_decode", None)
    payload = msgspec.json.encode(value)
    assert bytes(read_body(b' {"payload" : ' + payload + b" }").payload) == payload
