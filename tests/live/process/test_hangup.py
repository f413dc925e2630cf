"""SIGHUP has files read again, and ends nothing unless the terminal has gone."""

import asyncio
import errno
import logging
import os
import pty
import signal
import subprocess
import sys

import pytest

from spillover.live.process import hangup
from spillover.live.process.early_hangup import EarlyHangup, has_terminal, hold_hangups
from spillover.live.process.hangup import on_hangup
from spillover.live.process.stopping import StopSignals
from support.loop import turn, until

ITS_OWN_TERMINAL = """
import fcntl, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
"""
SERVICE = """
import asyncio
from spillover.live.process.hangup import on_hangup

async def main():
    told = asyncio.Queue()
    on_hangup([lambda: told.put_nowait("read again")], lambda: told.put_nowait("ended"))
    print("ready", flush=True)
    while (word := await told.get()) != "ended":
        print(word, flush=True)
    open("ended", "w").close()

asyncio.run(main())
"""


async def test_files_are_read_again():
    told = []
    on_hangup([lambda: told.append("one"), lambda: told.append("other")], told.clear)
    os.kill(os.getpid(), signal.SIGHUP)
    await until(lambda: told == ["one", "other"])


async def test_without_any_it_is_said_that_nothing_changes(caplog):
    caplog.set_level(logging.INFO, "spillover.live.process.hangup")
    on_hangup([], asyncio.current_task().cancel)
    os.kill(os.getpid(), signal.SIGHUP)
    await until(lambda: caplog.records)
    (record,) = caplog.records
    assert record.msg.words == "SIGHUP changes nothing: there are no files to be read again"


class Terminal:
    """That of this process, as far as a test says that it is there."""

    def __init__(self, monkeypatch):
        self.error = None
        self.opened = []
        self._open = os.open
        monkeypatch.setattr(os, "open", self.open)

    def open(self, path, flags, *more, **options):
        if path != "/dev/tty":
            return self._open(path, flags, *more, **options)
        if self.error is not None:
            raise OSError(self.error, "no terminal")
        self.opened.append(self._open(os.devnull, os.O_RDONLY))
        return self.opened[-1]


@pytest.fixture
def terminal(monkeypatch):
    return Terminal(monkeypatch)


@pytest.fixture(autouse=True)
def _as_before():
    """What a test has SIGHUP mean is no other's business."""
    before = signal.getsignal(signal.SIGHUP)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize(
    ("error", "is_there"),
    [(None, True), (errno.ENXIO, False), (errno.EIO, False), (errno.EACCES, True)],
)
def test_a_terminal_that_may_not_be_opened_is_there_all_the_same(terminal, error, is_there):
    terminal.error = error
    assert has_terminal() is is_there
    for opened in terminal.opened:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(opened)


@pytest.mark.parametrize("is_ignored", [False, True])
@pytest.mark.parametrize("is_there", [False, True])
def test_early_on_it_is_noted_and_ends_only_who_has_lost_its_terminal(
    terminal, monkeypatch, is_ignored, is_there
):
    """Whether there was one to count on is known from then: under `nohup` there is none."""
    ended = []
    monkeypatch.setattr(signal, "raise_signal", ended.append)
    terminal.error = None if is_there else errno.ENXIO
    signal.signal(signal.SIGHUP, signal.SIG_IGN if is_ignored else signal.SIG_DFL)
    hold_hangups()
    early = signal.getsignal(signal.SIGHUP)
    assert (early.had_terminal, early.came) == (is_there and not is_ignored, False)
    early(signal.SIGHUP, None)
    assert (early.came, ended) == (True, [])
    assert signal.getsignal(signal.SIGHUP) is early
    terminal.error = errno.EIO
    early(signal.SIGHUP, None)
    is_end = is_there and not is_ignored
    assert ended == ([signal.SIGHUP] if is_end else [])
    assert signal.getsignal(signal.SIGHUP) is (signal.SIG_DFL if is_end else early)


def early(*, had_terminal, came=False):
    made = EarlyHangup(had_terminal=had_terminal)
    made.came = came
    return made


@pytest.mark.parametrize(
    ("before", "at_start", "then", "ends"),
    [
        (signal.SIG_DFL, True, True, False),
        (signal.SIG_DFL, True, False, True),
        (signal.SIG_DFL, False, False, False),
        (signal.SIG_IGN, True, False, False),
        (early(had_terminal=True), True, True, False),
        (early(had_terminal=True), True, False, True),
        (early(had_terminal=False), True, False, False),
    ],
)
async def test_only_a_terminal_that_was_there_and_has_gone_is_the_end(
    terminal, before, at_start, then, ends
):
    """All else has files read again, once."""
    signal.signal(signal.SIGHUP, before)

    told = []
    terminal.error = None if at_start else errno.ENXIO
    on_hangup([lambda: told.append("read")], lambda: told.append("end"))
    await turn(0)
    assert told == []
    terminal.error = None if then else errno.EIO
    os.kill(os.getpid(), signal.SIGHUP)
    await until(lambda: told)
    assert told == (["end"] if ends else ["read"])


async def test_a_terminal_that_has_gone_asks_once_for_an_orderly_end(terminal):
    """The shell and the system each send SIGHUP. Only a signal after it means an end at once."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

    told = []
    StopSignals(told.append, lambda: told.append("at once"), 60.0).heed([])
    terminal.error = errno.EIO
    for number in (signal.SIGHUP, signal.SIGHUP, signal.SIGTERM):
        os.kill(os.getpid(), number)
        await turn(0.01)
    await until(lambda: "at once" in told)
    assert told == [signal.SIGTERM, "at once"]


async def test_one_that_came_early_counts_as_soon_as_it_can(terminal):
    signal.signal(signal.SIGHUP, early(had_terminal=False, came=True))

    told = []
    on_hangup([lambda: told.append("read")], lambda: told.append("end"))
    assert told == []
    await until(lambda: told == ["read"])


async def test_a_terminal_that_went_without_a_word_is_of_no_account(terminal, monkeypatch):
    """As after `disown`: it is looked for now and then, until it has gone."""
    monkeypatch.setattr(hangup, "LOOK_S", 0.001)

    told = []
    on_hangup([lambda: told.append("read")], lambda: told.append("end"))
    await until(lambda: len(terminal.opened) >= 3)
    terminal.error = errno.EIO
    await turn(0.05)
    looks = len(terminal.opened)
    terminal.error = None
    await turn(0.05)
    assert len(terminal.opened) == looks
    terminal.error = errno.EIO
    os.kill(os.getpid(), signal.SIGHUP)
    await until(lambda: told == ["read"])


@pytest.mark.processes
def test_a_terminal_that_has_gone_is_the_end(tmp_path):
    """As when a window is closed; while it is there SIGHUP means what it means elsewhere."""
    ours, theirs = pty.openpty()
    service = subprocess.Popen(
        [sys.executable, "-c", ITS_OWN_TERMINAL + SERVICE],
        stdin=theirs, stdout=subprocess.PIPE, cwd=tmp_path, start_new_session=True,
    )  # fmt: skip
    os.close(theirs)
    try:
        assert service.stdout.readline() == b"ready\n"
        service.send_signal(signal.SIGHUP)
        assert service.stdout.readline() == b"read again\n"
        os.close(ours)
        assert service.wait(20) == 0
        assert (tmp_path / "ended").exists()
    finally:
        service.kill()
        service.wait(5)
        service.stdout.close()
