"""Services that others wrote behind doors, at home and over one hop: no request is lost to how they
end connections, to uploads that they do not read, and to a restart.

The doors are in this process, the services are processes of their own.
"""

import asyncio
import itertools
import json
import os
import random

import pytest

from support import federation, real_services
from support.loop import turn
from support.proxy_doors import doors
from support.real_services import (
    KEEP_S,
    Asking,
    ask,
    ask_at_once,
    counted,
    home_and_hop,
    problem_of,
)

service_of = real_services.service_of

LIMIT_S = 60.0

JSON = "Content-Type: application/json"
GET = ask("GET", "/small", begins=b"hello")
POST = ask("POST", "/echo", JSON, body=b"{}", begins=b'{"method"')
STREAM = ask("GET", "/stream", begins=b"data: 0\n\ndata: 1\n\n")
EITHER = ask("GET", "/"), ask("POST", "/", JSON, body=b"{}")
CHAT = ask(
    "POST",
    "/v1/chat/completions",
    JSON,
    begins=b"data: {",
    body=json.dumps(
        {"messages": [{"role": "user", "content": "hello"}], "stream": True, "max_tokens": 6}
    ).encode(),
)
RUN = ask("POST", "/requests", JSON, body=b'{"payload": {}}')
"""What a node of an `http:` handler is asked."""

IS_SOAK = "SPILLOVER_SOAK_S" in os.environ
HAS_ALL = IS_SOAK or "SPILLOVER_REQUIRE_ALL" in os.environ
"""Whether each kind is tried: in `make soak`, and in CI where all is installed."""
REQUESTS, RESTARTS, BETWEEN = (400, 3, 300) if IS_SOAK else (100, 1, 100)
"""How often each is tried."""
SHORT_S = 0.02
"""For which a service keeps what is idle, where clients pause for about as long."""
DRAWN = random.Random(1)

KINDS = ("uvicorn", "node", "gunicorn-gthread", "waitress", "uwsgi")
CASES = {
    "uvicorn that keeps little": ("uvicorn", SHORT_S, (GET, POST)),
    **{
        f"closes after {1000 * keep_s:g} ms": ("closing", keep_s, EITHER) for keep_s in (0.0, 0.003)
    },
    **{kind: (kind, KEEP_S, (GET, POST, STREAM)) for kind in (*KINDS, "werkzeug")},
    "http.server": ("http.server", KEEP_S, (ask("GET", "/answers.py", begins=b'"""'),)),
    "llama.cpp": ("llama.cpp", KEEP_S, (CHAT,)),
}

USUAL = ("uvicorn that keeps little", "closes after 3 ms", "uvicorn", "node")
"""The cases of `make test`."""

WAYS = ("b", "a,b")
"""From the door that is asked to the cluster that runs it."""


def about_as_long_s():
    """Return a pause at whose end the service may be closing the connection."""
    return DRAWN.uniform(0.85, 1.15) * SHORT_S


def check(main):
    federation.run(main, limit_s=LIMIT_S)


@pytest.mark.parametrize("case", CASES if HAS_ALL else USUAL)
def test_no_request_is_lost(case, service_of):
    kind, keep_s, asks = CASES[case]
    service = service_of(kind, keep_s)
    pauses = {"pause_s": about_as_long_s} if keep_s == SHORT_S else {}

    async def main():
        async with home_and_hop(f"proxy:{service.url}") as here:
            for way in WAYS:
                assert not await ask_at_once(
                    here.ports[way[0]], asks, requests=REQUESTS, way=way, **pauses
                ), way

    check(main)


@pytest.mark.parametrize("case", ["closes after 3 ms", "uwsgi"])
def test_nor_is_one_of_those_that_nodes_send_by_themselves(case, service_of):
    kind, keep_s, _ = CASES[case]
    service = service_of(kind, keep_s)

    async def main():
        async with home_and_hop(f"http:{service.url}/echo") as here:
            for cluster in "ba":
                port = int(here[cluster].url.rpartition(":")[2])
                assert not await ask_at_once(port, (RUN,), requests=REQUESTS), cluster

    check(main)


END_AT_ONCE = {"uwsgi"}
"""It drops what it has and what it has let connect: a request with a key may be lost twice,
and is not sent a third time."""


@pytest.mark.parametrize(
    "kind", ["uvicorn", "gunicorn-gthread", "uwsgi"] if HAS_ALL else ["uvicorn"]
)
def test_a_restart_costs_nobody_an_answer(kind, service_of):
    """Of the service of one of two sites, whose clients go on to ask what may be asked twice."""
    service, other = service_of(kind), service_of(kind, another=True)
    keys = itertools.count()
    over, wrong = asyncio.Event(), []

    def asks():
        put, keyed = ask("PUT", "/echo", body=b"{}"), f"Idempotency-Key: {next(keys)}"
        if kind in END_AT_ONCE:
            return GET, put
        return GET, put, ask("POST", "/echo", keyed, body=b"{}")

    async def go_on(port):
        asking = Asking(port)
        while not over.is_set():
            for asked in asks():
                wrong.append(await problem_of(asking, asked))
                await turn()
        asking.close()

    async def restart():
        for _ in range(RESTARTS):
            for change in (service.stop, service.start):
                await asyncio.to_thread(change)
                enough = len(wrong) + BETWEEN
                await federation.until(lambda enough=enough: len(wrong) > enough)
        over.set()

    async def main():
        each = {"a": {"handler": f"proxy:{service.url}"}, "b": {"handler": f"proxy:{other.url}"}}
        async with doors("a", "b", cluster={"servers": 4}, each=each) as here:
            await asyncio.gather(restart(), *(go_on(here.ports["a"]) for _ in range(6)))

    check(main)
    # What was ended within an answer that had begun cannot be asked again.
    begun = {told for told in counted(wrong) if kind in END_AT_ONCE and ": 200 " in told}
    assert not counted(wrong).keys() - begun
