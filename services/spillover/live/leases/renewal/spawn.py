"""Starting what renews: a process of its own, or a thread where none may be started."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import spillover
from spillover.live.leases.renewal.child import Renewal, pack_plan
from spillover.live.leases.renewal.memory import LeaseMemory
from spillover.live.leases.renewal.parent import NoParent
from spillover.live.leases.renewal.plan import RenewalPlan
from spillover.live.process.own_threads import start_own
from spillover.model.errors import RunError

PROCESS, THREAD = "process", "thread"
START_S = 2.0
END_S = 0.2
"""How long a process may take to end by itself. It has nothing to put in order."""

# Isolated and without site-packages: nothing but the standard library and this package.
_START = (
    "import sys; sys.path.insert(0, sys.argv[1]); "
    "from spillover.live.leases.renewal.child import main; main(sys.argv[2:])"
)


class Worker:
    """Whatever renews, and the member's end of the link to it."""

    def __init__(
        self, kind: str, link: socket.socket, process: subprocess.Popen[bytes] | None
    ) -> None:
        self.kind = kind
        self.link = link
        self._process = process

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    def say(self, word: bytes) -> None:
        """Never waits. What cannot be said is no matter: whatever does not listen is replaced."""
        try:
            self.link.send(word, socket.MSG_DONTWAIT)
        except OSError:
            return

    def wake(self) -> None:
        """Have whoever waits for the link see its end."""
        with contextlib.suppress(OSError):
            self.link.shutdown(socket.SHUT_RDWR)

    def end(self, *, at_once: bool = False) -> str:
        """Close the link, which ends it, and see it off: how it ended."""
        self.link.close()
        if self._process is None:
            return "a thread"
        if at_once:
            self._process.kill()
        try:
            code = self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        return f"signal {-code}" if code < 0 else f"exit status {code}"


def start_process(plan: RenewalPlan, memory: LeaseMemory) -> Worker:
    """Raises OSError if none can be started."""
    ours, theirs = socket.socketpair()
    with theirs:
        try:
            process = _popen(theirs.fileno(), memory.fd)
        except OSError:
            ours.close()
            raise
    worker = Worker(PROCESS, ours, process)
    try:
        ours.settimeout(START_S)
        ours.sendall(pack_plan(plan))
    except OSError as error:
        raise OSError(f"it ended at once: {worker.end(at_once=True)}") from error
    return worker


def start_thread(plan: RenewalPlan, memory: LeaseMemory) -> Worker:
    """Starts a thread that does the same work in this process: late whenever this process is busy.
    Raises RunError if there is no room for a thread."""
    ours, theirs = socket.socketpair()
    renewal = Renewal(plan, memory, theirs, NoParent())

    def run() -> None:
        with theirs:
            renewal.run()

    try:
        start_own(threading.Thread(target=run, name="lease-renewal", daemon=True))
    except RunError:
        ours.close()
        theirs.close()
        raise
    return Worker(THREAD, ours, None)


def _popen(link_fd: int, memory_fd: int) -> subprocess.Popen[bytes]:
    if not sys.executable:
        raise FileNotFoundError("no Python to start")
    root = str(Path(spillover.__file__).resolve().parents[1])
    numbers = [str(number) for number in (link_fd, memory_fd, os.getpid())]
    return subprocess.Popen(  # noqa: S603 - our own interpreter
        [sys.executable, "-I", "-S", "-c", _START, root, *numbers],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        pass_fds=(link_fd, memory_fd),
        cwd=os.sep,
    )
