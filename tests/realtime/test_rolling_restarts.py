"""Two nodes of a cluster behind nginx and HAProxy, as deploy/balancers has them: both are
restarted, one after the other, under load, and no client notices.
"""

import asyncio
import json
import signal
import subprocess
import sys
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from itertools import count
from pathlib import Path

from spillover.live.http1.client import HttpClient
from support import federation, relays
from support.lying_service import lying_service
from support.ports import free_ports
from support.waiting import SLACK_MAX, slack

BALANCERS = Path(__file__).parents[2] / "deploy" / "balancers"

LAME_DUCK_S = 2.5
"""Two of HAProxy's checks, and more than as much again; on a busy machine it is longer."""

ANSWERED_S = 20.0 * SLACK_MAX

CLIENTS = 3
"""Of each site."""

BETWEEN_S = 0.005

TOPOLOGY = """
name: site
clusters:
  - id: site
    servers: 8
    service_ms: 5
    handler: "%s"
    nodes: [{url: "http://127.0.0.1:%d"%s}, {url: "http://127.0.0.1:%d"%s}]
"""


def configuration(kind, ports, directory):
    """What is shipped, with these ports, and within a directory."""
    text = (BALANCERS / {"nginx": "nginx.conf", "haproxy": "haproxy.cfg"}[kind]).read_text()
    for shipped, port in ports.items():
        text = text.replace(f"127.0.0.1:{shipped}", f"127.0.0.1:{port}")
        text = text.replace(f"check port {shipped}", f"check port {port}")
        text = text.replace(f"listen {shipped};", f"listen 127.0.0.1:{port};")
        text = text.replace(f"bind :{shipped}", f"bind 127.0.0.1:{port}")
    places = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
    inside = "".join(f"{place}_temp_path {directory}/{place};\n" for place in places)
    text = text.replace("http {\n", f"http {{\n{inside}")
    return f"daemon off;\npid {directory}/pid;\n{text}" if kind == "nginx" else text


@asynccontextmanager
async def process(*command, output):
    with output.open("ab") as said:
        started = await asyncio.create_subprocess_exec(
            *command, stdin=subprocess.DEVNULL, stdout=said, stderr=said
        )
    try:
        yield started
    finally:
        if started.returncode is None:
            started.kill()
        await started.wait()


async def ask(client, method, path, body=b""):
    """The status of an answer, with what an error says, or why there is none."""
    try:
        answer = await client.request(method, path, body=body, timeout_s=ANSWERED_S)
        return answer.status if answer.status < 400 else (answer.status, answer.body[:200])
    except Exception as error:  # noqa: BLE001 - the client sees an error, whatever it is
        return repr(error)


class Site:
    """The nodes, of which one at a time may be away; they pass requests on to a service, if any."""

    def __init__(self, service_url, ports, directory):
        self.urls = {f"node-{n}": f"http://127.0.0.1:{ports[8100 + n]}" for n in (1, 2)}
        told = ["sleep" if service_url is None else f"proxy:{service_url}"]
        for number in (1, 2):
            proxied = ""
            if service_url is not None:
                proxied = f', proxy_url: "http://127.0.0.1:{ports[8200 + number]}"'
            told += [ports[8100 + number], proxied]
        self._file = directory / "site.yaml"
        self._file.write_text(TOPOLOGY % tuple(told))
        self._directory = directory
        self._lame_duck_s = LAME_DUCK_S * slack()
        self._stacks = {}
        self._nodes = {}

    async def start(self, id_):
        stack = self._stacks[id_] = AsyncExitStack()
        command = [sys.executable, "-m", "spillover", "node", "--topology", str(self._file)]
        command += ["--cluster", "site", "--node", id_[-1], "--lame-duck-s", str(self._lame_duck_s)]
        running = process(*command, output=self._directory / f"{id_}.log")
        self._nodes[id_] = await stack.enter_async_context(running)

    async def state(self, id_):
        async with asyncio.timeout(5):
            client = HttpClient(self.urls[id_])
            try:
                response = await client.request("GET", "/state", timeout_s=2.0)
                return json.loads(response.body)
            except Exception:  # noqa: BLE001 - not there yet
                return None
            finally:
                await client.close()

    async def linked(self):
        told = [await self.state(id_) for id_ in self.urls]
        return all(one and one["site"]["members"] == [1, 2] for one in told)

    async def is_asked(self, id_, url, asked):
        """Whether the balancer, too, knows that it is back: who connects now comes to it."""
        client = HttpClient(url)
        assert await ask(client, *asked) == 200
        await client.close()
        state = await self.state(id_)
        return state is not None and state["ledger"]["home"]["accepted"] > 0

    async def restart(self, id_):
        """Returns its exit status."""
        self._nodes[id_].send_signal(signal.SIGTERM)
        async with asyncio.timeout(self._lame_duck_s + 20.0 * slack()):
            status = await self._nodes[id_].wait()
        await self._stacks[id_].aclose()
        await self.start(id_)
        await federation.until(self.linked, limit_s=30.0)
        return status

    async def stop(self):
        for stack in self._stacks.values():
            await stack.aclose()


async def load(url, asked, seen):
    """Ask on a connection that is kept, until cancelled."""
    client = HttpClient(url)
    try:
        for number in count():
            method, path, body = asked[number % len(asked)]
            told = await ask(client, method, path, body)
            seen[told] = seen.get(told, 0) + 1
            await asyncio.sleep(BETWEEN_S)
    finally:
        await client.close()


ASKED = {
    8100: [("POST", "/requests", b'{"payload": {}}'), ("GET", "/healthz", b"")],
    8200: [("POST", "/x", b"x" * 1000), ("GET", "/y", b"")],
}


DOORS = {"nginx": 8100, "haproxy": 8200}


def test_a_rolling_restart_costs_no_client_an_error(require, tmp_path):
    """Both balancers at the same time, each in front of a site of its own."""
    for kind in DOORS:
        require(relays.find(kind), f"{kind} is not installed")

    async def main():
        await asyncio.gather(*(rolled(*pair, tmp_path / pair[0]) for pair in DOORS.items()))

    federation.run(main, limit_s=100.0 * slack())


async def rolled(kind, door, directory):
    """Restart both nodes of a site, one after the other, while clients ask at its balancer."""
    directory.mkdir()
    shipped = [8100, 8200, 8101, 8102, 8201, 8202]
    ports = dict(zip(shipped, free_ports(len(shipped)), strict=True))
    async with AsyncExitStack() as stack:
        service = await stack.enter_async_context(lying_service())
        service.answer = answer
        site = Site(service.url if door == 8200 else None, ports, directory)
        stack.push_async_callback(site.stop)
        for id_ in site.urls:
            await site.start(id_)
        await federation.until(site.linked, limit_s=30.0)
        balancer = await stack.enter_async_context(balancing(kind, ports, directory))
        url = f"http://127.0.0.1:{ports[door]}"
        client = HttpClient(url)
        stack.push_async_callback(client.close)

        async def is_up():
            return await ask(client, *ASKED[door][1]) == 200

        await federation.until(is_up, limit_s=20.0)
        seen = {}
        clients = [asyncio.create_task(load(url, ASKED[door], seen)) for _ in range(CLIENTS)]
        for id_ in site.urls:
            before = sum(seen.values())
            await federation.until(lambda before=before: sum(seen.values()) > before + 200)
            assert await site.restart(id_) == 0
            await federation.until(partial(site.is_asked, id_, url, ASKED[door][0]), limit_s=20.0)
        for one in clients:
            one.cancel()
        await asyncio.gather(*clients, return_exceptions=True)
        assert balancer.returncode is None
        assert list(seen) == [200], seen


async def answer(talk, _head, _body):
    await asyncio.sleep(0.005)
    await talk.say(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
    return True


@asynccontextmanager
async def balancing(kind, ports, directory):
    file = directory / "balancer.conf"
    file.write_text(configuration(kind, ports, directory))
    program = relays.find(kind)
    options = ["-db", "-f", str(file)]
    if kind == "nginx":
        options = ["-p", str(directory), "-e", str(directory / "error.log"), "-c", str(file)]
    async with process(program, *options, output=directory / "balancer.log") as running:
        yield running
