"""Commands as their users see them: started as processes with their streams in files, watched from
outside, by HTTP on loopback and by /state, and ended by their pids. No rule of the product lives
here. All tests have the fixtures at the end (tests/conftest.py).
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from support.ports import free_ports, free_row
from support.process_table import Table, processes
from support.waiting import until

READY_S = 60.0
GONE_S = 20.0
"""For processes whose parent has ended: none of them waits for anything."""
LOOK_S = 0.04
"""Between two looks, which mostly ask a node: that costs it as much as several requests."""
INTERRUPTED = 130
"""The exit status of what was ended by a signal."""
SPILLOVER = (sys.executable, "-m", "spillover")
LOADGEN = (sys.executable, "-m", "spillover_loadgen")
ROW = 20
"""Clusters of the largest testbed."""
OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def ask(
    url: str, body: Any = None, headers: dict[str, str] | None = None, timeout_s: float = 10.0
) -> tuple[int, Any]:
    """GET, or POST of JSON: the status and the JSON that came back, whatever the status."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, headers or {})  # noqa: S310 - loopback only
    try:
        with OPENER.open(request, timeout=timeout_s) as response:
            return response.status, json.loads(response.read())
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read())


def is_balanced(state: dict[str, Any]) -> bool:
    """The two balances of a ledger (`core.overflow.ledger`), written out."""
    home, foreign = state["ledger"]["home"], state["ledger"]["foreign"]
    ends = ("done", "failed", "expired", "cancelled", "queued", "running", "away")
    foreign_ends = ("answered", "cancelled", "handed_on", "queued", "running")
    return home["accepted"] == sum(home[end] for end in ends) and foreign["received"] == sum(
        foreign[end] for end in foreign_ends
    )


def held(state: dict[str, Any]) -> int:
    """How many requests the cluster has in its hands, from clients and from neighbors."""
    home, foreign = state["ledger"]["home"], state["ledger"]["foreign"]
    return sum(home[entry] for entry in ("queued", "running", "away")) + sum(
        foreign[entry] for entry in ("queued", "running", "handed_on")
    )


@dataclass
class Running:
    """A command that was started, with its streams in files, and all that came of it."""

    process: subprocess.Popen[bytes]
    directory: Path
    seen: dict[int, str] = field(default_factory=dict)

    @property
    def stdout(self) -> str:
        return (self.directory / "stdout").read_text()

    @property
    def stderr(self) -> str:
        return (self.directory / "stderr").read_text()

    def look(self, table: Table | None = None) -> dict[int, str]:
        """The living descendants: command line by pid. All that were ever seen are remembered."""
        table = processes() if table is None else table
        found: dict[int, str] = {}
        parents = {self.process.pid}
        while parents:
            children = {pid: row for pid, row in table.items() if row[0] in parents}
            found.update({pid: command for pid, (_, command) in children.items()})
            parents = set(children)
        self.seen.update(found)
        return found

    def left(self, table: Table | None = None) -> dict[int, str]:
        """What still lives of all that was seen."""
        table = processes() if table is None else table
        return {
            pid: command
            for pid, command in self.seen.items()
            if pid in table and table[pid][1] == command
        }

    def nodes(self) -> dict[str, int]:
        """The pid of each cluster's node; of several each has its number behind a slash."""
        found = {}
        for pid, command in self.look().items():
            words = command.split()
            if "node" in words and "--cluster" in words:
                name = words[words.index("--cluster") + 1]
                if "--node" in words:
                    name += f"/{words[words.index('--node') + 1]}"
                found[name] = pid
        return found

    def ready(self, within_s: float = READY_S) -> dict[str, str]:
        """The line of `up --json`, once it is there; the url of each cluster."""
        until(lambda: self.stdout.endswith("\n") or self.process.poll() is not None, within_s)
        assert self.process.poll() is None, self.stderr
        self.look()
        urls: dict[str, str] = self.ready_line()["clusters"]
        return urls

    def ready_line(self) -> dict[str, Any]:
        """What `up --json` has said."""
        line: dict[str, Any] = json.loads(self.stdout)
        return line

    def result(self, within_s: float = 60.0, status: int = 0) -> dict[str, Any]:
        """The JSON object of a command that ends by itself, well unless another status is meant."""
        assert self.process.wait(within_s) == status, self.stderr
        assert self.stdout.count("\n") == 1
        value: dict[str, Any] = json.loads(self.stdout)
        return value

    def result_so_far(self, within_s: float = 60.0) -> dict[str, Any]:
        """The JSON object of a load that is ended here and now."""
        self.process.terminate()
        result = self.result(within_s, INTERRUPTED)
        assert result["interrupted"] is True
        return result

    def end(self, number: int = signal.SIGINT, within_s: float = 10.0) -> int:
        """Signal it, as a terminal does where that is SIGINT; its exit status."""
        self.look()
        if number == signal.SIGINT:
            os.killpg(self.process.pid, number)  # Ctrl-C is for the whole process group
        else:
            self.process.send_signal(number)
        return self.process.wait(within_s)

    def nothing_left(self) -> None:
        """Every process that came of it has gone, or soon has."""
        until(lambda: not self.left(), GONE_S, lambda: f"end of {self.left()}")

    def temporary_directories(self) -> list[Path]:
        """Where the nodes that were seen had their topology from, if that is still there."""
        words = [word for command in self.seen.values() for word in command.split()]
        files = {Path(word) for word in words if word.endswith("/topology.yaml")}
        return [file.parent for file in files if file.parent.exists()]

    def clean_up(self, table: Table) -> None:
        self.look(table)
        for pid in [self.process.pid] * (self.process.poll() is None) + list(self.left(table)):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait(10)
        for directory in self.temporary_directories():
            shutil.rmtree(directory)


# --- starting them ------------------------------------------------------------------------------

Start = Callable[..., Running]


@pytest.fixture
def start(tmp_path) -> Iterator[Start]:
    """`start(*command, cwd=..., stdin=...)`; what still runs at the end is killed by pid."""
    yield from _starting(tmp_path)


@pytest.fixture(scope="module")
def module_start(tmp_path_factory) -> Iterator[Start]:
    """The same for what serves all tests of a module."""
    yield from _starting(tmp_path_factory.mktemp("commands"))


def _starting(where: Path) -> Iterator[Start]:
    running: list[Running] = []

    def start_it(*command: str, cwd: Path = where, stdin: int = subprocess.DEVNULL) -> Running:
        directory = where / f"command-{len(running)}"
        directory.mkdir()
        with (directory / "stdout").open("wb") as out, (directory / "stderr").open("wb") as err:
            process = subprocess.Popen(
                command, cwd=cwd, stdin=stdin, stdout=out, stderr=err, process_group=0
            )
        running.append(Running(process, directory))
        return running[-1]

    yield start_it
    table = processes()
    for one in running:
        one.clean_up(table)


@pytest.fixture
def up(start) -> Callable[..., tuple[Running, dict[str, str]]]:
    """`up(topology, *options, within_s=..., cwd=...)`: a testbed that is ready, and its urls. At
    ports of its own: none that starts beside it takes the port of a node that was killed."""

    def up_it(
        topology: str, *options: str, within_s: float = READY_S, **where: Any
    ) -> tuple[Running, dict[str, str]]:
        file = Path(where.get("cwd", ".")) / topology
        if not (file.is_file() and "url:" in file.read_text()):
            options = ("--port", str(free_row(ROW)), *options)
        bed = start(*SPILLOVER, "up", topology, "--json", *options, **where)
        return bed, bed.ready(within_s)

    return up_it


@pytest.fixture
def generate(start) -> Callable[..., Running]:
    """`generate(urls, *options)`: the load generator under way, with `--json`."""

    def generate_it(urls: dict[str, str], *options: str) -> Running:
        targets = [word for c, url in urls.items() for word in ("--target", f"{c}={url}")]
        return start(*LOADGEN, "run", *targets, *options, "--json")

    return generate_it


@pytest.fixture
def spillover(start):
    """`spillover(*arguments)`: the command under way."""

    def spillover_it(*arguments: str, **where: Any) -> Running:
        return start(*SPILLOVER, *arguments, **where)

    return spillover_it


# --- the same as fixtures, which is how most tests ask for it -------------------------------------


@pytest.fixture(name="ask", scope="session")
def ask_fixture():
    return ask


@pytest.fixture(name="is_balanced", scope="session")
def is_balanced_fixture():
    return is_balanced


@pytest.fixture(name="held", scope="session")
def held_fixture():
    return held


@pytest.fixture(name="free_ports", scope="session")
def free_ports_fixture():
    return free_ports


@pytest.fixture(name="until", scope="session")
def until_fixture():
    return partial(until, every_s=LOOK_S)
