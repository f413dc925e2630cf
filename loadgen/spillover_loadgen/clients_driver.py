"""Many connected clients in one process: each has a session, follows the federation's membership by
a rule, and sends its share of the requests to the node that it is connected to.

The sessions are those that users have (`live.membership.session_shell`); the requests are the
plainest there can be: sent again only where they surely did not run.
"""

from __future__ import annotations

import asyncio
import json
import math
import secrets
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any, TypeAlias

from spillover.commandline.api_token import Headers
from spillover.live.http1.client import HttpClient
from spillover.live.membership.session_shell import RULES, SessionShell, session_of
from spillover.model.errors import NotDelivered, PeerError

__all__ = ["RULES", "ClientsLoad", "client_name", "run"]

REQUEST_S = 30.0
LOOK_S = 0.25
"""Between two looks at where the clients are."""
TRIES_MAX = 20
PAUSE_S = 0.05
"""Before a request that surely did not run is sent again."""
NOT_RUN = frozenset({429, 503})

OnLook: TypeAlias = Callable[[dict[str, Any]], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientsLoad:
    """What is asked for."""

    nodes: tuple[str, ...]
    clients: int
    rule: str
    virtual_nodes: int
    duration_s: float
    change_wait_s: float
    rate_per_s: float
    service_ms: float
    seed: int
    run_id: str = ""
    """Part of the clients' names; drawn if not given."""
    starts: tuple[str, ...] = ()
    """At which of the nodes each client begins; if not given, at any."""
    connect_over_s: float = 0.0
    """They come one after the other, in so long a time."""


class Crowd:
    """All clients of a run."""

    def __init__(
        self, load: ClientsLoad, on_look: OnLook = lambda _: None, headers: Headers = ()
    ) -> None:
        self._load = load
        self._headers = headers
        self._on_look = on_look
        self._random = Random(f"{load.seed}/requests")
        self._nodes: dict[str, HttpClient] = {}
        run_id = load.run_id or secrets.token_hex(4)
        self._sessions = [self._session(number, run_id) for number in range(load.clients)]
        self._at = [""] * load.clients
        """Which server each uses."""
        self._lost_s = [0.0] * load.clients
        """Since when each has none; 0 if it has one, or never had."""
        self._elsewhere_ms: list[float] = []
        self._requests = Counter(ok=0, failed=0, unknown=0, retried=0)
        self._reasons: Counter[str] = Counter()
        self._under_way: set[asyncio.Task[None]] = set()
        self._timeline: list[dict[str, Any]] = []
        self._body = json.dumps({"payload": {"service_ms": load.service_ms}}).encode()

    async def run(self, stop: asyncio.Event) -> dict[str, Any]:
        """Returns the object that `spillover-loadgen clients --json` prints."""
        start_s = time.monotonic()
        end_s = start_s + self._load.duration_s
        starting = asyncio.create_task(self._start_all())
        sending = asyncio.create_task(self._send_all(end_s)) if self._load.rate_per_s else None
        while not stop.is_set() and (left_s := end_s - time.monotonic()) > 0:
            self._look(start_s)
            try:
                async with asyncio.timeout(min(LOOK_S, left_s)):
                    await stop.wait()
            except TimeoutError:
                continue
        starting.cancel()
        if sending is not None:
            sending.cancel()
        if self._under_way:
            await asyncio.wait(self._under_way)
        result = self._result(time.monotonic() - start_s)
        await asyncio.gather(*(session.close() for session in self._sessions))
        for client in self._nodes.values():
            await client.close()
        return result

    async def _start_all(self) -> None:
        pause_s = self._load.connect_over_s / len(self._sessions)
        for session in self._sessions:
            session.start()
            if pause_s:
                await asyncio.sleep(pause_s)

    def _session(self, number: int, run_id: str) -> SessionShell:
        load = self._load
        first = load.starts[number : number + 1]
        return session_of(
            client_name(run_id, number),
            (*first, *load.nodes),
            Random(f"{load.seed}/{number}"),
            self._node,
            lambda: self._changed(number),
            rule=load.rule,
            virtual_nodes=load.virtual_nodes,
            change_wait_s=load.change_wait_s,
            in_order=bool(first),
        )

    def _node(self, url: str) -> HttpClient:
        client = self._nodes.get(url)
        if client is None:
            client = self._nodes[url] = HttpClient(
                url, connections_max=60_000, idle_s_max=4.0, headers=self._headers
            )
        return client

    def _changed(self, number: int) -> None:
        server = self._sessions[number].in_use
        if server is None:
            if self._at[number] and not self._lost_s[number]:
                self._lost_s[number] = time.monotonic()
        elif self._at[number] != server.id or self._lost_s[number]:
            if self._lost_s[number]:
                self._elsewhere_ms.append((time.monotonic() - self._lost_s[number]) * 1e3)
                self._lost_s[number] = 0.0
            self._at[number] = server.id

    def _counts(self) -> dict[str, int]:
        used = (session.in_use for session in self._sessions)
        found = Counter(server.id for server in used if server is not None)
        listed = {server.id for session in self._sessions for server in session.servers}
        return {name: found[name] for name in sorted(listed | set(found)) if name}

    def _look(self, start_s: float) -> None:
        look = {"at_s": round(time.monotonic() - start_s, 3), "clients": self._counts()}
        self._timeline.append(look)
        self._on_look(look | self._so_far())

    def _so_far(self) -> dict[str, Any]:
        sessions = self._sessions
        return {
            "unconnected": sum(session.in_use is None for session in sessions),
            "moved": sum(session.moves for session in sessions),
            "lost": sum(session.losses for session in sessions),
            "connects": sum(session.connects for session in sessions),
            "put_off": sum(session.put_off for session in sessions),
            "lies": sum(session.lies for session in sessions),
            "requests": dict(self._requests),
        }

    # --- requests -----------------------------------------------------------------------------

    async def _send_all(self, end_s: float) -> None:
        """In open loop, each of any client."""
        due_s = time.monotonic()
        while (due_s := due_s + self._random.expovariate(self._load.rate_per_s)) < end_s:
            await asyncio.sleep(max(0.0, due_s - time.monotonic()))
            task = asyncio.create_task(self._send(self._random.randrange(len(self._sessions))))
            self._under_way.add(task)
            task.add_done_callback(self._under_way.discard)

    async def _send(self, number: int) -> None:
        headers = [(b"content-type", b"application/json"), (b"idempotency-key", _name())]
        why = "no server"
        for tries in range(TRIES_MAX):
            if tries:
                self._requests["retried"] += 1
                await asyncio.sleep(PAUSE_S * (1 + tries))
            url = self._url(number, tries)
            try:
                answer = await self._node(url).request(
                    "POST", "/requests", headers=headers, body=self._body, timeout_s=REQUEST_S
                )
            except NotDelivered as error:
                why = str(error)
                continue
            except PeerError as error:
                self._requests["unknown"] += 1
                self._reasons[str(error)] += 1
                return
            if answer.status == 200:
                self._requests["ok"] += 1
                return
            why = f"status {answer.status}"
            if answer.status not in NOT_RUN:
                break
        self._requests["failed"] += 1
        self._reasons[why] += 1

    def _url(self, number: int, tries: int) -> str:
        """Returns where the client is; another server of its list where that did not take it."""
        session = self._sessions[number]
        if session.in_use is not None and tries % 2 == 0:
            return session.in_use.url
        return self._random.choice(session.servers).url

    # --- the result ---------------------------------------------------------------------------

    def _result(self, duration_s: float) -> dict[str, Any]:
        sessions = self._sessions
        reasons = Counter(session.why for session in sessions if session.in_use is None)
        return {
            "rule": self._load.rule,
            "seed": self._load.seed,
            "duration_s": round(duration_s, 3),
            "clients": self._counts(),
            **self._so_far(),
            "elsewhere_ms": _times(self._elsewhere_ms),
            "reasons": dict((self._reasons + reasons).most_common(10)),
            "timeline": self._timeline,
        }


async def run(
    load: ClientsLoad,
    stop: asyncio.Event,
    on_look: OnLook = lambda _: None,
    headers: Headers = (),
) -> dict[str, Any]:
    """Have the clients for as long as asked, or until `stop`; returns the result. `on_look` is told
    every LOOK_S where the clients are, and what has been counted. `headers` go with all calls."""
    return await Crowd(load, on_look, headers).run(stop)


def client_name(run_id: str, number: int) -> str:
    """Returns what a client is called. `consistent-hash` puts it on its circle by that."""
    return f"loadgen-{run_id}-{number}"


def _name() -> bytes:
    return secrets.token_hex(12).encode()


def _times(values: list[float]) -> dict[str, float | None]:
    """Returns percentiles of the time from a loss to the next session, of those that found one."""
    ordered = sorted(values)
    if not ordered:
        return {"p50": None, "p99": None, "max": None}
    shares = {"p50": 0.5, "p99": 0.99, "max": 1.0}
    return {
        name: round(ordered[math.ceil(share * len(ordered)) - 1], 3)
        for name, share in shares.items()
    }
