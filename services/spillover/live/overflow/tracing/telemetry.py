"""A node's tracing by OpenTelemetry, all of it, as its environment variables say."""

from __future__ import annotations

import os

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.environment_variables import (
    OTEL_EXPORTER_OTLP_PROTOCOL,
    OTEL_EXPORTER_OTLP_TRACES_PROTOCOL,
    OTEL_SDK_DISABLED,
)
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider

from spillover import __version__
from spillover.live.overflow.tracing.sampling import EnvironmentSampler
from spillover.live.overflow.tracing.sending import SpanSender
from spillover.live.overflow.tracing.spans import SpanMaker
from spillover.live.overflow.tracing.watching import StatusOf, Tracing
from spillover.model.topology import Cluster

HTTP = "http/protobuf"


def make_tracing(federation: str, cluster: Cluster, status_of: StatusOf) -> Tracing | None:
    """Returns what traces a node, its thread started; None where OTEL_SDK_DISABLED says so. Raises
    ValueError where the variables say what cannot be done."""
    if os.environ.get(OTEL_SDK_DISABLED, "").strip().lower() == "true":
        return None
    for variable in (OTEL_EXPORTER_OTLP_TRACES_PROTOCOL, OTEL_EXPORTER_OTLP_PROTOCOL):
        protocol = os.environ.get(variable) or HTTP
        if protocol != HTTP:
            raise ValueError(f"{variable}: expected {HTTP}, got {protocol!r}")
    provider = TracerProvider(resource=_resource(federation, cluster), shutdown_on_exit=False)
    sampler = EnvironmentSampler(provider)
    make = SpanMaker(provider.resource, cluster, sampler.span_id).spans
    sender = SpanSender(make, OTLPSpanExporter())
    sender.start()
    return Tracing(sampler, sender, status_of)


def _resource(federation: str, cluster: Cluster) -> Resource:
    """Who tells: this node, unless the environment has other words for it."""
    own = {
        "service.name": "spillover",
        "service.namespace": federation,
        "service.instance.id": cluster.id,
        "service.version": __version__,
    }
    return Resource.create({**own, **OTELResourceDetector().detect().attributes})
