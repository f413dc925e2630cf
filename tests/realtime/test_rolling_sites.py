"""Two sites of several nodes, of which each is restarted under load, one after the other, and which
get more nodes and fewer by one configuration: no client notices (decision 0049)."""

import os
import signal
import threading
from contextlib import ExitStack

import pytest
import yaml

from support.site_of_nodes import SERVERS, Backend, call, load

SITES = """
name: sites-of-nodes
clusters:
  - {id: a, servers: %d, nodes: %d, handler: "http:http://127.0.0.1:%d/work"}
  - {id: b, servers: 3, nodes: %d, handler: "http:http://127.0.0.1:%d/other"}
links: [{between: [a, b], delay_ms: 5}]
"""


@pytest.fixture
def backend():
    with Backend() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture
def sites(up, tmp_path, backend):
    """The two sites with so many nodes each, and their urls."""

    def up_them(nodes):
        port = backend.server_address[1]
        (tmp_path / "sites.yaml").write_text(SITES % (SERVERS, nodes, port, nodes, port))
        return up("sites.yaml", cwd=tmp_path)

    return up_them


def members(url):
    try:
        return (call(f"{url}/state")[2].get("site") or {}).get("members")
    except OSError:
        return None


def all_hear(urls, numbers):
    return all(members(url) == numbers for url in urls)


def loaded(stack, until, *sites, of):
    """Clients with keys at these nodes of each site, who must see no error."""
    return [
        stack.enter_context(load(nodes, until, of=f"{of}{number}"))
        for number, nodes in enumerate(sites)
    ]


def test_all_nodes_of_all_sites_are_restarted_under_load(sites, backend, until):
    bed, urls = sites(2)
    until(lambda: all_hear(urls.values(), [1, 2]), what="sites of two nodes")
    a, b = ([urls[f"{site}/{number}"] for number in (1, 2)] for site in "ab")
    with ExitStack() as stack:
        all_more = loaded(stack, until, a, b, of="c")
        for name in ("a/1", "b/1", "a/2", "b/2"):
            pid = bed.nodes()[name]
            os.kill(pid, signal.SIGTERM)
            until(lambda: bed.nodes().get(name, pid) != pid, 60.0, "a new process")  # noqa: B023
            until(lambda: all_hear(urls.values(), [1, 2]), 60.0, "both nodes again")
            for more in all_more:
                more()
    assert backend.most <= SERVERS
    assert set(backend.times.values()) == {1}
    assert bed.end() == 0


def test_all_sites_get_more_nodes_and_fewer_under_load(sites, backend, free_ports, until):
    bed, urls = sites(1)
    of_sites = [
        [urls[site], *(f"http://127.0.0.1:{port}" for port in free_ports(2))] for site in "ab"
    ]
    every = [url for nodes in of_sites for url in nodes]
    with ExitStack() as stack:
        all_more = loaded(stack, until, *(nodes[:1] for nodes in of_sites), of="c")
        go_by(urls["b"], of_sites)
        until(lambda: all_hear(every, [1, 2, 3]), 60.0, "three nodes each")
        with ExitStack() as at_new:
            of_new = [[*nodes[1:], nodes[0]] for nodes in of_sites]
            more_of_new = loaded(at_new, until, *of_new, of="new")
            go_by(urls["a"], [nodes[:1] for nodes in of_sites])
            until(lambda: set(bed.nodes()) == {"a", "b"}, 60.0, "the end of the others")
            for more in (*all_more, *more_of_new):
                more()
    assert backend.most <= SERVERS
    assert set(backend.times.values()) == {1}
    assert bed.end() == 0


def go_by(url, of_sites):
    """Sets the configuration: that which there is, with these nodes of the two sites."""
    told = call(f"{url}/admin/config")[2]
    topology = yaml.safe_load(told["topology"])
    for cluster, nodes in zip(topology["clusters"], of_sites, strict=True):
        cluster.pop("url", None)
        cluster["nodes"] = [{"url": url} for url in nodes]
    put = {"if_version": told["version"], "topology": topology}
    assert call(f"{url}/admin/config", "PUT", put)[0] == 200
