"""The member's side of renewal: starts what renews, watches over it, and says what came of it.

What is held goes through the memory both have; what came of renewals comes back as the events of
`core.leases.events`. One thread of the member tells handlers to stop a margin
before their deadline and beats for those that run on threads; another one starts another process
as soon as the one it has dies or stands still, which takes a while on a busy machine. Meanwhile
leases last: their deadlines are in the memory.
"""

from __future__ import annotations

import asyncio
import json
import logging
import select
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from spillover.core.leases import events as ev
from spillover.core.leases.records import Renewed
from spillover.live.leases.renewal.child import BEGIN, END, NOW
from spillover.live.leases.renewal.clock import lease_now_s
from spillover.live.leases.renewal.lease import Lease
from spillover.live.leases.renewal.memory import LOOP, THREAD, LeaseMemory
from spillover.live.leases.renewal.plan import RenewalPlan
from spillover.live.leases.renewal.spawn import PROCESS, Worker, start_process, start_thread
from spillover.live.process.logs import Message
from spillover.live.process.own_threads import start_own
from spillover.model.errors import RunError

_log = logging.getLogger(__name__)

AUTO = "auto"
TICK_S_MAX = 0.5
READ_BYTES = 65_536
YOUNG_DEATHS_MAX = 3
"""So many processes in a row that die before they say anything: a thread then."""
RESTART_S = 0.05
STILL_SHARE = 0.4
"""Of a lease: longer than one call to Redis may take, short enough for another one to renew."""
START_S_MAX = 5.0
"""For a process that has not begun: on a busy machine another one would not begin any sooner."""


@dataclass(frozen=True, slots=True)
class RenewerStarted:
    """Who renews from now on: a `process` (its pid), or a `thread`, and why no process."""

    kind: str
    pid: int | None
    why: str = ""


@dataclass(frozen=True, slots=True)
class RenewerEnded:
    """It ended though nobody asked it to; another one is started at once."""

    how: str


class LeaseRenewer:
    """Renews what a member holds, from `begin` to `end`; `close` it at last.

    `on_event` gets RenewalAnswered, RenewalFailed, HandlerHung and RenewalsEnded for the machine,
    and RenewerStarted and RenewerEnded for the log, in a thread of its own. `on_lag` gets how late
    each renewal was in s. All instants are of `clock.lease_now_s`. `mode`: auto, process or thread.
    """

    def __init__(
        self,
        plan: RenewalPlan,
        on_event: Callable[[Any], None],
        *,
        on_lag: Callable[[float], None] = lambda _: None,
        mode: str = AUTO,
    ) -> None:
        self._plan = plan
        self._on_event = on_event
        self._on_lag = on_lag
        self._mode = mode
        self._memory = LeaseMemory(plan.partitions)
        self._leases: dict[int, Lease] = {}
        self._lock = threading.RLock()
        self._tick_s = min(TICK_S_MAX, plan.period_s / 8.0, plan.margin_s / 2.0)
        if plan.max_progress_s is not None:
            self._tick_s = min(self._tick_s, plan.max_progress_s / 8.0)
        self._worker: Worker | None = None
        self._begun = self._ending = False
        self._closing = threading.Event()
        self._unread = b""
        self._young_deaths = 0
        self._is_young = True
        self._told_hung: set[tuple[int, int]] = set()
        self._seen_beat_s = self._still_s = self._watched_s = 0.0
        self._has_begun = False
        self._beater: asyncio.TimerHandle | None = None
        self.loop_lag_s = 0.0
        """How late the event loop was at its last beat, see `beat_on`."""
        # The first one here and now: what the member does next may keep all its threads waiting.
        self._why = ""
        self._start()
        self._threads: list[threading.Thread] = []
        watcher = threading.Thread(target=self._watch_forever, name="lease-watch", daemon=True)
        supervisor = threading.Thread(target=self._supervise, name="lease-renewal", daemon=True)
        try:
            for thread in (watcher, supervisor):
                start_own(thread)
                self._threads.append(thread)
        except RunError:
            self.close()
            if self._worker is not None:
                self._see_off(self._worker, at_once=True)
            self._memory.close()
            raise

    # --- the machine's commands ------------------------------------------------------------------

    def begin(self) -> None:
        """Give a sign of life at once, then each period, for whatever is held by then."""
        with self._lock:
            self._begun, self._ending = True, False
            self._say(BEGIN)

    def end(self) -> None:
        """Renew nothing more; RenewalsEnded says that none is on its way."""
        with self._lock:
            self._begun, self._ending = False, True
            self._say(END)

    def renew_now(self) -> None:
        """Not only at the end of the period."""
        with self._lock:
            self._say(NOW)

    def grant(self, partition: int, epoch: int, to_s: float, runtime: int = THREAD) -> Lease:
        """Hold a partition, so far up to `to_s`; `runtime`: what its handler runs on."""
        with self._lock:
            self._memory.grant(partition, epoch, to_s, runtime)
            lease = self._leases[partition] = Lease(
                self._memory, partition, epoch, self._lease_is_over
            )
        return lease

    def stop(self, partition: int, epoch: int, by_s: float) -> None:
        """Have the handler stop; it may act up to `by_s`, and its lease is kept up to then."""
        with self._lock:
            lease = self._lease(partition, epoch)
            if lease is not None:
                self._memory.limit(partition, by_s)
                lease.tell_to_stop()

    def fence(self, partition: int, epoch: int) -> None:
        """From now on the handler may act no more."""
        lease = self._lease(partition, epoch)
        if lease is not None:
            lease.fence()

    def drop(self, partition: int, epoch: int) -> None:
        """Renew this no more: its handler has ended, or is fenced."""
        with self._lock:
            lease = self._lease(partition, epoch)
            if lease is not None:
                lease.fence()
                del self._leases[partition]
                self._memory.drop(partition)

    def deadline_s(self, partition: int, epoch: int) -> float:
        """Until when a holder of that epoch may act, as last renewed; 0 if it may not."""
        return self._memory.deadline_s(partition, epoch)

    def work(self) -> list[tuple[int, int, float | None]]:
        """(partition, epoch, what its handler has reported) of all that is held; see
        `Lease.report_load`."""
        with self._lock:
            leases = list(self._leases.values())
        return [(lease.partition, lease.epoch, lease.work) for lease in leases]

    def close(self) -> None:
        """Fence what is left, and end."""
        with self._lock:
            if self._closing.is_set():
                return
            self._closing.set()
            for lease in self._leases.values():
                lease.fence()
            if self._beater is not None:
                self._beater.cancel()
            if self._worker is not None:
                self._worker.wake()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join()

    # --- what is known ---------------------------------------------------------------------------

    @property
    def kind(self) -> str:
        """`process` or `thread`; empty while there is neither."""
        worker = self._worker
        return worker.kind if worker is not None else ""

    @property
    def pid(self) -> int | None:
        worker = self._worker
        return worker.pid if worker is not None else None

    def beat_on(self, loop: asyncio.AbstractEventLoop) -> None:
        """Beat for handlers on this loop, and measure its lag; call it on the loop."""
        due_s = lease_now_s() + self._tick_s

        def beat() -> None:
            now_s = lease_now_s()
            self.loop_lag_s = max(0.0, now_s - due_s)
            if not self._closing.is_set():
                self.beat_on(loop)

        self._memory.beat(LOOP, lease_now_s(), 2.0 * self._tick_s)
        self._beater = loop.call_later(self._tick_s, beat)

    # --- the two threads -------------------------------------------------------------------------

    def _watch_forever(self) -> None:
        """Apart from the other one, which starts processes and sees them off."""
        wait_s = 0.0
        while not self._closing.wait(wait_s):
            now_s = lease_now_s()
            self._memory.beat(THREAD, now_s, 2.0 * self._tick_s)
            wait_s = self._watch_leases(now_s)

    def _supervise(self) -> None:
        worker = self._worker
        while not self._closing.is_set():
            if worker is None:
                worker = self._start()
            if worker is None:
                self._closing.wait(RESTART_S)
                continue
            self._call(self._on_event, RenewerStarted(worker.kind, worker.pid, self._why))
            at_once = self._watch(worker)
            self._see_off(worker, at_once=at_once)
            worker = None
            if self._young_deaths:
                self._closing.wait(
                    min(RESTART_S * 2.0**self._young_deaths, self._plan.period_s / 2.0)
                )
        if worker is not None:
            self._see_off(worker, at_once=True)
        self._memory.close()

    def _start(self) -> Worker | None:
        """None: try again a little later."""
        self._why = "" if self._mode != "thread" else "asked for"
        worker = None
        if self._mode == AUTO and self._young_deaths >= YOUNG_DEATHS_MAX:
            self._why = f"{self._young_deaths} processes in a row ended as soon as they began"
        elif self._mode != "thread":
            try:
                worker = start_process(self._plan, self._memory)
            except OSError as error:
                self._why = f"no process could be started: {error}"
                if self._mode == PROCESS:
                    self._call(self._on_event, RenewerEnded(self._why))
                    return None
        if worker is None:
            try:
                worker = start_thread(self._plan, self._memory)
            except RunError as error:
                self._call(self._on_event, RenewerEnded(str(error)))
                return None
        with self._lock:
            self._worker = worker
            self._unread, self._is_young = b"", True
            self._seen_beat_s, self._still_s = self._memory.renewer_beat_s, 0.0
            self._has_begun = False
            self._watched_s = lease_now_s()
            if self._closing.is_set():
                worker.wake()
            elif self._begun:
                worker.say(BEGIN)
        return worker

    def _watch(self, worker: Worker) -> bool:
        """Until it ends. True if it stands still and has to be ended."""
        waiting = select.poll()
        waiting.register(worker.link, select.POLLIN)
        while True:
            if waiting.poll(self._tick_s * 1000.0) and not self._read(worker):
                return False
            if self._stands_still(lease_now_s()):
                return True

    def _watch_leases(self, now_s: float) -> float:
        """Tell those to stop that are about to end; in how many s the next one is."""
        next_s = self._tick_s
        with self._lock:
            leases = list(self._leases.values())
        for lease in leases:
            if lease.is_over:
                continue
            left_s = lease.deadline_s - self._plan.margin_s - now_s
            if left_s <= 0:
                lease.tell_to_stop()
            else:
                next_s = min(next_s, left_s)
        return max(next_s, 0.001)

    def _stands_still(self, now_s: float) -> bool:
        """Whether the renewer has not moved for so much time that this thread has seen pass."""
        beat_s = self._memory.renewer_beat_s
        self._still_s += min(now_s - self._watched_s, 2.0 * self._tick_s)
        self._watched_s = now_s
        if beat_s != self._seen_beat_s:
            self._seen_beat_s, self._still_s, self._has_begun = beat_s, 0.0, True
        limit_s = STILL_SHARE * self._plan.lease_s
        return self._still_s > (limit_s if self._has_begun else max(limit_s, START_S_MAX))

    def _see_off(self, worker: Worker, *, at_once: bool) -> None:
        with self._lock:
            self._worker = None
        how = worker.end(at_once=at_once)
        self._young_deaths = self._young_deaths + 1 if self._is_young else 0
        if self._closing.is_set():
            return
        self._call(self._on_event, RenewerEnded("stood still" if at_once else how))
        if self._ending:
            self._tell_ended()

    # --- what the renewer says -------------------------------------------------------------------

    def _read(self, worker: Worker) -> bool:
        """False at its end."""
        try:
            data = worker.link.recv(READ_BYTES)
        except OSError:
            return False
        *lines, self._unread = (self._unread + data).split(b"\n")
        for line in lines:
            self._is_young = False
            self._heard(json.loads(line))
        return bool(data) and not self._closing.is_set()

    def _heard(self, message: dict[str, Any]) -> None:
        if "ended" in message:
            self._tell_ended()
        if "sent_s" in message:
            self._call(self._on_lag, message["late_s"])
            self._call(self._on_event, self._outcome(message))
        if "hung" in message:
            hung = {(partition, epoch) for partition, epoch in message["hung"]}
            for partition, epoch in sorted(hung - self._told_hung):
                self._call(self._on_event, ev.HandlerHung(partition, epoch))
            self._told_hung = hung

    def _outcome(self, message: dict[str, Any]) -> ev.RenewalAnswered | ev.RenewalFailed:
        if "problem" in message:
            return ev.RenewalFailed(message["problem"], message["sent_s"])
        self._plan.era = message["era"]
        pairs = [(partition, epoch) for partition, epoch in message["pairs"]]
        held = [
            (partition, flag != "0", flag == "2")
            for (partition, _), flag in zip(pairs, message["flags"], strict=True)
        ]
        answer = Renewed(message["era"], held, message["displaced"])
        return ev.RenewalAnswered(message["sent_s"], pairs, answer)

    def _tell_ended(self) -> None:
        with self._lock:
            told = self._ending
            self._ending = False
        if told:
            self._call(self._on_event, ev.RenewalsEnded())

    # --- small things ----------------------------------------------------------------------------

    def _lease(self, partition: int, epoch: int) -> Lease | None:
        lease = self._leases.get(partition)
        return lease if lease is not None and lease.epoch == epoch else None

    def _lease_is_over(self, lease: Lease) -> None:
        with self._lock:
            if self._lease(lease.partition, lease.epoch) is lease:
                self._memory.limit(lease.partition, 0.0)

    def _call(self, told: Callable[[Any], None], what: Any) -> None:
        """Whatever is wrong with who is told, this thread goes on."""
        try:
            told(what)
        except Exception:  # noqa: BLE001 - it is told in full
            _log.exception(Message("renewal event was not taken", event=repr(what)))

    def _say(self, word: bytes) -> None:
        if self._worker is not None:
            self._worker.say(word)
