"""How many files may be open: raised as far as it goes, and told only where it can bite."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys

import pytest

from spillover import __version__
from spillover.apps.node.file_limit import FILES_MIN
from spillover.core.overflow.settings import NodeSettings

PROGRAM = """
import json, logging, resource, sys
from spillover import __version__
from spillover.apps.node.file_limit import raise_file_limit
from spillover.core.overflow.settings import NodeSettings
from spillover.live.process.logs import configure_logs

soft, hard, queue_limit = map(int, sys.argv[1:])
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
configure_logs("a", as_json=True, log_requests=False)
settings = NodeSettings(cluster="a", servers=1, policy="paper", queue_limit=queue_limit)
allowed = raise_file_limit(settings)
print(json.dumps([allowed, resource.getrlimit(resource.RLIMIT_NOFILE)[0]]), file=sys.__stdout__)
"""

DEFAULT = NodeSettings(cluster="a", servers=1, policy="paper")


@pytest.mark.processes
@pytest.mark.parametrize(
    ("soft", "hard", "queue_limit", "allowed", "is_told"),
    [
        (256, FILES_MIN, DEFAULT.queue_limit, FILES_MIN, False),
        (256, FILES_MIN - 1, DEFAULT.queue_limit, FILES_MIN - 1, True),
        (256, 2048, 100, None, False),
        (1024, 1024, 100, 1024, True),
    ],
)
def test_a_limit_is_told_where_a_burst_would_reach_it(soft, hard, queue_limit, allowed, is_told):
    """The queue's limit is mostly just the default: that more could be wanted is no news."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(soft), str(hard), str(queue_limit)],
        capture_output=True,
        text=True,
        check=True,
    )
    found, raised_to = json.loads(done.stdout)
    assert found == allowed
    assert raised_to == (hard if allowed else 3 * queue_limit + 1024)
    told = [json.loads(line) for line in done.stderr.splitlines()]
    assert [(line["level"], line["allowed"]) for line in told] == (
        [("WARNING", allowed)] if is_told else []
    )


@pytest.mark.slow
def test_a_node_watches_its_connections(nodes, tmp_path):
    """Where few are allowed: said behind the first line, which tells who starts, and once they are
    nearly used up."""
    file = tmp_path / "one.yaml"
    file.write_text("name: alone\nclusters: [{id: a, servers: 1}]\n")
    limited = ["sh", "-c", 'ulimit -n 100; exec "$@"', "sh", sys.executable, "-m", "spillover"]
    command = [*limited, "node", "--topology", str(file), "--cluster", "a"]
    command += ["--bind", "127.0.0.1:0", "--peer-bind", "127.0.0.1:0", "--log-format", "json"]

    async def main():
        node = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE)
        held = []
        try:
            first, few = [json.loads(await node.stderr.readline()) for _ in range(2)]
            assert (first["message"], first["level"]) == ("node starts", "INFO")
            assert (first["cluster"], first["federation"]) == ("a", "alone")
            assert (first["topology"], first["version"]) == (str(file), __version__)
            assert first["peer_address"] not in (None, first["address"])
            assert few["message"] == "few files may be open (ulimit -n)"
            for _ in range(85):
                host, port = first["address"].removeprefix("http://").split(":")
                _, writer = await asyncio.open_connection(host, int(port))
                held.append(writer)
            listens, near = [json.loads(await node.stderr.readline()) for _ in range(2)]
            assert listens["message"] == "node listens"
            assert near["message"] == "open connections come near what is allowed (ulimit -n)"
            assert 80 <= near["connections"] <= near["allowed"] == 100
        finally:
            for writer in held:
                writer.close()
            node.kill()
            await node.wait()

    nodes.run(main)
