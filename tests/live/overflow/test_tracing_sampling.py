"""What is traced: the environment's sampler, asked once, and where a request stands by that."""

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import (
    ALWAYS_OFF,
    ALWAYS_ON,
    Decision,
    ParentBased,
    Sampler,
    SamplingResult,
)
from opentelemetry.trace import SpanKind, TraceState, get_current_span

from spillover.live.overflow.tracing.sampling import EnvironmentSampler
from spillover.model.trace_context import TraceContext

TRACE_ID, PARENT_ID = 0x4BF92F3577B34DA6A3CE929D0E0E4736, 0xF067AA0BA902B7


def parent(flags="01", version="00", trace_id=TRACE_ID, span_id=PARENT_ID):
    return f"{version}-{trace_id:032x}-{span_id:016x}-{flags}"


def sampler(of):
    return EnvironmentSampler(TracerProvider(sampler=of, shutdown_on_exit=False))


class Asked(Sampler):
    """Writes down what it is asked, and decides as it was told."""

    def __init__(self, decision, state=None):
        self.decision, self.state, self.asked = decision, state, []

    def should_sample(self, parent_context, trace_id, name, kind=None, *_, **__):
        before = get_current_span(parent_context).get_span_context()
        self.asked.append((before, trace_id, name, kind))
        return SamplingResult(self.decision, trace_state=self.state)

    def get_description(self):
        return "asked"


@pytest.mark.parametrize(("of", "sampled"), [(ALWAYS_ON, True), (ALWAYS_OFF, False)])
def test_what_has_come_in_no_trace_begins_one(of, sampled):
    here = sampler(of)
    places = [here.place(None, "POST /requests") for _ in range(20)]
    assert {(place.parent_id, place.state, place.is_sampled) for place in places} == {
        (None, "", sampled)
    }
    for numbers in ({place.trace_id for place in places}, {place.span_id for place in places}):
        assert len(numbers) == 20
        assert 0 not in numbers


@pytest.mark.parametrize(("flags", "sampled"), [("01", True), ("00", False), ("03", True)])
def test_what_has_come_in_a_trace_stays_in_it_and_is_sampled_as_that(flags, sampled):
    """It came from elsewhere: for those that begin here other samplers would be asked."""
    only_remote = ParentBased(
        ALWAYS_OFF, local_parent_sampled=ALWAYS_OFF, local_parent_not_sampled=ALWAYS_ON
    )
    place = sampler(only_remote).place(TraceContext(parent(flags), "x=y,z=1"), "HTTP")
    assert (place.trace_id, place.parent_id, place.is_sampled) == (TRACE_ID, PARENT_ID, sampled)
    assert place.state == "x=y,z=1"
    assert place.span_id not in (0, PARENT_ID)


@pytest.mark.parametrize(
    "none",
    [parent(version="ff"), parent(trace_id=0), parent(span_id=0)],
    ids=["version", "trace", "span"],
)
def test_a_parent_that_is_none_is_as_if_nothing_had_come(none):
    asked = Asked(Decision.RECORD_AND_SAMPLE)
    place = sampler(asked).place(TraceContext(none, "x=y"), "HTTP")
    assert place.trace_id not in (0, TRACE_ID)
    assert (place.parent_id, place.state) == (None, "")
    ((before, trace_id, _, _),) = asked.asked
    assert (before.is_valid, trace_id) == (False, place.trace_id)


def test_the_sampler_is_asked_with_all_that_is_known():
    asked = Asked(Decision.RECORD_AND_SAMPLE, TraceState([("own", "1")]))
    place = sampler(asked).place(TraceContext(parent("03"), "x=y"), "POST /requests")
    assert place.state == "own=1", "its answer has the last word"
    ((before, trace_id, name, kind),) = asked.asked
    assert (before.trace_id, before.span_id) == (TRACE_ID, PARENT_ID)
    assert (before.is_remote, before.trace_flags) == (True, 3)
    assert before.trace_state.to_header() == "x=y"
    assert (trace_id, name, kind) == (TRACE_ID, "POST /requests", SpanKind.SERVER)
    sampler(asked).place(TraceContext(parent()), "HTTP")
    assert not asked.asked[-1][0].trace_state


@pytest.mark.parametrize(
    ("decision", "sampled"),
    [(Decision.DROP, False), (Decision.RECORD_ONLY, False), (Decision.RECORD_AND_SAMPLE, True)],
)
def test_only_what_is_to_be_sampled_is(decision, sampled):
    assert sampler(Asked(decision)).place(None, "HTTP").is_sampled is sampled
