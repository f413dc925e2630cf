"""Processes in the place of nodes and producers, for what starts them and looks after them: they
are there in a moment, and say what a test has them say.

A test writes files into the directory `of`, each called after a node: `a.state` is what it tells of
itself, `a.config` of its configuration, `a.broken` what it says before it ends at its start,
`a.deaf` lets it overhear SIGTERM, `a.ending` is what it says at its end. It writes `a.told`: a line
of JSON for each of its starts, with its words and its environment.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

VARIABLE = "SCRIPTED_NODES"
PROGRAM = r"""
import json, os, re, signal, socket, sys

words, of = sys.argv[1:], os.environ["SCRIPTED_NODES"]

def given(option):
    return words[words.index(option) + 1]

def read(kind):
    try:
        with open(f"{of}/{name}.{kind}") as file:
            return file.read()
    except OSError:
        return None

def end(*_):
    if read("deaf") is None:
        if read("ending") is not None:
            print(read("ending"), flush=True)
        os._exit(0)

if "--cluster" in words:
    name = given("--cluster")
    with open(given("--topology")) as file:
        topology = file.read()
    address = rf"id: .?{name}\b[^}}]*?url: .?http://127.0.0.1:([0-9]+)"
    port = int(re.search(address, topology, re.S)[1])
    usual = {"cluster": name, "draining": False, "neighbors": [{"alive": True}]}
else:
    name = given("--id")
    port = int(given("--bind").rpartition(":")[2])
    usual = {"producer": name}
signal.signal(signal.SIGTERM, end)
signal.signal(signal.SIGHUP, lambda *_: print("heard a hangup", flush=True))
with open(f"{of}/{name}.told", "a") as file:
    file.write(json.dumps([words, dict(os.environ)]) + "\n")
if read("broken") is not None:
    status, _, last = read("broken").partition(" ")
    print(last, flush=True)
    os._exit(int(status))
listening = socket.create_server(("127.0.0.1", port))
while True:
    connection, _ = listening.accept()
    asked = connection.recv(65536).split(b" ")
    with open(f"{of}/{name}.asked", "ab") as file:
        file.write(b" ".join(asked[:2]) + b"\n")
    kind = "config" if asked[1:2] == [b"/admin/config"] else "state"
    body = (read(kind) or json.dumps(usual)).encode()
    head = b"HTTP/1.1 200 OK\r\nConnection: close\r\n"
    head += b"Content-Length: %d\r\n\r\n" % len(body)
    connection.sendall(head + body)
    connection.close()
"""


class ScriptedNodes:
    """What is said of them, and what they were told."""

    def __init__(self, of: Path) -> None:
        self.of = of

    def say(self, name, kind, what=""):
        """From now on."""
        new = self.of / f".{name}.{kind}"
        new.write_text(what if isinstance(what, str) else json.dumps(what), encoding="utf-8")
        new.replace(self.of / f"{name}.{kind}")

    def unsay(self, name, kind):
        (self.of / f"{name}.{kind}").unlink()

    def asked(self, name):
        """What it was asked, in order."""
        return (self.of / f"{name}.asked").read_text(encoding="utf-8").splitlines()

    def told(self, name):
        """[(words, environment)] of each start. A line that is being written is none yet."""
        text = (self.of / f"{name}.told").read_text(encoding="utf-8")
        return [tuple(json.loads(line)) for line in text.split("\n")[:-1]]


def scripted_nodes(directory, monkeypatch):
    """From now on `python -m spillover node` and `queue` start these; they are said of in a
    directory below this one, and testbeds keep to one, too."""
    of, temporary = directory / "scripted", directory / "temporary"
    of.mkdir()
    temporary.mkdir()
    (of / "node.py").write_text(PROGRAM, encoding="utf-8")
    program = of / "python"
    program.write_text(
        f'#!/bin/sh\nexec {sys.executable} -S -I {of}/node.py "$@"\n', encoding="utf-8"
    )
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    monkeypatch.setenv(VARIABLE, str(of))
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    return ScriptedNodes(of)
