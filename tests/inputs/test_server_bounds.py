"""Bounds of servers that are learned, in topology files."""

from __future__ import annotations

import pytest

from spillover.inputs.topology_file import dump_topology, read_told, read_topology, told_text
from spillover.model.errors import InputError
from spillover.model.server_bounds import ServerBounds


@pytest.mark.parametrize(
    ("told", "min_", "max_"),
    [("auto", 1, 64), ("{min: 2, max: 32}", 2, 32), ("{max: 4}", 1, 4), ("{}", 1, 64)],
)
def test_bounds_of_servers_are_read_and_written(told: str, min_: int, max_: int) -> None:
    """Servers that are learned have bounds, by a word or as a mapping."""
    text = f'clusters: [{{id: a, servers: {told}, handler: "http:http://x:1/y"}}]'
    topology = read_topology(text, "f.yaml", "f")
    assert topology.clusters[0].bounds == ServerBounds(min=min_, max=max_)
    assert read_topology(dump_topology(topology), "f.yaml", "f").clusters == topology.clusters
    assert read_told(told_text(topology), "told", "f").clusters == topology.clusters


@pytest.mark.parametrize(
    ("rest", "expected"),
    [
        ("servers: {min: 5, max: 2}", "servers.max: expected at least min (5), got 2"),
        ("servers: {min: 0}", "servers.min: expected a number from 1 to 10000, got 0"),
        ("servers: {mim: 3}", "servers.mim: unknown field, did you mean min?"),
        ("servers: {min: 1.5}", "servers.min: expected a whole number, got 1.5"),
        ("servers: autos", "servers: expected a whole number, a list or auto, got 'autos'"),
        ("servers: auto, nodes: 2", "nodes: expected one node where servers are learned"),
    ],
)
def test_bad_bounds_of_servers_get_one_line(rest: str, expected: str) -> None:
    """Bounds that cannot hold are refused with the field and what was expected."""
    with pytest.raises(InputError) as caught:
        read_topology(f'clusters: [{{id: a, handler: "http:http://x:1/y", {rest}}}]', "f", "f")
    assert str(caught.value) == f"f: clusters[0].{expected}"


def test_servers_are_learned_only_of_services() -> None:
    """A handler that is no service has a number of servers."""
    with pytest.raises(InputError, match=r"servers: expected a number: it is learned only of an"):
        read_topology("clusters: [{id: a, servers: auto}]", "f", "f")
