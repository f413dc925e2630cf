"""What is typed at the terminal of a command that other jobs of a shell may be in front of."""

import json
import os
import pty
import sys
from contextlib import ExitStack
from select import select

import pytest

pytestmark = pytest.mark.processes

LIMIT_S = 20.0

COMMAND = """
import asyncio, sys
from spillover.cli import typed_lines
typed_lines.LOOK_AGAIN_S = 0.05
looked, in_front = [], typed_lines._in_foreground

def look(terminal):
    looked.append(in_front(terminal))
    if looked == [False]:
        print("behind", flush=True)
    return looked[-1]

typed_lines._in_foreground = look

async def main():
    heard = asyncio.Queue()
    with typed_lines.typed_lines(heard.put_nowait) as is_there:
        print(is_there, flush=True)
        for _ in range(2):
            print(await heard.get(), flush=True)

asyncio.run(main())
"""

SHELL = """
import json, os, signal, subprocess, sys
go, told = map(int, sys.argv[1:3])
say = lambda what: os.write(told, json.dumps(what).encode() + b"\\n")
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
command = [sys.executable, "-c", sys.argv[3]]
job = subprocess.Popen(command, process_group=0, text=True, stdout=subprocess.PIPE)
for _ in range(2):
    say(job.stdout.readline().strip())
os.read(go, 1)
say(os.waitpid(job.pid, os.WNOHANG | os.WUNTRACED)[1])
os.tcsetpgrp(0, job.pid)
say([job.stdout.readline().strip(), job.stdout.readline().strip()])
say(job.wait())
"""


class Shell:
    """A terminal, and in it a shell that has begun the command behind itself."""

    def __init__(self, ends):
        go, self._go = os.pipe()
        self._told, told = os.pipe()
        for one in (go, told):
            os.set_inheritable(one, True)
        pid, self.terminal = pty.fork()
        if pid == 0:
            words = [sys.executable, "-c", SHELL, str(go), str(told), COMMAND]
            os.execv(sys.executable, words)  # noqa: S606 - no shell is the point
        for one in (go, told):
            os.close(one)
        ends.callback(os.waitpid, pid, 0)
        for one in (self._go, self._told, self.terminal):
            ends.callback(os.close, one)
        self._lines = os.fdopen(os.dup(self._told))
        ends.callback(self._lines.close)

    def says(self):
        """What it tells next."""
        assert select([self._told], [], [], LIMIT_S)[0], "the shell says nothing"
        return json.loads(self._lines.readline())

    def put_in_front(self):
        os.write(self._go, b"x")

    def type(self, text):
        os.write(self.terminal, text)


def test_what_is_typed_counts_once_the_command_is_in_front():
    """It is not stopped for what is typed while it is behind others, nor takes their lines."""
    with ExitStack() as ends:
        shell = Shell(ends)
        assert shell.says() == "True"
        shell.type(b"  one \n")
        assert shell.says() == "behind"
        shell.put_in_front()
        assert shell.says() == 0  # neither ended nor stopped
        shell.type(b"tw\xf6\n")  # no UTF-8: taken all the same, for what it cannot be
        assert shell.says() == ["one", "tw\N{REPLACEMENT CHARACTER}"]
        assert shell.says() == 0
