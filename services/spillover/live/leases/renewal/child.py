"""The life of the process that renews (or, where none may be started, of the thread).

It begins to renew when told to, renews once a period, tries again soon after a failure, and ends
with its member. It says what it did, one JSON object a line, and never waits for the member to
read it: what could not be said is in the memory, too, or comes again with the next renewal.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import sys

from spillover.live.leases.renewal.clock import lease_now_s
from spillover.live.leases.renewal.guard import ProgressGuard
from spillover.live.leases.renewal.memory import LeaseMemory
from spillover.live.leases.renewal.parent import NoParent, Parent
from spillover.live.leases.renewal.plan import RenewalPlan
from spillover.live.leases.renewal.rounds import Rounds

BEGIN, END = b"b", b"e"
"""The member's messages after the plan: renew from now on, or no more."""

JITTER = 0.1
"""Periods are shorter by up to this share, never longer: the relations of the times count on it."""

RETRIES_PER_PERIOD = 8.0
LOOKS_PER_PERIOD = 8.0
LOOK_S_MAX = 0.5
UNSAID_MAX = 1_000


class Renewal:
    """One process's work."""

    def __init__(
        self, plan: RenewalPlan, memory: LeaseMemory, link: socket.socket, parent: Parent | NoParent
    ) -> None:
        self._plan = plan
        self._memory = memory
        self._link = link
        self._parent = parent
        self._rounds = Rounds(plan, memory)
        self._guard = ProgressGuard(memory, plan.max_progress_s, plan.lease_s)
        self._due_s: float | None = None
        self._look_s = min(LOOK_S_MAX, plan.period_s / LOOKS_PER_PERIOD)
        if plan.max_progress_s is not None:
            self._look_s = min(self._look_s, plan.max_progress_s / 4.0)
        self._looked_s = self._awake_since_s = lease_now_s()
        self._resumed_s = 0.0
        self._is_stopped = False
        self._hung: list[tuple[int, int]] = []
        self._unsaid: list[bytes] = []

    def run(self) -> None:
        """Renew until the member closes the link, or is gone."""
        waiting = select.poll()
        waiting.register(self._link, select.POLLIN)
        self._link.settimeout(0.0)
        while not self._parent.is_gone():
            now_s = lease_now_s()
            self._memory.beat_renewer(now_s)
            self._look(now_s)
            if not self._is_stopped:
                self._work(now_s)
            self._flush()
            wait_s = self._look_s
            if self._due_s is not None and not self._is_stopped:
                wait_s = min(wait_s, self._due_s - lease_now_s())
            if waiting.poll(max(0.0, wait_s * 1000.0)) and not self._heard():
                break
        self._rounds.close()

    def _look(self, now_s: float) -> None:
        """Look whether the member runs. Progress that was missed while it or this process did not
        run is not held against its handlers."""
        self._is_stopped = self._parent.is_stopped()
        if self._is_stopped:
            self._resumed_s = now_s
        gap_s = now_s - self._looked_s
        if self._is_stopped or gap_s > 4.0 * self._look_s + self._plan.timeout_s:
            self._awake_since_s = now_s
        self._looked_s = now_s

    def _work(self, now_s: float) -> None:
        held = self._memory.held()
        hung = self._guard.hung(held, now_s, self._awake_since_s)
        if hung != self._hung:
            self._hung = hung
            self._say({"hung": hung})
        if self._due_s is None or now_s < self._due_s:
            return
        late_s = now_s - max(self._due_s, self._resumed_s)
        message = self._rounds.renew([pair for pair in held if pair not in hung])
        done_s = lease_now_s()
        period_s = self._plan.period_s
        if "problem" in message:
            self._due_s = done_s + period_s / RETRIES_PER_PERIOD * (1.0 - _random())
        else:
            self._due_s = now_s + period_s * (1.0 - JITTER * _random())
        self._say(message | {"late_s": late_s, "hung": hung})

    def _heard(self) -> bool:
        """Read the member's messages, and return False at its end."""
        try:
            said = self._link.recv(4096)
        except BlockingIOError:
            return True
        except OSError:
            return False
        for word in (said[i : i + 1] for i in range(len(said))):
            if word == BEGIN:
                self._due_s = lease_now_s()
            elif word == END:
                self._due_s = None
                self._say({"ended": True})
        return bool(said)

    def _say(self, message: dict[str, object]) -> None:
        self._unsaid.append(json.dumps(message).encode() + b"\n")
        if len(self._unsaid) > UNSAID_MAX:
            del self._unsaid[1]  # the first may have left in part

    def _flush(self) -> None:
        try:
            while self._unsaid:
                sent = self._link.send(self._unsaid[0])
                if sent < len(self._unsaid[0]):
                    self._unsaid[0] = self._unsaid[0][sent:]
                else:
                    del self._unsaid[0]
        except OSError:
            return  # full, or closed: the next read tells


def read_plan(link: socket.socket) -> RenewalPlan:
    """Its length in ten digits, then itself. Raises EOFError if the member ended before that."""
    size = _exactly(link, 10)
    return RenewalPlan(**json.loads(_exactly(link, int(size))))


def pack_plan(plan: RenewalPlan) -> bytes:
    """Returns what `read_plan` reads."""
    text = json.dumps(plan.as_dict()).encode()
    return b"%010d" % len(text) + text


def _exactly(link: socket.socket, size: int) -> bytes:
    data = link.recv(size, socket.MSG_WAITALL)
    if len(data) < size:
        raise EOFError
    return data


def main(arguments: list[str]) -> None:
    """Arguments: the file descriptors of the link and of the memory, the member's process id."""
    for stop in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(stop, lambda *_: None)  # how a member ends is its own business
    link = socket.socket(fileno=int(arguments[0]))
    try:
        plan = read_plan(link)
    except EOFError:
        return
    memory = LeaseMemory(plan.partitions, int(arguments[1]))
    Renewal(plan, memory, link, Parent(int(arguments[2]))).run()


def _random() -> float:
    """Below 1. The module `random` is a megabyte that this process does without."""
    return os.urandom(1)[0] / 256.0


if __name__ == "__main__":
    main(sys.argv[1:])
