"""What `dump_topology` writes reads back as the same topology."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spillover.inputs.topology_file import dump_topology, load_topology
from spillover.model.ids import ClusterId
from spillover.model.token_orders import ORDERS
from spillover.model.topology import Cluster, Link, Topology
from spillover.model.unlike_servers import DISCIPLINES, ON_BLOCK, JobType, Server, ServerClass
from spillover.policy.overflow.choosers import POLICY_NAMES

if TYPE_CHECKING:
    from pathlib import Path


def test_what_was_left_out_is_left_out_again(tmp_path: Path) -> None:
    """Of a pool, and of servers alike the fields that only pools have."""
    path = tmp_path / "short.yaml"
    path.write_text("clusters: [{id: a, servers: [{id: s}]}, {id: b, servers: 2}]\n")
    a, b = yaml.safe_load(dump_topology(load_topology(str(path))))["clusters"]
    assert a["servers"] == [{"id": "s", "rate": 1.0}]
    assert not {"classes", "types"} & a.keys()
    assert b["servers"] == 2
    assert not {"classes", "types", "on_block", "discipline"} & b.keys()


IDS = st.from_regex(r"[A-Za-z0-9._-]{1,8}|[0-9]{1,3}e[0-9]", fullmatch=True)
DURATIONS_MS = st.floats(min_value=0, max_value=1e9)
HANDLERS = st.sampled_from(["sleep", "spin", "python:jobs:run", "python:a.b.c:d_1", "http://h/x"])
PROCESSES = st.fixed_dictionaries(
    {"handler": st.just("python:jobs:run"), "workers": st.just("process")},
    optional={
        "memory_limit_bytes": st.integers(2**26, 2**53),
        "kill_after_ms": st.floats(min_value=0, max_value=1e9),
    },
)
RUNNERS = PROCESSES | st.fixed_dictionaries(
    {"handler": HANDLERS, "workers": st.sampled_from(["thread", "process"])}
)
URLS = st.none() | st.sampled_from(["http://127.0.0.1:8101", "http://[::1]:9", "http://node-a"])


@st.composite
def pools(draw: st.DrawFn) -> dict[str, Any]:
    """Unlike servers: each in a class, unless all are to be in one of their own."""
    servers = draw(st.lists(IDS, min_size=1, max_size=4, unique=True))
    classes: list[ServerClass] = []
    if draw(st.booleans()):
        shares = draw(st.lists(st.sets(st.sampled_from(servers), min_size=1), max_size=3))
        left = set(servers).difference(*shares)
        for share in (*shares, left) if left else shares:
            tokens = draw(st.none() | st.integers(1, 20))
            each = ServerClass(id=f"{len(classes)}", servers=tuple(sorted(share)), tokens=tokens)
            classes.append(each)
    known = st.sampled_from([each.id for each in classes] or servers)
    types = {kind: draw(st.sets(known, min_size=1)) for kind in draw(st.sets(IDS, max_size=3))}
    if types:  # a class that no type may join is refused
        next(iter(types.values())).update({each.id for each in classes} or servers)
    return {
        "servers": tuple(
            Server(
                id=server,
                rate=draw(st.floats(min_value=1e-3, max_value=1e9)),
                # At least one runs what the cluster's fields are about.
                handler=draw(st.none() | HANDLERS) if number else None,
            )
            for number, server in enumerate(servers)
        ),
        "classes": tuple(classes),
        "types": tuple(JobType(id=k, classes=tuple(sorted(may))) for k, may in types.items()),
        "order": draw(st.sampled_from(ORDERS)),
        "on_block": draw(st.sampled_from(ON_BLOCK)),
        "discipline": draw(st.sampled_from(DISCIPLINES)),
    }


@st.composite
def topologies(draw: st.DrawFn) -> Topology:
    """Any federation that the model allows and a file can hold."""
    ids = draw(st.lists(IDS.map(ClusterId), min_size=1, max_size=5, unique=True))
    urls = draw(st.lists(URLS, min_size=5, max_size=5, unique_by=lambda url: url or object()))
    pairs = [(a, b) for index, a in enumerate(ids) for b in ids[:index]]
    return Topology(
        name=draw(st.text(min_size=1).filter(str.isprintable)),
        policy=draw(st.sampled_from(POLICY_NAMES)),
        shadow=draw(st.none() | st.sampled_from(POLICY_NAMES)),
        gossip_period_ms=draw(st.floats(min_value=1, max_value=1e9)),
        max_hops=draw(st.integers(0, 100)),
        result_limit=draw(st.integers(0, 2**53)),
        clusters=tuple(
            Cluster(
                id=cluster_id,
                **draw(st.fixed_dictionaries({"servers": st.integers(1, 1000)}) | pools()),
                service_ms=draw(DURATIONS_MS),
                delivery_ms=draw(DURATIONS_MS),
                queue_limit=draw(st.integers(0, 10_000)),
                held_limit_bytes=draw(st.none() | st.integers(65_536, 2**53)),
                url=url,
                **draw(RUNNERS),
            )
            for cluster_id, url in zip(ids, urls, strict=False)
        ),
        links=tuple(
            Link(between=pair, delay_ms=draw(DURATIONS_MS)) for pair in pairs if draw(st.booleans())
        ),
    )


@pytest.mark.slow
@given(topology=topologies())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_dumped_topology_reads_back_equal(topology: Topology, tmp_path: Path) -> None:
    """What `dump_topology` writes, `load_topology` reads back as the same values."""
    path = tmp_path / "dumped.yaml"
    path.write_text(dump_topology(topology), encoding="utf-8")
    assert load_topology(str(path)) == topology
