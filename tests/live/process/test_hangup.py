"""SIGHUP has files read again, and ends nothing unless the terminal has gone."""

from __future__ import annotations

import asyncio
import logging
import os
import pty
import signal
import subprocess
import sys

import pytest

from spillover.live.process.hangup import on_hangup
from support.loop import until

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


def test_files_are_read_again():
    async def main():
        told = []
        on_hangup([lambda: told.append("one"), lambda: told.append("other")], told.clear)
        os.kill(os.getpid(), signal.SIGHUP)
        await until(lambda: told == ["one", "other"])

    asyncio.run(main())


def test_without_any_it_is_said_that_nothing_changes(caplog):
    caplog.set_level(logging.INFO, "spillover.live.process.hangup")

    async def main():
        on_hangup([], asyncio.current_task().cancel)
        os.kill(os.getpid(), signal.SIGHUP)
        await until(lambda: caplog.records)

    asyncio.run(main())
    (record,) = caplog.records
    assert record.msg.words == "SIGHUP changes nothing: there are no files to be read again"


@pytest.mark.processes
def test_under_nohup_nothing_ends(tmp_path):
    """Whatever becomes of the terminal; files are read again all the same."""
    ours, theirs = pty.openpty()
    ignoring = "import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN)"
    service = subprocess.Popen(
        [sys.executable, "-c", f"{ignoring}\n{ITS_OWN_TERMINAL}{SERVICE}"],
        stdin=theirs, stdout=subprocess.PIPE, cwd=tmp_path, start_new_session=True,
    )  # fmt: skip
    os.close(theirs)
    try:
        assert service.stdout.readline() == b"ready\n"
        os.close(ours)
        assert service.stdout.readline() == b"read again\n"
        service.send_signal(signal.SIGHUP)
        assert service.stdout.readline() == b"read again\n"
    finally:
        service.kill()
        service.wait(5)
        service.stdout.close()


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
