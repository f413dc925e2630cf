"""A federation of node processes that a test may harm: each started apart, killed, frozen and
started again at its address, with what it knows of the others' addresses its own.

`spillover up` would do for the start, but it gives a node up that has died. What requests come to
is in `support.faults.load`, what is wrong with it in `support.faults.reckoning`.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from spillover.live.http1.client import HttpClient
from spillover.live.tls.material import TlsFiles
from spillover.model.certified_names import certified_name
from spillover.model.errors import PeerError
from support import HANDLERS
from support.certificates import Authority, put
from support.loop import until
from support.ports import free_ports

READY_S = 90.0
"""For nodes to start, or to start again, and to be heard by all their neighbors: a second by
themselves, many more on a machine that has much to do."""
SPREAD_S = 60.0
"""For a burst to come to a cluster, at the pace of whoever hands it on."""
HEAVIER_S, LONGER_MAX = 5.0, 8.0
"""A machine that has much to do serves a load so slowly that no cluster has too much of it: after
each such time it is made heavier, until requests take so many times as long."""
ASK_S = 1.0
"""One that is frozen holds up nobody for longer."""
ANSWER_S = 10.0
"""For one that is meant to run: on a machine that has much to do an answer takes seconds."""
LOOK_S = 0.1

SYNC, ASYNC = "python:fault_effects:run", "python:fault_effects:run_async"

RING: dict[str, dict[str, Any]] = {
    "a": {"servers": 2, "service_ms": 60, "handler": SYNC},
    "b": {"servers": 1, "service_ms": 60, "handler": ASYNC},
    "c": {"servers": 4, "service_ms": 60, "handler": SYNC},
    "d": {"servers": 1, "service_ms": 60, "handler": ASYNC},
}
"""a is where most requests come in; b and d relay what they cannot run to c, which runs it."""

RING_LINKS = ("ab", "bc", "cd", "da")

IS_SECURE = os.environ.get("SPILLOVER_FAULTS_TLS") == "1"
"""Whether all federations have certificates: as `make soak` wants it."""

NAME = "faults"
VALID_BEFORE = timedelta(days=2)
"""Some clocks go back by one."""


@dataclass(kw_only=True)
class Federation:
    """Clusters by id with their fields of a topology file, and links as pairs of letters.

    `environment` and `options` are of one cluster each, and hold from its next start on. If
    `is_secure` neighbors have doors of their own, with TLS, at `ports`, and clients others.
    """

    directory: Path
    ports: Sequence[int]
    clusters: Mapping[str, dict[str, Any]] = field(default_factory=lambda: RING)
    links: Sequence[str] = RING_LINKS
    delay_ms: float = 5.0
    policy: str | None = None
    """The default of each node's own version, if it is None."""
    environment: dict[str, dict[str, str]] = field(default_factory=dict)
    options: dict[str, list[str]] = field(default_factory=dict)
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    is_secure: bool = IS_SECURE
    certified: dict[str, TlsFiles] = field(default_factory=dict)
    client_ports: Sequence[int] = ()
    times_longer: float = 1.0
    """Of what the load says that each request takes."""

    @property
    def urls(self) -> dict[str, str]:
        return {
            cluster: f"http://127.0.0.1:{port}"
            for cluster, port in zip(self.clusters, self.client_ports or self.ports, strict=True)
        }

    @property
    def effects(self) -> Path:
        return self.directory / "effects"

    def log(self, cluster: str) -> Path:
        return self.directory / f"{cluster}.log"

    # --- processes ----------------------------------------------------------------------------

    async def start(self) -> None:
        """All of them, ready and heard by their neighbors."""
        self.directory.mkdir(exist_ok=True)
        self.effects.touch()
        if self.is_secure:
            self._certify()
        for cluster in self.clusters:
            self.log(cluster).touch()
            self.spawn(cluster)
        await self.healthy()

    def spawn(self, cluster: str) -> None:
        """Start it, for the first time or again. Its log goes on."""
        command = [sys.executable, "-m", "spillover", "node", "--cluster", cluster]
        command += ["--topology", str(self._topology(cluster)), "--testbed", "--end-with-stdin"]
        command += ["--drain-timeout-s", "2", *self.options.get(cluster, ())]
        environment = os.environ | {"SPILLOVER_TEST_EFFECTS": str(self.effects)}
        environment |= self.environment.get(cluster, {})
        if (files := self.certified.get(cluster)) is not None:
            given = {"CERT": files.cert, "KEY": files.key, "CA": files.ca or ""}
            environment |= {f"SPILLOVER_TLS_{kind}": file for kind, file in given.items()}
        with self.log(cluster).open("ab") as errors:
            self.processes[cluster] = subprocess.Popen(
                command, cwd=HANDLERS, env=environment,
                stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=errors,
                process_group=0,
            )  # fmt: skip

    def signal(self, cluster: str, number: int) -> None:
        os.kill(self.processes[cluster].pid, number)

    def kill(self, cluster: str) -> None:
        """SIGKILL; gone when this returns."""
        process = self.processes[cluster]
        process.kill()
        process.wait(5)
        _let_go(process)

    def close(self) -> dict[str, int]:
        """End all as an operator does, and by force what does not end; the exit statuses."""
        try:
            for process in self.processes.values():
                for number in (signal.SIGCONT, signal.SIGTERM):
                    process.send_signal(number)
            limit_s = time.monotonic() + 6.0
            for process in self.processes.values():
                with suppress(subprocess.TimeoutExpired):
                    process.wait(max(0.0, limit_s - time.monotonic()))
        finally:
            for process in self.processes.values():
                process.kill()
                process.wait(5)
                _let_go(process)
        return {cluster: process.returncode for cluster, process in self.processes.items()}

    def _topology(self, cluster: str) -> Path:
        """JSON is YAML, too."""
        clusters = [{"id": c, "url": self.urls[c], **f} for c, f in self.clusters.items()]
        for one, port in zip(clusters, self.ports, strict=True):
            place = f"127.0.0.1:{port}"
            one.update(
                {"peer_url": f"https://{place}"} if self.is_secure else {"url": f"http://{place}"}
            )
        links = [{"between": list(pair), "delay_ms": self.delay_ms} for pair in self.links]
        path = self.directory / f"{cluster}.yaml"
        topology = {"name": NAME, "clusters": clusters, "links": links}
        if self.policy is not None:
            topology["policy"] = self.policy
        path.write_text(json.dumps(topology))
        return path

    def _certify(self) -> None:
        self.client_ports = free_ports(len(self.ports))
        authority = Authority()
        for cluster in self.clusters:
            name = certified_name(cluster, NAME)
            signed = authority.sign(name, begins=-VALID_BEFORE)
            self.certified[cluster] = put(self.directory / "tls", cluster, signed, authority)

    # --- what operators ask and set -----------------------------------------------------------

    def client(self, cluster: str) -> HttpClient:
        """To be closed by who asked for it."""
        return HttpClient(self.urls[cluster])

    async def call(
        self, cluster: str, method: str, path: str, body: Any = None, timeout_s: float = ASK_S
    ) -> tuple[int, Any]:
        """Raises PeerError if nobody answers in time."""
        client = self.client(cluster)
        data = b"" if body is None else json.dumps(body).encode()
        try:
            response = await client.request(method, path, body=data, timeout_s=timeout_s)
        finally:
            await client.close()
        return response.status, json.loads(response.body)

    async def state(self, cluster: str, timeout_s: float = ASK_S) -> dict[str, Any] | None:
        """None if it says nothing: it is dead or frozen."""
        with suppress(PeerError):
            status, state = await self.call(cluster, "GET", "/state", timeout_s=timeout_s)
            return state if status == 200 else None
        return None

    async def states(self, timeout_s: float = ASK_S) -> dict[str, dict[str, Any] | None]:
        found = await asyncio.gather(*(self.state(c, timeout_s) for c in self.clusters))
        return dict(zip(self.clusters, found, strict=True))

    async def is_given_up(self, cluster: str) -> bool:
        """Whether none of its neighbors hears it."""
        ends = {pair.replace(cluster, "", 1) for pair in self.links if cluster in pair}
        states = await asyncio.gather(*map(self.state, ends))
        told = [
            neighbor for state in states if state is not None for neighbor in state["neighbors"]
        ]
        hears = [neighbor["alive"] for neighbor in told if neighbor["id"] == cluster]
        return len(hears) == len(ends) and not any(hears)

    async def set_links(self, *ways: str, **faults: Any) -> None:
        """What leaves for a neighbor, one direction each: "ab" is from a to b."""
        for way in ways:
            path = f"/admin/links/{way[1]}"
            status, told = await self.call(way[0], "PUT", path, faults, timeout_s=10.0)
            assert status == 200, told

    async def holds_foreign(self, cluster: str, least: int = 2) -> None:
        """Until the burst has come to it: it has this many of its neighbors' requests."""
        began_s = time.monotonic()

        async def does_hold() -> bool:
            steps = (time.monotonic() - began_s) // HEAVIER_S
            self.times_longer = min(2.0**steps, LONGER_MAX)
            state = await self.state(cluster)
            return state is not None and _held_of_neighbors(state) >= least

        try:
            what = f"{cluster} holds {least} of its neighbors"
            await until(does_hold, SPREAD_S, what, every_s=0.01)
        finally:
            self.times_longer = 1.0

    async def healthy(self, timeout_s: float = READY_S) -> float:
        """How long it took until every node answered and had all its neighbors alive. Raises
        TimeoutError, with what each said last."""
        began_s = time.monotonic()
        while not all(map(_hears_all, (states := await self.states(ANSWER_S)).values())):
            if time.monotonic() - began_s > timeout_s:
                raise TimeoutError("\n".join(self._ails(c, state) for c, state in states.items()))
            await asyncio.sleep(LOOK_S)
        return time.monotonic() - began_s

    def _ails(self, cluster: str, state: dict[str, Any] | None) -> str:
        """What is to be known of one that is not healthy, for a log."""
        hears = None if state is None else {n["id"]: n["alive"] for n in state["neighbors"]}
        exit_status = self.processes[cluster].poll()
        end = self.log(cluster).read_text(errors="replace")[-2000:]
        return f"{cluster}: hears {hears}, exit status {exit_status}, log:\n{end}"


def _let_go(process: subprocess.Popen[bytes]) -> None:
    if process.stdin is not None:
        process.stdin.close()


def _held_of_neighbors(state: dict[str, Any]) -> int:
    foreign = state["ledger"]["foreign"]
    return int(foreign["queued"] + foreign["running"] + foreign["handed_on"])


def _hears_all(state: dict[str, Any] | None) -> bool:
    return state is not None and all(neighbor["alive"] for neighbor in state["neighbors"])
