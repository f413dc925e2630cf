"""Producers of the distributed queue as Kubernetes manifests: a StatefulSet whose pods know each
other by their names, with a volume each for their objects, and the Services for them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

from spillover.deployment import containers
from spillover.deployment.containers import API_PORT, DRAIN_TIMEOUT_S

FILE = "queue.yaml"

BUFFERS = 100
STORAGE = "10Gi"
"""The volume of each producer: its buffer, granted objects, and dead objects of up to 16 MiB
each."""

GRACE_S = DRAIN_TIMEOUT_S + containers.DRAIN_SPARE_S

_NAME, _PEERS = "queue", "queue-peers"
_LABELS = {"app.kubernetes.io/name": "spillover-queue"}

Manifest: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSettings:
    """The user's choices for the queue."""

    count: int
    image: str
    cpus: float
    memory_mb: int
    tls: bool = False
    """True where each producer has a certificate: of its Secret, `tls-queue-0` and so on."""
    tokens_secret: str | None = None
    """The name of a Secret: only who shows an API token of it is let in. None lets in everybody."""


def queue_manifests(settings: QueueSettings) -> list[Manifest]:
    """Returns those of so many producers: queue-0, queue-1 and so on."""
    return [_service(), _peer_service(), _disruption(), _network(), _stateful_set(settings)]


def producer_urls(count: int, *, tls: bool) -> dict[str, str]:
    """Returns where pods reach each producer, by id."""
    scheme, names = containers.scheme(tls=tls), [f"{_NAME}-{number}" for number in range(count)]
    return {name: f"{scheme}://{name}.{_PEERS}:{API_PORT}" for name in names}


def _service() -> Manifest:
    """Returns the Service for whoever brings objects to any producer, or asks any for one."""
    return _service_named(_NAME, {})


def _peer_service() -> Manifest:
    """A name for each pod, ready or not: one that drains still gives away what it has."""
    return _service_named(_PEERS, {"clusterIP": "None", "publishNotReadyAddresses": True})


def _service_named(name: str, more: Manifest) -> Manifest:
    ports = [{"name": "http", "port": API_PORT, "targetPort": "http", "protocol": "TCP"}]
    return _manifest("v1", "Service", name, {**more, "selector": dict(_LABELS), "ports": ports})


def _disruption() -> Manifest:
    spec = {"maxUnavailable": 1, "selector": {"matchLabels": dict(_LABELS)}}
    return _manifest("policy/v1", "PodDisruptionBudget", _NAME, spec)


def _network() -> Manifest:
    """Consumers call each producer, and producers each other, all at one port; nothing else may be
    reached. Who may call at all is for the cluster to say, or for API tokens."""
    spec = {
        "podSelector": {"matchLabels": dict(_LABELS)},
        "policyTypes": ["Ingress"],
        "ingress": [{"ports": [{"port": "http", "protocol": "TCP"}]}],
    }
    return _manifest("networking.k8s.io/v1", "NetworkPolicy", _NAME, spec)


def _stateful_set(settings: QueueSettings) -> Manifest:
    claim = {
        "metadata": {"name": "objects"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": STORAGE}},
        },
    }
    metrics = {
        "prometheus.io/scrape": "true",
        "prometheus.io/port": str(API_PORT),
        "prometheus.io/path": "/metrics",
    }
    volumes: list[Manifest] = [{"name": "tmp", "emptyDir": {"sizeLimit": "64Mi"}}]
    if settings.tls:
        metrics["prometheus.io/scheme"] = "https"
        volumes.append({"name": "tls", "projected": _certificates(settings.count)})
    if settings.tokens_secret is not None:
        secret = {"secretName": settings.tokens_secret, "defaultMode": containers.SECRET_MODE}
        volumes.append({"name": "tokens", "secret": secret})
    pod = {
        "terminationGracePeriodSeconds": GRACE_S,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        # A new volume is root's. Its group may write, too, which is one of the process then.
        "securityContext": {**containers.POD_SECURITY, "fsGroup": containers.USER_ID},
        "containers": [_container(settings)],
        "volumes": volumes,
    }
    spec = {
        "replicas": settings.count,
        "podManagementPolicy": "Parallel",
        "serviceName": _PEERS,
        "selector": {"matchLabels": dict(_LABELS)},
        "template": {"metadata": {"labels": dict(_LABELS), "annotations": metrics}, "spec": pod},
        "volumeClaimTemplates": [claim],
    }
    return _manifest("apps/v1", "StatefulSet", _NAME, spec)


def _certificates(count: int) -> Manifest:
    """A directory of each producer's: the pods of a StatefulSet are alike, and cannot mount one
    Secret each."""
    sources = []
    for name in producer_urls(count, tls=True):
        items = [{"key": file, "path": f"{name}/{file}"} for file in containers.TLS_FILES.values()]
        sources.append({"secret": {"name": containers.secret_of(name), "items": items}})
    return {"sources": sources, "defaultMode": containers.SECRET_MODE}


def _container(settings: QueueSettings) -> Manifest:
    command = ["queue", "--id", "$(POD)", "--bind", containers.bind(API_PORT)]
    for name, url in producer_urls(settings.count, tls=settings.tls).items():
        command += ["--peer", f"{name}={url}"]
    command += ["--buffers", str(BUFFERS), "--store", f"{containers.STORE_PATH}/objects"]
    mounts: list[Manifest] = [
        {"name": "objects", "mountPath": containers.STORE_PATH},
        {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108 - of the container
    ]
    if settings.tls:
        command += containers.tls_options(f"{containers.TLS_PATH}/$(POD)")
        mounts.append({"name": "tls", "mountPath": containers.TLS_PATH, "readOnly": True})
    if settings.tokens_secret is not None:
        at = containers.TOKENS_PATH
        command += ["--tokens", f"{at}/{containers.TOKENS_FILE}"]
        command += ["--token-file", f"{at}/{containers.PRODUCERS_FILE}"]
        mounts.append({"name": "tokens", "mountPath": at, "readOnly": True})
    secure = {"scheme": "HTTPS"} if settings.tls else {}
    memory = f"{settings.memory_mb}Mi"
    pod_name = {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}}
    return {
        "name": "producer",
        "image": settings.image,
        "imagePullPolicy": "IfNotPresent",
        "args": command,
        "env": [{"name": "POD", "valueFrom": pod_name}],
        "ports": [{"name": "http", "containerPort": API_PORT, "protocol": "TCP"}],
        "startupProbe": _probe("/healthz", secure, period_s=1, failures=60),
        "livenessProbe": _probe("/healthz", secure, period_s=10, failures=3),
        "readinessProbe": _probe("/readyz", secure, period_s=2, failures=1),
        "resources": {
            "requests": {"cpu": "100m", "memory": memory},
            "limits": {"cpu": f"{settings.cpus * 1000:.0f}m", "memory": memory},
        },
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": mounts,
    }


def _probe(path: str, secure: Manifest, *, period_s: int, failures: int) -> Manifest:
    return {
        "httpGet": {"path": path, "port": "http", **secure},
        "periodSeconds": period_s,
        "timeoutSeconds": 2,
        "failureThreshold": failures,
    }


def _manifest(version: str, kind: str, name: str, spec: Manifest) -> Manifest:
    metadata = {"name": name, "labels": dict(_LABELS)}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}
