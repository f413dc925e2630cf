"""What a plain node does not need it does not load: CPU time of each start, and memory for good."""

import subprocess
import sys

from support.ports import free_ports

TOPOLOGY = """
clusters:
  - {{id: a, servers: 1, url: "http://127.0.0.1:{}"}}
  - {{id: b, servers: 1, url: "http://127.0.0.1:{}"}}
links: [{{between: [a, b]}}]
"""

NOT_LOADED = (
    "pydantic.v1.main",
    "spillover.apps.node.proxy_door",
    "spillover.core.tokens.servers",
    "spillover.live.handlers.dask.handler",
    "spillover.live.handlers.http.handler",
    "spillover.live.handlers.proxy.handler",
    "spillover.live.overflow.tracing.watching",
    "cryptography",
    "httpx",
    "jinja2",
    "numba",
    "numpy",
    "redis",
)


def test_a_plain_node_loads_no_more_than_it_needs(tmp_path):
    topology = tmp_path / "two.yaml"
    topology.write_text(TOPOLOGY.format(*free_ports(2)))
    starts = ["-m", "spillover", "node", "--topology", topology, "--cluster", "a"]
    command = [sys.executable, "-X", "importtime", *starts, "--end-with-stdin"]
    loaded = set()
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as node:
        for line in node.stderr:
            if line.startswith("import time:"):
                loaded.add(line.rpartition("|")[2].strip())
            elif "node listens" in line:
                break
        node.stdin.close()
        rest = node.stderr.read()
    assert "Traceback" not in rest
    assert "spillover.apps.node.app" in loaded
    assert not loaded.intersection(NOT_LOADED)
