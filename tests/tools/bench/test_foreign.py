"""Programs of others beside which benchmarks stand: started on a socket of ours, waited for, and
ended with the benchmark."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from spillover.live.http.client import HttpClient
from spillover.live.process.listening import bind_socket
from spillover.model.errors import InputError, RunError
from spillover.tools.bench import foreign
from spillover.tools.bench.foreign import foreign_server
from spillover.tools.bench.haproxy import find_haproxy, haproxy_relay
from spillover.tools.bench.nginx import find_nginx, nginx_relay
from spillover.tools.bench.queue import rabbitmq
from spillover.tools.bench.servers import READY_WITHIN_S
from support.scripted_server import answer, scripted

pytestmark = pytest.mark.processes

SERVES = """
import os, socket, sys
listening = socket.socket(fileno=int(sys.argv[1]))
for status in (b"503 Not Yet", b"503 Not Yet", b"200 OK", b"200 OK"):
    client, _ = listening.accept()
    client.recv(4096)
    body = b"%d" % os.getpid()
    client.send(b"HTTP/1.1 %b\\r\\nConnection: close\\r\\nContent-Length: %d\\r\\n\\r\\n%b"
                % (status, len(body), body))
    client.close()
listening.accept()
"""


def limited(coroutine):
    return asyncio.run(asyncio.wait_for(coroutine, 40.0))


async def get(url):
    client = HttpClient(url)
    try:
        return await client.request("GET", "/x", timeout_s=10.0)
    finally:
        await client.close()


def test_a_program_is_there_once_it_answers_well_and_gone_in_the_end(monkeypatch):
    """It has our socket, which is closed here; whoever asks is told its process. Proxies that the
    user goes by are not asked."""
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)

    async def main():
        with bind_socket("127.0.0.1", 0) as listening:
            port = listening.getsockname()[1]
            command = (sys.executable, "-c", SERVES, str(listening.fileno()))
            async with foreign_server("it", command, listening) as server:
                assert listening.fileno() == -1
                said = await get(server.url)
                process, session = psutil.Process(server.pid), os.getsid(server.pid)
            return port, server, said, process, session

    port, server, said, process, session = limited(main())
    assert server.url == f"http://127.0.0.1:{port}"
    assert (said.status, int(said.body)) == (200, server.pid)
    assert server.pid != os.getpid()
    assert session != os.getsid(0), "Ctrl-C is for the benchmark, which ends it"
    psutil.wait_procs([process], timeout=10.0)
    assert not process.is_running()


@pytest.mark.parametrize("command", [("false",), ("no-such-program",)])
def test_a_program_that_ends_has_not_started(command):
    """Which is told then, not when it should have been ready: its shell still has the socket, so
    that the first question to it goes unanswered."""

    async def main():
        with bind_socket("127.0.0.1", 0) as listening:
            async with foreign_server("It", command, listening):
                pass

    began_s = time.monotonic()
    with pytest.raises(RunError, match="It did not start"):
        limited(main())
    assert time.monotonic() - began_s < READY_WITHIN_S - 5.0


def test_a_program_of_which_nothing_is_left_has_ended():
    """Where nobody waits for it, not even a trace is."""
    assert foreign._has_ended(2**22 + 1)
    assert not foreign._has_ended(os.getpid())


@pytest.mark.parametrize(
    ("find", "relay", "options"),
    [(find_haproxy, haproxy_relay, ("timeout tunnel 7s",)), (find_nginx, nginx_relay, ())],
    ids=["HAProxy", "nginx"],
)
def test_a_relay_passes_what_comes_to_a_server(require, find, relay, options):
    require(find(), "the relay is not installed")

    async def main():
        async with scripted(answer(200, b"from behind")) as server:
            async with relay(server.url, *options) as passing:
                said = await get(passing.url)
                process = psutil.Process(passing.pid)
                command = " ".join(process.cmdline())
            server.hang_up()
            port = int(passing.url.rpartition(":")[2])
            return said, port, command, process, [line for line, _ in server.seen]

    said, port, command, process, seen = limited(main())
    assert (said.status, said.body) == (200, b"from behind")
    assert port >= 1024, "a free one, which nobody needs to be root for"
    assert seen[-1] == "GET /x"
    assert "haproxy" in command or "nginx" in command
    psutil.wait_procs([process], timeout=10.0)
    assert not process.is_running()


def test_a_relay_that_is_not_installed_says_how_to_get_it(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(foreign, "SYSTEM_DIRECTORIES", ())

    async def main(relay):
        async with relay("http://x"):
            pass

    with pytest.raises(InputError, match=r"haproxy: expected it on the PATH, got none \(Debian"):
        limited(main(haproxy_relay))
    with pytest.raises(InputError, match="nginx: expected it on the PATH, got none"):
        limited(main(nginx_relay))


LISTENS = """
import socket, sys
with socket.create_server(("127.0.0.1", int(sys.argv[1]))):
    sys.stdin.read()
"""


def waited_for(tmp_path, port, code):
    """Whether it still runs then, if it is said to be there; and in what time."""
    log = tmp_path / "log"
    log.write_text("it begins\nno cookie\n")
    began_s = time.monotonic()
    command = [sys.executable, "-c", code, str(port)]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        try:
            rabbitmq._wait_until_up(process, port, log)
        finally:
            took_s = time.monotonic() - began_s
            status = process.poll()
            process.kill()
    return status is None, took_s


def test_a_broker_is_there_once_it_takes_connections(tmp_path):
    (port,) = rabbitmq._free_ports(1)
    runs, took_s = waited_for(tmp_path, port, LISTENS)
    assert runs
    assert took_s < rabbitmq.READY_WITHIN_S - 5.0


def test_a_broker_that_ends_or_takes_too_long_has_not_started(monkeypatch, tmp_path):
    """Its last words are told: at once if it has ended."""
    (port,) = rabbitmq._free_ports(1)
    began_s = time.monotonic()
    with pytest.raises(RunError, match=r"^rabbitmq-server does not start: no cookie$"):
        waited_for(tmp_path, port, "")
    assert time.monotonic() - began_s < rabbitmq.READY_WITHIN_S - 5.0
    monkeypatch.setattr(rabbitmq, "READY_WITHIN_S", 0.3)
    began_s = time.monotonic()
    with pytest.raises(RunError, match=r"^rabbitmq-server does not start: no cookie$"):
        waited_for(tmp_path, port, "import sys; sys.stdin.read()")
    assert 0.3 <= time.monotonic() - began_s < 20.0


BROKER = """
import json, os, re, socket, subprocess, sys
from pathlib import Path

told = {name: os.environ[name] for name in os.environ if name.startswith(("RABBITMQ", "ERL"))}
settings = Path(os.environ["RABBITMQ_CONFIG_FILE"] + ".conf").read_text()
port = re.fullmatch(r"listeners.tcp.1 = 127.0.0.1:(\\d+)\\n", settings)
if "FAILS" in os.environ:
    sys.exit("no cookie")
home = Path(os.environ["HOME"])
(home / "beam.smp").symlink_to(os.environ["SLEEP"])
broker = subprocess.Popen([home / "beam.smp", "600"])
Path(os.environ["TELLS"]).write_text(json.dumps(told | {"HOME": str(home), "pid": broker.pid}))
with socket.create_server(("127.0.0.1", int(port[1]))):
    broker.wait()
"""
"""What a broker's script does that counts here: it goes by its settings, listens, and is another
process than the broker."""


@pytest.fixture
def broker(monkeypatch, tmp_path):
    """Where a script in place of `rabbitmq-server` tells what it was told; `epmd` beside it."""
    monkeypatch.setenv("SLEEP", shutil.which("sleep"))
    monkeypatch.setenv("TELLS", str(tmp_path / "told"))
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    (tmp_path / "broker.py").write_text(BROKER)
    server = f'"{sys.executable}" "{tmp_path / "broker.py"}"; exit $?'
    daemon = f'echo "$@" > "{tmp_path / "daemon"}"; exec sleep 600'
    for name, does in (("rabbitmq-server", server), ("epmd", daemon)):
        (tmp_path / name).write_text(f"#!/bin/sh\n{does}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setattr(rabbitmq, "SCRIPT", tmp_path / "none")
    return tmp_path


def test_a_broker_has_ports_and_a_directory_of_its_own_that_go_with_it(broker):
    """Its process is that of Erlang, not of the script."""
    before = psutil.Process().children(recursive=True)
    with rabbitmq.own_rabbitmq() as (url, pid):
        told = json.loads((broker / "told").read_text())
        processes = set(psutil.Process().children(recursive=True)) - set(before)
    port = re.fullmatch(r"amqp://guest:guest@127\.0\.0\.1:(\d+)/", url)[1]
    names = told["ERL_EPMD_PORT"]
    assert told["pid"] == pid
    assert len({port, names, told["RABBITMQ_DIST_PORT"]}) == 3
    assert (broker / "daemon").read_text() == f"-port {names} -address 127.0.0.1\n"
    assert told["RABBITMQ_NODENAME"] == f"bench{names}@localhost"
    assert told["ERL_EPMD_ADDRESS"] == "127.0.0.1"
    assert "inet_dist_use_interface {127,0,0,1}" in told["RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS"]
    ends = ("MNESIA_BASE", "LOG_BASE", "CONFIG_FILE", "ENABLED_PLUGINS_FILE", "PID_FILE")
    places = {told[f"RABBITMQ_{end}"] for end in ends}
    assert len(places) == 5
    assert all(place.startswith(f"{told['HOME']}/") for place in places)
    assert not Path(told["HOME"]).exists()
    assert pid in {process.pid for process in processes}
    _, left = psutil.wait_procs(processes, timeout=10.0)
    assert left == []


def test_a_broker_that_does_not_start_says_why(broker, monkeypatch):
    monkeypatch.setenv("FAILS", "yes")
    with (
        pytest.raises(RunError, match=r"^rabbitmq-server does not start: no cookie$"),
        rabbitmq.own_rabbitmq(),
    ):
        pass
    assert not (broker / "told").exists()


def test_what_goes_over_loopback_is_counted():
    """Others may send as well."""

    async def main():
        begin = await rabbitmq.bytes_on_loopback()
        with (
            socket.create_server(("127.0.0.1", 0)) as listening,
            socket.create_connection(listening.getsockname()) as ours,
            listening.accept()[0],
        ):
            ours.sendall(bytes(50_000))
        return await rabbitmq.bytes_on_loopback() - begin

    assert limited(main()) >= 50_000.0
