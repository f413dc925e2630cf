"""A site of two nodes whose servers are unlike, in front of a backend that counts by server: tokens
go to where requests wait (decision 0049)."""

from __future__ import annotations

import threading

import pytest

from support.commands import SPILLOVER
from support.ports import free_row
from support.site_of_nodes import Backend, call, load

TOKENS = {"of_big": 3, "of_small": 2}
TOPOLOGY = """
name: site-of-unlike-servers
clusters:
  - id: a
    nodes: 2
    servers:
      - {id: big, rate: 2, handler: "http:http://127.0.0.1:%d/big"}
      - {id: small, handler: "http:http://127.0.0.1:%d/small"}
    classes:
      - {id: of_big, servers: [big], tokens: 3}
      - {id: of_small, servers: [small], tokens: 2}
    types:
      - {id: any, classes: [of_big, of_small]}
      - {id: light, classes: [of_small]}
"""


@pytest.fixture(scope="module")
def backend():
    with Backend() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture(scope="module")
def bed(module_start, tmp_path_factory, backend):
    """A site of two nodes; its urls."""
    directory, port = tmp_path_factory.mktemp("site"), backend.server_address[1]
    (directory / "site.yaml").write_text(TOPOLOGY % (port, port))
    more = ("--json", "--port", str(free_row(2)))
    bed = module_start(*SPILLOVER, "up", "site.yaml", *more, cwd=directory)
    yield bed, bed.ready()
    assert bed.end() == 0


def told(url):
    """The site and the tokens as a node tells them; None while it is not there."""
    try:
        state = call(f"{url}/state")[2]
        return state["site"], {each["id"]: each for each in state["tokens"]["classes"]}
    except (OSError, LookupError):
        return None


def share_together(urls, tokens):
    states = [told(urls[name]) for name in ("a/1", "a/2")]
    if not all(state and state[0]["members"] == [1, 2] for state in states):
        return False
    sums = {id_: sum(classes[id_]["share"] for _, classes in states) for id_ in tokens}
    return sums == tokens and all(
        classes[id_]["limit"] == limit for _, classes in states for id_, limit in tokens.items()
    )


def test_tokens_go_to_the_node_where_requests_are(bed, backend, until):
    """All clients are at the second node, which comes to have all tokens."""
    _, urls = bed
    until(lambda: share_together(urls, TOKENS), what="two nodes that share")
    backend.most_at.clear()
    with load([urls["a/2"]], until, of="one", types=("any", "light")) as more:
        more()
        until(lambda: told(urls["a/2"])[0]["share"] == sum(TOKENS.values()), what="all tokens")
    assert backend.most_at == {"/big": 3, "/small": 2}


def test_an_operator_tells_one_node_and_all_go_by_it(bed, until):
    _, urls = bed
    until(lambda: share_together(urls, TOKENS), what="two nodes that share")
    change = {"classes": {"of_big": 5}, "servers": {"small": "out"}}
    status, _, _ = call(f"{urls['a/2']}/admin/tokens", "PUT", change)
    assert status == 200
    until(lambda: share_together(urls, {"of_big": 5, "of_small": 2}), what="a limit at both")
    for name in ("a/1", "a/2"):
        servers = call(f"{urls[name]}/state")[2]["tokens"]["servers"]
        assert [each["state"] for each in servers] == ["up", "out"]
    back = {"classes": {"of_big": 3}, "servers": {"small": "in"}}
    call(f"{urls['a/1']}/admin/tokens", "PUT", back)
    until(lambda: share_together(urls, TOKENS), what="the old limits at both")
