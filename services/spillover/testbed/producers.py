"""Producers of the distributed queue as processes on this machine, that know each other: started
together, ended together, never left behind. What they say goes to a log file each.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from spillover.live.http1.bearer import TOKEN_VARIABLE
from spillover.live.process.memory_limit import default_held_limit_bytes
from spillover.model.errors import RunError
from spillover.model.ids import ClusterId
from spillover.model.topology import Cluster, Topology
from spillover.testbed.certified import Certified, Certify
from spillover.testbed.last_words import last_words
from spillover.testbed.own_token import OwnToken, make_own_token
from spillover.testbed.owned_directory import OwnedDirectory, remove_leftovers
from spillover.testbed.ports import free_urls, start_lock

FIRST_PORT = 8301
READY_WITHIN_S = 60.0
READY_POLL_S = 0.05
QUEUE = "queue"
"""The name of the queue in the producers' certificates."""
TENANT = "up"
"""The tenant of the API token that producers of a testbed show each other."""
SPARE_S = 3.0
"""The time for the rest of an orderly end."""


class ProducerBed:
    """`count` producers, p1, p2 and so on, at the first free ports from `first_port` up. Ready on
    entry, all ended on exit. With `stores` each keeps its objects in a directory of its name there.
    With files of API `tokens` they let in only who shows one, and have one of their own. With
    `certify` all is https. Raises RunError where one does not start."""

    def __init__(
        self,
        count: int,
        *,
        buffers: int | None = None,
        stores: Path | None = None,
        drain_timeout_s: float = 30.0,
        first_port: int = FIRST_PORT,
        tokens: Sequence[str] = (),
        certify: Certify | None = None,
    ) -> None:
        self.urls: dict[str, str] = {}
        self.logs: dict[str, Path] = {}
        self._ids = [f"p{number}" for number in range(1, count + 1)]
        self._stores = stores
        self._drain_timeout_s = drain_timeout_s
        self._first_port = first_port
        self._tokens = tokens
        self._own: OwnToken | None = None
        self.certified = Certified(certify)
        self._is_ready = False
        self._options = ["--held-limit-bytes", str(default_held_limit_bytes(count))]
        self._options += ["--drain-timeout-s", str(drain_timeout_s)]
        if buffers is not None:
            self._options += ["--buffers", str(buffers)]
        self._owned: OwnedDirectory | None = None
        self._processes: dict[str, asyncio.subprocess.Process] = {}

    async def __aenter__(self) -> Self:
        try:
            await self._start()
        except BaseException:
            await self.stop(0.5)
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop(self._drain_timeout_s)

    @property
    def pids(self) -> dict[str, int]:
        return {name: process.pid for name, process in self._processes.items()}

    def last_words(self, producer: str) -> str:
        return last_words(self.logs[producer])

    async def first_dead(self) -> str:
        waits = {
            asyncio.create_task(process.wait()): name for name, process in self._processes.items()
        }
        try:
            done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            return waits[done.pop()]
        finally:
            for wait in waits:
                wait.cancel()

    async def stop(self, grace_s: float) -> None:
        """End them: SIGTERM, and SIGKILL for those still there after `grace_s`."""
        living = [one for one in self._processes.values() if one.returncode is None]
        for process in living:
            process.terminate()
        waits = [asyncio.create_task(process.wait()) for process in living]
        if waits:
            await asyncio.wait(waits, timeout=grace_s + SPARE_S)
            self.kill()
            await asyncio.wait(waits)
        if self._owned is not None:
            self._owned.remove()

    def reread(self) -> None:
        """Have them read their certificates and API tokens again. While they are being started they
        do so anyway."""
        for process in self._processes.values():
            if self._is_ready and process.returncode is None:
                process.send_signal(signal.SIGHUP)

    def kill(self) -> None:
        for process in self._processes.values():
            if process.returncode is None:
                process.kill()

    async def _start(self) -> None:
        async with start_lock(READY_WITHIN_S):
            remove_leftovers()
            self._owned = OwnedDirectory()
            if self._tokens:
                self._own = make_own_token(self._owned.path, tenant=TENANT)
            self.certified.keep_in(self._owned.path)
            free = free_urls(len(self._ids), self._first_port)
            urls = [f"{self._scheme}{url.removeprefix('http')}" for url in free]
            self.urls = dict(zip(self._ids, urls, strict=True))
            for name in self._ids:
                self._processes[name] = await self._spawn(name, self._owned.path)
            await self._all_ready()
            self._is_ready = True

    @property
    def _scheme(self) -> str:
        return "https" if self.certified.is_wanted else "http"

    @property
    def _as_clusters(self) -> Topology:
        """Returns the producers as clusters, for which certificates are made."""
        urls = self.urls.items()
        clusters = (Cluster(id=ClusterId(name), servers=1, url=url) for name, url in urls)
        return Topology(name=QUEUE, clusters=tuple(clusters))

    async def _spawn(self, name: str, directory: Path) -> asyncio.subprocess.Process:
        command = [sys.executable, "-m", "spillover", "queue", "--id", name, "--end-with-stdin"]
        command += ["--bind", self.urls[name].removeprefix(f"{self._scheme}://"), *self._options]
        for peer, url in self.urls.items():
            command += ["--peer", f"{peer}={url}"]
        environment = self.certified.environment(self._as_clusters, ClusterId(name))
        if self._own is not None:
            for file in (*self._tokens, str(self._own.file)):
                command += ["--tokens", file]
            environment[TOKEN_VARIABLE] = self._own.secret
        if self._stores is not None:
            command += ["--store", str(self._stores / name)]
        self.logs[name] = directory / f"{name}.log"
        with self.logs[name].open("ab") as output:
            return await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.PIPE,
                stdout=output,
                stderr=output,
                env=environment,
                start_new_session=True,  # Ctrl-C is for whoever started them, who ends them then
            )

    async def _all_ready(self) -> None:
        limit_s = time.monotonic() + READY_WITHIN_S
        waiting = dict(self.urls)
        shown = {} if self._own is None else self._own.shown
        async with self.certified.asking(shown) as asking:
            while waiting:
                for name, url in list(waiting.items()):
                    if self._processes[name].returncode is not None:
                        raise RunError(f"producer {name} did not start: {self.last_words(name)}")
                    if (await asking.told(url)).get("producer") == name:
                        del waiting[name]
                if waiting and time.monotonic() > limit_s:
                    names = ", ".join(waiting)
                    raise RunError(f"not ready within {READY_WITHIN_S:.0f} s: producer {names}")
                await asyncio.sleep(READY_POLL_S)
