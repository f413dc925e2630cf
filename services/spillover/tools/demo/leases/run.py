"""The lease demo itself: fill, share out, kill, freeze, resume, add, wait for all records, check.

What is due when stands in `plan`; what came of it is reckoned in `ownership` and `checking`.
"""

from __future__ import annotations

import asyncio
import re
import shutil
import signal
import tempfile
import time
import uuid
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from spillover.model.errors import InputError, RunError
from spillover.testbed.redis import RedisPlace, open_sync_client, redis_at
from spillover.testbed.watchdog import Watchdog
from spillover.tools.demo.leases.checking import check_streams, remove_keys
from spillover.tools.demo.leases.display import LeaseDisplay, View
from spillover.tools.demo.leases.filling import Portion, write, writer_count
from spillover.tools.demo.leases.late_writes import Ghost, LateWrites
from spillover.tools.demo.leases.members import Members
from spillover.tools.demo.leases.model import LeaseDemoResult, MemberResult
from spillover.tools.demo.leases.ownership import (
    Mark,
    OwnershipStory,
    tell_story,
    with_applied_gaps,
)
from spillover.tools.demo.leases.plan import FROZEN, JOINED, KILLED, RESUMED, Disturbance, LeasePlan
from spillover.tools.demo.leases.watching import Watch

REDIS_MIN = (6, 2)
"""Older ones cannot read on from an id of a stream."""

POLL_S = 0.02
CANCEL_AGAIN_S = 0.1
LEAVE_WITHIN_S = 10.0
"""Beyond the shutdown time, for members on a busy machine to leave."""


def run_lease_demo(plan: LeasePlan, display: LeaseDisplay) -> LeaseDemoResult:
    """Runs it all in real time. Raises InputError without a usable Redis; RunError if a process
    fails, or the members do not finish within the plan's limit; KeyboardInterrupt."""
    began_s = time.monotonic()
    with Watchdog() as watchdog, redis_at(plan.redis, watchdog) as place:
        _check_version(place)
        directory = Path(tempfile.mkdtemp(prefix="spillover-leases-"))
        watchdog.watch_directory(directory)
        group = f"demo-{uuid.uuid4().hex[:8]}"
        try:
            run = _Run(plan, place, group, directory, watchdog, display)
            run.phase("redis", time.monotonic() - began_s)
            return _interruptibly(run.go())
        finally:
            shutil.rmtree(directory, ignore_errors=True)
            if not place.is_own and not plan.keep:
                _remove(place, group, plan.streams)


def _interruptibly(main: Coroutine[Any, Any, LeaseDemoResult]) -> LeaseDemoResult:
    """SIGTERM and SIGHUP end it as Ctrl-C does: by cancelling, so that everything is put away."""

    async def guarded() -> LeaseDemoResult:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - there is one: this
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, task.cancel)
        return await main

    try:
        return asyncio.run(guarded())
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None


async def _end(tasks: Iterable[asyncio.Task[None]]) -> None:
    """Cancel them, and again: the library of Redis, on Python 3.11, may take a cancellation that
    comes while it writes for the end of the write, and go on."""
    left = set(tasks)
    while left:
        for task in left:
            task.cancel()
        ended, left = await asyncio.wait(left, timeout=CANCEL_AGAIN_S)
        for task in ended:
            if not task.cancelled():
                task.exception()  # what went wrong first is told; this came after it


def _check_version(place: RedisPlace) -> None:
    numbers = re.match(r"(\d+)\.(\d+)", place.version)
    if numbers and tuple(map(int, numbers.groups())) < REDIS_MIN:
        expected = f"expected Redis 6.2 or later, got {place.version}"
        raise InputError("--redis", "", f"{expected}: it cannot read on from an id of a stream")


def _remove(place: RedisPlace, group: str, streams: int) -> None:
    from redis.exceptions import RedisError  # noqa: PLC0415

    client = open_sync_client(place.url)
    with suppress(RedisError, OSError):
        remove_keys(client, group, streams)
    client.close()


class _Run:
    """One run, and what it has come to know."""

    def __init__(
        self,
        plan: LeasePlan,
        place: RedisPlace,
        group: str,
        directory: Path,
        watchdog: Watchdog,
        display: LeaseDisplay,
    ) -> None:
        self._plan = plan
        self._place = place
        self._group = group
        self._display = display
        self._lease_s = plan.max_lease_ms / 1000.0
        self._watch = Watch(place.url, group, plan.streams)
        self._members = Members(
            plan, place.url, group, directory, watchdog, self._watch.lines.append
        )
        self._marks: list[Mark] = []
        self._late = LateWrites()
        self._ghosts: dict[str, Ghost] = {}
        self._phases_s: dict[str, float] = {}
        self._limit_s = 0.0
        self._settled = asyncio.Event()
        self._began_s = self._settled_s = 0.0

    def phase(self, name: str, length_s: float) -> None:
        """It took so long."""
        self._phases_s[name] = self._phases_s.get(name, 0.0) + length_s

    async def go(self) -> LeaseDemoResult:
        try:
            await self._timed("fill", self._fill())
            with self._display.run(self._plan):
                await self._run_members()
            checks = await self._timed("check", asyncio.to_thread(self._check))
        finally:
            for ghost in self._ghosts.values():
                await ghost.close()
            await self._members.end()
            await self._watch.close()
        return self._result(checks)

    async def _timed(self, name: str, doing: Coroutine[Any, Any, Any]) -> Any:
        since_s = time.monotonic()
        try:
            return await doing
        finally:
            self.phase(name, time.monotonic() - since_s)

    # --- the phases ---------------------------------------------------------------------------

    async def _fill(self) -> None:
        """What lies there before the members start."""
        plan = self._plan
        end = plan.records - plan.fed
        writers = writer_count(plan.streams)
        portions = [
            Portion(self._place.url, self._group, plan.streams, 0, end, writer, writers)
            for writer in range(writers)
        ]
        with self._display.filling(end) as show:
            await write(portions, show)

    async def _run_members(self) -> None:
        self._began_s = time.time()
        self._limit_s = time.monotonic() + self._plan.limit_s
        looking = asyncio.create_task(self._watch.look_forever(self._looked))
        feeding = asyncio.create_task(self._feed())
        disturbing = asyncio.create_task(self._disturb())
        tasks = {looking, feeding, disturbing}
        try:
            while not (feeding.done() and disturbing.done()):
                await asyncio.wait(
                    {task for task in tasks if not task.done()},
                    return_when=asyncio.FIRST_COMPLETED,
                )
                for task in tasks:
                    if task.done():
                        task.result()
            await self._timed("rest", self._finish())
        finally:
            await _end(tasks)
        await self._timed("stop", self._leave())

    async def _feed(self) -> None:
        """The rest of the records, evenly from the sharing out to the end of the schedule."""
        plan = self._plan
        first = plan.records - plan.fed
        portion = Portion(
            self._place.url,
            self._group,
            plan.streams,
            first,
            plan.records,
            over_s=plan.scheduled_s,
        )
        if plan.fed:
            await write([portion], lambda _: None, self._settled)

    async def _disturb(self) -> None:
        """All that is done to the members, each when it is due and the one before is over."""
        since_s = time.monotonic()
        self._say("members start and share the streams out")
        for node in self._plan.nodes:
            await self._members.start(node)
        await self._until(self._is_even, "the members have shared the streams out")
        self._settled_s = time.time()
        self._settled.set()
        self._say("all have their share")
        self.phase("start", time.monotonic() - since_s)
        await self._until(self._is_fed, "records come in")
        settled_s = time.monotonic()
        for step in self._plan.schedule:
            await asyncio.sleep(max(0.0, settled_s + step.at_s - time.monotonic()))
            await self._do(step)
        await self._until(self._is_even, "the newcomer has its share")
        self._say(f"{self._plan.newcomer} has its share")
        self.phase("disturb", time.monotonic() - settled_s)

    async def _finish(self) -> None:
        records = self._plan.records
        await self._until(
            lambda: self._watch.applied_total >= records, f"all {records} records are applied"
        )

    async def _leave(self) -> None:
        self._marks.append(Mark(time.time(), "ended", ""))
        await self._members.drain(self._plan.times.max_shutdown_ms / 1000.0 + LEAVE_WITHIN_S)

    def _check(self) -> Any:
        client = open_sync_client(self._place.url)
        try:
            return check_streams(client, self._group, self._plan.streams)
        finally:
            client.close()

    # --- what is done to members --------------------------------------------------------------

    async def _do(self, step: Disturbance) -> None:
        acts: dict[str, Callable[[str], Coroutine[Any, Any, None]]] = {
            KILLED: self._kill,
            FROZEN: self._freeze,
            RESUMED: self._resume,
            JOINED: self._join,
        }
        await acts[step.kind](step.node)

    async def _kill(self, node: str) -> None:
        ghost = self._ghost_of(node)
        self._mark(KILLED, node, self._members.kill(node))
        await ghost.prepare(self._lease_s / 4.0)
        await self._until(self._is_served, f"others serve what {node} had")
        self._say(f"others serve what {node} had")
        await ghost.deliver(self._late)

    async def _freeze(self, node: str) -> None:
        ghost = self._ghost_of(node)
        self._mark(FROZEN, node, self._members.freeze(node))
        await ghost.prepare(self._lease_s / 4.0)

    async def _resume(self, node: str) -> None:
        await self._until(self._is_served, f"others serve what {node} had")
        self._say(f"others serve what {node} had")
        await self._ghosts[node].deliver(self._late)
        self._mark(RESUMED, node, self._members.resume(node))
        await self._until(self._is_even, f"{node} has its share again")
        self._say(f"{node} has its share again")

    async def _join(self, node: str) -> None:
        at_s = time.time()
        await self._members.start(node)
        self._mark(JOINED, node, at_s)

    def _ghost_of(self, node: str) -> Ghost:
        held = self._members.all[node].held
        ghost = self._ghosts[node] = Ghost(self._place.url, self._group, held)
        return ghost

    def _mark(self, kind: str, node: str, at_s: float) -> None:
        self._marks.append(Mark(at_s, kind, node))
        self._say(f"{node} {kind}")

    # --- conditions ---------------------------------------------------------------------------

    def _is_served(self) -> bool:
        """Every stream, by a member that runs."""
        served = {partition for one in self._members.running for partition in one.held}
        return len(served) == self._plan.streams

    def _is_even(self) -> bool:
        """All members that should run have joined, every stream is served, and the members' counts
        differ by one at most: more cannot be had."""
        running = self._members.running
        counts = [len(one.held) for one in running]
        have_joined = self._watch.members.issuperset(one.node for one in running)
        return have_joined and self._is_served() and max(counts) - min(counts) <= 1

    def _is_fed(self) -> bool:
        """More records come in than lay there."""
        return self._watch.written_total > self._plan.records - self._plan.fed or not self._plan.fed

    async def _until(self, condition: Callable[[], bool], what: str) -> None:
        while not condition():
            if time.monotonic() > self._limit_s:
                done = f"{self._watch.applied_total} of {self._plan.records} records applied"
                limit = f"within the limit of {self._plan.limit_s:g} s"
                raise RunError(f"not {limit}: {what} ({done}); see --limit-s")
            await asyncio.sleep(POLL_S)

    # --- showing, and the result --------------------------------------------------------------

    def _looked(self) -> None:
        self._members.check()
        owners = {p: one.node for one in self._members.running for p in one.held}
        self._display.show(
            View(
                at_s=time.time() - self._began_s,
                written=self._watch.written_total,
                applied=self._watch.applied_total,
                rate_per_s=self._watch.rate_per_s,
                members=[(m.node, m.state, len(m.held)) for m in self._members.all.values()],
                owners=[owners.get(partition) for partition in range(self._plan.streams)],
            )
        )

    def _say(self, words: str) -> None:
        self._display.tell(time.time() - self._began_s, words)

    def _result(self, checks: Any) -> LeaseDemoResult:
        ended_s = self._marks[-1].at_s
        marks = self._marks[:-1]
        story = tell_story(self._watch.lines, marks, ended_s, self._plan.streams)
        gaps = with_applied_gaps(story.standstills, self._watch.applied)
        return LeaseDemoResult(
            plan=self._plan,
            group=self._group,
            redis_version=self._place.version,
            began_s=self._began_s,
            settled_s=self._settled_s,
            ended_s=ended_s,
            applied_s=max((seen[-1][0] for seen in self._watch.applied.values()), default=ended_s),
            marks=marks,
            story=replace(story, standstills=gaps),
            looks=self._watch.looks,
            checks=checks,
            late_writes=self._late,
            members=self._member_results(marks, story),
            phases_s=self._phases_s,
            finished_at=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        )

    def _member_results(self, marks: list[Mark], story: OwnershipStory) -> list[MemberResult]:
        fates = {mark.node: mark.kind for mark in marks if mark.kind != RESUMED}
        took = [span.node for span in story.spans]
        return [
            MemberResult(
                node=node,
                fate=fates.get(node, "stayed"),
                acquired=took.count(node),
                held_max=story.held_max(node),
                fenced=one.fenced,
                late_renewals=one.late_renewals,
            )
            for node, one in self._members.all.items()
        ]
