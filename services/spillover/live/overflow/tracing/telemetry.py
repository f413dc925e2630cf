"""The tracing of a node by OpenTelemetry, as its environment variables say."""

from __future__ import annotations

import os
import re
from typing import Any

import requests
from opentelemetry.exporter.otlp.proto.http.trace_exporter import (
    DEFAULT_ENDPOINT,
    OTLPSpanExporter,
)
from opentelemetry.sdk.environment_variables import (
    OTEL_EXPORTER_OTLP_ENDPOINT,
    OTEL_EXPORTER_OTLP_PROTOCOL,
    OTEL_EXPORTER_OTLP_TRACES_ENDPOINT,
    OTEL_EXPORTER_OTLP_TRACES_PROTOCOL,
    OTEL_SDK_DISABLED,
)
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider

from spillover import __version__
from spillover.live.overflow.tracing.proxies import proxy_of
from spillover.live.overflow.tracing.sampling import EnvironmentSampler
from spillover.live.overflow.tracing.sending import SpanSender
from spillover.live.overflow.tracing.spans import SpanMaker
from spillover.live.overflow.tracing.watching import StatusOf, Tracing
from spillover.model.addresses import is_plain_url, shown
from spillover.model.topology import Cluster

OTEL_TRACES_EXPORTER, NONE, OTLP = "OTEL_TRACES_EXPORTER", "none", "otlp"
"""The variable, and the exporters that it may name."""

HTTP = "http/protobuf"


def make_tracing(federation: str, cluster: Cluster, status_of: StatusOf) -> Tracing | None:
    """Returns the tracing of a node, with its thread started; None where the variables turn it off.
    Raises ValueError for variables that ask for the impossible."""
    if _is_off():
        return None
    for variable in (OTEL_EXPORTER_OTLP_TRACES_PROTOCOL, OTEL_EXPORTER_OTLP_PROTOCOL):
        protocol = os.environ.get(variable) or HTTP
        if protocol != HTTP:
            raise ValueError(f"{variable}: expected {HTTP}, got {protocol!r}")
    session = _session(_endpoint())
    provider = TracerProvider(resource=_resource(federation, cluster), shutdown_on_exit=False)
    sampler = EnvironmentSampler(provider)
    make = SpanMaker(provider.resource, cluster, sampler.span_id).spans
    sender = SpanSender(make, OTLPSpanExporter(session=session))
    sender.start()
    return Tracing(sampler, sender, status_of)


def _is_off() -> bool:
    """Returns whether tracing is off. Raises ValueError for an exporter that is not here."""
    if os.environ.get(OTEL_SDK_DISABLED, "").strip().lower() == "true":
        return True
    told = os.environ.get(OTEL_TRACES_EXPORTER) or OTLP
    exporter = told.strip().lower()
    if exporter not in (OTLP, NONE):
        raise ValueError(f"{OTEL_TRACES_EXPORTER}: expected {OTLP} or {NONE}, got {shown(told)}")
    return exporter == NONE


def _session(endpoint: str) -> requests.Session | None:
    """Returns the session, or None where the environment names a plugin that makes one, with
    credentials."""
    if any(name.endswith("_CREDENTIAL_PROVIDER") for name in os.environ):
        return None
    return _Session(endpoint)


def _endpoint() -> str:
    """Returns where spans go. Raises ValueError for an endpoint to which none could ever be
    sent."""
    for variable in (OTEL_EXPORTER_OTLP_TRACES_ENDPOINT, OTEL_EXPORTER_OTLP_ENDPOINT):
        if told := os.environ.get(variable):
            without_user = re.sub(r"^(\w+://)?[^/?#]*@", r"\1", told)
            origin = re.split(r"(?<![:/])[/?#]", without_user)[0]
            if not is_plain_url(origin):
                hint = "" if "://" in told else f", did you mean {shown(f'http://{without_user}')}?"
                expected = f"{variable}: expected http(s)://HOST[:PORT][/PATH]"
                raise ValueError(f"{expected}, got {shown(without_user)}{hint}")
            return told
    return DEFAULT_ENDPOINT


class _Session(requests.Session):
    """Sends to one collector, through the proxy that the environment names for it."""

    def __init__(self, endpoint: str) -> None:
        super().__init__()
        proxy = proxy_of(endpoint, os.environ)
        self._through = {} if proxy is None else {"http": proxy, "https": proxy}

    def merge_environment_settings(self, *told: Any, **named: Any) -> Any:
        """Returns the settings of `requests`, but for the proxies."""
        return {**super().merge_environment_settings(*told, **named), "proxies": self._through}


def _resource(federation: str, cluster: Cluster) -> Resource:
    """Returns the resource: this node, unless the environment has other words for it."""
    own = {
        "service.name": "spillover",
        "service.namespace": federation,
        "service.instance.id": cluster.id,
        "service.version": __version__,
    }
    return Resource.create({**own, **OTELResourceDetector().detect().attributes})
