"""What stands beside a node: a dispatcher with one of `rules`, in front of the same servers.

All of a rule's dispatchers are in one process, one for each replica. Each does the least that it
can: it takes a job, chooses, passes the payload on, and answers as a node does.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from multiprocessing.connection import Connection

import msgspec
import uvloop

from spillover.live.http.client import HttpClient, Response
from spillover.live.process.listening import bind_socket
from spillover.model.pool import Pool
from spillover.policy.tokens import BLOCKED
from spillover.tools.bench.door import OK, Door
from spillover.tools.bench.servers import HOST
from spillover.tools.bench.tokens.rules import Rule

_BLOCKED_BODY = b'{"reason":"blocked"}'
_HEADERS = ((b"content-type", b"application/json"),)


class _Job(msgspec.Struct):
    """What clients send, as far as it matters here."""

    type: str
    payload: msgspec.Raw


_decode = msgspec.json.Decoder(_Job).decode
_encode = msgspec.json.Encoder().encode


def dispatch(
    pool: Pool, rules: Sequence[Rule], ports: Sequence[Sequence[int]], ready: Connection
) -> None:
    """What the process does, until the benchmark ends it: each of the rules for a replica of the
    pool, whose servers listen on those `ports`. Tells its own ports, one for each replica."""
    with ExitStack() as stack, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_dispatch(pool, rules, ports, ready, stack))


async def _dispatch(
    pool: Pool,
    rules: Sequence[Rule],
    ports: Sequence[Sequence[int]],
    ready: Connection,
    stack: ExitStack,
) -> None:
    loop = asyncio.get_running_loop()
    own_ports = []
    running = []
    for rule, of_servers in zip(rules, ports, strict=True):
        dispatcher = Dispatcher(pool, rule, of_servers)
        running.append(dispatcher)
        listening = stack.enter_context(bind_socket(HOST, 0))
        await loop.create_server(partial(Door, dispatcher.take), sock=listening)
        own_ports.append(listening.getsockname()[1])
    ready.send(own_ports)
    try:
        await loop.create_future()
    finally:
        for dispatcher in running:
            await dispatcher.close()


class Dispatcher:
    """In front of one pool. Made in a running loop."""

    def __init__(self, pool: Pool, rule: Rule, ports: Sequence[int]) -> None:
        self._rule = rule
        self._kinds = {kind.id: number for number, kind in enumerate(pool.types)}
        self._clients = [HttpClient(f"http://{HOST}:{port}") for port in ports]
        self._jobs = [0] * len(ports)

    async def close(self) -> None:
        for client in self._clients:
            await client.close()

    def take(self, door: Door, body: bytes) -> None:
        came_s = time.monotonic()
        job = _decode(body)
        server = self._rule.choose(self._kinds[job.type], self._jobs)
        if server == BLOCKED:
            door.answer(b"429 Too Many Requests", _BLOCKED_BODY)
            return
        self._jobs[server] += 1
        on_end = partial(self._ended, door, server, came_s)
        self._clients[server].send(
            "POST", "/", on_end, headers=_HEADERS, body=bytes(job.payload), timeout_s=None
        )

    def _ended(
        self, door: Door, server: int, came_s: float, came_to: Response | BaseException
    ) -> None:
        self._jobs[server] -= 1
        if not isinstance(came_to, Response) or came_to.status != 200:
            door.answer(b"502 Bad Gateway", _encode({"reason": "server_failed"}))
            return
        answer = {
            "id": "",
            "cluster": "",
            "path": [""],
            "hops": 0,
            "timing_ms": {"total": (time.monotonic() - came_s) * 1e3},
        }
        door.answer(OK, _encode(answer))
