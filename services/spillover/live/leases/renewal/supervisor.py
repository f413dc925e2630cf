"""Keeps something renewing: starts a process (or a thread), watches over it, and starts another one
as soon as it dies or stands still, which takes a while on a busy machine. Meanwhile leases last:
their deadlines are in the memory. What it says of its renewals is handed on.
"""

from __future__ import annotations

import json
import logging
import select
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from spillover.core.leases.events import RenewalsEnded
from spillover.live.leases.renewal.child import BEGIN, END
from spillover.live.leases.renewal.clock import lease_now_s
from spillover.live.leases.renewal.memory import LeaseMemory
from spillover.live.leases.renewal.plan import RenewalPlan
from spillover.live.leases.renewal.spawn import (
    PROCESS,
    THREAD,
    Worker,
    start_process,
    start_thread,
)
from spillover.live.process.logs import Message
from spillover.live.process.own_threads import start_own
from spillover.model.errors import RunError

_log = logging.getLogger(__name__)

AUTO = "auto"
MODES = (AUTO, PROCESS, THREAD)
READ_BYTES = 65_536
YOUNG_DEATHS_MAX = 3
"""So many processes in a row that die before they say anything: a thread then."""
RESTART_S = 0.05
STILL_SHARE = 0.4
"""A process that renews may stand still for this share of a lease: longer than one call to Redis
may take, short enough for another one to renew."""
START_S_MAX = 5.0
"""The longest time that a process may take to begin: on a busy machine another one would not begin
any sooner."""


@dataclass(frozen=True, slots=True)
class RenewerStarted:
    """A renewer has started: a `process` (its pid), or a `thread`, and why no process."""

    kind: str
    pid: int | None
    why: str = ""


@dataclass(frozen=True, slots=True)
class RenewerEnded:
    """It ended though nobody asked it to; another one is started at once."""

    how: str


def call_safely(told: Callable[[Any], None], what: Any) -> None:
    """Call `told(what)`: whatever is wrong with who is told, this thread goes on."""
    try:
        told(what)
    except Exception:  # noqa: BLE001 - it is told in full
        _log.exception(Message("renewal event was not taken", event=repr(what)))


class Stillness:
    """How long a renewer has not moved, of the time that whoever watches it has seen pass."""

    def __init__(self, lease_s: float, tick_s: float, beat_s: float, now_s: float) -> None:
        """It is looked at each `tick_s` from now on. Its predecessor moved at `beat_s`."""
        limit_s = STILL_SHARE * lease_s
        self._limit_s = max(limit_s, START_S_MAX)
        self._limit_once_begun_s = limit_s
        self._look_s_max = 2.0 * tick_s
        self._seen_beat_s, self._watched_s = beat_s, now_s
        self._still_s = 0.0

    def is_too_long(self, beat_s: float, now_s: float) -> bool:
        """Returns whether it stands still. It last moved at `beat_s`."""
        # Between two looks no more than that: what stopped whoever watches may have stopped both.
        self._still_s += min(now_s - self._watched_s, self._look_s_max)
        self._watched_s = now_s
        if beat_s != self._seen_beat_s:
            self._seen_beat_s, self._still_s = beat_s, 0.0
            self._limit_s = self._limit_once_begun_s
        return self._still_s > self._limit_s


class Supervisor:
    """From its making, which starts what renews here and now, to `close`.

    In a thread of its own, `on_message` gets what is said of renewals (see `child`), and `on_event`
    RenewerStarted and RenewerEnded, and RenewalsEnded once there is no renewal on its way any more.
    """

    def __init__(
        self,
        plan: RenewalPlan,
        memory: LeaseMemory,
        tick_s: float,
        *,
        mode: str,
        on_message: Callable[[dict[str, Any]], None],
        on_event: Callable[[RenewerStarted | RenewerEnded | RenewalsEnded], None],
    ) -> None:
        self._plan = plan
        self._memory = memory
        self._tick_s = tick_s
        self._mode = mode
        self._on_message = on_message
        self._on_event = on_event
        self._lock = threading.RLock()
        self._begun = self._ending = False
        self._closing = threading.Event()
        self._unread = b""
        self._young_deaths = 0
        self._is_young = True
        self._why = ""
        self.worker: Worker | None = None
        """Whatever renews; None while there is nothing."""
        # The first one here and now: what the member does next may keep all its threads waiting.
        self._start()
        self._thread = threading.Thread(target=self._run, name="lease-renewal", daemon=True)

    def watch(self) -> None:
        """Begin to. Raises RunError if there is no room for a thread."""
        start_own(self._thread)

    def begin(self) -> None:
        with self._lock:
            self._begun, self._ending = True, False
            self._say(BEGIN)

    def end(self) -> None:
        """Renew nothing more."""
        with self._lock:
            self._begun, self._ending = False, True
            self._say(END)

    def close(self) -> None:
        """End whatever renews."""
        with self._lock:
            self._closing.set()
            worker = self.worker
            if worker is not None:
                worker.wake()
        if self._thread.ident is not None:
            if self._thread is not threading.current_thread():
                self._thread.join()
        elif worker is not None:
            self._see_off(worker, at_once=True)

    # --- its life --------------------------------------------------------------------------------

    def _run(self) -> None:
        worker = self.worker
        while not self._closing.is_set():
            if worker is None:
                worker = self._start()
            if worker is None:
                self._closing.wait(RESTART_S)
                continue
            call_safely(self._on_event, RenewerStarted(worker.kind, worker.pid, self._why))
            at_once = self._watch(worker)
            self._see_off(worker, at_once=at_once)
            worker = None
            if self._young_deaths:
                self._closing.wait(
                    min(RESTART_S * 2.0**self._young_deaths, self._plan.period_s / 2.0)
                )
        if worker is not None:
            self._see_off(worker, at_once=True)

    def _start(self) -> Worker | None:
        """Start a process, and return it; None means to try again a little later."""
        try:
            worker = self._started()
        except (OSError, RunError) as error:
            call_safely(self._on_event, RenewerEnded(str(error)))
            return None
        with self._lock:
            self.worker = worker
            self._unread, self._is_young = b"", True
            beat_s, now_s = self._memory.renewer_beat_s, lease_now_s()
            self._stillness = Stillness(self._plan.lease_s, self._tick_s, beat_s, now_s)
            if self._closing.is_set():
                worker.wake()
            elif self._begun:
                worker.say(BEGIN)
        return worker

    def _started(self) -> Worker:
        """A process, or a thread and why. Raises OSError, RunError."""
        self._why = "asked for" if self._mode == THREAD else ""
        if self._mode == AUTO and self._young_deaths >= YOUNG_DEATHS_MAX:
            self._why = f"{self._young_deaths} processes in a row ended as soon as they began"
        elif self._mode != THREAD:
            try:
                return start_process(self._plan, self._memory)
            except OSError as error:
                self._why = f"no process could be started: {error}"
                if self._mode == PROCESS:
                    raise OSError(self._why) from error
        return start_thread(self._plan, self._memory)

    def _watch(self, worker: Worker) -> bool:
        """Watch a worker until it ends. Returns True if it stands still and has to be ended."""
        waiting = select.poll()
        waiting.register(worker.link, select.POLLIN)
        while True:
            if waiting.poll(self._tick_s * 1000.0) and not self._read(worker):
                return False
            if self._stillness.is_too_long(self._memory.renewer_beat_s, lease_now_s()):
                return True

    def _see_off(self, worker: Worker, *, at_once: bool) -> None:
        with self._lock:
            self.worker = None
        how = worker.end(at_once=at_once)
        self._young_deaths = self._young_deaths + 1 if self._is_young else 0
        if self._closing.is_set():
            return
        call_safely(self._on_event, RenewerEnded("stood still" if at_once else how))
        self._tell_ended()

    # --- what it says ----------------------------------------------------------------------------

    def _read(self, worker: Worker) -> bool:
        """False at its end."""
        try:
            data = worker.link.recv(READ_BYTES)
        except OSError:
            return False
        *lines, self._unread = (self._unread + data).split(b"\n")
        for line in lines:
            self._is_young = False
            message = json.loads(line)
            if "ended" in message:
                self._tell_ended()
            self._on_message(message)
        return bool(data) and not self._closing.is_set()

    def _tell_ended(self) -> None:
        with self._lock:
            told, self._ending = self._ending, False
        if told:
            call_safely(self._on_event, RenewalsEnded())

    def _say(self, word: bytes) -> None:
        if self.worker is not None:
            self.worker.say(word)
