"""What nodes say to each other: everything survives the way, and no bytes confuse the reader."""

import json

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from spillover.live.engine.write_batch import JOIN_LIMIT_BYTES
from spillover.live.overflow import report_lines, wire
from spillover.model.ids import request_id_of
from spillover.model.load import LoadReport
from spillover.model.request import Answer, Outcome, Request
from spillover.model.topology import CLUSTER_ID
from spillover.model.trace_context import STATE_LENGTH_MAX, TraceContext

names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
clusters = st.sampled_from(["a", "b-1", "0", "z" * 63]).filter(CLUSTER_ID.fullmatch)
printable = names.filter(
    lambda text: text.isprintable() and text == text.strip() and text not in (".", "..")
)
routes = st.lists(clusters, min_size=1, max_size=5).map(tuple)
TRACE = f"00-{'a' * 32}-{'1' * 16}-01"
traces = st.sampled_from([None, TraceContext(TRACE), TraceContext(TRACE, "x=y,z=1")])
durations = st.floats(0.0, 6e5)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | names,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(names, inner, max_size=2),
    max_leaves=5,
)
shares = st.floats(0.0, 1.0)
counts = st.integers(0, 2**50)


@pytest.mark.slow
@given(
    printable,
    routes,
    values,
    st.booleans(),
    printable,
    st.integers(0, 9),
    traces,
    durations,
    st.booleans(),
)
@example('"payload":null', ("a",), None, True, '"payload":null', 0, None, 1.0, True)
def test_forwards_survive_the_way(id, path, work, keyed, type, priority, trace, rest_s, is_large):
    """A request arrives as it was, its payload to the byte, with what remained of its deadline."""
    payload = json.dumps([work, "x" * JOIN_LIMIT_BYTES] if is_large else work).encode()
    request = Request(id, keyed, msgspec.Raw(payload), path, type, priority, trace)
    body = b"".join(wire.encode_forward(request, rest_s))
    arrived, remaining_s, load, pulled = wire.decode_forward(body)
    assert (load, pulled) == (None, False)
    assert bytes(memoryview(arrived.work)) == payload
    arrived.work = request.work
    assert arrived == request
    assert remaining_s == pytest.approx(rest_s)


FORWARD = {"id": "x", "path": ["a"], "remaining_ms": 1, "payload": 1}


def test_traces_that_are_none_are_dropped():
    """As where clients send them: the request is good without."""
    for trace in ("", "nonsense", TRACE + "\n", TRACE.upper()):
        sent = {"traceparent": trace, "tracestate": "x=y"}
        told = wire.decode_forward(json.dumps(FORWARD | sent).encode())
        assert told.request.trace is None
    for state in ("x=y\r\nHost: z", "x=\u00fc", "x=" + "y" * STATE_LENGTH_MAX):
        sent = {"traceparent": TRACE, "tracestate": state}
        told = wire.decode_forward(json.dumps(FORWARD | sent).encode())
        assert told.request.trace == TraceContext(TRACE)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *((name, bad) for name in ("id", "type") for bad in ("", " x", "x\r\ny: z", "\u2028", 1)),
        ("id", "x" * 201),
        ("type", "x" * 101),
        *(("path", bad) for bad in ([""], ["a", "b\n"], ["x" * 64], ["ü"], [1], ["a"] * 1001)),
        *(("priority", bad) for bad in (-1, 10, 0.5, "1")),
        ("traceparent", 1),
        ("tracestate", 1),
        *(("remaining_ms", bad) for bad in (float("inf"), float("nan"), None, "1")),
    ],
)
def test_what_no_client_may_send_no_neighbor_may_hand_on(field, value):
    """Names that fit no header, paths that are none, numbers out of range."""
    wire.decode_forward(json.dumps(FORWARD).encode())
    with pytest.raises(wire.MalformedMessage):
        wire.decode_forward(json.dumps(FORWARD | {field: value}).encode())


@given(
    st.sampled_from(Outcome),
    routes,
    values,
    names,
    durations,
    durations,
    durations,
    st.none() | st.integers(100, 599),
)
def test_answers_survive_the_way(
    outcome, path, result, problem, queued_s, network_s, held_s, status
):
    """An answer arrives as it was, with all that it has cost; what the service behind it said goes
    with all that was not done."""
    raw = msgspec.Raw(json.dumps(result).encode())
    answer = Answer(outcome, path, raw, problem, queued_s, network_s, 0.5, 0.25, status)
    stay = wire.Stay(held_s=held_s, reading_s=0.002, answer_delay_s=0.035)
    told, told_stay = wire.decode_answer(wire.encode_answer(answer, stay))
    assert json.loads(bytes(memoryview(told.result))) == result
    assert (told.outcome, told.path, told.problem) == (outcome, path, problem)
    assert (told.queued_s, told.network_s) == (pytest.approx(queued_s), pytest.approx(network_s))
    assert (told.service_s, told.return_s) == (0.5, 0.25)
    assert told.upstream_status == (None if outcome is Outcome.DONE else status)
    assert told_stay == pytest.approx(stay)


def test_half_of_a_surrogate_pair_in_a_problem_is_told_as_a_question_mark():
    """A user's error may say what is no text; its request is answered all the same."""
    answer = Answer(Outcome.FAILED, ("b",), None, "no \ud800 character")
    told, _ = wire.decode_answer(wire.encode_answer(answer, wire.Stay(0.0, 0.0, 0.0)))
    assert told.problem == "no ? character"


def forwarded(body):
    """What a forward says, but for how long it is."""
    told = wire.decode_forward(body)
    request = told.request
    request.size_bytes, work = 0, bytes(memoryview(request.work))
    request.work = b""
    return told, work


MESSAGES = [
    (forwarded, FORWARD),
    (wire.decode_cancel, {"id": "x"}),
    (wire.decode_answer, {"outcome": "done", "path": ["b"], "held_ms": 5.0}),
    (wire.decode_cancel_answer, {"found": True}),
    (
        report_lines.decode_line,
        {
            "epoch": 1,
            "sequence": 2,
            "queue_length": 3,
            "servers": 4,
            "accepting": True,
            "accept_probability": 0.5,
            "neighborhood_accept_probability": 0.25,
        },
    ),
]


@pytest.mark.parametrize(("decode", "message"), MESSAGES)
def test_fields_come_and_go_within_a_version(decode, message):
    """What a later version adds is ignored; these are the fields that must be there, each of them,
    and others have defaults."""
    more = {"color": "red", "nested": {"more": [1]}}
    assert decode(json.dumps(message | more).encode()) == decode(json.dumps(message).encode())
    for name in message:
        less = {one: value for one, value in message.items() if one != name}
        with pytest.raises(wire.MalformedMessage):
            decode(json.dumps(less).encode())


heard = st.just(()) | routes


@given(counts, counts, shares, shares, counts, counts, st.booleans(), heard)
def test_reports_survive_the_way(epoch, sequence, accept, near, length, servers, accepting, hears):
    """A report is one line, and is read back as it was."""
    report = LoadReport(epoch, sequence, accept, near, length, servers, accepting, hears)
    line = report_lines.encode_report(report)
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")
    assert report_lines.decode_line(line[:-1]) == report


REPORT = report_lines.encode_report(LoadReport(1, 1, 1.0, 1.0, 0, 1, True))


@given(printable, st.booleans())
def test_cancels_survive_the_way(id, found):
    """What is canceled, and whether it was found."""
    assert wire.decode_cancel(wire.encode_cancel(id)) == id
    assert wire.decode_cancel_answer(wire.encode_cancel_answer(found=found)) is found


@pytest.mark.parametrize("id", ["", " x", "x\r\ny: z", "\u2028", "x" * 201, 1, None])
def test_cancels_name_what_can_be_a_request(id):
    """As forwards do."""
    with pytest.raises(wire.MalformedMessage):
        wire.decode_cancel(json.dumps({"id": id}).encode())


@pytest.mark.parametrize("status", [99, 1000, -1, 0.5, "500"])
def test_a_status_has_three_digits(status):
    """That of the service behind a handler, where there is one."""
    answer = {"outcome": "failed", "path": ["a"], "held_ms": 1, "upstream_status": status}
    with pytest.raises(wire.MalformedMessage):
        wire.decode_answer(json.dumps(answer).encode())


DECODERS = [
    wire.decode_forward,
    wire.decode_answer,
    report_lines.decode_line,
    wire.decode_cancel,
    wire.decode_cancel_answer,
]


@pytest.mark.parametrize("decode", [d for d in DECODERS if d is not wire.decode_cancel])
@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"null",
        b"[]",
        b'"',
        b"\xff",
        b'{"outcome":"\xff","path":["a"],"held_ms":1}',
        b"[" * 100_000,
        b'{"payload":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"outcome":"later","path":["a"],"held_ms":1}',
        b'{"outcome":"done","path":[],"held_ms":1}',
        b'{"id":"x","path":[],"remaining_ms":1,"payload":1}',
        b'{"id":"x","path":["a"],"remaining_ms":1e999,"payload":1}',
        REPORT.replace(b'"queue_length":0', b'"queue_length":-1'),
        REPORT.replace(b'"accept_probability":1.0', b'"accept_probability":1.5', 1),
    ],
)
def test_what_is_malformed_is_called_so(decode, message):
    """Bad JSON, bad fields, bad numbers, bad UTF-8, endless nesting: always the same error."""
    with pytest.raises(wire.MalformedMessage):
        decode(message)


@pytest.mark.slow
@given(st.binary() | st.recursive(values, st.lists).map(lambda v: json.dumps(v).encode()))
def test_no_bytes_confuse_the_decoders(message):
    """Whatever comes, it is a message or malformed."""
    for decode in DECODERS:
        try:
            decode(message)
        except wire.MalformedMessage:
            continue


LOAD = {"epoch": 1, "sequence": 2, "ahead": 3, "load": 0.5, "accepting": True}


@pytest.mark.parametrize(
    ("field", "good", "bad"),
    [
        ("epoch", [0, 2**53], [-1, 2**53 + 1, 0.5]),
        ("sequence", [0, 2**53], [-1, 2**53 + 1, None]),
        ("ahead", [-(2**31), 2**31], [-(2**31) - 1, 2**31 + 1]),
        ("load", [0, 1e9], [-0.1, 1.1e9, "1"]),
        ("accepting", [True, False], [0, None]),
    ],
)
def test_a_load_out_of_bounds_says_nothing(field, good, bad):
    for value in good:
        told = wire.decode_load(json.dumps([*(LOAD | {field: value}).values()]).encode())
        assert getattr(told, field) == value
    for value in bad:
        assert wire.decode_load(json.dumps([*(LOAD | {field: value}).values()]).encode()) is None
    assert wire.decode_load(None) is None
    assert wire.decode_load(b"nonsense") is None


@pytest.mark.parametrize(
    ("field", "good"),
    [
        ("path", [["a"], ["a"] * 1000]),
        ("priority", [0, 9]),
        ("remaining_ms", [0.0, 1e12]),
        ("id", ["x", "x" * 200]),
        ("type", ["x", "x" * 100]),
        ("tenant", ["x", "x" * 64]),
    ],
)
def test_what_a_neighbor_may_hand_on(field, good):
    for value in good:
        wire.decode_forward(json.dumps(FORWARD | {field: value}).encode())


@pytest.mark.parametrize("tenant", ["", "shop"])
def test_whose_request_it_is_goes_along(tenant):
    """As a field of its own, which older nodes ignore; without tenants nothing is said."""
    request = Request(request_id_of(tenant, "order-7"), True, msgspec.Raw(b"1"), ("a",))
    (message,) = wire.encode_forward(request, 1.0)
    told = json.loads(message)
    assert told["id"] == "order-7"
    assert told.get("tenant", "") == tenant
    assert ("tenant" in told) == bool(tenant)
    assert wire.decode_forward(message).request.id == request.id
    cancel = wire.encode_cancel(request.id)
    assert ("tenant" in json.loads(cancel)) == bool(tenant)
    assert wire.decode_cancel(cancel) == request.id


@pytest.mark.parametrize("tenant", ["a\0b", "a/b", "x" * 65, " ", 7])
def test_what_no_tenant_is_called_is_malformed(tenant):
    for decode, message in (
        (wire.decode_cancel, {"id": "x"}),
        (wire.decode_forward, {"id": "x", "path": ["a"], "remaining_ms": 1, "payload": 1}),
    ):
        decode(json.dumps(message).encode())
        with pytest.raises(wire.MalformedMessage, match="tenant"):
            decode(json.dumps({**message, "tenant": tenant}).encode())


@pytest.mark.parametrize("retry_after_s", [0.0, 2.0])
def test_when_to_come_again_is_told_even_if_that_is_at_once(retry_after_s):
    answer = Answer(Outcome.FAILED, ("a",), problem="busy")
    answer.retry_after_s = retry_after_s
    read, _ = wire.decode_answer(wire.encode_answer(answer, wire.Stay(0.0, 0.0, 0.0)))
    assert read.retry_after_s == retry_after_s


def test_no_deadline_is_further_than_a_week():
    """One that is over stays so."""
    for told_ms, read_s in ((1e12, 604_800.0), (604_800_000, 604_800.0), (5e3, 5.0), (-5e3, -5.0)):
        told = wire.decode_forward(json.dumps(FORWARD | {"remaining_ms": told_ms}).encode())
        assert told.remaining_s == read_s


@pytest.mark.parametrize(
    ("told", "status"),
    [(None, None), (b"", None), (b"200", 200), (b"599", 599), (b"999", 999), (b"199", None),
     (b"99", None), (b"1000", None), (b" 200", None), (b"2e2", None)],
)  # fmt: skip
def test_a_status_in_a_header_is_one_or_none(told, status):
    assert wire.decode_status(told) == status


def test_how_long_both_legs_took_is_what_the_stay_leaves_of_the_wait():
    """Decided at 1, sent at 2, back at 12: eight seconds there, one of them reading, another to
    emulate the way back."""
    assert wire.Stay(8.0, 1.0, 1.0).legs(1.0, 2.0, 12.0) == (3.0, 2.0)
    assert wire.Stay(99.0, 1.0, 1.0).legs(1.0, 2.0, 12.0) == (2.0, 1.0), "clocks that differ"


WHOLE = (-1, 2**53 + 1, 10**400, 1.5)
AMOUNT = (-0.1, 1e10, 1.79e308, 10**400)
TOLD = {
    "epoch": 1, "sequence": 1, "accept_probability": 1.0, "neighborhood_accept_probability": 1.0,
    "queue_length": 0, "servers": 1, "accepting": True,
}  # fmt: skip


@pytest.mark.parametrize(
    ("field", "values"),
    [
        *((one, WHOLE) for one in ("epoch", "sequence", "queue_length", "servers", "clients")),
        *((one, AMOUNT) for one in ("load", "departure_ms", "residual")),
        *((one, (-0.1, 1.1)) for one in ("accept_probability", "failed_share", "least_failed")),
        ("next_failed", (-0.1, 1.1)),
        ("ahead", (-(2**31) - 1, 2**31 + 1, 10**400)),
        ("relay_hops", (-1, 1001)),
        ("relay_by", ("b\r\nX-Evil: 1", "b c", "x" * 64)),
        ("hears", (["b\n"], ["b", ""], ["b"] * 1001)),
        ("configuration", ("x" * 129,)),
    ],
)
def test_a_report_beyond_its_ranges_is_refused(field, values):
    for value in values:
        with pytest.raises(wire.MalformedMessage):
            report_lines.decode_line(json.dumps(TOLD | {field: value}).encode())


@pytest.mark.parametrize("time_ms", ["-1", "1e12", "1.79e308", "1e999", "1" + "0" * 400])
@pytest.mark.parametrize("field", wire.TIMES)
def test_an_answer_is_taken_without_times_that_cannot_be(field, time_ms):
    told = f'{{"outcome":"failed","path":["a","b"],"held_ms":7,"problem":"p","{field}":{time_ms}}}'
    answer, stay = wire.decode_answer(told.encode())
    assert (answer.path, answer.problem, answer.total_s) == (("a", "b"), "p", 0.0)
    assert stay is wire.UNTIMED


def test_no_neighbor_took_longer_than_its_answer_was_waited_for():
    told, stay = Answer(Outcome.DONE, ("a",), queued_s=600.0, service_s=200.0), wire.Stay(1, 0, 0)
    assert wire.within_wait(told, stay, 790.0) is stay  # clocks differ
    assert wire.within_wait(told, stay, 8.0) is wire.UNTIMED
    assert (told.queued_s, told.service_s) == (6.0, 2.0)
