"""The sampling of traces, as the environment says (OTEL_TRACES_SAMPLER), and the numbers of
spans."""

from __future__ import annotations

from opentelemetry.context import Context
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import Decision
from opentelemetry.trace import (
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    TraceFlags,
    TraceState,
    set_span_in_context,
)

from spillover.live.overflow.tracing.visits import SpanPlace
from spillover.model.trace_context import TraceContext

_NOWHERE = Context()


class EnvironmentSampler:
    """The sampler of OpenTelemetry's SDK, asked once for each request, before anything of it is
    noted. A request is sampled if its parent is, unless the environment says otherwise."""

    def __init__(self, provider: TracerProvider) -> None:
        self._should_sample = provider.sampler.should_sample
        self._trace_id = provider.id_generator.generate_trace_id
        self.span_id = provider.id_generator.generate_span_id

    def place(self, trace: TraceContext | None, name: str) -> SpanPlace:
        parent = None if trace is None else _parent_of(trace)
        context, trace_id = _NOWHERE, 0
        if parent is not None:
            context = set_span_in_context(NonRecordingSpan(parent), _NOWHERE)
            trace_id = parent.trace_id
        trace_id = trace_id or self._trace_id()
        decided = self._should_sample(context, trace_id, name, SpanKind.SERVER)
        state = decided.trace_state
        return SpanPlace(
            trace_id,
            self.span_id(),
            None if parent is None else parent.span_id,
            state.to_header() if state else "",
            decided.decision is Decision.RECORD_AND_SAMPLE,
        )


def _parent_of(trace: TraceContext) -> SpanContext | None:
    """Returns the parent; None if it is all zeros, or of the version that never will be."""
    version, trace_id, span_id, flags = trace.parent.split("-")
    parent = SpanContext(
        int(trace_id, 16),
        int(span_id, 16),
        is_remote=True,
        trace_flags=TraceFlags(int(flags, 16)),
        trace_state=TraceState.from_header([trace.state]) if trace.state else None,
    )
    return parent if parent.is_valid and version != "ff" else None
