"""The members as processes: `spillover lease run`, started, killed, frozen, and listened to.

What they tell on stdout is handed on as it comes. Each leads a process group of its own, so that a
freeze stops its renewals too, as the pause of a whole machine does.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import Any

from spillover.model.errors import RunError
from spillover.testbed.last_words import last_words
from spillover.testbed.watchdog import Watchdog, end_group
from spillover.tools.demo.leases.plan import LeasePlan

REDIS_VARIABLE = "SPILLOVER_REDIS_URL"
"""Where `spillover lease run` looks for the address, which may hold a password."""

HANDLER = "python:spillover.live.leases.streams.example:consume"
OnLine = Callable[[dict[str, Any]], None]


class Member:
    """One process."""

    def __init__(self, node: str, process: asyncio.subprocess.Process, log: Path) -> None:
        self.node = node
        self.process = process
        self.log = log
        self.held: dict[int, int] = {}
        """Epochs by stream, as far as it has told."""
        self.killed = False
        self.frozen = False
        self.late_renewals = 0
        self.fenced = 0
        """Leases that it had to give up because they were over, or another one's."""

    @property
    def is_alive(self) -> bool:
        return self.process.returncode is None

    @property
    def state(self) -> str:
        """Returns its state in a word."""
        if self.killed:
            return "killed"
        if not self.is_alive:
            return "ended"
        return "frozen" if self.frozen else "running"

    def heard(self, line: dict[str, Any]) -> None:
        """Keeps count."""
        event, partition = line["event"], line.get("partition")
        if event == "acquired":
            self.held[line["partition"]] = line["epoch"]
        elif event in {"released", "lost", "fenced"}:
            if self.held.get(line["partition"]) == line["epoch"]:
                del self.held[line["partition"]]
            self.fenced += event != "released"
        elif event == "renewed_late" and partition is None:
            self.late_renewals += 1

    def last_words(self) -> str:
        """Returns the last line that it wrote to stderr."""
        return last_words(self.log)


class Members:
    """All of them. `on_line` gets each event line."""

    def __init__(
        self,
        plan: LeasePlan,
        url: str,
        group: str,
        directory: Path,
        watchdog: Watchdog,
        on_line: OnLine,
    ) -> None:
        self.all: dict[str, Member] = {}
        self._plan = plan
        self._url = url
        self._group = group
        self._directory = directory
        self._keeper = watchdog
        self._on_line = on_line
        self._listening: list[asyncio.Task[None]] = []

    @property
    def running(self) -> list[Member]:
        return [one for one in self.all.values() if one.is_alive and not one.frozen]

    async def start(self, node: str) -> None:
        """Return when the process runs; it joins by itself."""
        log = self._directory / f"{node}.log"
        with log.open("wb") as errors:
            process = await asyncio.create_subprocess_exec(
                *self._command(node),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=errors,
                env={**os.environ, REDIS_VARIABLE: self._url},  # `ps` would show an option
                start_new_session=True,
            )
        self._keeper.watch(process.pid)
        member = self.all[node] = Member(node, process, log)
        self._listening.append(asyncio.create_task(self._listen(member), name=f"listen {node}"))

    def kill(self, node: str) -> float:
        """Sends SIGKILL to the member alone: what it has started notices. Returns the instant."""
        member = self.all[node]
        member.killed = True
        member.held.clear()
        member.process.kill()
        return time.time()

    def freeze(self, node: str) -> float:
        """Sends SIGSTOP to the member and what it has started, for longer than its leases last: it
        holds nothing any more. Returns the instant."""
        self._signal_group(node, signal.SIGSTOP)
        self.all[node].frozen = True
        self.all[node].held.clear()
        return time.time()

    def resume(self, node: str) -> float:
        """Sends SIGCONT. Returns the instant."""
        at_s = time.time()
        self._signal_group(node, signal.SIGCONT)
        self.all[node].frozen = False
        return at_s

    def check(self) -> None:
        """Raise RunError if one has ended that nobody has killed."""
        for one in self.all.values():
            if not one.is_alive and not one.killed:
                code = one.process.returncode
                raise RunError(f"member {one.node} ended by itself ({code}): {one.last_words()}")

    async def drain(self, within_s: float) -> None:
        """Sends SIGTERM to all that run, which hand over and leave. Raises RunError if one does
        not, or does not end well."""
        leaving = self.running
        for one in leaving:
            one.process.send_signal(signal.SIGTERM)
        waits = [asyncio.ensure_future(one.process.wait()) for one in leaving]
        if waits:
            _, late = await asyncio.wait(waits, timeout=within_s)
            for wait in late:
                wait.cancel()
            if late:
                raise RunError(f"{len(late)} members were not gone {within_s:g} s after SIGTERM")
        self.check_statuses(leaving)

    def check_statuses(self, members: Sequence[Member]) -> None:
        for one in members:
            if one.process.returncode != 0:
                code = one.process.returncode
                raise RunError(f"member {one.node} ended with status {code}: {one.last_words()}")

    async def end(self) -> None:
        """Leaves nothing of them, whatever state they are in."""
        for one in self.all.values():
            end_group(one.process.pid)
        for one in self.all.values():
            await one.process.wait()
            self._keeper.forget(one.process.pid)
        await asyncio.gather(*self._listening, return_exceptions=True)

    def _signal_group(self, node: str, number: int) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.all[node].process.pid, number)

    def _command(self, node: str) -> list[str]:
        plan = self._plan
        command = [sys.executable, "-m", "spillover", "lease", "run"]
        command += ["--group", self._group, "--node", node, "--partitions", str(plan.streams)]
        command += ["--handler", HANDLER, "--seed", str(plan.seed), "--bind", "off"]
        for time_of in fields(plan.times):
            value_ms = getattr(plan.times, time_of.name)
            command += [f"--{time_of.name.replace('_', '-')}", f"{value_ms:.3f}"]
        return command

    async def _listen(self, member: Member) -> None:
        stdout = member.process.stdout
        while stdout is not None and (text := await stdout.readline()):
            try:
                line = json.loads(text)
            except ValueError:
                continue  # cut off in the middle, by a kill
            if isinstance(line, dict) and "event" in line and "at_s" in line:
                if not member.killed:
                    member.heard(line)
                self._on_line(line)
