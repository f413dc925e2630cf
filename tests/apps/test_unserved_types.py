"""What clients are told whose requests find no token, or whose type nobody serves."""

import json
from contextlib import asynccontextmanager

from support.typed_sites import linked, unlike


def body(type_, service_ms=0.0):
    return json.dumps({"payload": {"service_ms": service_ms}, "type": type_}).encode()


@asynccontextmanager
async def a_node(nodes, types, **fields):
    async with nodes.Federation(linked(unlike("a", types, **fields))) as federation:
        yield federation["a"]


async def test_a_type_that_nobody_serves_is_422(nodes):
    """The body names those that are served; a client need not try again later."""
    async with a_node(nodes, {"any": "big small", "llm": "big"}) as node:
        status, headers, told = await node.send("POST", "/requests", body("tall"))
        assert (status, told["reason"], told["types"]) == (422, "unknown_type", ["any", "llm"])
        assert told["detail"] == "type: expected one that is served: any, llm"
        assert b"retry-after" not in headers
        assert (await node.send("POST", "/requests", body("llm")))[0] == 200
