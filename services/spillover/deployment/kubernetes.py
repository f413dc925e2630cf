"""A topology as Kubernetes manifests, for `kubectl apply -k`: a StatefulSet of its nodes and its
Services for each site, and what all sites share.

Clients come to the Service of a site, which knows only nodes that are ready. Neighbors come to the
pod by its own name, ready or not: a node that drains still has answers to give.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias

from spillover.deployment import containers, kubernetes_queue
from spillover.deployment.containers import (
    API_PORT,
    DRAIN_TIMEOUT_S,
    PEER_PORT,
    PROXY_PORT,
    ContainerNode,
)
from spillover.inputs.yaml_text import dump_yaml
from spillover.model.topology import Cluster, ClusterNode, Topology

KIND = "kubernetes"
SITE_FILES = "site-*.yaml"

LAME_DUCK_S = 5
"""The time between the decision to end a pod and the drain: until then, clients may still be sent
there."""

GRACE_S = LAME_DUCK_S + DRAIN_TIMEOUT_S + containers.DRAIN_SPARE_S

TLS_TOPOLOGY = "tls-topology.yaml"
"""A topology for which certificates are made; it is no manifest."""

TOKENS_SECRET = "api-tokens"  # noqa: S105 - a name

POD_VARIABLE = "SPILLOVER_POD"
"""The variable with the name of a pod, by which a node knows its number."""

_NAMESPACE = "spillover"
_TOPOLOGY = "spillover-topology"
_PART = {"app.kubernetes.io/name": "spillover"}
_SITE = "spillover.dev/site"

Manifest: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class KubernetesSettings:
    """The user's choices for manifests."""

    image: str = containers.IMAGE
    cpus: float = containers.CPUS
    memory_mb: int = containers.MEMORY_MB
    tls: bool = False
    """True where nodes have certificates: each site's are in the Secret `tls-ID`."""
    tokens: bool = False
    """True where a client must show an API token: one of the Secret TOKENS_SECRET."""
    producers: int = 0
    """The number of producers of the distributed queue, beside the sites."""


def inside(topology: Topology, *, tls: bool) -> Topology:
    """Returns the topology as the nodes read it."""
    scheme = containers.scheme(tls=tls)
    return containers.in_containers(
        topology, partial(_url, scheme=scheme), partial(_peer_url, scheme=scheme)
    )


def kubernetes_files(
    topology: Topology, settings: KubernetesSettings, source: str
) -> dict[str, str]:
    """Returns all manifests, by path beside the kustomization. Raises InputError, naming a field of
    `source`, where there cannot be certificates for all."""
    text = containers.topology_text(KIND, inside(topology, tls=settings.tls))
    shared = {
        "namespace.yaml": [_namespace()],
        "topology.yaml": [_config(text)],
        "disruption.yaml": [_disruption()],
        "network.yaml": [_network(has_doors=any(c.passes for c in topology.clusters))],
    }
    sites = {
        f"site-{cluster.id}.yaml": [
            _service(cluster),
            _peer_service(cluster.id),
            _stateful_set(cluster, settings, hashlib.sha256(text.encode()).hexdigest()[:16]),
        ]
        for cluster in topology.clusters
    }
    manifests = shared | sites
    if settings.producers:
        manifests[kubernetes_queue.FILE] = kubernetes_queue.queue_manifests(_of_queue(settings))
    files = {"kustomization.yaml": [_kustomization(list(manifests))], **manifests}
    heading = containers.heading(KIND, topology)
    made_for = {TLS_TOPOLOGY: _made_for(topology, settings, source)} if settings.tls else {}
    return made_for | {
        name: heading + "---\n".join(dump_yaml(document) for document in documents)
        for name, documents in files.items()
    }


def _made_for(topology: Topology, settings: KubernetesSettings, source: str) -> str:
    """Returns the topology for which certificates are made."""
    urls = kubernetes_queue.producer_urls(settings.producers, tls=True)
    read = inside(topology, tls=True)
    read = replace(read, clusters=tuple(map(_with_service, read.clusters)))
    return containers.topology_text(KIND, containers.with_others(read, source, urls))


def _with_service(cluster: Cluster) -> Cluster:
    """Returns a cluster of several nodes whose certificate is for its Service too, by which clients
    call them: as if there were one more node."""
    if not isinstance(cluster.nodes, tuple):
        return cluster
    service = f"https://{_name(cluster.id)}"
    one = ClusterNode(
        url=f"{service}:{API_PORT}", proxy_url=f"{service}:{PROXY_PORT}" if cluster.passes else None
    )
    nodes = (*cluster.nodes, one)
    return replace(cluster, nodes=nodes, servers=max(cluster.server_count, len(nodes)))


def _of_queue(settings: KubernetesSettings) -> kubernetes_queue.QueueSettings:
    return kubernetes_queue.QueueSettings(
        count=settings.producers,
        image=settings.image,
        cpus=settings.cpus,
        memory_mb=settings.memory_mb,
        tls=settings.tls,
        tokens_secret=TOKENS_SECRET if settings.tokens else None,
    )


def _url(node: ContainerNode, port: int, scheme: str) -> str:
    """Returns where clients reach a node: one of several has no Service of its own."""
    own = node.cluster
    return f"{scheme}://{_name(own.id) if own.node_count == 1 else _pod_name(node)}:{port}"


def _peer_url(node: ContainerNode, scheme: str) -> str:
    return f"{scheme}://{_pod_name(node)}:{PEER_PORT}"


def _pod_name(node: ContainerNode) -> str:
    """Returns the name of the pod of a node, which pods count from 0."""
    own = node.cluster.id
    return f"{_name(own)}-{node.number - 1}.{_peers_name(own)}"


def _name(cluster: str) -> str:
    """Returns the name of a cluster's objects, with letters in front: an id may begin with a digit,
    which a Service may not."""
    return f"node-{cluster}"


def _peers_name(cluster: str) -> str:
    """Returns the name of the Service for neighbors. It has a prefix of its own: other ids may end
    with any suffix."""
    return f"peers-{cluster}"


def _labels(cluster: str) -> dict[str, str]:
    return {**_PART, _SITE: cluster}


def _manifest(
    version: str, kind: str, name: str, labels: Mapping[str, str], **fields: Any
) -> Manifest:
    metadata = {"name": name, "labels": dict(labels)}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **fields}


# --- what all sites share ---------------------------------------------------------------------


def _kustomization(resources: list[str]) -> Manifest:
    """`kustomize edit set image` changes the image for all sites."""
    return {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "namespace": _NAMESPACE,
        "resources": resources,
    }


def _namespace() -> Manifest:
    enforced = {"pod-security.kubernetes.io/enforce": "restricted"}
    return _manifest("v1", "Namespace", _NAMESPACE, _PART | enforced)


def _config(text: str) -> Manifest:
    return _manifest("v1", "ConfigMap", _TOPOLOGY, _PART, data={"topology.yaml": text})


def _disruption() -> Manifest:
    """One site at a time: its neighbors take over what it hands on as it drains."""
    spec = {
        "maxUnavailable": 1,
        "unhealthyPodEvictionPolicy": "AlwaysAllow",
        "selector": {"matchLabels": dict(_PART)},
    }
    return _manifest("policy/v1", "PodDisruptionBudget", "spillover", _PART, spec=spec)


def _network(*, has_doors: bool) -> Manifest:
    """Returns the policy that lets only neighbors reach the peers' port: messages there have no
    password."""
    nodes = {"podSelector": {"matchLabels": dict(_PART)}}
    for_all = ["http", "proxy"] if has_doors else ["http"]
    spec = {
        "podSelector": {"matchLabels": dict(_PART)},
        "policyTypes": ["Ingress"],
        "ingress": [
            {"ports": [{"port": port, "protocol": "TCP"} for port in for_all]},
            {"ports": [{"port": "peers", "protocol": "TCP"}], "from": [nodes]},
        ],
    }
    return _manifest("networking.k8s.io/v1", "NetworkPolicy", "spillover", _PART, spec=spec)


# --- a site -----------------------------------------------------------------------------------


def _service(cluster: Cluster) -> Manifest:
    ports = {"http": API_PORT} | ({"proxy": PROXY_PORT} if cluster.passes else {})
    spec = {
        "selector": _labels(cluster.id),
        "ports": [
            {"name": name, "port": port, "targetPort": name, "protocol": "TCP"}
            for name, port in ports.items()
        ],
    }
    return _manifest("v1", "Service", _name(cluster.id), _labels(cluster.id), spec=spec)


def _peer_service(cluster: str) -> Manifest:
    spec = {
        "clusterIP": "None",
        "publishNotReadyAddresses": True,
        "selector": _labels(cluster),
        "ports": [{"name": "peers", "port": PEER_PORT, "targetPort": "peers", "protocol": "TCP"}],
    }
    return _manifest("v1", "Service", _peers_name(cluster), _labels(cluster), spec=spec)


def _stateful_set(cluster: Cluster, settings: KubernetesSettings, checksum: str) -> Manifest:
    """A pod for each node: a site is one queue. Its checksum makes a new topology restart them.

    Parallel, since the other policy waits for an old pod that never becomes ready instead of
    replacing it: then nothing but deleting it by hand would end a failed rollout.
    """
    labels = _labels(cluster.id)
    metrics = {
        "prometheus.io/scrape": "true",
        "prometheus.io/port": str(API_PORT),
        "prometheus.io/path": "/metrics",
    }
    if settings.tls:
        metrics["prometheus.io/scheme"] = "https"
    metadata = {
        "labels": labels,
        "annotations": {"spillover.dev/topology-sha256": checksum, **metrics},
    }
    spec = {
        "replicas": cluster.node_count,
        "podManagementPolicy": "Parallel",
        "serviceName": _peers_name(cluster.id),
        "selector": {"matchLabels": _labels(cluster.id)},
        "template": {"metadata": metadata, "spec": _pod(cluster, settings)},
    }
    return _manifest("apps/v1", "StatefulSet", _name(cluster.id), labels, spec=spec)


def _pod(cluster: Cluster, settings: KubernetesSettings) -> Manifest:
    apart = {
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": {"matchLabels": dict(_PART)},
        "maxSkew": 1,
        "whenUnsatisfiable": "ScheduleAnyway",
    }
    volumes: list[Manifest] = [
        {"name": "topology", "configMap": {"name": _TOPOLOGY}},
        {"name": "tmp", "emptyDir": {"sizeLimit": "64Mi"}},
    ]
    if settings.tls:
        secret = {
            "secretName": containers.secret_of(cluster.id),
            "defaultMode": containers.SECRET_MODE,
        }
        volumes.append({"name": "tls", "secret": secret})
    if settings.tokens:
        secret = {"secretName": TOKENS_SECRET, "defaultMode": containers.SECRET_MODE}
        volumes.append({"name": "tokens", "secret": secret})
    return {
        "terminationGracePeriodSeconds": GRACE_S,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "topologySpreadConstraints": [apart],
        "securityContext": dict(containers.POD_SECURITY),
        "containers": [_container(cluster, settings)],
        "volumes": volumes,
    }


def _container(cluster: Cluster, settings: KubernetesSettings) -> Manifest:
    """It needs no hook before SIGTERM: the node goes on to serve until the pod was taken off the
    Service everywhere, and drains then."""
    scheme = containers.scheme(tls=settings.tls)
    ports = {"http": API_PORT, "peers": PEER_PORT}
    if cluster.passes:
        ports["proxy"] = PROXY_PORT
    mounts: list[Manifest] = [
        {"name": "topology", "mountPath": containers.TOPOLOGY_PATH.rpartition("/")[0]},
        {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108 - of the container
    ]
    if settings.tls:
        mounts.append({"name": "tls", "mountPath": containers.TLS_PATH, "readOnly": True})
    if settings.tokens:
        mounts.append({"name": "tokens", "mountPath": containers.TOKENS_PATH, "readOnly": True})
    own_name = {"fieldRef": {"fieldPath": "metadata.name"}}
    pod = {"name": POD_VARIABLE, "valueFrom": own_name}
    memory = f"{containers.memory_mb(cluster, settings.memory_mb)}Mi"
    return {
        "name": "node",
        "image": settings.image,
        "imagePullPolicy": "IfNotPresent",
        "args": [
            *containers.node_command(
                cluster,
                f"$({POD_VARIABLE})",
                testbed=False,
                tls=settings.tls,
                tokens=settings.tokens,
            ),
            *("--lame-duck-s", str(LAME_DUCK_S)),
        ],
        "ports": [
            {"name": name, "containerPort": port, "protocol": "TCP"} for name, port in ports.items()
        ],
        **({"env": [pod]} if cluster.node_count > 1 else {}),
        "startupProbe": _probe("/healthz", scheme, period_s=1, failures=60),
        "livenessProbe": _probe("/healthz", scheme, period_s=10, failures=3),
        "readinessProbe": _probe("/readyz", scheme, period_s=2, failures=1),
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


def _probe(path: str, scheme: str, *, period_s: int, failures: int) -> Manifest:
    secure = {"scheme": "HTTPS"} if scheme == "https" else {}
    return {
        "httpGet": {"path": path, "port": "http", **secure},
        "periodSeconds": period_s,
        "timeoutSeconds": 2,
        "failureThreshold": failures,
    }
