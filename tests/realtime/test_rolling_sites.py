"""Two sites that get more nodes by one configuration, of which some are restarted, and fewer, under
load: no client notices (decision 0049)."""

import os
import signal
import threading
from contextlib import ExitStack
from functools import partial

import pytest
import yaml

from support import waiting
from support.site_of_nodes import SERVERS, Backend, call, load

SITES = """
name: sites-of-nodes
clusters:
  - {id: a, servers: %d, nodes: 1, handler: "http:http://127.0.0.1:%d/work"}
  - {id: b, servers: 3, nodes: 1, handler: "http:http://127.0.0.1:%d/other"}
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
    """The two sites with a node each, and their urls."""
    port = backend.server_address[1]
    (tmp_path / "sites.yaml").write_text(SITES % (SERVERS, port, port))
    return up("sites.yaml", cwd=tmp_path)


def members(url):
    try:
        return (call(f"{url}/state")[2].get("site") or {}).get("members")
    except OSError:
        return None


@pytest.fixture
def until():
    """A look at all processes, or at all nodes, takes a core a while, which the nodes want."""
    return partial(waiting.until, every_s=0.3)


def all_hear(urls, numbers):
    return all(members(url) == numbers for url in urls)


def loaded(stack, until, *sites, of):
    """Clients with keys at these nodes of each site, who must see no error."""
    return [
        stack.enter_context(load(nodes, until, of=f"{of}{number}"))
        for number, nodes in enumerate(sites)
    ]


def restart(bed, until, name):
    pid = bed.nodes()[name]
    os.kill(pid, signal.SIGTERM)
    until(lambda: bed.nodes().get(name, pid) != pid, 60.0, "a new process")


def test_all_sites_get_more_nodes_restart_some_and_get_fewer_under_load(
    sites, backend, free_ports, until
):
    bed, urls = sites
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
            for name in ("a/2", "b/3"):
                restart(bed, until, name)
                until(lambda: all_hear(every, [1, 2, 3]), 60.0, "all nodes again")
                for more in (*all_more, *more_of_new):
                    more()
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
