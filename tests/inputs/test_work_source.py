"""What says how large requests are, in topology files."""

from __future__ import annotations

import pytest

from spillover.inputs.topology_file import dump_topology, read_told, read_topology, told_text
from spillover.model.errors import InputError
from spillover.model.work_source import WorkSource

FORMS = "expected 1, bytes, {header: NAME} or {json: FIELD, prompt: FIELD}"


@pytest.mark.parametrize(
    ("told", "source"),
    [
        ("1", None),
        ("bytes", WorkSource(bytes=True)),
        ("{header: X-Work}", WorkSource(header="X-Work")),
        ("{json: max_tokens}", WorkSource(json="max_tokens")),
        ("{json: max_tokens, prompt: a}", WorkSource(json="max_tokens", prompt="a")),
    ],
)
def test_sources_of_work_are_read_and_written(told: str, source: WorkSource | None) -> None:
    text = (
        f'clusters: [{{id: a, servers: 1, handler: "proxy:http://x:1", proxy_url: "http://x:2", '
        f"work: {told}, routes: [{{path: /v1, work: {told}}}]}}]"
    )
    topology = read_topology(text, "f.yaml", "f")
    (cluster,) = topology.clusters
    of_route = source or WorkSource(counted=True)  # even where the cluster has another one
    assert (cluster.work, cluster.routes[0].work) == (source, of_route)
    assert read_topology(dump_topology(topology), "f.yaml", "f").clusters == topology.clusters
    assert read_told(told_text(topology), "told", "f").clusters == topology.clusters


@pytest.mark.parametrize(
    ("rest", "expected"),
    [
        ("work: 2", f"work: {FORMS}, got 2"),
        ("work: true", f"work: {FORMS}, got true"),
        ("work: {size: x}", f"work: {FORMS}, got a mapping"),
        ("work: {json: 3}", f"work: {FORMS}, got a mapping"),
        ("work: {json: a, header: b}", f"work: {FORMS}, got a mapping"),
        ("work: {counted: 1}", f"work: {FORMS}, got a mapping"),
        ("work: {bytes: x, header: X}", f"work: {FORMS}, got a mapping"),
        ("work: {}", f"work: {FORMS}, got a mapping"),
        (
            "work: {header: X}",
            "work: expected no header: requests have headers with a proxy: handler",
        ),
        (
            "work: bytes, servers: 2, nodes: 2",
            "work: expected only along with equal servers and one node",
        ),
    ],
)
def test_bad_sources_of_work_get_one_line(rest: str, expected: str) -> None:
    servers = "" if "servers" in rest else "servers: 1, "
    with pytest.raises(InputError) as caught:
        read_topology(f"clusters: [{{id: a, {servers}{rest}}}]", "f", "f")
    assert str(caught.value) == f"f: clusters[0].{expected}"
