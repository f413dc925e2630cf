"""The member's side of renewal: has what is held renewed, and says what came of it.

What is held goes through the memory that both sides have; what came of renewals comes back as the
events of `core.leases.events`. One thread here tells handlers to stop a margin before their
deadline and beats for those that run on threads; another one, the supervisor's, keeps something
renewing.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any, TypeAlias

from spillover.core.leases import events as ev
from spillover.core.leases.records import Renewed
from spillover.live.leases.renewal.clock import lease_now_s
from spillover.live.leases.renewal.held import HeldLeases
from spillover.live.leases.renewal.memory import LOOP, THREAD
from spillover.live.leases.renewal.plan import RenewalPlan
from spillover.live.leases.renewal.supervisor import (
    AUTO,
    RenewerEnded,
    RenewerStarted,
    Supervisor,
    call_safely,
)
from spillover.live.process.own_threads import start_own
from spillover.model.errors import RunError

TICK_S_MAX = 0.5

Told: TypeAlias = ev.Event | RenewerStarted | RenewerEnded


class LeaseRenewer(HeldLeases):
    """Renews what a member holds, from `begin` to `end`; `close` it at last.

    `on_event` gets RenewalAnswered, RenewalFailed, HandlerHung and RenewalsEnded for the machine,
    and RenewerStarted and RenewerEnded for the log, in a thread of its own. `on_lag` gets how late
    each renewal was in s. `mode`: auto, process or thread. Raises RunError where threads have no
    room.
    """

    def __init__(
        self,
        plan: RenewalPlan,
        on_event: Callable[[Told], None],
        *,
        on_lag: Callable[[float], None] = lambda _: None,
        mode: str = AUTO,
    ) -> None:
        super().__init__(plan.partitions)
        self._plan = plan
        self._on_event = on_event
        self._on_lag = on_lag
        self._tick_s = min(TICK_S_MAX, plan.period_s / 8.0, plan.margin_s / 2.0)
        if plan.max_progress_s is not None:
            self._tick_s = min(self._tick_s, plan.max_progress_s / 8.0)
        self._told_hung: set[tuple[int, int]] = set()
        self._closing = threading.Event()
        self._beater: asyncio.TimerHandle | None = None
        self._supervisor = Supervisor(
            plan,
            self._memory,
            self._tick_s,
            mode=mode,
            on_message=self._heard,
            on_event=on_event,
        )
        self.begin = self._supervisor.begin
        self.end = self._supervisor.end
        self._watcher = threading.Thread(target=self._watch, name="lease-watch", daemon=True)
        try:
            start_own(self._watcher)
            self._supervisor.watch()
        except RunError:
            self.close()
            raise

    def close(self) -> None:
        """Fence what is left, and end."""
        with self._lock:
            if self._closing.is_set():
                return
            self._closing.set()
        self._fence_all()
        if self._beater is not None:
            self._beater.cancel()
        if self._watcher.ident is not None:
            self._watcher.join()
        self._supervisor.close()
        self._memory.close()

    @property
    def kind(self) -> str:
        """Returns what renews: `process` or `thread`; empty while there is neither."""
        worker = self._supervisor.worker
        return worker.kind if worker is not None else ""

    @property
    def pid(self) -> int | None:
        worker = self._supervisor.worker
        return worker.pid if worker is not None else None

    # --- deadlines and beats ---------------------------------------------------------------------

    def beat_on(self, loop: asyncio.AbstractEventLoop) -> None:
        """Beat for handlers on this loop; call it there."""
        self._memory.beat(LOOP, lease_now_s(), 2.0 * self._tick_s)
        if not self._closing.is_set():
            self._beater = loop.call_later(self._tick_s, self.beat_on, loop)

    def _watch(self) -> None:
        """Tell handlers in time to stop; in a thread apart from the one that starts processes and
        sees them off."""
        wait_s = 0.0
        while not self._closing.wait(wait_s):
            now_s = lease_now_s()
            self._memory.beat(THREAD, now_s, 2.0 * self._tick_s)
            wait_s = self._tell_to_stop(now_s)

    def _tell_to_stop(self, now_s: float) -> float:
        """Stop the handlers whose leases are about to end, and return in how many seconds the next
        one is."""
        next_s = self._tick_s
        for lease in self._all():
            if lease.is_over:
                continue
            left_s = lease.deadline_s - self._plan.margin_s - now_s
            if left_s <= 0:
                lease.tell_to_stop()
            else:
                next_s = min(next_s, left_s)
        return max(next_s, 0.001)

    # --- what came of renewals -------------------------------------------------------------------

    def _heard(self, message: dict[str, Any]) -> None:
        """Take a message of the process; in the supervisor's thread."""
        if "sent_s" in message:
            call_safely(self._on_lag, message["late_s"])
            call_safely(self._on_event, self._outcome(message))
        if "hung" in message:
            hung = {(partition, epoch) for partition, epoch in message["hung"]}
            for partition, epoch in sorted(hung - self._told_hung):
                call_safely(self._on_event, ev.HandlerHung(partition, epoch))
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
