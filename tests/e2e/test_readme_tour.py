"""The README's tour, step by step as it is printed, in an empty directory.

Files are the blocks that begin with their name, and what follows a `cat`. What keeps running is
left running until the next one of its kind, or the end. Nothing here knows what a command should
print; that it does its work is told by its status, and by what the next one gets from it.
"""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TOUR = ROOT.joinpath("README.md").read_text().partition("## A tour")[2].partition("\n## ")[0]

STEP_S = 120.0

KEEPS_RUNNING = ("uvicorn ", "spillover up ", "spillover lease run ")

LOADGEN = (
    "spillover-loadgen run --target a=http://127.0.0.1:8101 --target b=http://127.0.0.1:8102 "
    "--workload poisson --rate 100 --duration-s "
)

POLICIES = (
    "spillover sim overflow --topology ring5 --workload bursts "
    "--compare isolated,paper,adaptive,shared"
)
FAST = "spillover sim overflow --topology chord20 --workload bursts --engine fast --plot times.png"
SHORTER = {
    f"{LOADGEN}10": f"{LOADGEN}2",
    POLICIES: f"{POLICIES} --duration-s 5",
    FAST: f"{FAST} --duration-s 5",
    "spillover reproduce --out figures": "spillover reproduce membership-2 --out figures",
}
"""The same, in less time: each has a test of its own that runs it whole."""

OWN_PORTS = "--port 18101"
"""Of its testbeds, which run beside those of other tests: where one of those has killed a node, the
first port that is free would be that node's."""

ELSEWHERE = ("docker ", "spillover lease demo")
"""Steps that tests/containers and tests/realtime/test_lease_demo.py run."""

JOBS = """
def serve(partition, epoch, stop_event):
    stop_event.wait()
"""


def blocks():
    """(language, text) of each fenced block of the tour, in order."""
    return re.findall(r"^```(\w+)\n(.*?)^```$", TOUR, re.MULTILINE | re.DOTALL)


def steps(text):
    """(command, what is printed below it) of a console block."""
    joined = text.replace("\\\n", "")
    for part in re.split(r"^\$ ", joined, flags=re.MULTILINE)[1:]:
        command, _, output = part.partition("\n")
        yield re.sub(r"\s{2,}# .*", "", command), output


class Shell:
    """Where the steps are taken: a directory, and what runs in it."""

    def __init__(self, directory, redis_url):
        self.directory = directory
        self.redis_url = redis_url
        self.running = {}
        self.urls = []
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        self.environment = {**os.environ, "PATH": path, "NO_PROXY": "127.0.0.1"}
        self.taken = []

    def take(self, command, output):
        self.taken.append(command)
        command = self._here(SHORTER.get(command, command))
        if command.startswith("cat "):
            self.directory.joinpath(command.split()[1]).write_text(output)
        elif command.startswith(KEEPS_RUNNING):
            self._start(command)
        else:
            return self._run(command)
        return ""

    def write(self, name, text):
        self.directory.joinpath(name).write_text(self._with_ports(text))

    def _with_ports(self, text):
        """With those that were free."""
        there = {f"http://127.0.0.1:{8101 + number}": url for number, url in enumerate(self.urls)}
        return re.sub(r"http://127\.0\.0\.1:81\d\d", lambda url: there[url[0]], text)

    def _here(self, command):
        """With the ports that were free, the Redis of the test, and without asking other hosts."""
        command = self._with_ports(command)
        command = command.replace("redis://127.0.0.1/0", self.redis_url)
        command = re.sub(r"^spillover up \S+", rf"\g<0> {OWN_PORTS}", command)
        return command.replace("curl ", "curl -sS --fail-with-body ", 1)

    def _run(self, command):
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=self.directory,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=STEP_S,
            check=False,
        )
        assert done.returncode == 0, (command, done.stdout[-2000:], done.stderr[-2000:])
        assert "Traceback" not in done.stderr
        return done.stdout

    def _start(self, command):
        kind = " ".join(command.split()[:2]) if command.startswith("spillover") else "uvicorn"
        self.end(kind)
        log = self.directory / f"{kind.replace(' ', '-')}.log"
        with log.open("w") as told:
            process = subprocess.Popen(
                shlex.split(command),
                cwd=self.directory,
                env=self.environment,
                stdout=told,
                stderr=subprocess.STDOUT,
                executable=shutil.which(command.split()[0], path=self.environment["PATH"]),
            )
        self.running[kind] = process
        limit_s = time.monotonic() + STEP_S
        while not (ready := self._ready(kind, log.read_text())):
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < limit_s, log.read_text()
            time.sleep(0.05)
        if kind == "spillover up":
            self.urls = ready

    def _ready(self, kind, told):
        if kind == "uvicorn":
            return "Application startup complete" in told
        if kind == "spillover lease":
            return '"acquired"' in told
        urls = re.findall(r"^cluster \S+ +(http://\S+)$", told, re.MULTILINE)
        return urls if "Ctrl-C" in told or len(urls) > 1 else []

    def end(self, kind):
        process = self.running.pop(kind, None)
        if process is not None:
            process.send_signal(signal.SIGTERM)
            process.wait(STEP_S)


@pytest.fixture
def shell(tmp_path, redis_server, require):
    """A directory with what the tour takes for granted: the checkout's traces, and a module of the
    user's."""
    require(shutil.which("curl"), "curl on the PATH (Debian: apt-get install curl)")
    tmp_path.joinpath("jobs.py").write_text(JOBS)
    shutil.copytree(ROOT / "loadgen" / "traces", tmp_path / "loadgen" / "traces")
    taking = Shell(tmp_path, redis_server.url)
    yield taking
    for kind in list(taking.running):
        taking.end(kind)


@pytest.mark.timeout(900)
def test_the_tour(shell):
    """Every step ends well, and the answers are those of the user's own service."""
    told = {}
    for language, text in blocks():
        if language == "console":
            for command, output in steps(text):
                if not command.startswith(ELSEWHERE):
                    told[command] = shell.take(command, output)
        else:
            name = re.match(r"# (\S+)", text)
            assert name is not None, text
            shell.write(name[1], text)
    answers = [json.loads(said) for command, said in told.items() if "again and again" in command]
    assert [answer["result"] for answer in answers] == [{"words": 3}]
    assert told["python ask.py"] == "300 {'words': 4}\n"
    assert len(shell.taken) >= 19
    assert shell.directory.joinpath("times.png").exists()
    assert shell.directory.joinpath("figures").is_dir()
    assert shell.directory.joinpath("two", "compose.yaml").exists()
