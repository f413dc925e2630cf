"""Producers of the distributed queue as Kubernetes manifests: a StatefulSet whose pods know each
other by their names, with a volume each for their objects, and the Services for them.
"""

from __future__ import annotations

from spillover.deployment import containers, manifests
from spillover.deployment.containers import API_PORT, DRAIN_TIMEOUT_S
from spillover.deployment.manifests import POD_SECURITY, KubernetesSettings, Manifest

FILE = "queue.yaml"

BUFFERS = 100
STORAGE = "10Gi"
"""The volume of each producer: its buffer, granted objects, and dead objects of up to 16 MiB
each."""

GRACE_S = DRAIN_TIMEOUT_S + containers.DRAIN_SPARE_S

_NAME, _PEERS = "queue", "queue-peers"
_LABELS = {"app.kubernetes.io/name": "spillover-queue"}
_PORTS = {"http": API_PORT}


def queue_manifests(settings: KubernetesSettings) -> list[Manifest]:
    """Returns those of so many producers: queue-0, queue-1 and so on.

    Whoever brings objects or asks for one comes to the Service `queue`, and producers to each other
    by name, all at one port. Who may call at all is for the cluster to say, or for API tokens.
    """
    disruption = {"maxUnavailable": 1, "selector": {"matchLabels": dict(_LABELS)}}
    return [
        manifests.service(_NAME, _LABELS, _PORTS),
        manifests.peers_service(_PEERS, _LABELS, _PORTS),
        manifests.manifest("policy/v1", "PodDisruptionBudget", _NAME, _LABELS, spec=disruption),
        manifests.network(_NAME, _LABELS, {"ports": [{"port": "http", "protocol": "TCP"}]}),
        _stateful_set(settings),
    ]


def producer_urls(count: int, *, tls: bool) -> dict[str, str]:
    """Returns where pods reach each producer, by id."""
    scheme, names = containers.scheme(tls=tls), [f"{_NAME}-{number}" for number in range(count)]
    return {name: f"{scheme}://{name}.{_PEERS}:{API_PORT}" for name in names}


def _stateful_set(settings: KubernetesSettings) -> Manifest:
    claim = {
        "metadata": {"name": "objects"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": STORAGE}},
        },
    }
    pod = manifests.pod(
        GRACE_S,
        _container(settings),
        settings,
        certificates={"projected": _certificates(settings.producers)},
        # A new volume is root's. Its group may write, too, which is one of the process then.
        security={**POD_SECURITY, "fsGroup": containers.USER_ID},
    )
    return manifests.stateful_set(
        _NAME,
        _LABELS,
        pod,
        replicas=settings.producers,
        peers=_PEERS,
        annotations=manifests.scraped(settings),
        volumeClaimTemplates=[claim],
    )


def _certificates(count: int) -> Manifest:
    """A directory of each producer's: the pods of a StatefulSet are alike, and cannot mount one
    Secret each."""
    sources = []
    for name in producer_urls(count, tls=True):
        items = [{"key": file, "path": f"{name}/{file}"} for file in containers.TLS_FILES.values()]
        sources.append({"secret": {"name": containers.secret_of(name), "items": items}})
    return {"sources": sources, "defaultMode": containers.SECRET_MODE}


def _container(settings: KubernetesSettings) -> Manifest:
    command = ["queue", "--id", "$(POD)", "--bind", containers.bind(API_PORT)]
    for name, url in producer_urls(settings.producers, tls=settings.tls).items():
        command += ["--peer", f"{name}={url}"]
    command += ["--buffers", str(BUFFERS), "--store", f"{containers.STORE_PATH}/objects"]
    if settings.tls:
        command += containers.tls_options(f"{containers.TLS_PATH}/$(POD)")
    if settings.tokens:
        at = containers.TOKENS_PATH
        command += ["--tokens", f"{at}/{containers.TOKENS_FILE}"]
        command += ["--token-file", f"{at}/{containers.PRODUCERS_FILE}"]
    pod_name = {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}}
    return manifests.container(
        "producer",
        command,
        settings,
        memory_mb=settings.memory_mb,
        own={"name": "objects", "mountPath": containers.STORE_PATH},
        env=[{"name": "POD", "valueFrom": pod_name}],
        ports=manifests.container_ports(_PORTS),
    )
