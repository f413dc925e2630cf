"""Services that others wrote behind doors, at home and over one hop: no request is lost to how they
end connections, to uploads that they do not read, and to a restart.

The doors are in this process, the services are processes of their own.
"""

from __future__ import annotations

import asyncio
import json
import random
from contextlib import asynccontextmanager

import pytest

from spillover.core.overflow.events import ServersDown
from support import federation, real_services
from support.loop import turn
from support.ports import free_port
from support.proxy_doors import doors
from support.real_services import KEEP_S, Asking, ask, ask_at_once, problem_of

pytestmark = pytest.mark.threes

service_of = real_services.service_of

LIMIT_S = 60.0
AT_A_TIME = 4
"""Half of the clients that ask at once: the others wait."""
KEYED = "Idempotency-Key: {}"

GET = ask("GET", "/small")
POST = ask("POST", "/echo", "Content-Type: application/json", body=b"{}")
STREAM = ask("GET", "/stream")
CHAT = ask(
    "POST",
    "/v1/chat/completions",
    "Content-Type: application/json",
    body=json.dumps(
        {"messages": [{"role": "user", "content": "hello"}], "stream": True, "max_tokens": 6}
    ).encode(),
)
RUN = ask("POST", "/requests", "Content-Type: application/json", body=b'{"payload": {}}')
"""What a node of an `http:` handler is asked."""

CASES = {
    **{
        f"closes after {1000 * keep_s:g} ms": ("closing", keep_s, (GET, POST))
        for keep_s in (0.0, 0.0001, 0.003)
    },
    **{
        kind: (kind, KEEP_S, (GET, POST, STREAM))
        for kind in (
            "uvicorn",
            "node",
            "werkzeug",
            "gunicorn",
            "gunicorn-gthread",
            "waitress",
            "uwsgi",
        )
    },
    "http.server": ("http.server", KEEP_S, (ask("GET", "/answers.py"),)),
    "llama.cpp": ("llama.cpp", KEEP_S, (CHAT,)),
}


@asynccontextmanager
async def home_and_hop(handler, **more):
    """Doors of b, and of a, whose servers are down, so that it hands on to b."""
    async with doors("a", "b", handler=handler, cluster={"servers": AT_A_TIME}, **more) as here:
        here["a"].shell.feed(ServersDown())
        yield here


WAYS = ("b", "a,b")
"""From the door that is asked to the cluster that runs it."""


def check(main):
    federation.run(main, limit_s=LIMIT_S)


@pytest.mark.parametrize("case", CASES)
def test_none_of_400_requests_is_lost(case, service_of):
    kind, keep_s, asks = CASES[case]
    service = service_of(kind, keep_s)

    async def main():
        async with home_and_hop(f"proxy:{service.url}") as here:
            for way in WAYS:
                assert not await ask_at_once(here.ports[way[0]], asks, way=way), way

    check(main)


@pytest.mark.parametrize("case", ["closes after 0 ms", "closes after 3 ms", "uwsgi"])
def test_nor_is_one_of_those_that_nodes_send_by_themselves(case, service_of):
    kind, keep_s, _ = CASES[case]
    service = service_of(kind, keep_s)

    async def main():
        async with home_and_hop(f"http:{service.url}/echo") as here:
            for cluster in "ba":
                port = int(here[cluster].url.rpartition(":")[2])
                assert not await ask_at_once(port, (RUN,)), cluster

    check(main)


AT_ITS_END_S = 0.01
"""How far the pauses of clients are from the time for which a service keeps what is idle."""


@pytest.mark.parametrize("kind", ["uvicorn", "node", "gunicorn-gthread"])
def test_nor_where_the_service_closes_what_was_idle(kind, service_of):
    """For as long as these do by default: some connections end as the next requests come."""
    keep_s = {"gunicorn-gthread": 2.0}.get(kind, KEEP_S)
    service = service_of(kind, keep_s)
    drawn = random.Random(1)
    asks = [GET, POST] * 20

    async def main():
        async with doors(
            "a", handler=f"proxy:{service.url}", cluster={"servers": len(asks)}
        ) as here:
            clients = [Asking(here.ports["a"]) for _ in asks]

            async def one(asking, asked):
                first = await problem_of(asking, asked)
                await turn(keep_s + drawn.uniform(-AT_ITS_END_S, AT_ITS_END_S))
                return first, await problem_of(asking, asked)

            for told in await asyncio.gather(*map(one, clients, asks)):
                assert told == (None, None)
            for client in clients:
                client.close()

    check(main)


UPLOAD = ask("POST", "/unread", body=b"x" * 200_000)


@pytest.mark.parametrize("kind", ["uvicorn", "node", "gunicorn-gthread", "waitress", "werkzeug"])
def test_an_upload_that_was_not_read_costs_nobody_else_an_answer(kind, service_of):
    service = service_of(kind)

    async def main():
        async with home_and_hop(f"proxy:{service.url}") as here:
            for way in WAYS:
                wrong = []
                for asked in (GET, POST) * 20:
                    uploading, other = (Asking(here.ports[way[0]]) for _ in range(2))
                    assert (await uploading.ask(UPLOAD)).status == 401
                    wrong.append(await problem_of(other, asked, way))
                    uploading.close()
                    other.close()
                assert set(wrong) == {None}, way

    check(main)


@pytest.mark.parametrize("kind", ["uvicorn", "node", "gunicorn-gthread", "waitress", "uwsgi"])
def test_a_restart_costs_nobody_an_answer(kind, service_of, tmp_path):
    """Of one of two sites, whose clients ask on, what may be asked twice."""
    service, other = service_of(kind), service_of(kind, another=True)
    keys = iter(range(1_000_000))

    def asks():
        keyed = f"Idempotency-Key: {next(keys)}"
        return GET, ask("POST", "/echo", keyed, body=b"{}"), ask("PUT", "/echo", body=b"{}")

    async def main():
        over, wrong = asyncio.Event(), []

        async def go_on(port):
            asking = Asking(port)
            while not over.is_set():
                for asked in asks():
                    wrong.append(await problem_of(asking, asked))
                    await turn(0.002)
            asking.close()

        each = {"a": {"handler": f"proxy:{service.url}"}, "b": {"handler": f"proxy:{other.url}"}}
        async with doors("a", "b", cluster={"servers": AT_A_TIME}, each=each) as here:
            async with asyncio.TaskGroup() as clients:
                for _ in range(6):
                    clients.create_task(go_on(here.ports["a"]))
                for _ in range(3):
                    await asyncio.to_thread(service.stop)
                    await turn(0.3)
                    await asyncio.to_thread(service.start)
                    await turn(1.0)
                over.set()
        assert len(wrong) > 1000
        assert set(wrong) == {None}

    check(main)


@pytest.mark.parametrize(
    "kind", ["uvicorn", "node", "gunicorn-gthread", "waitress", "werkzeug", "uwsgi"]
)
def test_who_leaves_is_seen_to_leave(kind, service_of):
    service = service_of(kind)
    left = ask("GET", "/left")

    async def main():
        async def count():
            asking = Asking(service.port)
            read = await asking.ask(left)
            asking.close()
            return int(read.body)

        async with home_and_hop(f"proxy:{service.url}") as here:
            for port in (service.port, here.ports["b"], here.ports["a"]):
                before = await count()
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(ask("GET", "/long").raw)
                await reader.readuntil(b"data: 0")
                writer.close()

                async def has_left(before=before):
                    return await count() > before

                await federation.until(has_left, every_s=0.02)

    check(main)
