"""What clients are told whose requests find no token, or whose type nobody serves."""

import json

from support.typed_sites import linked, unlike


def body(type_, service_ms=0.0):
    return json.dumps({"payload": {"service_ms": service_ms}, "type": type_}).encode()


def with_node(nodes, check, types, **fields):
    async def main():
        async with nodes.Federation(linked(unlike("a", types, **fields))) as federation:
            await check(federation["a"])

    nodes.run(main)


def test_a_type_that_nobody_serves_is_422(nodes):
    """The body names those that are served; a client need not try again later."""

    async def check(node):
        status, headers, told = await node.send("POST", "/requests", body("tall"))
        assert (status, told["reason"], told["types"]) == (422, "unknown_type", ["any", "llm"])
        assert told["detail"] == "type: expected one that is served: any, llm"
        assert b"retry-after" not in headers
        assert (await node.send("POST", "/requests", body("llm")))[0] == 200

    with_node(nodes, check, {"any": "big small", "llm": "big"})
