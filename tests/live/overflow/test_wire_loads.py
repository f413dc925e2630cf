"""Loads on the wire: with forwards, answers and refusals, and in the lines of report streams."""

import json
import math
from base64 import b64encode
from struct import pack

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from spillover.core.affinity.places import Places
from spillover.live.overflow import report_lines, wire
from spillover.model.affinity import PLACES_MAX, PlaceLoad, RanAt
from spillover.model.load import LoadNow, LoadReport
from spillover.model.ranges import WORK_MAX
from spillover.model.request import DONE, Answer, Outcome, Request

loads = st.builds(
    LoadNow,
    st.integers(0, 2**53),
    st.integers(0, 2**53),
    st.integers(-1000, 1_000_000),
    st.integers(0, 64_000).map(lambda steps: steps / 64),
    st.booleans(),
)
STAY = wire.Stay(0.1, 0.0, 0.0)


@given(loads, st.booleans())
def test_a_load_rides_on_a_forward(load, pulled):
    """And so does that it was asked for."""
    request = Request("x", False, msgspec.Raw(b"1"), ("a",))
    body = b"".join(wire.encode_forward(request, 1.0, load, pulled=pulled))
    told = wire.decode_forward(body)
    assert (told.load, told.pulled) == (load, pulled)


@given(loads)
def test_a_load_rides_on_answers_and_refusals(load):
    """In a header there: the body is a problem as clients know it."""
    answer = Answer(Outcome.DONE, ("a",), load=load)
    assert wire.decode_answer(wire.encode_answer(answer, STAY))[0].load == load
    assert wire.decode_load(wire.encode_load(load)) == load


@pytest.mark.parametrize(
    "told",
    [
        {"degraded": True},
        {"failed_share": 0.25},
        {"least_failed": 0.0},
        {"next_failed": 0.5},
        {"relay_hops": 3},
        {"relay_by": "b"},
        {"invites": True},
        {"ahead": -3},
        {"load": 7.5},
        {"departure_s": 0.125},
        {"residual": 2.5},
        {"configuration": "3/a/17"},
        {"clients": 0},
        {"passes": True},
        {"places": (PlaceLoad(0.0, 0.0, 0.0, 0.0), PlaceLoad(2.0**40, 0.75, 8_192.0, 2.0**50))},
    ],
)
def test_whatever_a_report_tells_besides_survives_the_way(told):
    """Each by itself, so that none stands for another; of all others, what stands for untold."""
    report = LoadReport(5, 2, 0.5, 1.0, 3, 2, True, ("b",), **told)
    of_the_node = {name: told[name] for name in ("configuration", "clients") if name in told}
    line = report_lines.encode_report(report, **of_the_node)
    assert report_lines.decode_line(line.strip()) == report


DEEP = b"[1,1,0,0,true," + b"[" * 4000


@pytest.mark.parametrize(
    "told", [None, b"", b"null", b"[1,2]", b"\xff", b"[1,2,3,-0.5,true]", DEEP]
)
def test_a_header_that_says_no_load_is_as_none(told):
    """It is told besides: the refusal stands."""
    assert wire.decode_load(told) is None


@pytest.mark.parametrize(
    "line",
    [
        b'{"ask":null}',
        b'{"ask":[1,2,3]}',
        b'{"ask":[1,2,3,1e300,true]}',
        b'{"no_work":[-1,2,3,0.5,true]}',
        b'{"no_work":[1,2,3,0.5,"yes"]}',
        b'{"ask":[1,2,99999999999,0.5,true]}',
    ],
)
def test_lines_that_ask_badly_are_refused(line):
    """Bounded numbers, of the right kinds."""
    with pytest.raises(wire.MalformedMessage):
        report_lines.decode_line(line)


PLACES = [
    (b"", ()),
    (pack("<4f", 1.0, 0.5, 2.0, 3.0), (PlaceLoad(1.0, 0.5, 2.0, 3.0),)),
    (bytes(16 * PLACES_MAX), (PlaceLoad(0.0, 0.0, 0.0, 0.0),) * PLACES_MAX),
    (pack("<4f", WORK_MAX, 1.0, WORK_MAX, WORK_MAX), ...),
    (bytes(15), None),
    (bytes(16 * PLACES_MAX + 16), None),
    (pack("<4f", -1.0, 0.0, 0.0, 0.0), None),
    (pack("<4f", math.nan, 0.0, 0.0, 0.0), None),
    (pack("<4f", 0.0, 1.5, 0.0, 0.0), None),
    (pack("<4f", 0.0, 0.0, math.inf, 0.0), None),
    (pack("<4f", 0.0, 0.0, 0.0, 2.0 * WORK_MAX), None),
]


@pytest.mark.parametrize(("told", "heard"), PLACES)
def test_places_are_told_in_sixteen_bytes_each_and_within_their_ranges(told, heard):
    report = LoadReport(1, 1, 1.0, 1.0, 0, 1, True)
    fields = json.loads(report_lines.encode_report(report))
    assert "places" not in fields, "nothing is told without affinity"
    line = json.dumps({**fields, "places": b64encode(told).decode()}).encode()
    if heard is None:
        with pytest.raises(wire.MalformedMessage, match=r"places|Expected"):
            report_lines.decode_line(line)
    else:
        places = report_lines.decode_line(line).places
        assert heard in {..., places}


WORKS = st.lists(st.tuples(st.floats(0.0, 1e9), st.booleans()), min_size=1, max_size=20)


@given(WORKS, st.booleans())
@example([(0.7, True), (0.1, True), (0.0, False), (0.0, False)], False)
@example([(0.7, True), (0.1, True), (0.0, False), (0.0, False)], True)
def test_what_places_tell_is_heard_whatever_sums_are_by_rounding(works, is_speed_known):
    places = Places(1, 1_000)
    if is_speed_known:
        places.began(places.sent(0, 0.25, 0, 0.0), 0.25)
    sent = [(places.sent(0, work, 0, 1.0), ends) for work, ends in works]
    for one in [one for one, ends in sent if ends]:
        places.failed(one, 1.0)
    told = places.loads([(0, 1)], 1.0, 1.0)
    assert min(told[0]) >= 0.0
    report = LoadReport(1, 1, 1.0, 1.0, 0, 1, True, places=told)
    assert len(report_lines.decode_line(report_lines.encode_report(report)[:-1]).places) == 1


def test_an_answer_tells_where_it_ran():
    """Nothing of it where nobody knows; of no neighbor beyond the ranges."""
    answer = Answer(DONE, ("a", "b"), msgspec.Raw(b"1"))
    body = wire.encode_answer(answer, wire.UNTIMED)
    assert b"ran" not in body
    answer.ran = RanAt(3, 1_234_567.0, 0.25)
    body = wire.encode_answer(answer, wire.UNTIMED)
    assert wire.decode_answer(body)[0].ran == answer.ran
    for bad in (b"[-1,1,1]", b"[1,-1,1]", b"[1,1,1e19]", b"[1]", b"7"):
        with pytest.raises(wire.MalformedMessage):
            wire.decode_answer(body.replace(b"[3,1234567.0,0.25]", bad))
