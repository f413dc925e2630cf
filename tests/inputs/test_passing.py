"""Clusters in front of a service: the handler `proxy:`, its address, its routes, and the line for
what is wrong with them."""

import pytest

from spillover.inputs.topology_file import dump_topology, read_topology
from spillover.model.errors import InputError
from spillover.model.routes import Route
from spillover.model.topology import Cluster, Topology
from spillover.model.upstream_urls import passed_to
from spillover.testbed.ports import with_addresses

PROXY = 'handler: "proxy:http://127.0.0.1:9000"'


def load(fields, handler=PROXY, servers="2"):
    text = f"clusters:\n  - {{id: a, servers: {servers}, {handler}{fields}}}\n"
    return read_topology(text, "file", "t")


def test_what_is_read_is_written_again():
    routes = "[{path: /v1/, methods: [POST], type: llm, deadline_ms: 30000}, {path: /health, "
    routes += "unqueued: true, sse_error_event: true}]"
    topology = load(
        f", routes: {routes}, passed_body_limit_bytes: 5, proxy_url: 'http://h:9', url: 'http://h'"
    )
    (cluster,) = topology.clusters
    assert cluster.passes
    assert cluster.routes == (
        Route(path="/v1/", methods=("POST",), type="llm", deadline_ms=30_000),
        Route(path="/health", unqueued=True, sse_error_event=True),
    )
    assert (cluster.passed_body_limit_bytes, cluster.proxy_url) == (5, "http://h:9")
    assert read_topology(dump_topology(topology), "file", "t").clusters == topology.clusters


def test_a_cluster_that_passes_nothing_is_written_as_ever():
    text = dump_topology(load("", handler="handler: sleep"))
    assert "routes" not in text
    assert "passed_body_limit_bytes" not in text


PLAIN = "handler: sleep"
UNLIKE = "[{id: s, handler: sleep}, {id: t}]"
ALONG = "expected only along with a proxy: handler"
BAD = [
    (("", "handler: 'proxy:http://h/x'"), "handler: expected http://HOST[:PORT] without a path, "),
    (("", "handler: 'proxy:'"), "handler: expected proxy:URL[,URL...], got an empty URL"),
    ((", routes: [{type: a}]",), "routes[0].path: expected a value, the field is missing"),
    ((", routes: [{path: v1}]",), "routes[0].path: expected a path that starts with /, got 'v1'"),
    ((", routes: [{path: /, methods: [GET POST]}]",), "routes[0].methods: expected methods such "),
    ((", routes: [{path: /, deadline_ms: 0}]",), "routes[0].deadline_ms: expected a number above"),
    ((", routes: [{path: /, unqueued: beside}]",), "routes[0].unqueued: expected true or false, "),
    ((", routes: [{path: /, unqueued: true, type: a}]",), "routes[0].unqueued: expected no type a"),
    ((", routes: [{path: /}]", PLAIN), f"routes: {ALONG}"),
    ((", proxy_url: 'http://h'", PLAIN), f"proxy_url: {ALONG}"),
    ((", url: 'http://h', proxy_url: 'http://h'",), "proxy_url: expected urls that differ, got ht"),
    (("", PROXY, UNLIKE), "handler: expected proxy: for all servers of a cluster, or for none"),
]


@pytest.mark.parametrize(("told", "line"), BAD)
def test_what_is_wrong_is_told_with_its_place(told, line):
    with pytest.raises(InputError) as caught:
        load(*told)
    assert str(caught.value).startswith(f"file: clusters[0].{line}")


def test_several_services():
    found = passed_to("proxy:http://h:1,http://i/")
    assert [one.origin for one in found] == ["http://h:1", "http://i"]


def test_a_testbed_finds_an_address_for_each():
    handler = "proxy:http://127.0.0.1:9"
    clusters = tuple(Cluster(id=id_, servers=1, handler=handler) for id_ in "ab")
    chosen = with_addresses(Topology(name="t", clusters=clusters), "file").clusters
    urls = [url for cluster in chosen for url in (cluster.url, cluster.proxy_url)]
    assert len(set(urls)) == 4
    assert all(url.startswith("http://127.0.0.1:") for url in urls)
