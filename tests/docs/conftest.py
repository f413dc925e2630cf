"""The description of a node, as `/openapi.json` has it. Nothing is asserted here."""

import asyncio
import json
from types import SimpleNamespace

import pytest

from spillover.apps.http.exchange import EXCHANGE
from spillover.apps.node.app import create_app
from spillover.live.overflow.shell import NodeShell
from spillover.model.topology import Cluster, Topology


@pytest.fixture(scope="session")
def ask_node():
    """`ask_node(path)`: status, headers and body of a GET at a node that does nothing."""

    async def ask(path):
        parts = []

        async def receive():
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message):
            parts.append(message)

        shell = NodeShell(Topology(name="test", clusters=(Cluster(id="a", servers=1),)), "a")
        scope = {"type": "http", "method": "GET", "path": path, "headers": []}
        scope |= {"query_string": b"", "root_path": "", EXCHANGE: SimpleNamespace(is_of_page=False)}
        await create_app(shell, testbed=True)(scope, receive, send)
        await shell.close()
        headers = {name.decode(): value.decode() for name, value in parts[0]["headers"]}
        return parts[0]["status"], headers, b"".join(one.get("body", b"") for one in parts)

    return lambda path: asyncio.run(ask(path))


@pytest.fixture(scope="session")
def described_node(ask_node):
    """The description."""
    return json.loads(ask_node("/openapi.json")[2])
