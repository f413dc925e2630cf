"""A topology as Kubernetes manifests, for `kubectl apply -k`: a StatefulSet of its nodes and its
Services for each site, and what all sites share.

Clients come to the Service of a site, which knows only nodes that are ready. Neighbors come to the
pod by its own name, ready or not: a node that drains still has answers to give.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from functools import partial

from spillover.deployment import containers, kubernetes_queue, manifests
from spillover.deployment.containers import (
    API_PORT,
    DRAIN_TIMEOUT_S,
    PEER_PORT,
    PROXY_PORT,
    ContainerNode,
)
from spillover.deployment.manifests import KubernetesSettings, Manifest
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

POD_VARIABLE = "SPILLOVER_POD"
"""The variable with the name of a pod, by which a node knows its number."""

_NAMESPACE = "spillover"
_TOPOLOGY = "spillover-topology"
_PART = {"app.kubernetes.io/name": "spillover"}
_SITE = "spillover.dev/site"


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
    written = shared | sites
    if settings.producers:
        written[kubernetes_queue.FILE] = kubernetes_queue.queue_manifests(settings)
    files = {"kustomization.yaml": [_kustomization(list(written))], **written}
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
    return manifests.manifest("v1", "Namespace", _NAMESPACE, _PART | enforced)


def _config(text: str) -> Manifest:
    return manifests.manifest("v1", "ConfigMap", _TOPOLOGY, _PART, data={"topology.yaml": text})


def _disruption() -> Manifest:
    """One site at a time: its neighbors take over what it hands on as it drains."""
    spec = {
        "maxUnavailable": 1,
        "unhealthyPodEvictionPolicy": "AlwaysAllow",
        "selector": {"matchLabels": dict(_PART)},
    }
    return manifests.manifest("policy/v1", "PodDisruptionBudget", "spillover", _PART, spec=spec)


def _network(*, has_doors: bool) -> Manifest:
    """Returns the policy that lets only neighbors reach the peers' port: messages there have no
    password."""
    nodes = {"podSelector": {"matchLabels": dict(_PART)}}
    for_all = ["http", "proxy"] if has_doors else ["http"]
    return manifests.network(
        "spillover",
        _PART,
        {"ports": [{"port": port, "protocol": "TCP"} for port in for_all]},
        {"ports": [{"port": "peers", "protocol": "TCP"}], "from": [nodes]},
    )


# --- a site -----------------------------------------------------------------------------------


def _service(cluster: Cluster) -> Manifest:
    ports = {"http": API_PORT} | ({"proxy": PROXY_PORT} if cluster.passes else {})
    return manifests.service(_name(cluster.id), _labels(cluster.id), ports)


def _peer_service(cluster: str) -> Manifest:
    return manifests.peers_service(_peers_name(cluster), _labels(cluster), {"peers": PEER_PORT})


def _stateful_set(cluster: Cluster, settings: KubernetesSettings, checksum: str) -> Manifest:
    """A pod for each node: a site is one queue. Its checksum makes a new topology restart them."""
    return manifests.stateful_set(
        _name(cluster.id),
        _labels(cluster.id),
        _pod(cluster, settings),
        replicas=cluster.node_count,
        peers=_peers_name(cluster.id),
        annotations={"spillover.dev/topology-sha256": checksum, **manifests.scraped(settings)},
    )


def _pod(cluster: Cluster, settings: KubernetesSettings) -> Manifest:
    apart = {
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": {"matchLabels": dict(_PART)},
        "maxSkew": 1,
        "whenUnsatisfiable": "ScheduleAnyway",
    }
    secret = {
        "secretName": containers.secret_of(cluster.id),
        "defaultMode": containers.SECRET_MODE,
    }
    return manifests.pod(
        GRACE_S,
        _container(cluster, settings),
        settings,
        own=[{"name": "topology", "configMap": {"name": _TOPOLOGY}}],
        certificates={"secret": secret},
        topologySpreadConstraints=[apart],
    )


def _container(cluster: Cluster, settings: KubernetesSettings) -> Manifest:
    """It needs no hook before SIGTERM: the node goes on to serve until the pod was taken off the
    Service everywhere, and drains then."""
    ports = {"http": API_PORT, "peers": PEER_PORT}
    if cluster.passes:
        ports["proxy"] = PROXY_PORT
    node, tls, tokens = f"$({POD_VARIABLE})", settings.tls, settings.tokens
    command = containers.node_command(cluster, node, testbed=False, tls=tls, tokens=tokens)
    own_name = {"fieldRef": {"fieldPath": "metadata.name"}}
    pod = {"name": POD_VARIABLE, "valueFrom": own_name}
    return manifests.container(
        "node",
        [*command, "--lame-duck-s", str(LAME_DUCK_S)],
        settings,
        memory_mb=containers.memory_mb(cluster, settings.memory_mb),
        own={"name": "topology", "mountPath": containers.TOPOLOGY_PATH.rpartition("/")[0]},
        ports=manifests.container_ports(ports),
        **({"env": [pod]} if cluster.node_count > 1 else {}),
    )
