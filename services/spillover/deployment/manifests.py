"""The common parts of Kubernetes manifests, those of nodes (`kubernetes`) and those of producers of
the queue (`kubernetes_queue`): what both are, they are alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from spillover.deployment import containers

TOKENS_SECRET = "api-tokens"  # noqa: S105 - a name

POD_SECURITY: Mapping[str, object] = {
    "runAsNonRoot": True,
    "seccompProfile": {"type": "RuntimeDefault"},
}
"""The user is the image's, or the one that a cluster chooses for a namespace, as OpenShift does."""

Manifest: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class KubernetesSettings:
    """The user's choices for manifests."""

    image: str = containers.IMAGE
    cpus: float = containers.CPUS
    memory_mb: int = containers.MEMORY_MB
    tls: bool = False
    """True where nodes have certificates: each site's are in the Secret `tls-ID`, and each
    producer's in `tls-queue-0` and so on."""
    tokens: bool = False
    """True where a client must show an API token: one of the Secret TOKENS_SECRET."""
    producers: int = 0
    """The number of producers of the distributed queue, beside the sites."""


def manifest(
    version: str, kind: str, name: str, labels: Mapping[str, str], **fields: Any
) -> Manifest:
    """Returns an object of this kind."""
    metadata = {"name": name, "labels": dict(labels)}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **fields}


def service(
    name: str, labels: Mapping[str, str], ports: Mapping[str, int], **more: object
) -> Manifest:
    """Returns a Service for the pods with these labels, at these of their ports."""
    listed = [
        {"name": each, "port": port, "targetPort": each, "protocol": "TCP"}
        for each, port in ports.items()
    ]
    spec = {**more, "selector": dict(labels), "ports": listed}
    return manifest("v1", "Service", name, labels, spec=spec)


def peers_service(name: str, labels: Mapping[str, str], ports: Mapping[str, int]) -> Manifest:
    """Returns a Service that gives each pod a name, ready or not: one that drains still has answers
    to give, and objects."""
    return service(name, labels, ports, clusterIP="None", publishNotReadyAddresses=True)


def network(name: str, labels: Mapping[str, str], *ingress: Manifest) -> Manifest:
    """Returns the policy that lets nothing but this reach the pods with these labels."""
    spec = {
        "podSelector": {"matchLabels": dict(labels)},
        "policyTypes": ["Ingress"],
        "ingress": list(ingress),
    }
    return manifest("networking.k8s.io/v1", "NetworkPolicy", name, labels, spec=spec)


def stateful_set(
    name: str,
    labels: Mapping[str, str],
    pod: Manifest,
    *,
    replicas: int,
    peers: str,
    annotations: Mapping[str, str],
    **more: object,
) -> Manifest:
    """Returns so many pods, whose names are those of the Service `peers`.

    Parallel, since the other policy waits for an old pod that never becomes ready instead of
    replacing it: then nothing but deleting it by hand would end a failed rollout.
    """
    spec = {
        "replicas": replicas,
        "podManagementPolicy": "Parallel",
        "serviceName": peers,
        "selector": {"matchLabels": dict(labels)},
        "template": {
            "metadata": {"labels": dict(labels), "annotations": dict(annotations)},
            "spec": pod,
        },
        **more,
    }
    return manifest("apps/v1", "StatefulSet", name, labels, spec=spec)


def scraped(settings: KubernetesSettings) -> dict[str, str]:
    """Returns the annotations by which Prometheus finds a pod."""
    found = {
        "prometheus.io/scrape": "true",
        "prometheus.io/port": str(containers.API_PORT),
        "prometheus.io/path": "/metrics",
    }
    return {**found, "prometheus.io/scheme": "https"} if settings.tls else found


def pod(
    grace_s: int,
    container: Manifest,
    settings: KubernetesSettings,
    *,
    own: Sequence[Manifest] = (),
    certificates: Manifest,
    security: Mapping[str, object] = POD_SECURITY,
    **more: object,
) -> Manifest:
    """Returns a pod of one container with its `own` volumes, one for temporary files, that of its
    `certificates`, and that of API tokens, as far as it has these."""
    volumes = [*own, {"name": "tmp", "emptyDir": {"sizeLimit": "64Mi"}}]
    if settings.tls:
        volumes.append({"name": "tls", **certificates})
    if settings.tokens:
        secret = {"secretName": TOKENS_SECRET, "defaultMode": containers.SECRET_MODE}
        volumes.append({"name": "tokens", "secret": secret})
    return {
        "terminationGracePeriodSeconds": grace_s,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        **more,
        "securityContext": dict(security),
        "containers": [container],
        "volumes": volumes,
    }


def container(
    name: str,
    command: list[str],
    settings: KubernetesSettings,
    *,
    memory_mb: int,
    own: Manifest,
    **more: object,
) -> Manifest:
    """Returns a container that runs this command of `spillover`; `own` is where its own volume is
    mounted."""
    mounts: list[Manifest] = [own, {"name": "tmp", "mountPath": "/tmp"}]  # noqa: S108 - of the container
    if settings.tls:
        mounts.append({"name": "tls", "mountPath": containers.TLS_PATH, "readOnly": True})
    if settings.tokens:
        mounts.append({"name": "tokens", "mountPath": containers.TOKENS_PATH, "readOnly": True})
    secure = {"scheme": "HTTPS"} if settings.tls else {}
    memory = f"{memory_mb}Mi"

    def probe(path: str, period_s: int, failures: int) -> Manifest:
        return {
            "httpGet": {"path": path, "port": "http", **secure},
            "periodSeconds": period_s,
            "timeoutSeconds": 2,
            "failureThreshold": failures,
        }

    return {
        "name": name,
        "image": settings.image,
        "imagePullPolicy": "IfNotPresent",
        "args": command,
        **more,
        "startupProbe": probe("/healthz", 1, 60),
        "livenessProbe": probe("/healthz", 10, 3),
        "readinessProbe": probe("/readyz", 2, 1),
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


def container_ports(ports: Mapping[str, int]) -> list[Manifest]:
    """Returns the ports of a container, by their names."""
    return [
        {"name": each, "containerPort": port, "protocol": "TCP"} for each, port in ports.items()
    ]
