"""A node as its process runs it, in the loop of the test: what it was told to be is what it is.
What only a process of its own shows is in `test_server`.
"""

import asyncio
import gc
import json
import logging
import resource
import signal
from contextlib import asynccontextmanager, closing

import pytest

from spillover import __version__
from spillover.apps.http import token_files
from spillover.apps.http.server import HttpServer
from spillover.apps.http.token_files import TokenFiles
from spillover.apps.node import server
from spillover.apps.node.app import create_app
from spillover.apps.node.server import close_node, serve_node
from spillover.inputs.api_tokens import dump_api_token, new_api_token
from spillover.live.http1.client import HttpClient
from spillover.live.overflow.shell import NodeShell
from spillover.live.process.listening import bind_socket
from spillover.live.tls import rotation
from spillover.live.tls.rotation import Credentials
from spillover.model.access import Role
from support.certificates import Authority, put
from support.federation import topology_of
from support.loop import until
from support.lying_service import lying_service
from support.ports import free_row
from support.queue_service import connected
from support.secure_federation import name_of

LIMIT_S = 30.0


@pytest.fixture(autouse=True)
def _as_many_files_as_before():
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.fixture(autouse=True, scope="module")
def _nothing_stays_for_good():
    """Each node has what is there stay. To look through all of it takes longer than a test."""
    yield
    gc.unfreeze()


class Running:
    """One that is served: what it was made with, and what it answers."""

    def __init__(self, url):
        self.url = url
        self.client = HttpClient(url)
        self.shells = []
        self.topology = None
        self.made_with = {}

    def make_shell(self, *given, **named):
        self.made_with = named
        self.shells.append(NodeShell(*given, **named))
        return self.shells[-1]

    async def send(self, method, path, body=b"", headers=()):
        response = await self.client.request(
            method, path, body=body, headers=headers, timeout_s=LIMIT_S
        )
        return response.status, json.loads(response.body)


@asynccontextmanager
async def running(*, handlers=("sleep", "sleep"), **given):
    """Cluster a, which has a neighbor b that is not there, from when its door is open."""
    port = free_row(1)
    url = f"http://127.0.0.1:{port}"
    nowhere = f"http://127.0.0.1:{free_row(1)}"
    each = zip("ab", (url, nowhere), handlers, strict=True)
    clusters = {id_: {"url": at, "handler": handler} for id_, at, handler in each}
    node = Running(url)
    node.topology = topology = topology_of("a", "b", clusters=clusters)
    told = {"bind": ("127.0.0.1", port), "make_shell": node.make_shell, **given}
    serving = asyncio.create_task(serve_node(topology, "a", **told))
    try:
        await until(lambda: serving.done() or node.shells)
        await node.client.warm(1)
        yield node
    finally:
        await node.client.close()
        if not serving.done():
            signal.raise_signal(signal.SIGTERM)
            signal.raise_signal(signal.SIGTERM)
        await asyncio.wait_for(serving, LIMIT_S)


async def test_the_first_line_of_its_log_says_who_it_is(caplog):
    """With where it listens, for neighbors too, and the file that it was given."""
    for_neighbors = free_row(1)
    caplog.set_level(logging.INFO)
    async with running(seed=7, source="sites.yaml", peer_bind=("127.0.0.1", for_neighbors)) as node:
        apart = f"http://127.0.0.1:{for_neighbors}"
        assert node.made_with["seed"] == 7
        assert node.made_with["source"] == "sites.yaml"
        (said,) = [one.msg for one in caplog.records if str(one.msg).startswith("node starts")]
        assert said.fields == {
            "cluster": "a",
            "address": node.url,
            "federation": "test",
            "topology": "sites.yaml",
            "version": __version__,
            "peer_address": apart,
        }
        assert (await node.send("GET", "/peer/v2/reports?from=b"))[0] == 404
        with closing(await asyncio.to_thread(connected, apart)) as line:
            line.sendall(b"GET /state HTTP/1.0\r\n\r\n")
            assert b" 404 " in await asyncio.to_thread(line.recv, 100)


@asynccontextmanager
async def serving_b(topology):
    """Its neighbor, without a door of its own."""
    shell = NodeShell(topology, "b")
    http = HttpServer(create_app(shell))
    speaking = asyncio.create_task(shell.run())
    with bind_socket("127.0.0.1", int(topology.cluster("b").url.rpartition(":")[2])) as bound:
        serving = asyncio.create_task(http.serve([bound]))
        try:
            yield shell
        finally:
            await close_node(shell, [http], speaking, serving)


async def test_clients_are_not_refused_before_it_can_know_who_runs_their_requests(monkeypatch):
    """The service is down, and the neighbor comes later: who asks meanwhile waits for it."""
    monkeypatch.setattr(server, "WHO_RUNS_S", LIMIT_S)
    door, nowhere = free_row(1), free_row(1)
    async with lying_service() as service:
        handlers = f"proxy:http://127.0.0.1:{nowhere}", f"proxy:{service.url}"
        async with running(handlers=handlers, proxy_bind=("127.0.0.1", door)) as node:
            client = HttpClient(f"http://127.0.0.1:{door}")
            asked = client.request("GET", "/", timeout_s=LIMIT_S)
            (shell,) = node.shells
            await until(lambda: shell.machine.servers.down)
            assert (await node.send("GET", "/readyz"))[0] == 503
            assert not asked.done()
            async with serving_b(node.topology):
                assert (await asked).status == 200
            await client.close()


async def test_nor_do_they_wait_for_long(monkeypatch):
    monkeypatch.setattr(server, "WHO_RUNS_S", 0.05)
    door, nowhere = free_row(1), f"proxy:http://127.0.0.1:{free_row(1)}"
    async with running(handlers=(nowhere, nowhere), proxy_bind=("127.0.0.1", door)):
        client = HttpClient(f"http://127.0.0.1:{door}")
        answer = await client.request("GET", "/", timeout_s=LIMIT_S)
        assert (answer.status, json.loads(answer.body)["reason"]) == (503, "no_servers")
        await client.close()


@pytest.mark.slow
async def test_with_tokens_it_is_for_who_shows_one(tmp_path, monkeypatch):
    """Those of its files, which are read again while it runs: at once where it is told to."""
    monkeypatch.setattr(token_files, "LOOK_S", 3600.0)
    file = tmp_path / "tokens.yaml"

    def let_in(secret):
        file.write_text(dump_api_token(new_api_token("reader", secret, "", [Role.READ])))

    let_in("first" * 10)
    async with running(token_files=TokenFiles([str(file)])) as node:

        async def status(*secrets):
            shown = [(b"Authorization", b"Bearer " + secret.encode()) for secret in secrets]
            return (await node.send("GET", "/state", b"", shown))[0]

        first, second = "first" * 10, "second" * 10
        assert [await status(), await status(first), await status(second)] == [401, 200, 401]
        let_in(second)
        signal.raise_signal(signal.SIGHUP)

        async def is_changed():
            return await status(second) == 200

        await until(is_changed)
        assert await status(first) == 401


@pytest.mark.slow
async def test_certificates_are_read_again_where_it_is_told_to(tmp_path, monkeypatch):
    monkeypatch.setattr(rotation, "LOOK_S", 3600.0)
    authority = Authority()

    def certify():
        return put(tmp_path, "a", authority.sign(name_of("a")), authority)

    credentials = Credentials(certify(), None)
    async with running(credentials=credentials):
        before = credentials.material
        certify()
        signal.raise_signal(signal.SIGHUP)
        await until(lambda: credentials.material is not before)


@pytest.mark.slow
async def test_a_store_is_asked_before_a_configuration_is_taken():
    """It has the last word: where it does not answer, nothing is changed."""
    from spillover.live.membership.store import ConfigurationStore

    store = ConfigurationStore(f"redis://127.0.0.1:{free_row(1)}", "test")
    async with running(store=store) as node:
        _, told = await node.send("GET", "/admin/config")
        body = json.dumps({"if_version": 0, "topology": told["topology"]}).encode()
        status, problem = await node.send("PUT", "/admin/config", body)
        assert (status, problem["reason"]) == (503, "store_unreachable")
        assert (await node.send("GET", "/admin/config"))[1]["version"] == 0
