"""Which paths are answered where: at one socket, or clients and neighbors at one each."""

import asyncio
import json

from spillover.apps.http.server import HttpServer
from spillover.apps.node.exposure import PeersOnly, PublicOnly
from spillover.live.http1.client import HttpClient
from spillover.live.overflow.protocol import PASS, SPOKEN
from spillover.live.process.listening import bind_socket


async def status_and_reason(client, path, method="GET"):
    response = await client.request(method, path, timeout_s=5)
    try:
        return response.status, json.loads(response.body).get("reason")
    except ValueError:
        return response.status, None


OTHER_VERSIONS = ["/peer/v4/forward", "/peer/v4", "/peer/v1/x", "/peer/v11/x/y", "/peer/v0/"]
UNKNOWN = ["/peer/v2/other", "/peer/v2", "/peer/", "/peer/x", "/peer/vx/y"]


async def test_another_version_is_refused_with_the_one_that_is_spoken(nodes):
    """400, which a neighbor takes for surely not accepted; other paths are not found."""
    async with nodes.Federation(nodes.topology_of("a")) as federation:
        send = federation["a"].send
        for path in OTHER_VERSIONS:
            for method in ("GET", "POST"):
                status, headers, problem = await send(method, path)
                assert (status, problem["reason"]) == (400, "wrong_version"), path
                assert problem["detail"] == f"{path}: expected /peer/v3/ or /peer/v2/"
                assert headers[b"spillover-protocol"] == b"3 2"
                assert headers[b"content-type"] == b"application/problem+json"
        for path in UNKNOWN:
            status, _, problem = await send("POST", path)
            assert (status, problem["reason"]) == (404, "not_found"), path


async def test_two_doors_to_one_node(nodes):
    """The public one has no /peer/, the neighbors' has nothing else but health."""
    async with nodes.Federation(nodes.topology_of("a", "b")) as federation:
        app, shell = federation["a"].server.config.app, federation["a"].shell
        opened = []
        for door in (PublicOnly(app), PeersOnly(app)):
            assert door.edge.moving is shell.room.moving, "what is not read counts"
            listening = bind_socket("127.0.0.1", 0)
            server = HttpServer(door)
            serving = asyncio.create_task(server.serve(sockets=[listening]))
            await server.ready.wait()
            client = HttpClient(f"http://127.0.0.1:{listening.getsockname()[1]}")
            opened.append((client, server, serving))
        public, peers = (client for client, *_ in opened)
        not_found = (404, "not_found")
        for path in ("/peer/v2/reports?from=b", "/peer/v4/x", "/peer/", "/peer/v2/federation"):
            assert await status_and_reason(public, path) == not_found
            assert (await status_and_reason(peers, path, "PATCH"))[1] in {
                *("method_not_allowed", "not_found", "wrong_version")
            }
        # Also what comes whole, and is taken without a task where it is let in.
        for path in sorted({one.forward for one in SPOKEN} | {PASS}):
            told = await public.request("POST", path, body=b"x", timeout_s=5)
            assert (told.status, json.loads(told.body)["reason"]) == not_found, path
            assert (await status_and_reason(peers, path, "POST"))[0] in {400, 422}, path
        for path in ("/state", "/readyz", "/metrics", "/openapi.json", "/peer", "/federation"):
            assert await status_and_reason(peers, path) == not_found
        assert await status_and_reason(peers, "/requests", "POST") == not_found
        for path in ("/healthz", "/state"):
            assert await status_and_reason(public, path) == (200, None)
        assert await status_and_reason(peers, "/healthz") == (200, None)
        for client, server, serving in opened:
            await client.close()
            server.stop()
            await serving
